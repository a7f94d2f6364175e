"""Which version of a document a change shows: post-images, look-ups, pre-images, and documents as large as can be."""

from __future__ import annotations

import json
import threading
from typing import Any

import bson
import pytest
from bson import MaxKey, ObjectId
from mongo_sources import MakeSource, walk, walk_on
from pymongo.database import Database
from servers.mongod import Mongod

from frazil.errors import ConfigError
from frazil.model.change import Op, PartitionReport
from frazil.model.frontier import Frontier, Window
from frazil.sources.cutting_reader import cut_of
from frazil.sources.mongodb.decode.document_ids import id_text
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.schema.mapping import MappedField

pytestmark = [pytest.mark.servers]

Documents = Database[dict[str, Any]]


def test_post_images_show_each_document_as_it_was_then(mongodb: Mongod, database: Documents, make: MakeSource) -> None:
    database.create_collection("orders", changeStreamPreAndPostImages={"enabled": True})
    orders, name = database["orders"], f"{database.name}.orders"
    source = make(mongodb.uri, name)
    source.initial({name: None})
    start = ClusterTime(source._now)
    source.stop()
    orders.insert_one({"_id": 1, "v": 0})
    for v in (1, 2, 3):
        orders.update_one({"_id": 1}, {"$set": {"v": v}})
    orders.delete_one({"_id": 1})
    source.initial({name: Frontier(start)})
    told = [row for _, rows in walk_on(source, mongodb.uri, name, start, wanted=5) for row in rows]
    assert [bson.decode(row["payload"])["v"] for row in told if row["op"] == Op.UPSERT] == [0, 1, 2, 3]
    assert "post-images are on" in " ".join(source.remarks(name))


