"""The source against a real MongoDB: ranges over ids of all types, the stream's cuts, what ends it. Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import bson
import pyarrow as pa
import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from pymongo import MongoClient
from pymongo.database import Database
from servers.mongod import Mongod, mongod_server

from frazil.clock import SystemClock
from frazil.errors import ConfigError, SourceLost
from frazil.model.change import Op
from frazil.model.epoch import Frontier, Window
from frazil.model.ports import Split
from frazil.model.position import ClusterTime
from frazil.sources.mongodb import ranges
from frazil.sources.mongodb.ids import id_text
from frazil.sources.mongodb.looking import joined, look_at
from frazil.sources.mongodb.reader import rows_of
from frazil.sources.mongodb.shapes import CollectionSettings
from frazil.sources.mongodb.source import MongoDatabase, Wanted
from frazil.sources.mongodb.stream import Limits

pytestmark = [pytest.mark.servers]

Documents = Database[dict[str, Any]]
MIXED: list[Any] = [
    *(MinKey(), None, -5, 0, Int64(2**40), 1.5, float("nan"), float("-inf"), Decimal128("2.50"), Decimal128("1E+200")),
    *("", "a", "z" * 50, {}, {"a": 1}, {"a": "x"}, b"", b"x", Binary(b"y", 5), UUID(int=3), ObjectId(), ObjectId()),
    *(False, True, datetime(1950, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC), Timestamp(5, 6), MaxKey()),
]


class EachAlike(Mapping[str, CollectionSettings]):
    def __getitem__(self, name: str) -> CollectionSettings:
        return CollectionSettings()

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[list[MongoDatabase]]:
    """Those that are opened here are closed."""
    made: list[MongoDatabase] = []
    yield made
    for source in made:
        source.close()


@pytest.fixture
def make(tmp_path: Path, sources: list[MongoDatabase]) -> Any:
    def source(uri: str, *names: str, pattern: str = "", **limits: Any) -> MongoDatabase:
        made = MongoDatabase(
            uri,
            Wanted(
                named=names, matches=lambda name: bool(pattern) and name.startswith(pattern), has_patterns=bool(pattern)
            ),
            settings=EachAlike(),
            look=lambda splits: joined(look_at(uri, split) for split in splits),
            limits=Limits(**{"flush_interval": 0.05, **limits}),
            spool=tmp_path / "spool",
            clock=SystemClock(),
            tell=lambda *_, **__: None,
        )
        sources.append(made)
        return made

    return source


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a few documents, two to a step."""
    monkeypatch.setattr(ranges, "RANGE_DOCUMENTS_MIN", 1)
    monkeypatch.setattr(ranges, "RANGES_MIN", 8)
    monkeypatch.setattr(ranges, "SAMPLES_PER_RANGE", 3)
    monkeypatch.setattr(ranges, "RANGES_PER_STEP", 2)


def changes(uri: str, splits: Sequence[Split]) -> list[dict[str, Any]]:
    batches = [batch for split in splits for batch in rows_of(uri, split)]
    return [row for batch in batches for row in batch.to_pylist()]


def walk(source: MongoDatabase, uri: str, name: str, until: int = 0) -> list[tuple[ClusterTime, list[dict[str, Any]]]]:
    """Each resolved position with its changes, as a run would take them, until nothing is offered any more."""
    frontier: Frontier | None = None
    found = []
    while positions := source.poll():
        for position in positions:
            assert isinstance(position, ClusterTime)
            splits = source.splits(Window((position,)), {name: frontier}, {name: 0})
            found.append((position, changes(uri, splits)))
            frontier = Frontier(position, source.notes(name, position, ()))
            if until and len(found) >= until:
                return found
    return found


@pytest.mark.usefixtures("small_ranges")
def test_ranges_hold_every_document_once_whatever_the_type_of_its_id(
    mongodb: Mongod, database: Documents, make: Any
) -> None:
    """H33: types are mixed in one collection, and the ends of the order are ids too."""
    database["mixed"].insert_many([{"_id": value, "n": n} for n, value in enumerate(MIXED)])
    name = f"{database.name}.mixed"
    source = make(mongodb.uri, name)
    source.open({name: None})
    steps = walk(source, mongodb.uri, name)
    keys = [row["key"] for _, rows in steps for row in rows]
    assert sorted(keys) == sorted(id_text(value) for value in MIXED)
    assert len([rows for _, rows in steps if rows]) > 2, "it was cut into several steps"


