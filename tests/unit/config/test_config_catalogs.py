"""The catalog block: what each type needs, and what Iceberg is told."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.config.catalogs import CatalogConfig, CatalogType, table_bucket_region
from frazil.config.secrets import Redactor, masked

ARN = "arn:aws:s3tables:eu-west-1:123456789012:bucket/lake"
REST = {"type": "rest", "uri": "https://catalog.example"}


def config(**given: Any) -> CatalogConfig:
    return CatalogConfig.model_validate(given)


def told(**given: Any) -> dict[str, str]:
    return config(**{**REST, **given}).iceberg_properties


@pytest.mark.parametrize(
    "given",
    [
        {"type": "builtin", "warehouse": "./w"},
        {"type": "memory"},
        {"type": "hadoop", "warehouse": "hdfs://nn/w"},
        REST,
        {"type": "hive", "uri": "thrift://a:9083,thrift://b:9083"},
        {"type": "glue", "warehouse": "s3://lake/w", "region": "eu-west-1"},
        {"type": "s3tables", "warehouse": ARN},
        {"type": "jdbc", "uri": "jdbc:postgresql://db/catalog", "warehouse": "s3://lake/w"},
        {"type": "jdbc", "uri": "mysql://me:pw@db/catalog", "volume": "lake"},
        {"type": "nessie", "uri": "http://n:19120/api/v2", "warehouse": "s3://lake/w", "reference": "dev"},
        {"type": "builtin", "uri": "./catalog.db", "volume": "lake"},
    ],
    ids=lambda given: given["type"],
)
def test_every_type_can_be_configured(given: dict[str, Any]) -> None:
    assert config(**given).type is CatalogType(given["type"])


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"type": "rest"}, "type rest"),
        ({"type": "hive", "uri": "http://hive:9083"}, "thrift"),
        ({"type": "jdbc", "uri": "jdbc:oracle:thin:@db", "warehouse": "w"}, "jdbc:postgresql"),
        ({"type": "jdbc", "uri": "jdbc:postgresql://db/c"}, "type jdbc"),
        ({"type": "glue"}, "type glue"),
        ({"type": "s3tables", "warehouse": "s3://lake"}, "ARN"),
        ({"type": "nessie", "uri": "http://n"}, "type nessie"),
        ({"type": "memory", "warehouse": "w"}, "temporary directory"),
        ({"type": "builtin", "volume": "lake"}, "SQLite"),
        ({"type": "hive", "uri": "thrift://h:1", "auth": {"type": "none"}}, "type rest"),
        ({"type": "rest", "uri": "http://h", "user": "me"}, "type jdbc"),
        ({"type": "rest", "uri": "http://h", "region": "eu"}, "glue and s3tables"),
        ({**REST, "auth": {"type": "oauth2"}}, "client_id"),
        ({**REST, "auth": {"type": "oauth2", "client_id": "a", "client_secret": "b", "credential": "a:b"}}, "one of"),
        ({**REST, "auth": {"type": "bearer"}}, "bearer"),
        ({**REST, "auth": {"type": "sigv4"}}, "sigv4"),
        ({**REST, "auth": {"type": "sigv4", "region": "eu", "access_key_id": "k"}}, "go together"),
        ({**REST, "auth": {"type": "basic", "user": "me"}}, "basic needs"),
        ({**REST, "tls": {"certificate": "c.pem"}}, "go together"),
        ({"type": "nessie", "uri": "http://n", "warehouse": "w", "auth": {"type": "google"}}, "bearer or none"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as caught:
        config(**given)
    assert where in str(caught.value)


def test_oauth2_renews_its_token_unless_told_not_to() -> None:
    auth = {"type": "oauth2", "client_id": "me", "client_secret": "s3cret", "scope": "PRINCIPAL_ROLE:ALL"}
    assert told(auth={**auth, "server_uri": "https://idp/token"}) == {
        "rest.auth.type": "oauth2",
        "credential": "me:s3cret",
        "oauth2-server-uri": "https://idp/token",
        "scope": "PRINCIPAL_ROLE:ALL",
        "token-refresh-enabled": "true",
    }
    assert told(auth={**auth, "refresh": False})["token-refresh-enabled"] == "false"


def test_a_bearer_token_is_used_as_it_is() -> None:
    found = told(auth={"type": "bearer", "token": "t0ken"})
    assert found["token"] == "t0ken"
    assert found["token-exchange-enabled"] == found["token-refresh-enabled"] == "false"


def test_sigv4_names_region_and_service() -> None:
    found = told(auth={"type": "sigv4", "region": "eu-west-1", "service": "glue"})
    assert found["rest.auth.type"] == "sigv4"
    assert (found["rest.signing-region"], found["rest.signing-name"]) == ("eu-west-1", "glue")
    assert "rest.access-key-id" not in found, "AWS' own chain finds the key"


def test_headers_and_delegation_are_sent() -> None:
    found = told(headers={"X-Team": "shop"}, delegation="vended-credentials")
    assert found == {"header.X-Team": "shop", "header.X-Iceberg-Access-Delegation": "vended-credentials"}
    assert told(delegation="none") == {}


def test_properties_pass_untouched_and_win() -> None:
    found = told(auth={"type": "bearer", "token": "a"}, properties={"token": "b", "s3.endpoint": "x"})
    assert (found["token"], found["s3.endpoint"]) == ("b", "x")


def test_what_a_server_calls_its_warehouse_is_no_path() -> None:
    context = {"base_directory": "/etc/frazil"}
    rest = CatalogConfig.model_validate({**REST, "warehouse": "polaris_catalog"}, context=context)
    assert rest.warehouse == "polaris_catalog"
    assert CatalogConfig.model_validate({"type": "s3tables", "warehouse": ARN}, context=context).warehouse == ARN
    builtin = CatalogConfig.model_validate({"type": "builtin", "warehouse": "./w"}, context=context)
    assert builtin.warehouse == "/etc/frazil/w"


def test_the_region_of_s3_tables_is_in_its_arn() -> None:
    assert table_bucket_region(ARN) == "eu-west-1"
    assert config(type="s3tables", warehouse=ARN).iceberg_properties["client.region"] == "eu-west-1"


def test_no_secret_is_shown() -> None:
    secrets = {"s3cret", "t0ken", "hunter2", "h3ader"}
    blocks = [
        {**REST, "auth": {"type": "oauth2", "client_id": "me", "client_secret": "s3cret"}},
        {**REST, "auth": {"type": "oauth2", "credential": "me:s3cret"}},
        {**REST, "auth": {"type": "bearer", "token": "t0ken"}, "headers": {"X-Secret-Door": "h3ader"}},
        {**REST, "auth": {"type": "sigv4", "region": "eu", "access_key_id": "AK", "secret_access_key": "s3cret"}},
        {**REST, "headers": {"X-Tenant": "h3ader"}},
        {"type": "jdbc", "uri": "jdbc:postgresql://d/c", "warehouse": "w", "user": "me", "password": "hunter2"},
        {"type": "jdbc", "uri": "postgresql://me:hunter2@d/c", "warehouse": "w"},
    ]
    for block in blocks:
        made = config(**block)
        running = Redactor(made)("an error with s3cret, t0ken, hunter2 or h3ader in it")
        shown = f"{made!r} {masked(made)}"
        hidden = {secret for secret in secrets if secret in str(block)}
        assert hidden
        assert not [secret for secret in hidden if secret in shown], shown
        assert not [secret for secret in hidden if secret in running], running
