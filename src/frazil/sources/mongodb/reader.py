"""Reads one partition in a task: a range of a collection, or a spool file of its changes; change rows come out.

    range    documents between two bounds of _id --raw BSON batches--> payloads as they are, keys from their first bytes
    spool    Arrow file that the driver wrote from the change stream ---> rows as they are

A range is read as of the load's position where the server still can, else as it is now: then what lies between is told
again by the stream, and the row is right once that has passed (H26).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from frazil.errors import StorageUnavailable
from frazil.model.change import Op
from frazil.sources.base import Cut, InputPartition
from frazil.sources.cutting_reader import PartitionCutter, ReadChanges
from frazil.sources.mongodb.client.connection import connected, timestamp_of
from frazil.sources.mongodb.decode.field_paths import strangers
from frazil.sources.mongodb.load.scan import batches
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.stream.replies import ReplyBatch

_NAMED_MAX = 100
SPOOLED = pa.schema(
    [
        ("key", pa.string()),
        ("major", pa.int64()),
        ("minor", pa.int64()),
        ("op", pa.int32()),
        ("payload", pa.binary()),
        ("before", pa.binary()),
    ]
)
"""One row of a spool file is one change."""


@dataclass(frozen=True, slots=True)
class CollectionReader:
    """`names` are the collections by the index that partitions carry. Of those in `mapped` only these top-level fields
    are taken, and others counted. Picklable."""

    uri: str
    names: Mapping[int, str]
    mapped: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def read(self, partition: InputPartition, cut: Cut) -> Iterator[pa.RecordBatch]:
        """Change rows of the partition within the cut, then its report."""
        cutter, mapped = PartitionCutter(partition, cut), self.mapped.get(partition.table)
        left_out: Counter[str] = Counter()
        for rows in rows_of(self.uri, partition):
            taken = cutter.take(_changes(rows))
            if taken is None:
                continue
            if mapped is not None:
                left_out.update(strangers(taken.column("payload"), mapped))
            yield taken
        yield cutter.report(left_out=dict(left_out.most_common(_NAMED_MAX)) or None)


def _changes(rows: pa.RecordBatch) -> ReadChanges:
    majors, minors, ops = (rows.column(name).to_numpy() for name in ("major", "minor", "op"))
    return ReadChanges(rows.column("key"), majors, minors, ops, rows.column("payload"), rows.column("before"))


def rows_of(uri: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """SPOOLED rows of a partition. Raises a Transient error if server or file does not answer, BadInput for an `_id`
    that cannot be read."""
    facts = json.loads(partition.facts)
    if "ranged" in facts:
        return _range_rows(uri, facts)
    return _spool_rows(partition.name)


def _spool_rows(path: str) -> Iterator[pa.RecordBatch]:
    try:
        with pa.memory_map(path) as file, pa.ipc.open_stream(file) as batches:
            yield from batches
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageUnavailable(
            f"the spool file {path} cannot be read: {error}",
            hint="Executors must see the driver's spool: set source.spool to a directory that all of them share.",
            path=path,
        ) from error


def _range_rows(uri: str, facts: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    position, name = ClusterTime.parse(facts["at"]), facts["ranged"]
    with connected(uri, name) as client:
        for batch in batches(client, name, facts["lower"], facts["upper"], timestamp_of(position)):
            yield _spooled(batch, position, name)


def _spooled(batch: ReplyBatch, position: ClusterTime, table: str) -> pa.RecordBatch:
    keys, documents = batch.rows(table)
    count = len(keys)
    columns = [
        keys,
        pa.repeat(pa.scalar(position.time, pa.int64()), count),
        pa.repeat(pa.scalar(position.step, pa.int64()), count),
        pa.repeat(pa.scalar(int(Op.UPSERT), pa.int32()), count),
        documents,
        pa.nulls(count, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SPOOLED)
