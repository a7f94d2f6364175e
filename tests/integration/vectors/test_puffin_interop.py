"""Vectors and position deletes written here are read by iceberg-java, Spark and PyIceberg; and theirs are read here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from frazil.data.deletes.positions import read_positions, write_positions
from frazil.data.deletes.vectors import POSITION_MAX, encode, read_vector, to_bitmap, write_puffin
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.model.files import FileClosed, FileKind
from frazil.model.ids import TableName
from frazil.model.write import ParquetSettings
from frazil.sources.cockroachdb.position import Hlc
from frazil.storage.files.open_file import local_path

pytestmark = pytest.mark.spark

ROWS = 1000
SHAPES = {
    "one": [0],
    "a few": [1, 5, 200, 65_536],
    "a run": list(range(70_000, 140_000)),
    "dense": list(range(0, 60_000, 3)),
    "beyond 32 bits": [7, (1 << 32) - 1, 1 << 32, (3 << 32) + 5],
}


class Table:
    """A table of ids 0 to ROWS - 1 in one data file, made by Spark."""

    def __init__(self, spark: SparkSession, catalog: Catalog, namespace: str, version: int) -> None:
        self.spark, self.catalog = spark, catalog
        self.name = TableName.parse(f"{namespace}.numbers")
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS frazil.{namespace}")
        spark.sql(
            f"CREATE TABLE {self.sql} (id BIGINT NOT NULL, name STRING) USING iceberg TBLPROPERTIES "
            f"('format-version'='{version}', 'write.delete.mode'='merge-on-read')"
        )
        rows = spark.range(ROWS).selectExpr("id", "concat('n', id) AS name").coalesce(1).sortWithinPartitions("id")
        rows.writeTo(self.sql).append()

    @property
    def sql(self) -> str:
        return f"frazil.{self.name.text}"

    @property
    def java(self) -> Any:
        return self.catalog.java.loadTable(self.catalog.identifier(self.name))

    @property
    def location(self) -> str:
        return str(self.java.location())

    @property
    def data_file(self) -> str:
        (row,) = self.spark.sql(f"SELECT file_path FROM {self.sql}.files WHERE content = 0").collect()
        return str(row.file_path)

    def deletes(self) -> Sequence[Any]:
        return self.spark.sql(f"SELECT * FROM {self.sql}.delete_files").collect()

    def commit(self, *files: FileClosed) -> None:
        """As a commit does: the message alone becomes the manifest entry."""
        table = self.java
        delta = table.newRowDelta()
        for file in files:
            delta.addDeletes(parsed(self.catalog, file, table.specs()))
        delta.commit()

    def ids_in_spark(self) -> set[int]:
        self.spark.sql(f"REFRESH TABLE {self.sql}")
        return {row.id for row in self.spark.table(self.sql).collect()}

    def ids_in_pyiceberg(self, warehouse: Path) -> set[int]:
        other = SqlCatalog("frazil", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
        return set(other.load_table(self.name.text).scan().to_arrow()["id"].to_pylist())


def parsed(catalog: Catalog, file: FileClosed, specs: Any) -> Any:
    tree = catalog.iceberg.util.JsonUtil.mapper().readTree(json.dumps(file.manifest_json()))
    return catalog.iceberg.ContentFileParser.fromJson(tree, specs)


def message(**facts: Any) -> FileClosed:
    defaults: Mapping[str, Any] = {
        "table": TableName.parse("ns.numbers"),
        "epoch": Hlc(1),
        "batch_id": UUID(int=1),
        "worker": 0,
        "schema_id": 0,
        "spec_id": 0,
        "kind": FileKind.POSITION_DELETE,
    }
    return FileClosed(**{**defaults, **facts})


def vector_messages(path: str, vectors: Mapping[str, BitMap64]) -> list[FileClosed]:
    blobs, size, digest = write_puffin(path, vectors, {})
    return [
        message(path=path, records=len(vectors[blob.data_file]), size=size, digest=digest, vector=blob)
        for blob in blobs
    ]


@pytest.fixture
def v3(spark: SparkSession, catalog: Catalog, namespace: str) -> Table:
    return Table(spark, catalog, namespace, 3)


@pytest.fixture
def v2(spark: SparkSession, catalog: Catalog, namespace: str) -> Table:
    return Table(spark, catalog, namespace, 2)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_iceberg_java_reads_our_vector_and_would_write_the_same_positions(
    catalog: Catalog, tmp_path: Path, shape: str
) -> None:
    positions = SHAPES[shape]
    blob = encode(np.array(positions))
    (file,) = vector_messages(str(tmp_path / "v.puffin"), {"file:/data.parquet": BitMap64(positions)})
    specs = catalog.spark._jvm.java.util.HashMap()
    specs.put(0, catalog.iceberg.PartitionSpec.unpartitioned())
    index = catalog.iceberg.deletes.PositionDeleteIndex.deserialize(blob, parsed(catalog, file, specs))
    assert index.cardinality() == len(positions)
    assert all(index.isDeleted(position) for position in positions[:50])
    absent = {max(positions) + 1, 2, 1 << 33} - set(positions)
    assert not any(index.isDeleted(position) for position in absent)
    theirs = bytes(index.serialize().array())
    assert set(read_back(tmp_path / "theirs", theirs)) == set(positions)
    if shape != "beyond 32 bits":
        # Java also writes the empty bitmaps between two upper halves; without such gaps the bytes are the same.
        assert theirs == blob


def read_back(path: Path, blob: bytes) -> BitMap64:
    path.write_bytes(b"PFA1" + blob)
    return read_vector(str(path), 4, len(blob), {})


def test_the_greatest_position_is_the_one_iceberg_java_takes(catalog: Catalog) -> None:
    loader = catalog.java.getClass().getClassLoader()
    limit = loader.loadClass("org.apache.iceberg.deletes.RoaringPositionBitmap").getDeclaredField("MAX_POSITION")
    limit.setAccessible(True)
    assert limit.get(None) == POSITION_MAX


def test_iceberg_java_reads_our_puffin_footer(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "v.puffin"
    vectors = {"file:/é one.parquet": BitMap64([1, 2]), "file:/two.parquet": BitMap64([1 << 33])}
    blobs, _, _ = write_puffin(str(path), vectors, {})
    with_reader = catalog.iceberg.puffin.Puffin.read(catalog.iceberg.Files.localInput(str(path))).build()
    try:
        metadata = with_reader.fileMetadata()
        found = [metadata.blobs()[i] for i in range(metadata.blobs().size())]
        assert metadata.properties()["created-by"] == "frazil"
    finally:
        with_reader.close()
    assert [(one.type(), list(one.inputFields()), one.snapshotId(), one.sequenceNumber()) for one in found] == [
        ("deletion-vector-v1", [2147483645], -1, -1)
    ] * 2
    assert [(one.offset(), one.length()) for one in found] == [(blob.offset, blob.length) for blob in blobs]
    assert [dict(one.properties()) for one in found] == [
        {"referenced-data-file": name, "cardinality": str(len(bitmap))} for name, bitmap in vectors.items()
    ]


def test_spark_and_pyiceberg_leave_out_the_rows_of_our_vector(v3: Table, warehouse: Path) -> None:
    deleted = {0, 7, 8, 9, 500, ROWS - 1}
    path = f"{v3.location}/data/{uuid4()}.puffin"
    v3.commit(*vector_messages(path, {v3.data_file: BitMap64(deleted)}))
    expected = set(range(ROWS)) - deleted
    assert v3.ids_in_spark() == expected
    assert v3.ids_in_pyiceberg(warehouse) == expected


def test_a_vector_that_spark_wrote_is_read_here(v3: Table) -> None:
    v3.spark.sql(f"DELETE FROM {v3.sql} WHERE id % 3 = 0 OR id BETWEEN 100 AND 299")
    (row,) = v3.deletes()
    found = read_vector(row.file_path, row.content_offset, row.content_size_in_bytes, {})
    expected = {number for number in range(ROWS) if number % 3 == 0 or 100 <= number <= 299}
    assert set(found) == expected
    assert row.record_count == len(found)
    assert row.referenced_data_file == v3.data_file


def test_spark_frames_its_footer_as_we_do(v3: Table, tmp_path: Path) -> None:
    v3.spark.sql(f"DELETE FROM {v3.sql} WHERE id IN (3, 5)")
    (row,) = v3.deletes()
    theirs = footer(Path(local_path(row.file_path)))
    (blob,), _, _ = write_puffin(str(tmp_path / "v.puffin"), {row.referenced_data_file: BitMap64([3, 5])}, {})
    ours = footer(tmp_path / "v.puffin")
    creator = json.loads(theirs)["properties"]["created-by"]
    assert ours.replace('"created-by":"frazil"', f'"created-by":{json.dumps(creator)}') == theirs
    assert (blob.offset, blob.length) == (row.content_offset, row.content_size_in_bytes)


def footer(path: Path) -> str:
    content = path.read_bytes()
    length = int.from_bytes(content[-12:-8], "little")
    return content[-12 - length : -12].decode()


def test_spark_merges_its_own_delete_with_our_vector(v3: Table, warehouse: Path) -> None:
    """H23: the second vector of a data file holds what the first one held."""
    path = f"{v3.location}/data/{uuid4()}.puffin"
    v3.commit(*vector_messages(path, {v3.data_file: to_bitmap(np.arange(0, 100))}))
    v3.spark.sql(f"DELETE FROM {v3.sql} WHERE id >= 900")
    (row,) = v3.deletes()
    merged = read_vector(row.file_path, row.content_offset, row.content_size_in_bytes, {})
    assert set(merged) == {*range(100), *range(900, ROWS)}
    assert v3.ids_in_pyiceberg(warehouse) == set(range(100, 900))


def test_spark_and_pyiceberg_leave_out_the_rows_of_our_position_deletes(v2: Table, warehouse: Path) -> None:
    deleted = {0, 7, 8, 9, 500, ROWS - 1}
    path = f"{v2.location}/data/{uuid4()}.parquet"
    closed = write_positions(path, {v2.data_file: BitMap64(deleted)}, ParquetSettings(), {})
    v2.commit(
        message(path=path, records=closed.records, size=closed.size, digest=closed.digest, metrics=closed.metrics)
    )
    expected = set(range(ROWS)) - deleted
    assert v2.ids_in_spark() == expected
    assert v2.ids_in_pyiceberg(warehouse) == expected
    tasks = v2.java.newScan().planFiles().iterator()
    found = [delete.path() for task in iterate(tasks) for delete in task.deletes()]
    assert found == [path]


def test_whole_path_bounds_make_the_deletes_file_scoped_for_iceberg_java(v2: Table, catalog: Catalog) -> None:
    path = f"{v2.location}/data/{uuid4()}.parquet"
    closed = write_positions(path, {v2.data_file: BitMap64([1])}, ParquetSettings(), {})
    file = message(path=path, records=closed.records, size=closed.size, digest=closed.digest, metrics=closed.metrics)
    parsed_file = parsed(catalog, file, v2.java.specs())
    assert str(catalog.iceberg.util.ContentFileUtil.referencedDataFileLocation(parsed_file)) == v2.data_file


def test_position_deletes_that_spark_wrote_are_read_here(v2: Table) -> None:
    v2.spark.sql(f"DELETE FROM {v2.sql} WHERE id % 3 = 0")
    expected = BitMap64(range(0, ROWS, 3))
    (row,) = v2.deletes()
    assert read_positions(row.file_path, {}) == {v2.data_file: expected}
    assert read_positions(row.file_path, {}, v2.data_file) == {v2.data_file: expected}


def iterate(iterator: Any) -> list[Any]:
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found
