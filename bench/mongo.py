"""MongoDB beside what a script would do with pymongo, on the same server in the same run.

first load    a pipeline with two workers     beside  one loop: find, flatten, write Parquet
stream        a pipeline that was stopped     beside  one loop that reads the change stream (updateLookup) and no more

Both loops are what a user would write first. The changes are made before the clock starts: half are inserts, half
updates of random documents. The tables must hold what the collection does, or the section fails.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pymongo import InsertOne, MongoClient, UpdateOne
from pymongo.database import Database

from bench.commits import tests_server
from bench.report import Measured, measured
from bench.stage import Bench, say, timed
from frazil.app.pipeline import Pipeline
from frazil.config.pipeline_config import PipelineConfig

FIRST_LOAD_AT_LEAST = 2.0
STREAM_AT_LEAST = 0.8
_WRITTEN_TOGETHER = 5_000
_ROWS_TOGETHER = 50_000
_WORDS = ("open", "paid", "packed", "sent", "returned")
_START = datetime(2024, 1, 1)  # noqa: DTZ001  the driver takes moments without a zone for UTC

Documents = Database[dict[str, Any]]


def mongo(bench: Bench) -> list[Measured]:
    with tests_server("mongod").mongod_server(oplog_mb=4096) as server, MongoClient[Any](server.uri) as client:
        database: Documents = client["shop"]
        chance = random.Random(1)
        _insert(database, "warm", (_order(n, chance) for n in range(bench.sizes.mongo_documents // 10)))
        _insert(database, "orders", (_order(n, chance) for n in range(bench.sizes.mongo_documents)))
        say(f"  {bench.sizes.mongo_documents:,} documents are there")
        with_warm = _config(bench, server.uri, "warm")
        _once(bench, with_warm)
        config = _config(bench, server.uri, "orders")
        return [*_first_load(bench, config, database), *_stream(bench, config, database)]


def _first_load(bench: Bench, config: PipelineConfig, database: Documents) -> list[Measured]:
    count = bench.sizes.mongo_documents
    loop = timed(lambda: _plain_load(database, bench.work / "plain_mongo.parquet"))
    say(f"  the loop has read {count:,} documents in {loop:.1f} s")
    took = timed(lambda: _once(bench, config))
    _check(bench, database)
    name = f"first load of {count:,} documents"
    return [
        measured(f"{name}: pymongo loop, flattened to Parquet", count / loop, "documents/s"),
        measured(f"{name}: Frazil", count / took, "documents/s"),
        measured(f"{name}: Frazil / the loop", loop / took, "x", at_least=FIRST_LOAD_AT_LEAST),
    ]


def _stream(bench: Bench, config: PipelineConfig, database: Documents) -> list[Measured]:
    count = bench.sizes.mongo_changes
    before = database.client.admin.command("hello")["operationTime"]
    _change(database, count)
    say(f"  {count:,} changes are there")
    loop = timed(lambda: _drain(database, before, count))
    took = timed(lambda: _once(bench, config))
    _check(bench, database)
    name = f"stream of {count:,} changes"
    return [
        measured(f"{name}: pymongo loop that only reads", count / loop, "changes/s"),
        measured(f"{name}: Frazil", count / took, "changes/s"),
        measured(f"{name}: Frazil / the loop", loop / took, "x", at_least=STREAM_AT_LEAST),
    ]


def _config(bench: Bench, uri: str, name: str) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "pipeline": f"mongo_{name}",
            "source": {"type": "mongodb", "uri": uri, "poll_interval": "10ms"},
            "catalog": {"type": "builtin", "name": bench.settings.name, "warehouse": bench.settings.warehouse},
            "tables": [{"source": f"shop.{name}", "target": f"bench.mongo_{name}"}],
            "heartbeat": "1d",
            "index": {"directory": str(bench.work / "index" / f"mongo_{name}")},
        }
    )


def _once(bench: Bench, config: PipelineConfig) -> None:
    with Pipeline(config, spark=bench.spark) as pipeline:
        pipeline.run(once=True)


def _check(bench: Bench, database: Documents) -> None:
    """A number of a table that holds something else is worth nothing."""
    expected = next(
        database["orders"].aggregate([{"$group": {"_id": None, "n": {"$sum": 1}, "t": {"$sum": "$total"}}}])
    )
    count, total = bench.spark.sql(f"SELECT count(*), sum(total) FROM {bench.table('mongo_orders')}").collect()[0]
    if count != expected["n"] or abs(total - expected["t"]) > 1e-6 * abs(expected["t"]):
        raise AssertionError(f"the table holds {count} and {total}, not {expected}")


# what a script would do


def _plain_load(database: Documents, path: Path) -> None:
    writer: pq.ParquetWriter | None = None
    rows: list[dict[str, Any]] = []
    schema: pa.Schema | None = None
    for document in database["orders"].find():
        rows.append(_flat(document))
        if len(rows) >= _ROWS_TOGETHER:
            table = pa.Table.from_pylist(rows, schema)
            schema, rows = table.schema, []
            writer = writer or pq.ParquetWriter(path, schema, compression="zstd")
            writer.write_table(table)
    table = pa.Table.from_pylist(rows, schema)
    with writer or pq.ParquetWriter(path, table.schema, compression="zstd") as out:
        out.write_table(table)


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            row.update(_flat(value, f"{prefix}{name}_"))
        else:
            row[prefix + name] = str(value) if name == "_id" else value
    return row


def _drain(database: Documents, start: Any, count: int) -> None:
    left = count
    with database["orders"].watch(full_document="updateLookup", start_at_operation_time=start) as stream:
        for _ in stream:
            left -= 1
            if not left:
                return


# the workload


def _order(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "number": number,
        "customer": {"name": f"customer {number % 9973}", "city": f"city {number % 97}", "zip": number % 99_999},
        "items": [{"sku": f"sku-{chance.randrange(10_000)}", "count": chance.randrange(9)} for _ in range(number % 4)],
        "tags": ["a", "b", "c"][: number % 3],
        "total": chance.randrange(1_000_000) / 100,
        "status": _WORDS[number % len(_WORDS)],
        "at": _START + timedelta(seconds=number),
        "paid": number % 3 == 0,
        "note": f"left at the door of house {number}, as agreed on the phone",
    }


def _insert(database: Documents, name: str, documents: Iterable[dict[str, Any]]) -> None:
    for some in _together(documents):
        database[name].insert_many(some, ordered=False)


def _change(database: Documents, count: int) -> None:
    orders, chance = database["orders"], random.Random(2)
    ids = [document["_id"] for document in orders.find({}, {"_id": 1})]
    inserts = (InsertOne(_order(n, chance)) for n in range(count - count // 2))
    updates = (UpdateOne({"_id": chance.choice(ids)}, {"$set": {"total": n + 0.5}}) for n in range(count // 2))
    for one in (inserts, updates):
        for some in _together(one):
            orders.bulk_write(some, ordered=False)


def _together(things: Iterable[Any]) -> Iterator[list[Any]]:
    some: list[Any] = []
    for thing in things:
        some.append(thing)
        if len(some) == _WRITTEN_TOGETHER:
            yield some
            some = []
    if some:
        yield some