@pytest.mark.usefixtures("small_ranges")
def test_a_load_goes_on_behind_the_bound_that_was_noted(mongodb: Mongod, database: Documents, make: Any) -> None:
    """H48: the ledger's notes are all that is needed, and ranges that are published are not read again."""
    database["mixed"].insert_many([{"_id": value} for value in MIXED])
    name = f"{database.name}.mixed"
    first = make(mongodb.uri, name)
    first.open({name: None})
    done = walk(first, mongodb.uri, name, until=2)
    position = done[-1][0]
    noted = first.notes(name, position, ())
    second = make(mongodb.uri, name)
    second.open({name: Frontier(position, noted)})
    rest = walk(second, mongodb.uri, name)
    before = {row["key"] for _, rows in done for row in rows}
    after = [row["key"] for _, rows in rest for row in rows]
    assert not before & set(after)
    assert before | set(after) == {id_text(value) for value in MIXED}
    assert all(found.time == position.time and found > position for found, rows in rest if rows)


def test_the_load_shows_the_collection_as_it_was_and_the_stream_tells_the_rest(
    mongodb: Mongod, database: Documents, make: Any
) -> None:
    """H26: the position is taken before the scan."""
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_many([{"_id": n, "v": 0} for n in range(20)])
    source = make(mongodb.uri, name)
    source.open({name: None})
    orders.update_one({"_id": 1}, {"$set": {"v": 1}})
    orders.delete_one({"_id": 2})
    orders.insert_one({"_id": 20, "v": 0})
    (first, *_) = positions = source.poll()
    loaded = changes(mongodb.uri, source.splits(Window(positions), {name: None}, {name: 0}))
    assert {row["key"]: bson.decode(row["payload"])["v"] for row in loaded} == {id_text(n): 0 for n in range(20)}
    later = [row for _, rows in walk_on(source, mongodb.uri, name, first, wanted=3) for row in rows]
    told = [(row["key"], row["op"]) for row in later]
    assert told == [(id_text(1), Op.UPSERT), (id_text(2), Op.DELETE), (id_text(20), Op.UPSERT)]


def test_a_range_is_read_as_it_is_now_where_the_past_cannot_be_read_any_more(
    mongodb: Mongod, database: Documents
) -> None:
    database["orders"].insert_many([{"_id": n} for n in range(5)])
    name, long_ago = f"{database.name}.orders", ClusterTime.of(1_000_000_000, 1, 5)
    split = Split(0, "x", ranges.IdRange(None, None, 5, 100).to_json(name, long_ago), 100)
    found = changes(mongodb.uri, [split])
    assert [row["key"] for row in found] == [id_text(n) for n in range(5)]
    assert {(row["major"], row["minor"]) for row in found} == {long_ago.order}


def test_what_was_handed_out_is_forgotten_whatever_other_collections_do(
    mongodb: Mongod, database: Documents, make: Any, tmp_path: Path
) -> None:
    """A quiet collection's frontier stays behind for long; the spool must not grow meanwhile, nor the stream wait."""
    busy, quiet = f"{database.name}.busy", f"{database.name}.quiet"
    database["busy"].insert_one({"_id": -1})
    database["quiet"].insert_one({"_id": -1})
    source = make(mongodb.uri, busy, quiet, max_records=1)
    source.open({busy: None, quiet: None})
    for n in range(20):
        database["busy"].insert_one({"_id": n})
    walk_on(source, mongodb.uri, busy, ClusterTime(0), wanted=20)
    source.poll()
    assert len(list((tmp_path / "spool").rglob("*.arrow"))) <= 1


def walk_on(
    source: MongoDatabase, uri: str, name: str, after: ClusterTime, wanted: int
) -> list[tuple[ClusterTime, list[dict[str, Any]]]]:
    """What the stream tells beyond a position, until so many changes were met."""
    found: list[tuple[ClusterTime, list[dict[str, Any]]]] = []
    frontier = Frontier(after)
    for _ in range(400):
        for position in source.poll():
            assert isinstance(position, ClusterTime)
            splits = source.splits(Window((position,)), {name: frontier}, {name: 0})
            found.append((position, changes(uri, splits)))
            frontier = Frontier(position)
        if sum(len(rows) for _, rows in found) >= wanted:
            return found
        threading.Event().wait(0.05)
    raise AssertionError(f"only {found} came")


