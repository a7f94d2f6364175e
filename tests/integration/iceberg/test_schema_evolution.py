"""Each kind of schema change on a real table: files written before and after it are read back right, by field id."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from iceberg_builders import FENCE, SHOP
from pyspark.sql import SparkSession

from frazil.data.bind import Binding
from frazil.data.parquet_writer import RollingWriter
from frazil.errors import BadInput
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.column_match import match_columns
from frazil.iceberg.tables.new_schema import target_columns
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.model.arrow import value_type
from frazil.model.commit import Accepted, CommitPlan
from frazil.model.files import FileClosed, FileKind
from frazil.model.ids import TableName, batch_id
from frazil.model.ledger import LedgerEntry
from frazil.model.schema import (
    INT,
    LONG,
    STRING,
    UUID,
    Column,
    Decimal,
    Field,
    KnownTable,
    ListOf,
    MapOf,
    SourceSchema,
    StructOf,
    Type,
    remembered,
)
from frazil.model.write import DeleteMode, ParquetSettings, SchemaConflict, TableOptions
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark
ID = Column("id", LONG, "INT8", "sql", required=True, identity="7.1")


def column(name: str, kind: Type = STRING, number: int | None = None, **more: Any) -> Column:
    return Column(name, kind, "", "sql", identity=None if number is None else f"7.{number}", **more)


def struct(**kinds: Type) -> StructOf:
    return StructOf(tuple(Field(0, name, kind) for name, kind in kinds.items()))


@dataclass
class Mirror:
    """A table that takes appended rows of whatever source schema its source has."""

    spark: SparkSession
    tables: Tables
    committer: IcebergCommitter
    name: TableName
    options: TableOptions = field(default_factory=lambda: TableOptions(mode=DeleteMode.EQUALITY, format_version=2))
    epoch: int = 0
    columns: tuple[Column, ...] = ()

    def becomes(self, *columns: Column) -> LoadedTable:
        """The source has these columns from now on."""
        source_schema = SourceSchema((ID, *columns), ("id",), "sql")
        if self.tables.exists(self.name):
            loaded = self.tables.load(self.name)
            known = KnownTable(loaded.schema, remembered(loaded.properties))
            source_schema = match_columns(self.name, source_schema, known, self.options)
        self.columns = target_columns(self.name, source_schema, self.options.mode)
        return self.tables.ensure(self.name, source_schema, self.options)

    def takes(self, **row: Any) -> None:
        """Publishes one row, by the table's names."""
        self.epoch += 1
        loaded = self.tables.load(self.name)
        wanted = [c for c in self.columns if c.name in row]
        batch = pa.RecordBatch.from_arrays(
            [pa.array([row[c.name]], value_type(c.type)) for c in wanted], names=[c.name for c in wanted]
        )
        path = f"{loaded.location}/data/{uuid4().hex}.parquet"
        writer = RollingWriter(loaded.schema.fields, lambda n: path, ParquetSettings(), {})
        writer.write(Binding(self.name, loaded.schema.fields).bind(batch))
        (file,) = writer.close()
        position = Hlc(self.epoch)
        closed = FileClosed(
            table=self.name, epoch=position, batch_id=batch_id(SHOP, self.name, position), worker=0,
            schema_id=loaded.schema.schema_id, spec_id=loaded.spec.spec_id, path=path, kind=FileKind.DATA,
            records=file.records, size=file.size, metrics=file.metrics, digest=file.digest,
        )  # fmt: skip
        entry = LedgerEntry(
            job=SHOP, batch_id=closed.batch_id, lower=None if self.epoch == 1 else Hlc(self.epoch - 1),
            resolved=position, notes="", fence=FENCE, incarnation="c", config_hash="c", operation="append",
            data_files=1, delete_files=0, rows=1, deletes=0,
        )  # fmt: skip
        answer = self.committer.commit(
            self.name, self.committer.head(self.name), CommitPlan(entry=entry, files=(closed,))
        )
        assert isinstance(answer, Accepted), answer

    def rows(self, where: str = "true") -> list[dict[str, Any]]:
        found = self.spark.sql(f"SELECT * FROM frazil.{self.name.sql} WHERE {where} ORDER BY id").collect()
        return [row.asDict(recursive=True) for row in found]

    def sql(self, text: str) -> None:
        self.spark.sql(text.format(table=f"frazil.{self.name.sql}"))


@pytest.fixture
def main_table(spark: SparkSession, tables: Tables, committer: IcebergCommitter, namespace: str) -> Mirror:
    return Mirror(spark, tables, committer, TableName((namespace,), "t"))


