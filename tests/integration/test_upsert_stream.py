"""upsert_stream on real Spark: single batches handed over by hand. Streaming queries are in test_upsert_queries.py."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession
from upsert_builders import ALREADY, COLUMNS, NOTHING, PUBLISHED, Change, World

import frazil
from frazil.clock import SystemClock
from frazil.errors import BadInput, ConfigError, Fenced, SourceLost, TableChanged
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.ingest.upsert_stream.api import Upserts
from frazil.model.ids import JobId, TableName
from frazil.model.schema import LONG, STRING, Column, SourceSchema
from frazil.model.write import DeleteMode, TableOptions

pytestmark = pytest.mark.spark


@pytest.fixture
def world(spark: SparkSession, warehouse: Path, namespace: str, committer: IcebergCommitter, tables: Tables) -> World:
    return World(spark, warehouse, TableName((namespace,), "orders"), committer, tables)


def test_a_batch_delivered_twice_is_published_once_and_not_even_read(world: World) -> None:
    assert world.publish(0, [(1, 1, "a", "c")]).result is PUBLISHED
    published = world.publish(1, [(1, 2, "b", "u")])
    unreadable = world.frame([(1, 2, "b", "u")]).selectExpr(
        "id", "version", "CAST(raise_error('read') AS STRING) AS name", "op"
    )
    for process in (world.process, Upserts()):
        again = world.publish(1, unreadable, process)
        assert again.result is ALREADY
        assert again.snapshot_id == published.snapshot_id
        assert again.rows == published.rows == 1
    assert world.publish(0, unreadable).snapshot_id is None
    assert world.snapshots() == 2
    assert world.rows() == [(1, 2, "b")]


def test_another_query_id_is_refused_before_anything_is_written(world: World) -> None:
    """H53."""
    world.publish(5, [(1, 1, "a", "c")])
    with pytest.raises(SourceLost, match="query-2") as caught:
        world.publish(0, [(1, 2, "b", "u")], Upserts(), "query-2")
    assert caught.value.facts["ledger"] == "query-1"
    assert "checkpointLocation" in caught.value.hint
    assert "another pipeline name than stream and the same target" in caught.value.hint
    with pytest.raises(SourceLost, match="query-2"):
        world.publish(6, [(1, 2, "b", "u")], query="query-2")
    assert world.batches() == ["batch:5"]


def test_the_way_out_of_a_lost_checkpoint_works(world: World) -> None:
    """H53: another pipeline name on the same target, reading everything again."""
    world.publish(3, [(1, 1, "a", "c"), (2, 1, "b", "c")])
    told = world.publish(0, [(1, 1, "a", "c"), (2, 2, None, "d"), (3, 1, "c", "c")], query="q2", pipeline="stream2")
    assert told.result is PUBLISHED
    assert world.rows() == [(1, 1, "a"), (3, 1, "c")]


def test_versions_of_a_key_in_one_batch_fold_by_their_order(world: World) -> None:
    """H2, H34."""
    changes = [(1, 3, "newest", "u"), (1, 1, "oldest", "c"), (1, 2, None, "d"), (2, 1, "gone", "c"), (2, 2, None, "d")]
    assert world.publish(0, changes).rows == 1
    assert world.rows() == [(1, 3, "newest")]
    world.publish(1, [(1, 5, None, "DELETE"), (1, 4, "late", "u"), (2, 3, "back", "u")])
    assert world.rows() == [(2, 3, "back")]


def test_two_rows_of_a_key_without_an_order_are_refused(world: World) -> None:
    with pytest.raises(BadInput, match="3 rows for 2 keys") as caught:
        world.publish(0, [(1, 1, "a", "c"), (1, 2, "b", "u"), (2, 1, "c", "c")], order_by=())
    assert "order_by" in caught.value.hint
    assert world.publish(0, [(1, 1, "a", "c"), (2, 1, "c", "c")], order_by=()).result is PUBLISHED
    assert not world.publish(1, [(1, 1, None, "d")], order_by=()).rows
    assert world.rows() == [(2, 1, "c")]


def test_rows_of_a_key_with_the_same_order_are_refused_and_never_chosen_from(world: World) -> None:
    """However Spark's tasks happen to hand them over, and whichever came first."""
    tied = [(1, 1, name, "u") for name in "abcdefgh"]
    for attempt in range(6):
        rows = world.frame([*tied[attempt:], *tied[:attempt], (2, 1, "x", "u")]).repartition(8)
        with pytest.raises(BadInput, match="id=1 have the same order, version=1, and differ in name") as caught:
            world.publish(0, rows)
        assert "order_by" in caught.value.hint
    again = [
        (1, 1, "a", "c"),
        (1, 1, "a", "u"),
        (1, 1, None, "d"),
        (2, 1, "b", "c"),
        (2, 1, "c", "c"),
        (2, 2, "d", "u"),
    ]
    assert world.publish(0, again).rows == 2
    assert world.rows() == [(1, 1, "a"), (2, 2, "d")]


