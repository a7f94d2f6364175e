"""A REST catalog behind TLS that asks for a client certificate."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyspark.sql import SparkSession
from servers.faulty_proxy import faulty_proxy

from frazil.errors import CatalogUnavailable, ConfigError
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.catalogs.rest import declares_transactions
from frazil.iceberg.catalogs.settings import Tls

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@dataclass(frozen=True)
class Issued:
    certificate: Path
    key: Path


class Authority:
    """Issues certificates into a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._key = directory, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
        own = self._signed(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=None))
        self.certificate = directory / "ca.pem"
        self.certificate.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        issued = Issued(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        certificate = self._signed(subject, key.public_key(), address)
        issued.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return issued

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number()).add_extension(extension, critical=False)
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        return builder.sign(self._key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded_uri(rest_uri: str, authority: Authority) -> Iterator[str]:
    server = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with faulty_proxy(rest_uri, context) as proxy:
        yield proxy.uri


def settings(name: str, uri: str, tls: Tls | None) -> CatalogSettings:
    return CatalogSettings(
        name=name, type=CatalogType.REST, uri=uri, tls=tls, properties={"rest.client.max-retries": "1"}
    )


def test_a_server_is_verified_and_asked_with_a_certificate(
    spark: SparkSession, guarded_uri: str, authority: Authority
) -> None:
    """In this order, since the certificates of a session stay."""
    with pytest.raises(CatalogUnavailable, match=r"127\.0\.0\.1") as caught:
        open_catalog(spark, settings("unverified", guarded_uri, None))
    assert "tls.ca" in caught.value.hint
    with pytest.raises(CatalogUnavailable):
        open_catalog(spark, settings("uncertified", guarded_uri, Tls(ca=str(authority.certificate))))
    client = authority.issue("client")
    tls = Tls(ca=str(authority.certificate), certificate=str(client.certificate), key=str(client.key))
    assert declares_transactions(open_catalog(spark, settings("certified", guarded_uri, tls)))


def test_files_that_are_no_certificates_are_named(spark: SparkSession, guarded_uri: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(ConfigError, match=name):
            open_catalog(spark, settings("broken", guarded_uri, Tls(ca=str(tmp_path / name))))


def test_a_key_that_java_cannot_read_is_named_with_the_way_to_convert_it(
    spark: SparkSession, guarded_uri: str, authority: Authority, tmp_path: Path
) -> None:
    client = authority.issue("other")
    (tmp_path / "old.key").write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    tls = Tls(certificate=str(client.certificate), key=str(tmp_path / "old.key"))
    with pytest.raises(ConfigError, match=r"old\.key") as caught:
        open_catalog(spark, settings("old_key", guarded_uri, tls))
    assert "pkcs8" in caught.value.hint