def test_added_and_widened_columns_read_back_from_old_and_new_files(main_table: Mirror) -> None:
    main_table.becomes(column("n", INT), column("d", Decimal(5, 2)))
    main_table.takes(id=1, n=7, d=None)
    main_table.becomes(column("n", LONG), column("d", Decimal(9, 2)), column("new"), column("u", UUID))
    main_table.takes(id=2, n=1 << 40, new="x", u=b"\1" * 16)
    one, two = main_table.rows()
    assert (one["n"], one["new"], one["u"]) == (7, None, None)
    assert (two["n"], two["new"]) == (1 << 40, "x")
    assert main_table.tables.load(main_table.name).properties["write.metadata.metrics.column.u"] == "counts"


def test_a_renamed_column_keeps_its_values(main_table: Mirror) -> None:
    """H30."""
    before = main_table.becomes(column("b", number=2), column("other", number=3))
    main_table.takes(id=1, b="old")
    after = main_table.becomes(column("c", number=2), column("other", number=3))
    main_table.takes(id=2, c="new")
    assert [(row["c"], row["other"]) for row in main_table.rows()] == [("old", None), ("new", None)]
    assert [f.id for f in before.schema] == [f.id for f in after.schema]
    assert main_table.rows("c = 'old'")[0]["id"] == 1, "bounds are by id, too"
    assert main_table.becomes(column("c", number=2), column("other", number=3)).schema == after.schema


def test_a_table_that_was_never_published_to_takes_the_shape_as_it_is(main_table: Mirror) -> None:
    """A run that was killed before its first epoch leaves columns of types that no row has."""
    options = replace(main_table.options, on_conflict=SchemaConflict.NEW_COLUMN)
    for kind in (INT, STRING, INT):
        source_schema = SourceSchema((ID, column("drift", kind)), ("id",), "sql")
        loaded = main_table.tables.ensure(main_table.name, source_schema, options)
        assert [(f.name, f.type) for f in loaded.schema] == [("id", LONG), ("drift", kind)]


def test_what_is_remembered_survives_in_the_table_alone(main_table: Mirror) -> None:
    main_table.becomes(column("b", number=2))
    main_table.becomes(column("c", number=2))
    known = remembered(main_table.tables.load(main_table.name).properties)
    assert [(memory.identity, memory.carried) for memory in known.values()] == [("7.1", ("id",)), ("7.2", ("c", "b"))]


def test_a_name_used_again_is_another_field(main_table: Mirror) -> None:
    """H30: dropped with its values, made again without them."""
    main_table.options = TableOptions(mode=DeleteMode.EQUALITY, format_version=2, drop=True)
    first = main_table.becomes(column("b", number=2), column("x", number=3))
    main_table.takes(id=1, b="old", x="kept")
    main_table.becomes(column("x", number=3))
    assert main_table.rows() == [{"id": 1, "x": "kept"}]
    again = main_table.becomes(column("x", number=3), column("b", number=9))
    main_table.takes(id=2, b="new", x="y")
    assert [row["b"] for row in main_table.rows()] == [None, "new"]
    assert first.schema.field("b").id != again.schema.field("b").id  # type: ignore[union-attr]


def test_a_dropped_column_stays_and_reads_as_null_in_new_rows(main_table: Mirror) -> None:
    main_table.becomes(column("b", number=2), column("x", number=3))
    main_table.takes(id=1, b="old", x="a")
    main_table.becomes(column("x", number=3))
    main_table.takes(id=2, x="b")
    assert [row["b"] for row in main_table.rows()] == ["old", None]


def test_an_incompatible_column_goes_on_in_a_new_one(main_table: Mirror) -> None:
    main_table.becomes(column("amount", LONG, 2))
    main_table.takes(id=1, amount=5)
    with pytest.raises(BadInput, match="'amount' is long"):
        main_table.becomes(column("amount", STRING, 2))
    main_table.options = TableOptions(mode=DeleteMode.EQUALITY, format_version=2, on_conflict=SchemaConflict.NEW_COLUMN)
    main_table.becomes(column("amount", STRING, 2))
    assert [(c.name, c.carried) for c in main_table.columns][1] == ("amount_v2", ("amount",))
    main_table.takes(id=2, amount_v2="five")
    assert [(row["amount"], row["amount_v2"]) for row in main_table.rows()] == [(5, None), (None, "five")]
    main_table.becomes(column("amount", STRING, 2))
    assert [f.name for f in main_table.tables.load(main_table.name).schema] == ["id", "amount", "amount_v2"]


def test_a_required_column_becomes_optional_and_columns_take_the_sources_order(main_table: Mirror) -> None:
    main_table.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS frazil.{main_table.name.namespace[0]}")
    main_table.sql("CREATE TABLE {table} (id bigint NOT NULL, b string NOT NULL, theirs int, a string) USING iceberg")
    main_table.sql("INSERT INTO {table} VALUES (1, 'b1', 9, 'a1')")
    main_table.becomes(column("a"), column("b"))
    main_table.epoch = 0
    main_table.takes(id=2, a="a2", b=None)
    assert [list(row.values()) for row in main_table.rows()] == [[1, "a1", 9, "b1"], [2, "a2", None, None]]
    assert list(main_table.rows()[0]) == ["id", "a", "theirs", "b"]


