"""Collections that go away under a running stream, and an oplog that does not reach back: who is lost, who is not."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from mongo_sources import MakeSource, follow
from pymongo import MongoClient
from pymongo.database import Database
from servers.mongod import Mongod, mongod_server

from frazil.errors import SourceLost, SourceUnavailable
from frazil.model.frontier import Frontier, Window
from frazil.sources.mongodb.decode.document_ids import id_text
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.stream.stream_reader import Watching

pytestmark = [pytest.mark.servers]

Documents = Database[dict[str, Any]]


@pytest.mark.parametrize("ending", ["drop", "rename", "rename to"])
def test_a_collection_that_goes_away_is_lost_behind_its_last_change_and_the_others_go_on(
    mongodb: Mongod, database: Documents, make: MakeSource, ending: str
) -> None:
    """H27"""
    orders, name, other = database["orders"], f"{database.name}.orders", f"{database.name}.other"
    database["third"].insert_one({"_id": 5})
    orders.insert_one({"_id": 0})
    database["other"].insert_one({"_id": 0})
    source = make(mongodb.uri, name, other)
    source.initial({name: None, other: None})
    start = source.latest()[-1]
    assert isinstance(start, ClusterTime)
    source.partitions(Window((start,)), {}, {name: 0})
    orders.insert_one({"_id": 1})
    match ending:
        case "drop":
            orders.drop()
        case "rename":
            orders.rename("elsewhere")
        case "rename to":
            database["third"].rename("orders", dropTarget=True)
    database["orders"].insert_one({"_id": 2})
    database["other"].insert_one({"_id": 1})
    told = follow(source, mongodb.uri, start, lambda told: name in source.lost_tables() and told[other], name, other)
    assert told == {name: [id_text(1)], other: [id_text(1)]}
    lost = source.lost_tables()
    assert list(lost) == [name]
    assert isinstance(lost[name], SourceLost)
    assert ("renamed" if "rename" in ending else "dropped") in str(lost[name])
    assert "by itself" in lost[name].hint
    assert "frazil resync" in lost[name].hint
    database["other"].insert_one({"_id": 2})
    database["orders"].insert_one({"_id": 3})
    told = follow(source, mongodb.uri, start, lambda told: told[other], name, other)
    assert told == {name: [], other: [id_text(2)]}


def test_a_dropped_database_takes_its_collections_along_and_no_others(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    elsewhere = database.client[f"{database.name}_b"]
    names = [f"{database.name}.a", f"{database.name}.b", f"{elsewhere.name}.c"]
    for name in names:
        database.client[name.partition(".")[0]][name.partition(".")[2]].insert_one({"_id": 0})
    source = make(mongodb.uri, *names)
    source.initial(dict.fromkeys(names))
    start = source.latest()[-1]
    assert isinstance(start, ClusterTime)
    source.partitions(Window((start,)), {}, {})
    database.client.drop_database(database.name)
    elsewhere["c"].insert_one({"_id": 1})
    told = follow(source, mongodb.uri, start, lambda told: len(source.lost_tables()) == 2 and told[names[2]], *names)
    assert set(source.lost_tables()) == set(names[:2])
    assert told[names[2]] == [id_text(1)]


def test_when_the_only_database_is_dropped_the_stream_ends_without_an_error(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    name = f"{database.name}.orders"
    database["orders"].insert_one({"_id": 0})
    source = make(mongodb.uri, name)
    source.initial({name: None})
    start = source.latest()[-1]
    source.partitions(Window((start,)), {}, {})
    database.client.drop_database(database.name)
    follow(source, mongodb.uri, start, lambda _: name in source.lost_tables(), name)
    assert [source.latest() for _ in range(3)][-1] == ()


def test_a_collection_that_was_made_again_is_another_one(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    orders, name, other = database["orders"], f"{database.name}.orders", f"{database.name}.other"
    orders.insert_one({"_id": 0})
    database["other"].insert_one({"_id": 0})
    source = make(mongodb.uri, name, other)
    source.initial({name: None, other: None})
    (position, *_) = source.latest()
    noted = {one: Frontier(position, source.resume_state(one, position, ())) for one in (name, other)}
    orders.drop()
    orders.insert_one({"_id": 0})
    source.initial(noted)
    assert "another collection" in str(source.lost_tables()[name])
    assert other not in source.lost_tables()
    orders.drop()
    source.initial(noted)
    assert "not there any more" in str(source.lost_tables()[name])
    database["other"].insert_one({"_id": 1})
    assert follow(source, mongodb.uri, position, lambda told: told[other], name, other)[other] == [id_text(1)]


def test_an_oplog_that_has_moved_on_loses_those_that_were_not_further(make: MakeSource) -> None:
    """H27: nothing is skipped silently, and who is further goes on."""
    with mongod_server(oplog_mb=1) as server:
        source = make(server.uri, "db.old", "db.new")
        with MongoClient[dict[str, Any]](server.uri) as client:
            client["db"]["old"].insert_one({"_id": 0})
            client["db"]["new"].insert_one({"_id": 0})
            source.initial({"db.old": None})
            start = ClusterTime(source._now)
            source.stop()
            for n in range(400):
                client["db"]["filler"].insert_one({"_id": n, "x": b"x" * (1 << 16)})
                threading.Event().wait(0.01)
            source.initial({"db.new": None})
            later = ClusterTime(source._now)
            source.stop()
            source.initial({"db.old": Frontier(start), "db.new": Frontier(later)})
            client["db"]["new"].insert_one({"_id": 1})
            told = follow(source, server.uri, later, lambda told: told["db.new"], "db.old", "db.new")
        lost = source.lost_tables()
        assert told == {"db.old": [], "db.new": [id_text(1)]}
        assert list(lost) == ["db.old"]
        assert "oplog no longer holds" in str(lost["db.old"])
        assert "by itself" in lost["db.old"].hint


def test_a_stream_goes_on_behind_its_last_event_when_the_server_comes_back(make: MakeSource) -> None:
    with mongod_server() as server:
        with MongoClient[dict[str, Any]](server.uri) as client:
            client["db"]["orders"].insert_one({"_id": 0})
            source = make(server.uri, "db.orders")
            source.initial({"db.orders": None})
            start = source.latest()[-1]
            source.partitions(Window((start,)), {}, {})
            client["db"]["orders"].insert_one({"_id": 1})
            told = follow(source, server.uri, start, lambda told: told["db.orders"], "db.orders")
        server.stop()
        server.start()
        with MongoClient[dict[str, Any]](server.uri) as client:
            client["db"]["orders"].insert_one({"_id": 2})
            later = follow(source, server.uri, start, lambda told: told["db.orders"], "db.orders")
        assert (told["db.orders"], later["db.orders"]) == ([id_text(1)], [id_text(2)])


def test_a_load_waits_for_a_stream_that_failed(
    mongodb: Mongod, database: Documents, make: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H28: its steps lie behind changes of other collections, which nobody would tell any more."""
    new, old = f"{database.name}.new", f"{database.name}.old"
    database["old"].insert_one({"_id": 0})
    source = make(mongodb.uri, new, old)
    source.initial({old: None})
    start = ClusterTime(source._now)
    source.stop()
    database["old"].insert_one({"_id": 1})
    database["new"].insert_one({"_id": 0})

    def failing(self: Watching, *_: Any) -> None:
        raise SourceUnavailable("gone")

    monkeypatch.setattr(Watching, "_follow", failing)
    source.initial({new: None, old: Frontier(start)})
    with pytest.raises(SourceUnavailable, match="gone"):
        follow(source, mongodb.uri, start, lambda _: True, new, old)
