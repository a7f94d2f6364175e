"""Reads one split in a task: a range of a collection, or a spool file of its changes; travelling changes come out.

    range    find between two bounds of _id --raw BSON batches--> payloads as they are, keys from their first bytes
    spool    Arrow file that the driver wrote from the change stream ---> rows as they are

A range is read as of the load's position where the server still can (snapshot reads reach back five minutes), else as
it is now: then what lies between is told again by the stream, and the row is right once that has passed (H26).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import bson
import numpy as np
import pyarrow as pa
from bson.errors import BSONError
from bson.max_key import MaxKey
from bson.timestamp import Timestamp
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from frazil.errors import BadInput, StorageUnavailable
from frazil.model.arrow import TRAVEL
from frazil.model.change import REPORT_EPOCH, Op
from frazil.model.ports import Cut, Split
from frazil.model.position import ClusterTime
from frazil.sources.mongodb.client import Client, connected, timestamp_of, translation
from frazil.sources.mongodb.ids import CODEC, bound_of, id_text

DROPPED, BEYOND = -1, -2
SPOOLED = pa.schema(
    [("key", pa.string()), ("major", pa.int64()), ("minor", pa.int64()), ("op", pa.int32()), ("payload", pa.binary())]
)
"""One row of a spool file is one change."""

Assign = Callable[[np.ndarray, np.ndarray, Cut], np.ndarray]
_BATCH = 20_000
_NO_SNAPSHOT = frozenset((20, 72, 239, 246, 263))
_LENGTH = struct.Struct("<i")
_LONG = struct.Struct("<q")
_OBJECT_ID, _INT32, _INT64 = 0x07, 0x10, 0x12


@dataclass(frozen=True, slots=True)
class CollectionReader:
    """`names` are the collections by the index that splits carry. Picklable if `assign` is."""

    uri: str
    names: Mapping[int, str]
    assign: Assign

    def read(self, split: Split, cut: Cut) -> Iterator[pa.RecordBatch]:
        """Travel rows of the split within the cut, then its report."""
        count = _Count(split, cut, self.assign)
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
    position = ClusterTime.parse(facts["at"])
    database, _, name = facts["ranged"].partition(".")
    with connected(uri) as client:
        collection = client.get_database(database, codec_options=CODEC)[name]
        for raw in _raw_batches(client, collection, facts, timestamp_of(position)):
            yield from _spooled(raw, position, facts["ranged"])


def _raw_batches(
    client: Client, collection: Collection[Any], facts: Mapping[str, Any], at: Timestamp
) -> Iterator[bytes]:
    given = False
    try:
        with client.start_session(snapshot=True) as session:
            # The driver has no public way yet to choose the moment of a snapshot.
            session._snapshot_time = at  # type: ignore[assignment]
            for raw in _walk(collection, facts, session):
                given = True
                yield raw
        return
    except OperationFailure as error:
        if error.code not in _NO_SNAPSHOT:
            raise translation(error, "", facts["ranged"]) from error
        if given:
            # Rows that were handed on and come again are one row: upserts of one position.
            pass
    yield from _walk(collection, facts, None)


def _walk(collection: Collection[Any], facts: Mapping[str, Any], session: Any) -> Iterator[bytes]:
    cursor = collection.find_raw_batches(session=session, batch_size=_BATCH)
    if facts["lower"] is not None or facts["upper"] is not None:
        cursor = cursor.hint([("_id", 1)])
    if facts["lower"] is not None:
        cursor = cursor.min([("_id", bound_of(facts["lower"]))])
    if facts["upper"] is not None:
        cursor = cursor.max([("_id", bound_of(facts["upper"]))])
    yield from cursor
    if facts["lower"] is not None and facts["upper"] is None:
        # A walk along the index stops before MaxKey, which is an _id like any other.
        yield from collection.find_raw_batches({"_id": MaxKey()}, session=session)


def _spooled(raw: bytes, position: ClusterTime, table: str) -> Iterator[pa.RecordBatch]:
    """The documents of one raw batch, which lie one behind the other: payloads without a copy."""
    keys, places, at = [], [0], 0
    while at < len(raw):
        end = at + _LENGTH.unpack_from(raw, at)[0]
        keys.append(_key_of(raw, at, end, table))
        places.append(end)
        at = end
    if not keys:
        return
    count = len(keys)
    buffers = [None, pa.py_buffer(np.array(places, np.int32)), pa.py_buffer(raw)]
    columns = [
        pa.array(keys, pa.string()),
        pa.repeat(pa.scalar(position.time, pa.int64()), count),
        pa.repeat(pa.scalar(position.step, pa.int64()), count),
        pa.repeat(pa.scalar(int(Op.UPSERT), pa.int32()), count),
        pa.Array.from_buffers(pa.binary(), count, buffers),
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=SPOOLED)


def _key_of(raw: bytes, at: int, end: int, table: str) -> str:
    """The server stores `_id` as a document's first field."""
    if raw[at + 5 : at + 9] == b"_id\x00":
        kind = raw[at + 4]
        if kind == _OBJECT_ID:
            return raw[at + 9 : at + 21].hex()
        if kind == _INT32:
            return f'{{"$numberLong":"{_LENGTH.unpack_from(raw, at + 9)[0]}"}}'
        if kind == _INT64:
            return f'{{"$numberLong":"{_LONG.unpack_from(raw, at + 9)[0]}"}}'
    return key_of(raw[at:end], table)


def key_of(document: bytes, table: str) -> str:
    """The canonical text of a document's `_id`, also if the rest of the document is damaged."""
    try:
        return id_text(bson.decode(_only_id(document), codec_options=CODEC)["_id"])
    except (BSONError, KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{table}: a document has an _id that cannot be read: {error}",
            hint="Find it with db.collection.find().sort({_id: 1}) in mongosh and give it a proper _id.",
            table=table,
        ) from error


def _only_id(document: bytes) -> bytes:
    """The document cut behind its first field where the length of that is told by its type; else the whole."""
    kind = document[4] if document[5:9] == b"_id\x00" else None
    if kind == 0x02:
        size = 4 + _LENGTH.unpack_from(document, 9)[0]
    elif kind in (0x03, 0x04):
        size = _LENGTH.unpack_from(document, 9)[0]
    elif kind == 0x05:
        size = 5 + _LENGTH.unpack_from(document, 9)[0]
    elif kind in _SIZES:
        size = _SIZES[kind]
    else:
        return document
    body = document[4 : 9 + size] + b"\x00"
    return _LENGTH.pack(len(body) + 4) + body


_SIZES = {0x01: 8, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0xFF: 0, 0x7F: 0}


class _Count:
    """What becomes of the rows of one split."""

    def __init__(self, split: Split, cut: Cut, assign: Assign) -> None:
        self._split, self._cut, self._assign = split, cut, assign
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
        columns = {
            "table": pa.repeat(pa.scalar(self._split.table, pa.int32()), count),
            "epoch": pa.array(epoch, pa.int32()),
            "part": pa.repeat(pa.scalar(0, pa.int32()), count),
            "before": pa.nulls(count, pa.binary()),
        }
        arrays = [columns[name] if name in columns else rows.column(name) for name in TRAVEL.names]
        return pa.RecordBatch.from_arrays(arrays, schema=TRAVEL)

    def report(self) -> pa.RecordBatch:
        found = json.dumps({"rows": self._rows, "dropped": self._dropped}).encode()
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
