"""Options of a storage, in Iceberg's names and in people's, as what the client is opened with."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import ConfigError
from frazil.storage.options import PART_BYTES_LEAST, StoreSettings, shortened, store_settings
from frazil.storage.url import StoreKind, parse_place

KEYS = {"s3.access-key-id": "AKIAIOSFODNN7EXAMPLE", "s3.secret-access-key": "hunter22hunter22"}


MACHINE = "the credentials of the machine or its environment"


def of(options: dict[str, str], url: str = "s3://lake/t", *, strict: bool = False) -> StoreSettings:
    return store_settings(parse_place(url), options, strict=strict)


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({"s3.endpoint": "https://s3.example.com"}, {"endpoint": "https://s3.example.com"}),
        ({"s3.endpoint": "minio:9000"}, {"endpoint": "https://minio:9000"}),
        ({"client.region": "eu-central-1"}, {"region": "eu-central-1"}),
        ({"s3.region": "eu-west-1"}, {"region": "eu-west-1"}),
        ({"region": "eu-west-2"}, {"region": "eu-west-2"}),
        ({"aws_region": "eu-west-3"}, {"region": "eu-west-3"}),
        ({"region": "short", "client.region": "icebergs"}, {"region": "icebergs"}),
        ({"s3.path-style-access": "true"}, {}),
        ({"s3.path-style-access": "false"}, {"virtual_hosted_style_request": True}),
        (
            {"s3.path-style-access": "false", "s3.endpoint": "https://oss.example.com"},
            {"virtual_hosted_style_request": True, "endpoint": "https://lake.oss.example.com"},
        ),
        (
            {"path_style": "false", "endpoint": "https://lake.oss.example.com"},
            {"virtual_hosted_style_request": True, "endpoint": "https://lake.oss.example.com"},
        ),
        ({"s3.sse.type": "none"}, {}),
        ({"s3.sse.type": "s3"}, {"server_side_encryption": "AES256"}),
        (
            {"s3.sse.type": "kms", "s3.sse.key": "arn:key"},
            {"server_side_encryption": "aws:kms", "sse_kms_key_id": "arn:key"},
        ),
        (
            {"s3.sse.type": "dsse-kms", "s3.sse.key": "k"},
            {"server_side_encryption": "aws:kms:dsse", "sse_kms_key_id": "k"},
        ),
        (
            {"s3.sse.type": "custom", "s3.sse.key": "a2V5"},
            {"server_side_encryption": "sse-c", "sse_customer_key_base64": "a2V5"},
        ),
        ({"skip_signature": "true"}, {"skip_signature": "true"}),
        ({"s3.endpoint": "", "client.region": "x"}, {"region": "x"}),
        ({"uri": "http://catalog", "token": "catalogs-own", "warehouse": "w", "io-impl": "x", "s3.acl": "y"}, {}),
    ],
)
def test_s3_options_are_translated(options: dict[str, str], config: dict[str, Any]) -> None:
    assert of(options).config == config


@pytest.mark.parametrize(
    "options",
    [
        {**KEYS, "s3.session-token": "tok"},
        {"access_key_id": KEYS["s3.access-key-id"], "secret_access_key": "hunter22hunter22", "session_token": "tok"},
        {
            "aws_access_key_id": KEYS["s3.access-key-id"],
            "aws_secret_access_key": "hunter22hunter22",
            "s3.session-token": "tok",
        },
    ],
)
def test_keys_become_credentials_and_never_configuration(options: dict[str, str]) -> None:
    found = of(options)
    assert found.secrets == {
        "access_key_id": "AKIAIOSFODNN7EXAMPLE",
        "secret_access_key": "hunter22hunter22",
        "session_token": "tok",
    }
    assert found.config == {}
    assert found.identity == "access key AKIA...MPLE"
    assert "hunter22" not in repr(found)
    assert "IOSFODNN" not in repr(found)


def test_a_catalogs_token_is_not_taken_for_a_storages() -> None:
    assert of({"token": "of the catalog"}, "gs://lake/t").secrets == {}
    assert of({"token": "of the storage"}, "gs://lake/t", strict=True).secrets == {"token": "of the storage"}


def test_plain_http_is_allowed_only_where_the_endpoint_says_so() -> None:
    assert of({"s3.endpoint": "http://localhost:9000"}).client["allow_http"] is True
    assert "allow_http" not in of({"s3.endpoint": "https://s3.example.com"}).client
    assert "allow_http" not in of({}).client


def test_certificates_are_checked_and_no_option_turns_that_off() -> None:
    assert "allow_invalid_certificates" not in of({"allow_invalid_certificates": "true", **KEYS}).client
    with pytest.raises(ConfigError, match="allow_invalid_certificates"):
        of({"allow_invalid_certificates": "true"}, strict=True)


def test_half_an_access_key_names_the_missing_half() -> None:
    with pytest.raises(ConfigError, match="secret_access_key is missing"):
        of({"s3.access-key-id": "AKIA"})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"s3.remote-signing-enabled": "true"}, "sign every request"),
        ({"s3.path-style-access": "yes"}, "s3.path-style-access"),
        ({"s3.sse.type": "rot13"}, "s3.sse.type"),
        ({"s3.multipart.part-size-bytes": "8M"}, "part size"),
        ({"s3.session-token-expires-at-ms": "tomorrow"}, "s3.session-token-expires-at-ms"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        of(options)
    assert caught.value.hint


def test_a_misspelt_option_is_refused_where_people_wrote_it() -> None:
    with pytest.raises(ConfigError, match="'acess_key_id'"):
        of({"acess_key_id": "x"}, strict=True)


@pytest.mark.parametrize(("given", "used"), [("33554432", 33554432), ("1000", PART_BYTES_LEAST)])
def test_parts_have_the_size_that_was_asked_for_if_stores_take_it(given: str, used: int) -> None:
    assert of({"s3.multipart.part-size-bytes": given}).part_bytes == used


def test_renewal_takes_along_what_the_catalog_is_asked_with() -> None:
    options = {
        **KEYS,
        "client.refresh-credentials-endpoint": "v1/ns/tables/t/credentials",
        "s3.session-token-expires-at-ms": "1700000000000",
        "uri": "http://catalog",
        "token": "tok",
        "header.X-Realm": "r",
        "warehouse": "w",
    }
    found = of(options)
    assert found.refresh == {
        "endpoint": "v1/ns/tables/t/credentials",
        "uri": "http://catalog",
        "token": "tok",
        "header.X-Realm": "r",
    }
    assert found.expires_at_ms == 1_700_000_000_000
    assert "tok" not in repr(found)


@pytest.mark.parametrize(
    ("options", "config", "secrets", "identity"),
    [
        ({}, {}, {}, MACHINE),
        ({"gcs.oauth2.token": "tok"}, {}, {"token": "tok"}, "an OAuth2 token"),
        (
            {"gcs.service.host": "http://x"},
            {"base_url": "http://x"},
            {},
            MACHINE,
        ),
        ({"gcs.no-auth": "true"}, {"skip_signature": "true"}, {}, "nobody (unsigned requests)"),
        (
            {"frazil.gcs.service-account-file": "/k.json"},
            {"service_account": "/k.json"},
            {},
            "the service account of /k.json",
        ),
        (
            {"frazil.gcs.service-account-file": "/k.json", "frazil.gcs.service-account-key": "{}"},
            {"service_account_key": "{}"},
            {},
            "a service account's key",
        ),
    ],
)
def test_gcs_options_are_translated(
    options: dict[str, str], config: dict[str, str], secrets: dict[str, str], identity: str
) -> None:
    found = of(options, "gs://lake/t")
    assert (found.config, found.secrets, found.identity) == (config, secrets, identity)


@pytest.mark.parametrize(
    ("options", "config", "secrets", "identity"),
    [
        (
            {"adls.auth.shared-key.account.name": "other", "adls.auth.shared-key.account.key": "key"},
            {"account_name": "acc"},
            {"account_key": "key"},
            "the key of account acc",
        ),
        (
            {"adls.sas-token.acc": "?sig=1", "adls.sas-token.elsewhere": "sig=2"},
            {"account_name": "acc"},
            {"sas_token": "sig=1"},
            "a SAS token of account acc",
        ),
        (
            {"adls.sas-token.acc.dfs.core.windows.net": "sig=1"},
            {"account_name": "acc"},
            {"sas_token": "sig=1"},
            "a SAS token of account acc",
        ),
        (
            {"adls.tenant-id": "t", "adls.client-id": "0123456789abcdef", "adls.client-secret": "s"},
            {"account_name": "acc", "tenant_id": "t", "client_id": "0123456789abcdef", "client_secret": "s"},
            {},
            "client 0123...cdef",
        ),
        ({"adls.token": "tok"}, {"account_name": "acc"}, {"token": "tok"}, "an OAuth2 token"),
        (
            {"adls.connection-string.acc": "AccountName=acc;AccountKey=k==;BlobEndpoint=http://127.0.0.1:10000/acc"},
            {"account_name": "acc", "endpoint": "http://127.0.0.1:10000/acc"},
            {"account_key": "k=="},
            "the key of account acc",
        ),
    ],
)
def test_azure_options_are_translated(
    options: dict[str, str], config: dict[str, str], secrets: dict[str, str], identity: str
) -> None:
    found = of(options, "abfss://files@acc.dfs.core.windows.net/t")
    assert found.bucket == "files"
    assert (found.config, found.secrets, found.identity) == (config, secrets, identity)


@pytest.mark.parametrize(
    ("url", "kind", "bucket", "key"),
    [
        ("s3://b/a/b%41 c", StoreKind.S3, "b", "a/b%41 c"),
        ("s3a://b/x", StoreKind.S3, "b", "x"),
        ("S3://b", StoreKind.S3, "b", ""),
        ("gs://b/x/", StoreKind.GCS, "b", "x"),
        ("abfss://c@a.dfs.core.windows.net/x", StoreKind.AZURE, "c", "x"),
        ("wasbs://c@a.blob.core.windows.net/x", StoreKind.AZURE, "c", "x"),
        ("az://c/x", StoreKind.AZURE, "c", "x"),
    ],
)
def test_places_are_read_and_never_unescaped(url: str, kind: StoreKind, bucket: str, key: str) -> None:
    place = parse_place(url)
    assert (place.kind, place.bucket, place.key) == (kind, bucket, key)


@pytest.mark.parametrize("url", ["s3:///x", "s3://b/a//b", "s3://b/../b", "s3://b/./b", "abfss://c@/x"])
def test_a_place_that_no_store_has_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        parse_place(url)


def test_a_key_id_is_shown_in_part() -> None:
    assert shortened("AKIAIOSFODNN7EXAMPLE") == "AKIA...MPLE"
    assert shortened("short") == "sh..."