def test_a_null_key_is_an_error_that_leaves_the_table_as_it_was(world: World) -> None:
    """H20: neither rows nor columns of the batch arrive."""
    world.publish(0, [(1, 1, "a", "c")])
    bad = world.frame([(2, 1, "b", "c", "x"), (None, 1, "c", "c", "x")], f"{COLUMNS}, extra string")
    with pytest.raises(BadInput, match="'id' is null in 1 of the 2 rows of batch:1") as caught:
        world.publish(1, bad)
    assert caught.value.facts["table"] == world.table.text
    assert world.rows() == [(1, 1, "a")]
    assert world.spark.table(world.name).columns == ["id", "version", "name"]
    world.publish(1, [(2, 1, "b", "c")])
    assert world.batches() == ["batch:0", "batch:1"]


def test_an_append_only_target_keeps_every_change(world: World) -> None:
    changes = [(1, 1, "a", "c"), (1, 2, "b", "u"), (1, 2, "b", "u"), (1, 3, None, "d")]
    world.publish(0, changes, deletes="append-only")
    world.publish(1, [(1, 4, "c", "c")], deletes="append-only")
    world.publish(1, [(1, 4, "c", "c")], Upserts(), deletes="append-only")
    assert world.rows("id, version, name, _op, _position") == [
        (1, 1, "a", "upsert", "batch:0"),
        (1, 2, "b", "upsert", "batch:0"),
        (1, 4, "c", "upsert", "batch:1"),
        (1, None, None, "delete", "batch:0"),
    ]


def test_an_append_only_target_without_a_key_keeps_every_row(world: World) -> None:
    same = [(1, 1, "a", "c"), (1, 1, "a", "c"), (None, 1, "b", "c")]
    world.publish(0, same, deletes="append-only", key=None, order_by=(), op=None)
    assert world.rows("id, name, op") == [(1, "a", "c"), (1, "a", "c"), (None, "b", "c")]


def test_a_column_that_appears_later_is_added_before_its_rows_are_written(world: World) -> None:
    """H14, H55."""
    world.publish(0, [(1, 1, "a", "c"), (2, 1, "b", "c")])
    wider = world.frame(
        [(1, 2, "a", 9.5, ["x", None], "u")], "id long, version long, name string, p double, t array<string>, op string"
    )
    world.publish(1, wider)
    world.publish(2, [(3, 1, "c", "c")])
    assert world.rows("id, version, name, p, t") == [
        (1, 2, "a", 9.5, ["x", None]),
        (2, 1, "b", None, None),
        (3, 1, "c", None, None),
    ]


def test_a_column_of_another_type_is_refused_with_a_cast_as_hint(world: World) -> None:
    """H39."""
    world.publish(0, [(1, 1, "a", "c")])
    with pytest.raises(BadInput, match="'name' is string") as caught:
        world.publish(1, world.frame([(1, 2, 5, "u")], "id long, version int, name int, op string"))
    assert caught.value.hint.startswith("Cast name to string")
    assert world.batches() == ["batch:0"]


