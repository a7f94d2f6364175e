from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import CatalogRefused, ConfigError
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType, iceberg_properties, prepare, spark_conf
from frazil.iceberg.catalogs.settings import DELEGATION_HEADER
from frazil.iceberg.jvm.jars import AWS, AZURE, GCP, MYSQL, POSTGRESQL, Jar, jars_of


def test_builtin_is_a_jdbc_catalog_on_sqlite_in_the_warehouse(tmp_path: Path) -> None:
    properties = iceberg_properties(CatalogSettings(warehouse=str(tmp_path)))
    assert properties["type"] == "jdbc"
    assert properties["uri"] == f"jdbc:sqlite:{tmp_path}/catalog.db"
    assert properties["jdbc.schema-version"] == "V1"
    assert int(properties["jdbc.busy_timeout"]) >= 30_000
    assert properties["warehouse"] == str(tmp_path)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_local_warehouse_may_be_a_path_or_a_file_uri(tmp_path: Path, form: str) -> None:
    settings = CatalogSettings(warehouse=form.format(tmp_path))
    assert iceberg_properties(settings)["warehouse"] == str(tmp_path)


def test_a_relative_warehouse_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert iceberg_properties(CatalogSettings(warehouse="./wh"))["warehouse"] == str(tmp_path / "wh")


def test_builtin_may_keep_its_database_apart_from_a_remote_warehouse(tmp_path: Path) -> None:
    settings = CatalogSettings(warehouse="s3://lake/", uri=f"sqlite:///{tmp_path}/c.db")
    assert iceberg_properties(settings)["uri"] == f"jdbc:sqlite:{tmp_path}/c.db"
    assert iceberg_properties(settings)["warehouse"] == "s3://lake"


def test_builtin_on_a_remote_warehouse_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="SQLite needs a local file"):
        CatalogSettings(warehouse="s3://lake")


def test_properties_pass_untouched_and_win() -> None:
    settings = CatalogSettings(
        type=CatalogType.REST, uri="http://h", warehouse="w", properties={"warehouse": "other", "s3.endpoint": "x"}
    )
    assert iceberg_properties(settings) == {
        "type": "rest",
        "uri": "http://h",
        "warehouse": "other",
        "s3.endpoint": "x",
    }


def test_spark_knows_the_catalog_by_its_name_and_does_not_cache_tables() -> None:
    conf = spark_conf(CatalogSettings(name="lake", type=CatalogType.REST, uri="http://h"))
    assert conf["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert conf["spark.sql.catalog.lake.uri"] == "http://h"
    assert conf["spark.sql.catalog.lake.cache-enabled"] == "false"


@pytest.mark.parametrize(
    ("kind", "missing"), [(CatalogType.REST, "uri"), (CatalogType.BUILTIN, "warehouse"), (CatalogType.HADOOP, "ware")]
)
def test_what_a_type_needs_must_be_given(kind: CatalogType, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"needs a {missing}"):
        CatalogSettings(type=kind)


def test_a_name_that_spark_could_not_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="letters"):
        CatalogSettings(name="my.lake", warehouse="w")


def test_memory_is_builtin_in_a_temporary_directory_and_stays_the_same() -> None:
    prepared = prepare(CatalogSettings(name="unit_memory", type=CatalogType.MEMORY))
    assert prepared.type is CatalogType.BUILTIN
    assert Path(prepared.warehouse or "").is_dir()
    assert prepare(CatalogSettings(name="unit_memory", type=CatalogType.MEMORY)) == prepared
    assert prepare(prepared) == prepared


def test_a_warehouse_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(CatalogRefused, match=str(tmp_path / "file" / "wh")) as caught:
        prepare(CatalogSettings(warehouse=str(tmp_path / "file" / "wh")))
    assert "writable" in caught.value.hint


def test_the_endpoint_is_shown_without_credentials() -> None:
    settings = CatalogSettings(
        type=CatalogType.REST, uri="https://me:pw@host:1/path?token=x", properties={"token": "t"}
    )
    assert settings.endpoint == "https://host:1/path"
    assert "pw" not in repr(settings)
    assert "'t'" not in repr(settings)


ARN = "arn:aws:s3tables:eu-west-1:123456789012:bucket/lake"


def test_s3_tables_are_a_rest_catalog_signed_for_the_region_of_the_bucket() -> None:
    settings = CatalogSettings(type=CatalogType.S3TABLES, warehouse=ARN)
    properties = iceberg_properties(settings)
    assert properties["type"] == "rest"
    assert properties["uri"] == settings.endpoint == "https://s3tables.eu-west-1.amazonaws.com/iceberg"
    assert properties["warehouse"] == ARN
    assert (properties["rest.signing-name"], properties["rest.signing-region"]) == ("s3tables", "eu-west-1")


