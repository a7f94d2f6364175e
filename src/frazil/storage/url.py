"""Where an object lies, by its URL.

    s3://bucket/key   s3a://   s3n://                     S3 and compatibles
    gs://bucket/key   gcs://                              Google Cloud Storage
    abfss://container@account.host/key   wasbs://         Azure, with the account in the URL
    az://container/key   azure://   adl://                Azure, with the account in the options

A location is never unescaped: Iceberg writes `%41` and means these three characters.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from frazil.errors import ConfigError
from frazil.model.position import without_login


class StoreKind(StrEnum):
    S3 = "S3"
    GCS = "Google Cloud Storage"
    AZURE = "Azure storage"


FILE_IO = {
    StoreKind.S3: "org.apache.iceberg.aws.s3.S3FileIO",
    StoreKind.GCS: "org.apache.iceberg.gcp.gcs.GCSFileIO",
    StoreKind.AZURE: "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
}
"""What Iceberg reaches them with."""
SCHEMES = {
    "s3": StoreKind.S3,
    "s3a": StoreKind.S3,
    "s3n": StoreKind.S3,
    "gs": StoreKind.GCS,
    "gcs": StoreKind.GCS,
    "abfs": StoreKind.AZURE,
    "abfss": StoreKind.AZURE,
    "wasb": StoreKind.AZURE,
    "wasbs": StoreKind.AZURE,
    "az": StoreKind.AZURE,
    "azure": StoreKind.AZURE,
    "adl": StoreKind.AZURE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectUrl:
    """One object, or a prefix. `account` is Azure's, where the URL names it; `host` is the rest of its address."""

    url: str
    kind: StoreKind
    bucket: str
    key: str
    account: str = ""
    host: str = ""


def scheme_of(url: str) -> str:
    """The scheme in lower case; empty for a plain path."""
    scheme, separator, _ = url.partition(":")
    return scheme.lower() if separator and "/" not in scheme else ""


def kind_of(url: str) -> StoreKind | None:
    """None for what is no object store."""
    return SCHEMES.get(scheme_of(url))


def is_object_store(url: str) -> bool:
    return scheme_of(url) in SCHEMES


def parse_place(url: str) -> ObjectUrl:
    """Raises ConfigError for a URL that names no bucket, or a key that object stores' clients do not take."""
    kind = SCHEMES[scheme_of(url)]
    shown = without_login(url).partition("?")[0]  # behind it may stand a key or a signature
    authority, _, key = url.partition("://")[2].partition("/")
    container, at, host = authority.partition("@")
    account, _, rest = host.partition(".")
    if not container or (at and not account):
        raise ConfigError(
            f"{shown!r} names no bucket",
            hint="Write scheme://bucket/path, on Azure abfss://container@account.host/path.",
        )
    if at and kind is not StoreKind.AZURE:
        raise ConfigError(
            f"{shown!r} has a login before its bucket, which is not taken from there",
            hint="Write scheme://bucket/path; access keys stand among the options.",
        )
    parts = key.rstrip("/").split("/")
    if key and any(part in ("", ".", "..") for part in parts):
        raise ConfigError(
            f"{shown!r} has an empty part, '.' or '..' in its path",
            hint="Write the location with single slashes and without dots: object stores do not resolve them.",
            path=shown,
        )
    return ObjectUrl(url=url, kind=kind, bucket=container, key="/".join(parts), account=account, host=rest)
