"""The source against a real MongoDB: ranges over ids of all types, the stream's cuts, what ends it. Without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import bson
import pyarrow as pa
import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from mongo_sources import MakeSource, changes, follow, walk, walk_on
from pymongo.database import Database
from pymongo.errors import OperationFailure
from servers.mongod import Mongod

from frazil.model.change import Op, PartitionReport
from frazil.model.frontier import Frontier, LoadProgress, Window
from frazil.sources.base import InputPartition
from frazil.sources.mongodb.decode.document_ids import id_text
from frazil.sources.mongodb.load import ranges
from frazil.sources.mongodb.load import scan as finding
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.schema.profile import look_at
from frazil.sources.mongodb.source import MongoDatabase
from frazil.sources.mongodb.stream import stream_reader as watching

pytestmark = [pytest.mark.servers]

Documents = Database[dict[str, Any]]
MIXED: list[Any] = [
    *(MinKey(), None, -5, 0, Int64(2**40), 1.5, float("nan"), float("-inf"), Decimal128("2.50"), Decimal128("1E+200")),
    *("", "a", "z" * 50, {}, {"a": 1}, {"a": "x"}, b"", b"x", Binary(b"y", 5), UUID(int=3), ObjectId(), ObjectId()),
    *(False, True, datetime(1950, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC), Timestamp(5, 6), MaxKey()),
]


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a few documents, two to a step."""
    monkeypatch.setattr(ranges, "RANGE_DOCUMENTS_MIN", 1)
    monkeypatch.setattr(ranges, "RANGES_MIN", 8)
    monkeypatch.setattr(ranges, "SAMPLES_PER_RANGE", 3)
    monkeypatch.setattr(ranges, "RANGES_PER_STEP", 2)