def test_who_and_the_password_leave_a_database_url() -> None:
    for uri in ("jdbc:postgresql://me:p%40ss@db:5432/c?ssl=true", "postgres://me:p%40ss@db:5432/c?ssl=true"):
        settings = CatalogSettings(type=CatalogType.JDBC, uri=uri, warehouse="s3://lake")
        properties = iceberg_properties(settings)
        assert properties["uri"] == "jdbc:postgresql://db:5432/c?ssl=true"
        assert (properties["jdbc.user"], properties["jdbc.password"]) == ("me", "p@ss")
        assert settings.endpoint == "jdbc:postgresql://db:5432/c"
        assert settings.identity == "database user me"


def test_the_secret_in_a_server_address_becomes_its_credential() -> None:
    settings = CatalogSettings(type=CatalogType.REST, uri="https://me:pw@host/api")
    assert iceberg_properties(settings) == {"type": "rest", "uri": "https://host/api", "credential": "me:pw"}
    assert settings.identity == "OAuth2 client me"


@pytest.mark.parametrize(
    ("warehouse", "file_io"),
    [("s3://l", "aws.s3.S3FileIO"), ("gs://l", "gcp.gcs.GCSFileIO"), ("abfss://c@a/l", "azure.adlsv2.ADLSFileIO")],
)
def test_the_file_system_follows_the_warehouse(warehouse: str, file_io: str) -> None:
    settings = CatalogSettings(type=CatalogType.HIVE, uri="thrift://h:1", warehouse=warehouse)
    assert iceberg_properties(settings)["io-impl"] == f"org.apache.iceberg.{file_io}"
    chosen = CatalogSettings(
        type=CatalogType.HIVE, uri="thrift://h:1", warehouse=warehouse, properties={"io-impl": "mine"}
    )
    assert iceberg_properties(chosen)["io-impl"] == "mine"


@pytest.mark.parametrize(
    ("properties", "identity"),
    [
        ({"credential": "me:s3cret"}, "OAuth2 client me"),
        ({"credential": "s3cret"}, "an OAuth2 client without a name"),
        ({"token": "s3cret"}, "the owner of the configured token"),
        ({"rest.auth.type": "sigv4", "rest.access-key-id": "AKIA"}, "AWS access key AKIA"),
        ({"rest.auth.type": "sigv4"}, "the AWS credentials of this machine"),
        ({"rest.auth.basic.username": "me", "rest.auth.basic.password": "s3cret"}, "user me"),
        ({}, "nobody (no auth is configured)"),
    ],
)
def test_the_identity_is_a_name_and_never_a_secret(properties: dict[str, str], identity: str) -> None:
    settings = CatalogSettings(type=CatalogType.REST, uri="http://h", properties=properties)
    assert settings.identity == identity


@pytest.mark.parametrize(
    ("settings", "jars"),
    [
        (CatalogSettings(warehouse="w"), ()),
        (CatalogSettings(type=CatalogType.MEMORY), ()),
        (CatalogSettings(type=CatalogType.REST, uri="http://h"), ()),
        (CatalogSettings(type=CatalogType.REST, uri="http://h", warehouse="s3://b"), (AWS,)),
        (CatalogSettings(type=CatalogType.REST, uri="http://h", properties={"gcs.no-auth": "true"}), (GCP,)),
        (CatalogSettings(type=CatalogType.REST, uri="http://h", properties={"rest.auth.type": "sigv4"}), (AWS,)),
        (CatalogSettings(type=CatalogType.REST, uri="http://h", properties={DELEGATION_HEADER: "x"}), (AWS,)),
        (CatalogSettings(type=CatalogType.GLUE, warehouse="s3://b"), (AWS,)),
        (CatalogSettings(type=CatalogType.S3TABLES, warehouse=ARN), (AWS,)),
        (CatalogSettings(type=CatalogType.JDBC, uri="postgresql://d/c", warehouse="gs://b"), (POSTGRESQL, GCP)),
        (CatalogSettings(type=CatalogType.JDBC, uri="jdbc:mysql://d/c", warehouse="abfs://b"), (MYSQL, AZURE)),
        (CatalogSettings(type=CatalogType.HADOOP, warehouse="hdfs://n/w"), ()),
    ],
)
def test_only_what_a_catalog_needs_is_downloaded(settings: CatalogSettings, jars: tuple[Jar, ...]) -> None:
    assert jars_of([settings, settings]) == jars


def test_glue_is_where_its_region_or_its_address_says() -> None:
    glue = CatalogSettings(type=CatalogType.GLUE, warehouse="s3://b", properties={"client.region": "eu-west-1"})
    assert glue.endpoint == "AWS Glue in eu-west-1"
    assert glue.identity == "the AWS credentials of this machine"
    elsewhere = CatalogSettings(type=CatalogType.GLUE, warehouse="s3://b", uri="http://localhost:5000")
    assert iceberg_properties(elsewhere)["glue.endpoint"] == elsewhere.endpoint == "http://localhost:5000"
