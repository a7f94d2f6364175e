"""All roads of the search, and files of every format, give one answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from vector_builders import CACHE_BYTES, KEYS, Stage

from frazil.clock import SystemClock
from frazil.data.deletes.vectors import read_vector
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.ingest.locate.locator import TableLocator
from frazil.ingest.locate.locators import Locators, LocatorSettings
from frazil.ingest.locate.search import SearchMode
from frazil.ingest.locate.spark_search import SparkSearch
from frazil.model.ids import TableName

pytestmark = pytest.mark.spark


@pytest.fixture
def roads(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> SparkSearch:
    return SparkSearch(spark, catalog.settings.name, tmp_path / "executors", CACHE_BYTES)


def on_road(stage: Stage, road: SearchMode) -> TableLocator:
    made = stage.locator
    return TableLocator(made.table, stage.committer, stage.cache, made._deleted, SystemClock(), stage.roads, road)


@pytest.mark.parametrize("kind", KEYS)
def test_all_roads_find_the_same_rows(
    catalog: Catalog, namespace: str, tmp_path: Path, roads: SparkSearch, kind: str
) -> None:
    stage = Stage(catalog, TableName((namespace,), "roads"), tmp_path, kind, roads=roads)
    assert roads.local
    stage.epoch({n: f"{n}@0" for n in range(40)})
    stage.epoch({n: f"{n}@1" for n in range(0, 40, 3)}, [1, 4])
    stage.append({5: "5@f", 50: "50@f"})
    head = stage.committer.head(stage.name)
    _, files = stage.write({n: f"{n}@2" for n in range(0, 60, 5)}, [7, 8, 99])
    answers = {}
    for road in SearchMode:
        located = on_road(stage, road).locate(files, head, by_equality=False)
        vectors = [file.vector for file in located.files if file.vector is not None]
        puffin = located.files[-1].path
        rows = {blob.data_file: read_vector(puffin, blob.offset, blob.length, {}) for blob in vectors}
        answers[road] = located.found, located.removed_deletes, located.must_exist, rows
    assert answers[SearchMode.HERE][0] > 10
    assert answers[SearchMode.HERE] == answers[SearchMode.TASKS] == answers[SearchMode.JOIN]


@pytest.mark.parametrize("road", SearchMode)
@pytest.mark.parametrize("version", [2, 3])
def test_epochs_on_every_road_equal_the_model(
    catalog: Catalog, namespace: str, tmp_path: Path, roads: SparkSearch, road: SearchMode, version: int
) -> None:
    name = TableName((namespace,), "road")
    stage = Stage(catalog, name, tmp_path, "uuid", format_version=version, roads=roads, road=road)
    stage.epoch({n: f"{n}@0" for n in range(20)})
    stage.epoch({n: f"{n}@1" for n in range(0, 20, 3)}, [1, 4])
    stage.append({5: "5@f"})
    stage.epoch({5: "5@2", 6: "6@2"}, [0])
    stage.check()


@pytest.mark.parametrize("format_", ["orc", "avro"])
def test_files_that_only_spark_reads_are_searched_by_join(
    catalog: Catalog, namespace: str, tmp_path: Path, roads: SparkSearch, format_: str
) -> None:
    stage = Stage(catalog, TableName((namespace,), format_), tmp_path, roads=roads)
    stage.epoch({n: f"{n}@0" for n in range(10)})
    catalog.spark.sql(f"ALTER TABLE {stage.sql} SET TBLPROPERTIES ('write.format.default' = '{format_}')")
    stage.append({3: "3@f", 20: "20@f"})
    formats = {file.format for file in stage.committer.live(stage.name, stage.committer.head(stage.name)).files}
    assert formats == {"parquet", format_}
    stage.epoch({3: "3@1", 20: "20@1"}, [4])
    stage.check(pyiceberg=False)


def test_the_locators_of_a_pipeline_follow_their_tables(
    spark: SparkSession, catalog: Catalog, namespace: str, tmp_path: Path
) -> None:
    """A table may get columns and a newer format version under a running pipeline."""
    stage = Stage(catalog, TableName((namespace,), "followed"), tmp_path, format_version=2)
    settings = LocatorSettings(directory=tmp_path / "shared", size=CACHE_BYTES)
    locators = Locators(stage.committer, spark, catalog.settings.name, SystemClock(), settings)
    assert locators.of(stage.name) is locators.of(stage.name)
    stage.epoch({n: f"{n}@0" for n in range(10)}, locator=locators.of(stage.name))
    stage.epoch({1: "1@1"}, [2], locators.of(stage.name))
    stage.check()
    stage.upgrade()
    spark.sql(f"ALTER TABLE {stage.sql} ADD COLUMN more string")
    stage.reload()
    stage.epoch({1: "1@2", 3: "3@2"}, [4], locators.of(stage.name))
    stage.check()
    assert locators.index.entries == 3
