"""Certificates of catalogs: authorities to trust, and who we are by mTLS.

    PEM files --read in the JVM--> key store (who we are) + trust store (Java's own authorities and ours)
                                        `--> SSLContext --> the JVM's default

iceberg-java's HTTP client takes the JVM's default SSL context; a class of one's own would need a jar. So the context is
shared by everything in the driver that speaks TLS: it trusts what Java trusts and the configured authorities, and shows
a certificate only to a server that asks for one of its issuer. Verification is never turned off.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from frazil.iceberg.catalogs.settings import Tls

_PRIVATE_KEY = re.compile(r"-----BEGIN PRIVATE KEY-----(?P<body>[A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----")
_KINDS_OF_KEYS = ("RSA", "EC", "Ed25519")
_IN_MEMORY = "frazil"
_installed: dict[str, list[Tls]] = {}


def install(spark: SparkSession, tls: Tls) -> None:
    """Makes the JVM use these certificates, besides those of other catalogs. Raises ConfigError naming the file."""
    known = _installed.setdefault(spark.sparkContext.applicationId, [])
    if tls in known:
        return
    jvm = spark._jvm
    wanted = [*known, tls]
    keys, trusted = _key_store(jvm), _java_authorities(jvm)
    for number, each in enumerate(wanted):
        if each.ca is not None:
            for place, authority in enumerate(_certificates(jvm, each.ca)):
                trusted.setCertificateEntry(f"frazil-{number}-{place}", authority)
        if each.certificate is not None and each.key is not None:
            _add_identity(spark, keys, f"frazil-{number}", each.certificate, each.key)
    managers = jvm.javax.net.ssl.KeyManagerFactory.getInstance(
        jvm.javax.net.ssl.KeyManagerFactory.getDefaultAlgorithm()
    )
    managers.init(keys, _password(spark))
    trust = jvm.javax.net.ssl.TrustManagerFactory.getInstance(
        jvm.javax.net.ssl.TrustManagerFactory.getDefaultAlgorithm()
    )
    trust.init(trusted)
    context = jvm.javax.net.ssl.SSLContext.getInstance("TLS")
    context.init(managers.getKeyManagers(), trust.getTrustManagers(), None)
    jvm.javax.net.ssl.SSLContext.setDefault(context)
    known.append(tls)


def forget_certificates() -> None:
    """Of a session that is gone."""
    _installed.clear()


def _key_store(jvm: Any) -> Any:
    store = jvm.java.security.KeyStore.getInstance("PKCS12")
    store.load(None, None)
    return store


def _java_authorities(jvm: Any) -> Any:
    """A store with every authority that Java trusts by itself."""
    home = jvm.java.lang.System.getProperty("java.home")
    path = jvm.java.lang.System.getProperty("javax.net.ssl.trustStore") or f"{home}/lib/security/cacerts"
    store = jvm.java.security.KeyStore.getInstance("JKS")  # Java finds out by itself if it is PKCS12
    try:
        store.load(jvm.java.io.FileInputStream(path), None)
    except Py4JJavaError as error:
        raise ConfigError(
            f"Java's own authorities in {path} cannot be read: {error.java_exception.getMessage()}",
            hint="install a Java with its authorities, or set spark.conf spark.driver.extraJavaOptions to "
            "-Djavax.net.ssl.trustStore=...",
        ) from None
    return store


def _certificates(jvm: Any, path: str) -> list[Any]:
    factory = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    try:
        stream = jvm.java.io.ByteArrayInputStream(_read(path))
        found = list(factory.generateCertificates(stream))
    except Py4JJavaError as error:
        raise ConfigError(
            f"{path} holds no certificates that Java can read: {error.java_exception.getMessage()}",
            hint="tls.ca and tls.certificate must be PEM files: -----BEGIN CERTIFICATE-----",
        ) from None
    if not found:
        raise ConfigError(f"{path} holds no certificate", hint="it must be PEM: -----BEGIN CERTIFICATE-----")
    return found


def _add_identity(spark: SparkSession, store: Any, alias: str, certificate: str, key: str) -> None:
    jvm = spark._jvm
    chain = _certificates(jvm, certificate)
    array = spark.sparkContext._gateway.new_array(jvm.java.security.cert.Certificate, len(chain))
    for place, entry in enumerate(chain):
        array[place] = entry
    store.setKeyEntry(alias, _private_key(jvm, key), _password(spark), array)


def _private_key(jvm: Any, path: str) -> Any:
    found = _PRIVATE_KEY.search(_read(path).decode("ascii", "replace"))
    hint = "it must be PEM in PKCS#8, not encrypted: openssl pkcs8 -topk8 -nocrypt -in key.pem -out key8.pem"
    if found is None:
        raise ConfigError(f"{path} holds no private key that can be used", hint=hint)
    spec = jvm.java.security.spec.PKCS8EncodedKeySpec(base64.b64decode(found["body"]))
    for kind in _KINDS_OF_KEYS:
        try:
            return jvm.java.security.KeyFactory.getInstance(kind).generatePrivate(spec)
        except Py4JJavaError:
            continue
    raise ConfigError(f"{path} holds a private key of a kind that Java does not know", hint=hint)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="check the paths under catalog.tls and their permissions"
        ) from error


def _password(spark: SparkSession) -> Any:
    """Java protects keys in a store by a password, also one that never leaves its memory."""
    array = spark.sparkContext._gateway.new_array(spark._jvm.char, len(_IN_MEMORY))
    for place, letter in enumerate(_IN_MEMORY):
        array[place] = letter
    return array