def test_without_post_images_check_says_that_updates_are_looked_up(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    database["orders"].insert_one({"_id": 1})
    remarks = " ".join(make(mongodb.uri, f"{database.name}.orders").remarks(f"{database.name}.orders"))
    assert "updateLookup" in remarks
    assert "collMod" in remarks


def test_each_collection_is_as_exact_as_its_images_allow(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    """One stream for both: what the server keeps is shown as it was, the rest is looked up."""
    database.create_collection("exact", changeStreamPreAndPostImages={"enabled": True})
    names = [f"{database.name}.exact", f"{database.name}.plain"]
    source = make(mongodb.uri, *names)
    source.initial(dict.fromkeys(names))
    start = ClusterTime(source._now)
    source.stop()
    for collection in ("exact", "plain"):
        database[collection].insert_one({"_id": 1, "v": 0})
        for v in (1, 2, 3):
            database[collection].update_one({"_id": 1}, {"$set": {"v": v}})
    source.initial(dict.fromkeys(names, Frontier(start)))
    for name, values in zip(names, ([0, 1, 2, 3], [0, 3, 3, 3]), strict=True):
        told = [row for _, rows in walk_on(source, mongodb.uri, name, start, wanted=4) for row in rows]
        assert [bson.decode(row["payload"])["v"] for row in told] == values
        source.stop()
        source.initial(dict.fromkeys(names, Frontier(start)))


def test_many_updates_are_looked_up_together_and_each_key_gets_its_own_document(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    name, ids = f"{database.name}.orders", [1, 2.5, "a", "3", None, {"a": 1}, b"x", ObjectId(), MaxKey(), True]
    database["orders"].insert_many([{"_id": value, "n": n} for n, value in enumerate(ids)])
    database["orders"].insert_many([{"_id": f"k{n}", "n": n} for n in range(3000)])
    source = make(mongodb.uri, name)
    source.initial({name: None})
    start = ClusterTime(source._now)
    source.stop()
    database["orders"].update_many({}, {"$inc": {"n": 10_000}})
    database["orders"].delete_one({"_id": "k7"})
    source.initial({name: Frontier(start)})
    told = [row for _, rows in walk_on(source, mongodb.uri, name, start, wanted=3010) for row in rows]
    found = {row["key"]: bson.decode(row["payload"])["n"] for row in told if row["op"] == Op.UPSERT}
    expected = {id_text(value): n + 10_000 for n, value in enumerate(ids)}
    expected |= {id_text(f"k{n}"): n + 10_000 for n in range(3000) if n != 7}
    assert found == expected
    assert [row["key"] for row in told if row["op"] == Op.DELETE] == ["k7"]


def test_documents_as_they_were_before_are_told_where_they_are_wanted(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    database.create_collection("orders", changeStreamPreAndPostImages={"enabled": True})
    name = f"{database.name}.orders"
    source = make(mongodb.uri, name, settings={"wants_before": True})
    source.initial({name: None})
    start = ClusterTime(source._now)
    source.stop()
    database["orders"].insert_one({"_id": 1, "v": 0})
    database["orders"].update_one({"_id": 1}, {"$set": {"v": 1}})
    database["orders"].replace_one({"_id": 1}, {"v": 2})
    database["orders"].delete_one({"_id": 1})
    source.initial({name: Frontier(start)})
    told = [row for _, rows in walk_on(source, mongodb.uri, name, start, wanted=4) for row in rows]
    befores = [row["before"] if row["before"] == b"null" else bson.decode(row["before"])["v"] for row in told]
    assert befores == [b"null", 0, 1, 2]


def test_a_changelog_of_a_collection_without_images_is_refused_with_the_command_that_helps(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    database["orders"].insert_one({"_id": 1})
    name = f"{database.name}.orders"
    source = make(mongodb.uri, name, settings={"wants_before": True})
    with pytest.raises(ConfigError, match="no pre-images") as refused:
        source.initial({name: None})
    assert refused.value.facts["table"] == name
    assert "collMod" in refused.value.hint
    assert "pre-images" in " ".join(source.remarks(name))


def test_documents_of_sixteen_megabytes_come_through_load_and_stream(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    name, largest = f"{database.name}.orders", b"x" * ((16 << 20) - 100)
    database["orders"].insert_one({"_id": 1, "x": largest})
    source = make(mongodb.uri, name)
    source.initial({name: None})
    ((start, loaded),) = walk(source, mongodb.uri, name, until=1)
    assert [len(bson.decode(row["payload"])["x"]) for row in loaded] == [len(largest)]
    database["orders"].insert_one({"_id": 2, "x": largest})
    database["orders"].update_one({"_id": 1}, {"$set": {"x": largest[1:]}})
    told = [row for _, rows in walk_on(source, mongodb.uri, name, start, wanted=2) for row in rows]
    assert [(row["key"], len(bson.decode(row["payload"])["x"])) for row in told] == [
        (id_text(2), len(largest)),
        (id_text(1), len(largest) - 1),
    ]


def test_an_event_that_is_too_large_with_its_images_comes_without_them(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    database.create_collection("orders", changeStreamPreAndPostImages={"enabled": True})
    name = f"{database.name}.orders"
    source = make(mongodb.uri, name, settings={"wants_before": True})
    source.initial({name: None})
    start = ClusterTime(source._now)
    source.stop()
    database["orders"].insert_one({"_id": 1, "v": 0, "x": b"x" * (10 << 20)})
    database["orders"].update_one({"_id": 1}, {"$set": {"v": 1}})
    database["orders"].insert_one({"_id": 2, "v": 0})
    database["orders"].update_one({"_id": 2}, {"$set": {"v": 2}})
    source.initial({name: Frontier(start)})
    told = [row for _, rows in walk_on(source, mongodb.uri, name, start, wanted=4) for row in rows]
    found = [(row["key"], bson.decode(row["payload"])["v"], row["before"] is not None) for row in told]
    assert found == [(id_text(1), 0, True), (id_text(1), 1, False), (id_text(2), 0, True), (id_text(2), 2, True)]


def test_a_load_that_counts_otherwise_than_the_server_is_told_if_nothing_changed(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    name = f"{database.name}.orders"
    database["orders"].insert_many([{"_id": n} for n in range(10)])
    source = make(mongodb.uri, name)
    for change, warnings in ((False, 1), (True, 0)):
        make.warned.clear()
        source.initial({name: None})
        positions = source.latest()
        partitions = source.partitions(Window(positions), {name: None}, {name: 0})
        if change:
            database["orders"].insert_one({"_id": 10})
        source.resume_state(
            name, positions[-1], [PartitionReport(0, partition.name, 7, 0, None) for partition in partitions]
        )
        for _ in range(100):
            source.latest()
            threading.Event().wait(0.02)
            if make.warned:
                break
        assert [(facts["documents"], facts["documents_now"]) for _, facts in make.warned] == [(7, 10)] * warnings


def test_fields_that_an_explicit_mapping_leaves_out_are_counted_and_told_once(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    name = f"{database.name}.orders"
    fields = (MappedField("customer.name", "customer", "string"),)
    database["orders"].insert_many([{"_id": n, "customer": {"name": "x"}, "a": 1, "b": None} for n in range(5)])
    source = make(mongodb.uri, name, settings={"fields": fields})
    source.initial({name: None})
    positions = source.latest()
    partitions = source.partitions(Window(positions), {name: None}, {name: 0})
    reader, cut = source.reader({name: 0}, {}), cut_of(Window(positions), None)
    told = [row for partition in partitions for row in list(reader.read(partition, cut))[-1].to_pylist()]
    reports = [
        PartitionReport(0, row["key"], 5, 0, None, json.loads(row["payload"])["left_out"])
        for row in told
        if row["op"] == Op.REPORT
    ]
    for _ in range(2):
        source.resume_state(name, positions[-1], reports)
    assert source.left_out(name) == {"a": 5}
    assert [facts for sentence, facts in make.told if "'a' is not mapped" in sentence] == [{"table": name}]