def test_a_batch_without_rows_publishes_nothing_and_the_next_one_follows(world: World) -> None:
    """H31."""
    assert world.publish(0, []).result is NOTHING
    assert not world.tables.exists(world.table)
    world.publish(1, [(1, 1, "a", "c")])
    assert world.publish(2, []).snapshot_id is None
    world.publish(7, [(1, 2, "b", "u")])
    assert world.batches() == ["batch:1", "batch:7"]
    assert [e.lower for e in world.committer.head(world.table).entries(JobId("stream"))][-1] is None


def test_deletes_alone_of_an_empty_table_publish_nothing(world: World) -> None:
    assert world.publish(0, [(1, 1, None, "d")]).result is NOTHING
    assert world.publish(1, [(1, 2, "a", "c")]).result is PUBLISHED
    assert world.rows() == [(1, 2, "a")]


def test_a_second_process_fences_the_first(world: World) -> None:
    """H12."""
    old, new = Upserts(), Upserts()
    world.publish(0, [(1, 1, "a", "c")], old)
    world.publish(1, [(1, 2, "b", "u")], new)
    with pytest.raises(Fenced):
        world.publish(2, [(1, 3, "zombie", "u")], old)
    world.publish(2, [(1, 3, "c", "u")], new)
    assert world.rows() == [(1, 3, "c")]


def test_a_process_takes_its_fence_once(world: World) -> None:
    for number in range(3):
        world.publish(number, [(1, number, "a", "c")])
    entries = world.committer.head(world.table).entries(JobId("stream"))
    assert len({entry.fence for entry in entries}) == 1


def test_a_table_that_is_made_again_under_a_running_query_is_an_error(world: World) -> None:
    """H10."""
    world.publish(0, [(1, 1, "a", "c")])
    world.tables.drop(world.table)
    with pytest.raises(TableChanged, match="was dropped while"):
        world.publish(1, [(1, 2, "b", "u")])
    source_schema = SourceSchema((Column("id", LONG, "", ""), Column("name", STRING, "", "")), ("id",), "")
    world.tables.create(world.table, source_schema, TableOptions(mode=DeleteMode.EQUALITY))
    with pytest.raises(TableChanged, match="created again"):
        world.publish(1, [(1, 2, "b", "u")])
    assert world.snapshots() == 0


def test_a_table_that_was_rolled_back_is_an_error_with_a_way_out(world: World) -> None:
    """H4, H44."""
    first = world.publish(0, [(1, 1, "a", "c")])
    second = world.publish(1, [(1, 2, "b", "u")])
    world.spark.sql(f"CALL frazil.system.rollback_to_snapshot('{world.table.text}', {first.snapshot_id})")
    with pytest.raises(TableChanged, match="rolled back") as caught:
        world.publish(2, [(1, 3, "c", "u")])
    assert f"forward to snapshot {second.snapshot_id}" in caught.value.hint
    world.spark.sql(f"CALL frazil.system.set_current_snapshot('{world.table.text}', {second.snapshot_id})")
    world.publish(2, [(1, 3, "c", "u")])
    assert world.rows() == [(1, 3, "c")]


def test_a_batch_is_evaluated_once(world: World) -> None:
    """H42."""
    evaluated = world.spark.sparkContext.accumulator(0)

    def seen(change: Change) -> Change:
        evaluated.add(1)
        return change

    changes = [(number, 1, "a", "c") for number in range(10)]
    batch = world.spark.createDataFrame(world.spark.sparkContext.parallelize(changes, 2).map(seen), COLUMNS)
    assert world.publish(0, batch, order_by=()).rows == 10
    assert evaluated.value == 10
    assert not batch.storageLevel.useMemory


def test_a_frame_the_caller_keeps_stays_kept(world: World) -> None:
    batch = world.frame([(1, 1, "a", "c")]).persist()
    try:
        world.publish(0, batch)
        assert batch.storageLevel.useMemory
    finally:
        batch.unpersist()