def test_nested_columns_evolve_at_every_level(main_table: Mirror) -> None:
    main_table.becomes(
        column("s", struct(x=INT, inner=struct(y=INT))),
        column("l", ListOf(struct(x=INT))),
        column("m", MapOf(STRING, struct(x=INT))),
    )
    main_table.takes(id=1, s={"x": 1, "inner": {"y": 2}}, l=[{"x": 3}, None], m=[("k", {"x": 4})])
    main_table.becomes(
        column("s", struct(z=STRING, x=LONG, inner=struct(y=LONG, w=ListOf(STRING)))),
        column("l", ListOf(struct(x=LONG, v=STRING))),
        column("m", MapOf(STRING, struct(x=LONG, u=struct(t=INT)))),
    )
    big = 1 << 40
    main_table.takes(
        id=2,
        s={"z": "z", "x": big, "inner": {"y": big, "w": ["a", None]}},
        l=[{"x": big, "v": "v"}],
        m=[("k", {"x": big, "u": {"t": 5}})],
    )
    one, two = main_table.rows()
    assert one["s"] == {"x": 1, "inner": {"y": 2, "w": None}, "z": None}
    assert one["l"] == [{"x": 3, "v": None}, None]
    assert one["m"] == {"k": {"x": 4, "u": None}}
    assert two["s"] == {"x": big, "inner": {"y": big, "w": ["a", None]}, "z": "z"}
    assert two["l"] == [{"x": big, "v": "v"}]
    assert two["m"] == {"k": {"x": big, "u": {"t": 5}}}
    assert [row["id"] for row in main_table.rows(f"s.inner.y = {big}")] == [2]


def test_the_row_before_of_a_changelog_evolves_along(main_table: Mirror) -> None:
    main_table.options = TableOptions(
        mode=DeleteMode.APPEND_ONLY, format_version=2, on_conflict=SchemaConflict.NEW_COLUMN, drop=True
    )
    main_table.becomes(column("b", INT, 2), column("gone", STRING, 3))
    main_table.takes(id=1, b=1, _op="upsert", _position="1", _before={"id": 1, "b": 0, "gone": "g"})
    main_table.becomes(column("c", LONG, 2), column("new", STRING, 4))
    before = {"id": 1, "c": 1 << 40, "new": "n"}
    main_table.takes(id=2, c=1 << 40, _op="upsert", _position="2", _before=before)
    one, two = main_table.rows()
    assert one["_before"] == {"id": 1, "c": 0, "new": None}
    assert two["_before"] == before


def test_a_foreign_column_in_between_gets_its_own_id(main_table: Mirror) -> None:
    """H55: our files hold our values under our id, whoever was first."""
    main_table.becomes(column("b"))
    main_table.takes(id=1, b="x")
    main_table.sql("ALTER TABLE {table} ADD COLUMN theirs string")
    main_table.becomes(column("b"), column("ours"))
    main_table.takes(id=2, b="y", ours="o")
    main_table.sql("INSERT INTO {table} VALUES (3, 'z', 't', NULL)")
    assert [(row["theirs"], row["ours"]) for row in main_table.rows()] == [(None, None), (None, "o"), ("t", None)]


def test_everything_at_once_is_one_commit(main_table: Mirror) -> None:
    main_table.options = TableOptions(
        mode=DeleteMode.EQUALITY, format_version=2, on_conflict=SchemaConflict.NEW_COLUMN, drop=True
    )
    main_table.becomes(
        column("b", INT, 2), column("gone", STRING, 3), column("amount", LONG, 4), column("s", struct(x=INT))
    )
    main_table.takes(id=1, b=1, gone="g", amount=2, s={"x": 3})
    versions = main_table.spark.sql(f"SELECT * FROM frazil.{main_table.name.sql}.metadata_log_entries").count()
    main_table.becomes(
        column("amount", STRING, 4),
        column("s2", struct(x=LONG, y=INT), 8),
        column("c", LONG, 2),
        column("s", struct(x=LONG)),
    )
    assert (
        main_table.spark.sql(f"SELECT * FROM frazil.{main_table.name.sql}.metadata_log_entries").count() == versions + 1
    )
    main_table.takes(id=2, amount_v2="a", s2={"x": 1, "y": 2}, c=1 << 40, s={"x": 1 << 40})
    one, two = main_table.rows()
    assert (one["c"], one["amount"], one["amount_v2"], one["s"]) == (1, 2, None, {"x": 3})
    assert (two["c"], two["amount"], two["amount_v2"], two["s"]) == (1 << 40, None, "a", {"x": 1 << 40})
    assert "gone" not in one
