from __future__ import annotations

import pytest

from frazil.errors import ConfigError
from frazil.lake.catalogs import CatalogType
from frazil.lake.sink_url import parse_sink_url
from frazil.model.names import TableName


def test_the_whole_form() -> None:
    sink = parse_sink_url(
        "iceberg://rest.example.com:8181/shop.public/orders?warehouse=s3://lake/x&equality_delete_by=id,%20region"
        "&s3.endpoint=http://minio&page_size=1MB"
    )
    assert sink.settings.type is CatalogType.REST
    assert sink.settings.uri == "https://rest.example.com:8181"
    assert sink.settings.warehouse == "s3://lake/x"
    assert sink.settings.properties == {"s3.endpoint": "http://minio"}
    assert sink.table == TableName(("shop", "public"), "orders")
    assert sink.key == ("id", "region")
    assert sink.options == {"page_size": "1MB"}


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("iceberg://127.0.0.1:1/n/t", "http://127.0.0.1:1"),
        ("iceberg://localhost/n/t", "http://localhost"),
        ("iceberg://[::1]:1/n/t", "http://[::1]:1"),
        ("iceberg://host/n/t", "https://host"),
        ("iceberg://host/n/t?insecure=true", "http://host"),
        ("iceberg://host/n/t?insecure=false", "https://host"),
        ("iceberg://host/api/catalog/n/t", "https://host/api/catalog"),
    ],
)
def test_https_unless_loopback_or_said_otherwise(url: str, uri: str) -> None:
    assert parse_sink_url(url).settings.uri == uri


def test_without_a_key_the_primary_key_is_meant() -> None:
    assert parse_sink_url("iceberg://h/n/t").key == ()


def test_a_user_and_password_become_the_credential_and_leave_the_uri() -> None:
    settings = parse_sink_url("iceberg://me:p%40ss@host/n/t").settings
    assert settings.properties == {"credential": "me:p@ss"}
    assert settings.uri == "https://host"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://h/n/t", "iceberg://"),
        ("iceberg:///n/t", "REST endpoint"),
        ("iceberg://me:hunter2@h/t", "namespace and a table"),
        ("iceberg://h/n/t?a=1&a=2", "twice"),
        ("iceberg://h/n/t?insecure=maybe", "neither true nor false"),
        ("iceberg://h/n/a%20b", "without spaces"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_sink_url(url)
    assert "hunter2" not in str(caught.value)