def test_rows_that_somebody_adds_to_the_empty_table_meanwhile_are_replaced_by_key(world: World) -> None:
    """H47: files written for an empty table are not published on one that has rows."""

    class Meddler(SystemClock):
        """Fills the table when the batch's attempt gets its name: after the look, before the commit."""

        meddled = False

        def new_uuid(self) -> UUID:
            if not self.meddled and world.tables.exists(world.table):
                self.meddled = True
                world.spark.sql(f"INSERT INTO {world.name} VALUES (1, 0, 'foreign'), (2, 0, 'foreign')")
            return super().new_uuid()

    clock = Meddler()
    assert world.publish(0, [(1, 1, "a", "c")], Upserts(clock)).result is PUBLISHED
    assert clock.meddled
    assert world.rows() == [(1, 1, "a"), (2, 0, "foreign")]


def test_an_op_column_that_the_target_has_is_stored(world: World) -> None:
    source_schema = SourceSchema((Column("id", LONG, "", ""), Column("op", STRING, "", "")), ("id",), "")
    world.tables.create(world.table, source_schema, TableOptions(mode=DeleteMode.EQUALITY))
    world.publish(0, [(1, 1, "a", "c"), (2, 1, "b", "r")])
    world.publish(1, [(2, 2, None, "d")])
    assert world.rows("id, op, name") == [(1, "c", "a")]


def test_a_column_whose_name_needs_quotes_may_be_key_order_and_op(world: World) -> None:
    columns = "`the key` long, `größe` int, `o-p` boolean"
    chosen = {"key": "the key", "order_by": "größe", "op": "o-p", "delete_values": "true"}
    world.publish(0, world.frame([(1, 1, False), (1, 2, False), (2, 1, None)], columns), **chosen)
    world.publish(1, world.frame([(2, 2, True)], columns), **chosen)
    assert world.rows("*") == [(1, 2)]


def test_a_large_batch_is_written_by_several_tasks_into_one_snapshot(world: World) -> None:
    """H42: duplicates of a key meet in one task, wherever they were read."""
    batch = world.spark.range(0, 400_000, 1, 4).selectExpr(
        "id % 200000 AS id", "CAST(id DIV 200000 AS INT) AS version", "CAST(id AS STRING) AS name", "'c' AS op"
    )
    outcome = world.publish(0, batch)
    assert outcome.rows == 200_000
    (entry,) = world.committer.head(world.table).entries(JobId("stream"))
    assert entry.data_files == 2
    assert world.rows("count(*), count(DISTINCT id), min(version), max(CAST(name AS INT))") == [
        (200_000, 200_000, 1, 399_999)
    ]


def test_a_batch_number_without_a_query_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="no streaming query runs in this thread") as caught:
        frazil.upsert_stream(world.frame([(1, 1, "a", "c")]), 0, **world.with_options())
    assert any("hint:" in note for note in caught.value.__notes__)


def test_a_streaming_frame_is_refused(world: World) -> None:
    streaming = world.spark.readStream.format("rate").load()
    with pytest.raises(ConfigError, match="not the streaming DataFrame itself"):
        world.publish(0, streaming)


def test_nested_columns_are_stored_and_grow(world: World) -> None:
    """A struct that gets a field, a map, and structs inside a list."""
    first = (
        "id int, version int, who struct<name: string, age: int>, tags map<string, int>, lines array<struct<n: int>>"
    )
    world.publish(0, world.frame([(1, 1, ("Ann", 30), {"a": 1}, [(1,), (2,)]), (2, 1, None, None, [])], first), op=None)
    grown = first.replace("age: int>", "age: bigint, city: string>").replace("<n: int>", "<n: int, price: double>")
    changes = [(2, 2, ("Bob", 1 << 40, "Oslo"), {"b": None}, [(3, 0.5)])]
    world.publish(1, world.frame(changes, grown), op=None)
    found = world.spark.sql(f"SELECT id, to_json(struct(who, tags, lines)) FROM {world.name} ORDER BY id").collect()
    assert [(row[0], json.loads(row[1])) for row in found] == [
        (1, {"who": {"name": "Ann", "age": 30}, "tags": {"a": 1}, "lines": [{"n": 1}, {"n": 2}]}),
        (2, {"who": {"name": "Bob", "age": 1 << 40, "city": "Oslo"}, "tags": {"b": None},
             "lines": [{"n": 3, "price": 0.5}]}),
    ]  # fmt: skip