def opened(source: MongoDatabase, uri: str, name: str) -> ClusterTime:
    """An empty collection's source, where its stream begins."""
    source.open({name: None})
    return ClusterTime(source._start)


def test_what_a_transaction_does_lies_in_one_epoch_in_its_order(
    mongodb: Mongod, database: Documents, make: Any
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


def test_an_epoch_ends_at_its_number_of_changes(mongodb: Mongod, database: Documents, make: Any) -> None:
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_one({"_id": -1})
    source = make(mongodb.uri, name, max_records=10, flush_interval=3600.0)
    start = opened(source, mongodb.uri, name)
    for n in range(35):
        orders.insert_one({"_id": n})
    found = walk_on(source, mongodb.uri, name, start, wanted=31)
    assert [len(rows) for at, rows in found if rows and at.time > start.time] == [10, 10, 10]


def test_an_update_of_a_document_that_is_gone_waits_for_its_delete(
    mongodb: Mongod, database: Documents, make: Any
) -> None:
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_one({"_id": 1})
    source = make(mongodb.uri, name)
    source.open({name: None})
    start = ClusterTime(source._start)
    source.close()
    orders.update_one({"_id": 1}, {"$set": {"v": 1}})
    orders.delete_one({"_id": 1})
    source.open({name: Frontier(start)})
    (change,) = [row for _, rows in walk_on(source, mongodb.uri, name, start, wanted=1) for row in rows]
    assert change["op"] == Op.DELETE


def test_post_images_show_each_document_as_it_was_then(mongodb: Mongod, database: Documents, make: Any) -> None:
    database.create_collection("orders", changeStreamPreAndPostImages={"enabled": True})
    orders, name = database["orders"], f"{database.name}.orders"
    source = make(mongodb.uri, name)
    source.open({name: None})
    start = ClusterTime(source._start)
    source.close()
    orders.insert_one({"_id": 1, "v": 0})
    for v in (1, 2, 3):
        orders.update_one({"_id": 1}, {"$set": {"v": v}})
    orders.delete_one({"_id": 1})
    source.open({name: Frontier(start)})
    told = [row for _, rows in walk_on(source, mongodb.uri, name, start, wanted=5) for row in rows]
    assert [bson.decode(row["payload"])["v"] for row in told if row["op"] == Op.UPSERT] == [0, 1, 2, 3]
    assert "post-images are on" in " ".join(source.remarks(name))


def test_without_post_images_check_says_that_updates_are_looked_up(
    mongodb: Mongod, database: Documents, make: Any
) -> None:
    database["orders"].insert_one({"_id": 1})
    remarks = " ".join(make(mongodb.uri, f"{database.name}.orders").remarks(f"{database.name}.orders"))
    assert "updateLookup" in remarks
    assert "collMod" in remarks


@pytest.mark.parametrize("ending", ["drop", "rename", "drop database"])
def test_a_collection_that_goes_away_ends_the_stream_behind_what_came_before(
    mongodb: Mongod, database: Documents, make: Any, ending: str
) -> None:
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_one({"_id": 0})
    other = f"{database.name}.other"
    database["other"].insert_one({"_id": 0})
    source = make(mongodb.uri, name, other, flush_interval=3600.0)
    source.open({name: None, other: None})
    start = source.poll()[-1]
    source.splits(Window((start,)), {}, {name: 0})
    orders.insert_one({"_id": 1})
    match ending:
        case "drop":
            orders.drop()
        case "rename":
            orders.rename("elsewhere")
        case "drop database":
            database.client.drop_database(database.name)
    assert isinstance(start, ClusterTime)
    found = walk_on(source, mongodb.uri, name, start, wanted=1)
    assert [row["key"] for _, rows in found for row in rows] == [id_text(1)]
    with pytest.raises(SourceLost, match=r"dropped|renamed") as lost:
        walk_on(source, mongodb.uri, name, found[-1][0], wanted=1)
    assert "loaded anew" in lost.value.hint


def test_a_collection_that_was_made_again_is_another_one(mongodb: Mongod, database: Documents, make: Any) -> None:
    orders, name = database["orders"], f"{database.name}.orders"
    orders.insert_one({"_id": 0})
    source = make(mongodb.uri, name)
    source.open({name: None})
    (position, *_) = source.poll()
    noted = source.notes(name, position, ())
    orders.drop()
    orders.insert_one({"_id": 0})
    with pytest.raises(SourceLost, match="another collection"):
        source.open({name: Frontier(position, noted)})


def test_a_collection_that_a_pattern_wants_is_taken_up_when_it_appears(
    mongodb: Mongod, database: Documents, make: Any
) -> None:
    database["one"].insert_one({"_id": 1})
    source = make(mongodb.uri, pattern=f"{database.name}.")
    assert [table.name for table in source.tables()] == [f"{database.name}.one"]
    source.open({})
    database["two"].insert_one({"_id": 1})
    with pytest.raises(Exception, match=r"a new collection db\d+\.two"):
        walk_on(source, mongodb.uri, f"{database.name}.one", ClusterTime(0), wanted=99)
    source.open({})
    assert [table.name for table in source.tables()] == [f"{database.name}.one", f"{database.name}.two"]


def test_an_oplog_that_has_moved_on_says_so(make: Any) -> None:
    """H27: nothing is skipped silently."""
    with mongod_server(oplog_mb=1) as server:
        source = make(server.uri, "db.orders")
        source.open({"db.orders": None})
        start = ClusterTime(source._start)
        source.close()
        with MongoClient[dict[str, Any]](server.uri) as client:
            for n in range(400):
                client["db"]["filler"].insert_one({"_id": n, "x": b"x" * (1 << 16)})
                threading.Event().wait(0.01)
        source.open({"db.orders": Frontier(start)})
        with pytest.raises(SourceLost, match="oplog no longer holds") as lost:
            walk_on(source, server.uri, "db.orders", ClusterTime(0), wanted=1)
        assert "loaded anew" in lost.value.hint


def test_a_server_that_stands_alone_is_refused_with_what_to_do(make: Any) -> None:
    with mongod_server(replica_set=False) as server, pytest.raises(ConfigError, match="stands alone") as refused:
        make(server.uri, "db.orders").tables()
    assert "rs.initiate()" in refused.value.hint


def test_wrong_credentials_are_told_without_the_password(mongodb: Mongod, make: Any) -> None:
    uri = mongodb.uri.replace("127.0.0.1", "frazil:wr0ng@127.0.0.1")
    with pytest.raises(ConfigError, match="refused the user or password") as refused:
        make(uri, "db.orders").tables()
    assert "wr0ng" not in str(refused.value)


def test_a_collection_that_is_not_there_yet_is_said_to_be_missing(
    mongodb: Mongod, database: Documents, make: Any
) -> None:
    name = f"{database.name}.ordres"
    source = make(mongodb.uri, name)
    assert "no such collection" in source.remarks(name)[0]
    source.open({name: None})
    assert source.poll() == ()
    database["ordres"].insert_one({"_id": 1})
    assert walk_on(source, mongodb.uri, name, ClusterTime(0), wanted=1)


def test_a_document_is_looked_at_even_if_another_one_is_damaged(
    mongodb: Mongod, database: Documents, make: Any
) -> None:
    orders = database["orders"]
    orders.insert_one({"_id": 1, "a": 1})
    damaged = bson.encode({"_id": 2, "b": "xyz"}).replace(b"xyz", b"x\xffz")
    database.command("insert", "orders", documents=[bson.raw_bson.RawBSONDocument(damaged)])
    name = f"{database.name}.orders"
    source = make(mongodb.uri, name)
    source.open({name: None})
    positions = source.poll()
    splits = source.splits(Window(positions), {name: None}, {name: 0})
    rows = pa.Table.from_pylist(changes(mongodb.uri, splits))
    assert sorted(rows.column("key").to_pylist()) == [id_text(1), id_text(2)]
    assert list(look_at(mongodb.uri, splits[0]).seen.fields) == ["_id", "a"]