@pytest.mark.usefixtures("small_ranges")
def test_ranges_hold_every_document_once_whatever_the_type_of_its_id(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    """H33: types are mixed in one collection, and the ends of the order are ids too."""
    database["mixed"].insert_many([{"_id": value, "n": n} for n, value in enumerate(MIXED)])
    name = f"{database.name}.mixed"
    source = make(mongodb.uri, name)
    source.initial({name: None})
    steps = walk(source, mongodb.uri, name)
    keys = [row["key"] for _, rows in steps for row in rows]
    assert sorted(keys) == sorted(id_text(value) for value in MIXED)
    assert len([rows for _, rows in steps if rows]) > 2, "it was cut into several steps"


@pytest.mark.usefixtures("small_ranges")
def test_a_load_goes_on_behind_the_bound_that_was_noted(mongodb: Mongod, database: Documents, make: MakeSource) -> None:
    """H48: the ledger's notes are all that is needed, and ranges that are published are not read again."""
    database["mixed"].insert_many([{"_id": value} for value in MIXED])
    name = f"{database.name}.mixed"
    first = make(mongodb.uri, name)
    first.initial({name: None})
    done = walk(first, mongodb.uri, name, until=2)
    position = done[-1][0]
    noted = first.resume_state(name, position, ())
    second = make(mongodb.uri, name)
    second.initial({name: Frontier(position, noted)})
    rest = walk(second, mongodb.uri, name)
    before = {row["key"] for _, rows in done for row in rows}
    after = [row["key"] for _, rows in rest for row in rows]
    assert not before & set(after)
    assert before | set(after) == {id_text(value) for value in MIXED}
    assert all(found.time == position.time and found > position for found, rows in rest if rows)


@pytest.mark.usefixtures("small_ranges")
def test_a_window_that_is_asked_for_and_then_shortened_leaves_the_rest_resolved(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    database["mixed"].insert_many([{"_id": value} for value in MIXED])
    name = f"{database.name}.mixed"
    source = make(mongodb.uri, name)
    source.initial({name: None})
    first, *rest = source.latest()
    assert rest, "it was cut into several steps"
    whole = source.partitions(Window((first, *rest)), {name: None}, {name: 0})
    shortened = source.partitions(Window((first,)), {name: None}, {name: 0})
    assert 0 < len(shortened) < len(whole)
    assert list(source.latest()) == rest
    behind = source.partitions(Window(tuple(rest)), {name: Frontier(first)}, {name: 0})
    assert [*shortened, *behind] == list(whole)


def test_the_load_shows_the_collection_as_it_was_and_the_stream_tells_the_rest(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    """H26: the position is taken before the scan."""
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_many([{"_id": n, "v": 0} for n in range(20)])
    source = make(mongodb.uri, name)
    source.initial({name: None})
    orders.update_one({"_id": 1}, {"$set": {"v": 1}})
    orders.delete_one({"_id": 2})
    orders.insert_one({"_id": 20, "v": 0})
    (first, *_) = positions = source.latest()
    loaded = changes(mongodb.uri, source.partitions(Window(positions), {name: None}, {name: 0}))
    assert {row["key"]: bson.decode(row["payload"])["v"] for row in loaded} == {id_text(n): 0 for n in range(20)}
    later = [row for _, rows in walk_on(source, mongodb.uri, name, first, wanted=3) for row in rows]
    told = [(row["key"], row["op"]) for row in later]
    assert told == [(id_text(1), Op.UPSERT), (id_text(2), Op.DELETE), (id_text(20), Op.UPSERT)]


def test_a_source_has_caught_up_when_the_stream_has_told_what_had_happened_when_it_was_opened(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    """Not because nothing was offered yet: whoever drains it would leave without the changes in between."""
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_one({"_id": 1})
    first = make(mongodb.uri, name)
    first.initial({name: None})
    (*_, (position, _)) = walk(first, mongodb.uri, name)
    frontier = Frontier(position, first.resume_state(name, position, ()))
    orders.insert_many([{"_id": n} for n in range(2, 50)])
    second = make(mongodb.uri, name)
    second.initial({name: frontier})
    assert not second.is_caught_up, "nobody has looked yet"
    told: list[Any] = []
    while (positions := second.latest()) or not second.is_caught_up:
        for position in positions:
            told += changes(mongodb.uri, second.partitions(Window((position,)), {name: frontier}, {name: 0}))
            frontier = Frontier(position)
    assert [row["key"] for row in told] == [id_text(n) for n in range(2, 50)]


def test_a_range_is_read_as_it_is_now_where_the_past_cannot_be_read_any_more(
    mongodb: Mongod, database: Documents
) -> None:
    database["orders"].insert_many([{"_id": n} for n in range(5)])
    name, long_ago = f"{database.name}.orders", ClusterTime.of(1_000_000_000, 1, 5)
    partition = InputPartition(0, "x", ranges.IdRange(None, None, 5, 100).to_json(name, long_ago), 100)
    found = changes(mongodb.uri, [partition])
    assert [row["key"] for row in found] == [id_text(n) for n in range(5)]
    assert {(row["major"], row["minor"]) for row in found} == {long_ago.order}


def test_what_was_handed_out_is_forgotten_whatever_other_collections_do(
    mongodb: Mongod, database: Documents, make: MakeSource, tmp_path: Path
) -> None:
    """A quiet collection's frontier stays behind for long; the spool must not grow meanwhile, nor the stream wait."""
    busy, quiet = f"{database.name}.busy", f"{database.name}.quiet"
    database["busy"].insert_one({"_id": -1})
    database["quiet"].insert_one({"_id": -1})
    source = make(mongodb.uri, busy, quiet, max_records=1)
    source.initial({busy: None, quiet: None})
    for n in range(20):
        database["busy"].insert_one({"_id": n})
    walk_on(source, mongodb.uri, busy, ClusterTime(0), wanted=20)
    source.latest()
    assert len(list((tmp_path / "spool").rglob("*.arrow"))) <= 1


def opened(source: MongoDatabase, uri: str, name: str) -> ClusterTime:
    """An empty collection's source, where its stream begins."""
    source.initial({name: None})
    return ClusterTime(source._now)


def test_what_a_transaction_does_lies_in_one_epoch_in_its_order(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    """However small an epoch is to be; and a document that it makes and removes is gone."""
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_one({"_id": "before"})
    orders.delete_one({"_id": "before"})
    source = make(mongodb.uri, name, max_records=2)
    start = opened(source, mongodb.uri, name)
    with database.client.start_session() as session, session.start_transaction():
        orders.insert_many([{"_id": n} for n in range(10)], session=session)
        orders.delete_one({"_id": 3}, session=session)
    orders.insert_one({"_id": "after"})
    found = [(at, rows) for at, rows in walk_on(source, mongodb.uri, name, start, wanted=12) if rows]
    assert [len(rows) for _, rows in found] == [11, 1]
    (at, rows), _ = found
    assert {row["major"] for row in rows} == {at.time}
    of_three = sorted((row["minor"], row["op"]) for row in rows if row["key"] == id_text(3))
    assert [op for _, op in of_three] == [Op.UPSERT, Op.DELETE]


def test_an_epoch_ends_at_its_number_of_changes(mongodb: Mongod, database: Documents, make: MakeSource) -> None:
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_one({"_id": -1})
    source = make(mongodb.uri, name, max_records=10, flush_interval=3600.0)
    start = opened(source, mongodb.uri, name)
    for n in range(35):
        orders.insert_one({"_id": n})
    found = walk_on(source, mongodb.uri, name, start, wanted=31)
    assert [len(rows) for at, rows in found if rows and at.time > start.time] == [10, 10, 10]


def test_an_update_of_a_document_that_is_gone_waits_for_its_delete(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_one({"_id": 1})
    source = make(mongodb.uri, name)
    source.initial({name: None})
    start = ClusterTime(source._now)
    source.stop()
    orders.update_one({"_id": 1}, {"$set": {"v": 1}})
    orders.delete_one({"_id": 1})
    source.initial({name: Frontier(start)})
    (change,) = [row for _, rows in walk_on(source, mongodb.uri, name, start, wanted=1) for row in rows]
    assert change["op"] == Op.DELETE


def test_a_collection_that_a_pattern_wants_is_offered_and_its_stream_is_another_cursors(
    mongodb: Mongod, database: Documents, make: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.sources.mongodb.source.LISTED_EVERY", 0.0)
    one, two = f"{database.name}.one", f"{database.name}.two"
    database["one"].insert_one({"_id": 1})
    main = make(mongodb.uri, pattern=f"{database.name}.")
    assert [table.name for table in main.tables()] == [one]
    main.initial({one: None})
    start = main.latest()[-1]
    main.partitions(Window((start,)), {}, {})
    database["two"].insert_one({"_id": 1})
    database["one"].insert_one({"_id": 2})
    assert [table.name for table in main.tables()] == [one, two]
    assert follow(main, mongodb.uri, start, lambda told: told[one], one, two) == {one: [id_text(2)], two: []}
    beside = main.for_tables([two])
    assert [table.name for table in beside.tables()] == [two]
    beside.initial({two: None})
    try:
        ((_, rows), *_) = walk(beside, mongodb.uri, two, until=1)
        assert [row["key"] for row in rows] == [id_text(1)]
        database["one"].insert_one({"_id": 3})
        assert follow(main, mongodb.uri, start, lambda told: told[one], one)[one] == [id_text(3)]
    finally:
        beside.stop()


def test_each_cursor_spools_apart_and_a_start_removes_what_a_crash_left(
    mongodb: Mongod, database: Documents, make: MakeSource, tmp_path: Path
) -> None:
    name = f"{database.name}.orders"
    database["orders"].insert_one({"_id": 0})
    crashed = tmp_path / "spool" / "crashed"
    crashed.mkdir(parents=True)
    (crashed / "in-use").touch()
    (crashed / "00000000-0000.arrow").touch()
    main = make(mongodb.uri, name)
    main.initial({name: None})
    assert not crashed.exists()
    beside = main.for_tables([name])
    beside.initial({name: None})
    assert len(list((tmp_path / "spool").iterdir())) == 2
    beside.stop()
    database["orders"].insert_one({"_id": 1})
    (own,) = (tmp_path / "spool").iterdir()
    assert own.exists()
    main.stop()
    assert not list((tmp_path / "spool").iterdir())


def test_progress_of_a_load_is_told_until_it_is_read(
    mongodb: Mongod, database: Documents, make: MakeSource, small_ranges: None
) -> None:
    name = f"{database.name}.orders"
    database["orders"].insert_many([{"_id": n} for n in range(100)])
    source = make(mongodb.uri, name)
    source.initial({name: None})
    assert source.loading(name) == LoadProgress(0, 100)
    assert source.loading("db.other") is None
    assert not source.is_loaded(None)
    frontier: Frontier | None = None
    seen = []
    while positions := source.latest():
        for position in positions:
            partitions = source.partitions(Window((position,)), {name: frontier}, {name: 0})
            reports = [PartitionReport(0, one.name, len(changes(mongodb.uri, [one])), 0, None) for one in partitions]
            frontier = Frontier(position, source.resume_state(name, position, reports))
            seen.append((source.loading(name), source.is_loaded(frontier)))
    done = [progress.done for progress, _ in seen if progress is not None]
    assert len(done) > 1
    assert done == sorted(set(done))
    assert seen[-1] == (None, True)
    assert not any(loaded for progress, loaded in seen if progress is not None)


def test_a_document_is_looked_at_even_if_another_one_is_damaged(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    orders = database["orders"]
    orders.insert_one({"_id": 1, "a": 1})
    damaged = bson.encode({"_id": 2, "b": "xyz"}).replace(b"xyz", b"x\xffz")
    database.command("insert", "orders", documents=[bson.raw_bson.RawBSONDocument(damaged)])
    name = f"{database.name}.orders"
    source = make(mongodb.uri, name)
    source.initial({name: None})
    positions = source.latest()
    partitions = source.partitions(Window(positions), {name: None}, {name: 0})
    rows = pa.Table.from_pylist(changes(mongodb.uri, partitions))
    assert sorted(rows.column("key").to_pylist()) == [id_text(1), id_text(2)]
    assert list(look_at(mongodb.uri, partitions[0]).seen.fields) == ["_id", "a"]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_range_whose_moment_is_lost_in_the_middle_goes_on_behind_its_last_document(
    mongodb: Mongod, database: Documents, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """No document comes twice, so that ranges need not be compared with each other (H26)."""
    monkeypatch.setattr(finding, "_BATCH", 7)
    database["mixed"].insert_many([{"_id": value} for value in MIXED])
    replies = iter(range(kept + 1))
    read = finding.read_reply

    def failing(reply: bytes) -> Any:
        if next(replies, None) == kept:
            raise OperationFailure("too old", 239)
        return read(reply)

    monkeypatch.setattr(finding, "read_reply", failing)
    now = ClusterTime.of(*_operation_time(database))
    partition = InputPartition(0, "x", ranges.IdRange(None, None, 5, 100).to_json(f"{database.name}.mixed", now), 100)
    keys = [row["key"] for row in changes(mongodb.uri, [partition])]
    assert keys == [id_text(document["_id"]) for document in database["mixed"].find().sort("_id", 1)]


def _operation_time(database: Documents) -> tuple[int, int]:
    time = database.client.admin.command("hello")["operationTime"]
    return time.time, time.inc


def test_where_commands_may_meet_other_servers_the_drivers_cursors_stand_in(
    mongodb: Mongod, database: Documents, make: MakeSource, small_ranges: None
) -> None:
    """The same documents and the same changes, if reading prefers secondaries."""
    database["mixed"].insert_many([{"_id": value} for value in MIXED])
    name, uri = f"{database.name}.mixed", f"{mongodb.uri}&readPreference=secondaryPreferred"
    source = make(uri, name)
    source.initial({name: None})
    steps = walk(source, uri, name)
    assert sorted(row["key"] for _, rows in steps for row in rows) == sorted(id_text(value) for value in MIXED)
    database["mixed"].update_one({"_id": "a"}, {"$set": {"v": 1}})
    database["mixed"].delete_one({"_id": None})
    told = [row for _, rows in walk_on(source, uri, name, steps[-1][0], wanted=2) for row in rows]
    assert [(row["key"], row["op"]) for row in told] == [(id_text("a"), Op.UPSERT), (id_text(None), Op.DELETE)]


def test_changes_of_one_transaction_keep_their_order_across_batches(
    mongodb: Mongod, database: Documents, make: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H34: the stream tells them in several replies, all of one cluster time."""
    monkeypatch.setattr(watching, "_BATCH", 3)
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_one({"_id": "before"})
    source = make(mongodb.uri, name)
    start = opened(source, mongodb.uri, name)
    with database.client.start_session() as session, session.start_transaction():
        orders.insert_many([{"_id": n} for n in range(10)], session=session)
        orders.delete_many({"_id": {"$lt": 5}}, session=session)
    found = walk_on(source, mongodb.uri, name, start, wanted=15)
    told = [row for at, rows in found for row in rows if at.time > start.time]
    assert len({row["major"] for row in told}) == 1
    assert [row["minor"] for row in told] == sorted({row["minor"] for row in told})
    assert [row["op"] for row in told] == [Op.UPSERT] * 10 + [Op.DELETE] * 5
