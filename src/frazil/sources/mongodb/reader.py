"""Reads one split in a task: a range of a collection, or a spool file of its changes; travelling changes come out.

    range    documents between two bounds of _id --raw BSON batches--> payloads as they are, keys from their first bytes
    spool    Arrow file that the driver wrote from the change stream ---> rows as they are

A range is read as of the load's position where the server still can, else as it is now: then what lies between is told
again by the stream, and the row is right once that has passed (H26).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.errors import StorageUnavailable
from frazil.model.arrow import TRAVEL
from frazil.model.change import REPORT_EPOCH, Op
from frazil.model.ports import Cut, Split
from frazil.model.position import ClusterTime
from frazil.sources.mongodb.arrays import texts
from frazil.sources.mongodb.client import connected, timestamp_of
from frazil.sources.mongodb.documents import keys_of
from frazil.sources.mongodb.fields import strangers
from frazil.sources.mongodb.finding import batches
from frazil.sources.mongodb.layout import Bytes
from frazil.sources.mongodb.replies import Batch

DROPPED, BEYOND = -1, -2
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

Assign = Callable[[np.ndarray, np.ndarray, Cut], np.ndarray]


@dataclass(frozen=True, slots=True)
class CollectionReader:
    """`names` are the collections by the index that splits carry. Of those in `mapped` only these top-level fields are
    taken, and others counted. Picklable if `assign` is."""

    uri: str
    names: Mapping[int, str]
    assign: Assign
    mapped: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def read(self, split: Split, cut: Cut) -> Iterator[pa.RecordBatch]:
        """Travel rows of the split within the cut, then its report."""
        count = _Count(split, cut, self.assign, self.mapped.get(split.table))
        for rows in rows_of(self.uri, split):
            taken = count.take(rows)
            if taken is not None:
                yield taken
        yield count.report()


def rows_of(uri: str, split: Split) -> Iterator[pa.RecordBatch]:
    """SPOOLED rows of a split. Raises a Transient error if server or file does not answer, BadInput for an `_id` that
    cannot be read."""
    facts = json.loads(split.facts)
    if "ranged" in facts:
        return _range_rows(uri, facts)
    return _spool_rows(split.name)


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


def _spooled(batch: Batch, position: ClusterTime, table: str) -> pa.RecordBatch:
    data, count = Bytes(batch.data), len(batch.starts)
    starts, ends = np.array(batch.starts, np.int64), np.array(batch.ends, np.int64)
    columns = [
        keys_of(data, starts, ends, table),
        pa.repeat(pa.scalar(position.time, pa.int64()), count),
        pa.repeat(pa.scalar(position.step, pa.int64()), count),
        pa.repeat(pa.scalar(int(Op.UPSERT), pa.int32()), count),
        texts(data, starts, ends),
        pa.nulls(count, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SPOOLED)


class _Count:
    """What becomes of the rows of one split."""

    def __init__(self, split: Split, cut: Cut, assign: Assign, mapped: tuple[str, ...] | None) -> None:
        self._split, self._cut, self._assign, self._mapped = split, cut, assign, mapped
        self._left_out: Counter[str] = Counter()
        self._rows = self._dropped = 0
        self._newest: tuple[int, int] = (-1, 0)

    def take(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """TRAVEL rows of those within the cut."""
        major, minor = rows.column("major").to_numpy(), rows.column("minor").to_numpy()
        epoch = self._assign(major, minor, self._cut)
        kept = epoch >= 0
        self._dropped += int((epoch == DROPPED).sum())
        if len(major):
            last = int(np.lexsort((minor, major))[-1])
            self._newest = max(self._newest, (int(major[last]), int(minor[last])))
        if not kept.any():
            return None
        if not kept.all():
            rows, epoch = rows.filter(pa.array(kept)), epoch[kept]
        count = rows.num_rows
        self._rows += count
        if self._mapped is not None:
            self._left_out.update(strangers(rows.column("payload"), self._mapped))
        columns = {
            "table": pa.repeat(pa.scalar(self._split.table, pa.int32()), count),
            "epoch": pa.array(epoch, pa.int32()),
            "part": pa.repeat(pa.scalar(0, pa.int32()), count),
        }
        arrays = [columns[name] if name in columns else rows.column(name) for name in TRAVEL.names]
        return pa.RecordBatch.from_arrays(arrays, schema=TRAVEL)

    def report(self) -> pa.RecordBatch:
        facts: dict[str, Any] = {"rows": self._rows, "dropped": self._dropped}
        if self._left_out:
            facts["left_out"] = dict(self._left_out.most_common(_NAMED_MAX))
        found = json.dumps(facts).encode()
        row = {
            "table": self._split.table,
            "epoch": REPORT_EPOCH,
            "key": self._split.name,
            "part": 0,
            "major": self._newest[0],
            "minor": self._newest[1],
            "op": int(Op.REPORT),
            "payload": found,
            "before": None,
        }
        return pa.RecordBatch.from_pylist([row], schema=TRAVEL)
