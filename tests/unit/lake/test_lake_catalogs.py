from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import CatalogRefused, ConfigError
from frazil.lake.catalogs import CatalogSettings, CatalogType, iceberg_properties, settle, spark_conf


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
    settled = settle(CatalogSettings(name="unit_memory", type=CatalogType.MEMORY))
    assert settled.type is CatalogType.BUILTIN
    assert Path(settled.warehouse or "").is_dir()
    assert settle(CatalogSettings(name="unit_memory", type=CatalogType.MEMORY)) == settled
    assert settle(settled) == settled


def test_a_warehouse_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(CatalogRefused, match=str(tmp_path / "file" / "wh")) as caught:
        settle(CatalogSettings(warehouse=str(tmp_path / "file" / "wh")))
    assert "writable" in caught.value.hint


def test_the_endpoint_is_shown_without_credentials() -> None:
    settings = CatalogSettings(
        type=CatalogType.REST, uri="https://me:pw@host:1/path?token=x", properties={"token": "t"}
    )
    assert settings.endpoint == "https://host:1/path"
    assert "pw" not in repr(settings)
    assert "'t'" not in repr(settings)
