"""A batch of events of the change stream, read as columns.

{_id, operationType, clusterTime, ns, documentKey, fullDocument?, fullDocumentBeforeChange?, to?}  of thousands
    --> times, ops, collections as codes; where keys and documents lie
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import bson
import numpy as np
import pyarrow as pa

from frazil.data.pieces import pieces
from frazil.errors import SourceUnavailable
from frazil.sources.mongodb.decode import bson_scan as layout
from frazil.sources.mongodb.decode.bson_scan import Found, Ints, Uneven, walk
from frazil.sources.mongodb.decode.document_ids import CODEC
from frazil.sources.mongodb.decode.documents import keys_of
from frazil.sources.mongodb.stream.replies import ReplyBatch

_FIELDS = tuple(
    name.encode()
    for name in (
        *("_id", "operationType", "clusterTime", "fullDocument", "ns", "to", "documentKey"),
        "fullDocumentBeforeChange",
    )
)


class Events:
    """In the order of the stream. `times` never descend; `ops` and `names` are codes into `all_ops` and `all_names`;
    what is about no collection has the name of its database and a dot."""

    def __init__(self, batch: ReplyBatch) -> None:
        """Raises Uneven."""
        self._data, starts, ends = batch.located
        walked = walk(self._data, starts, ends, _FIELDS)
        self._tokens, ops, times, self._documents, places, self._to, self._keys, self._befores = walked.fields
        if (times.kind != layout.TIMESTAMP).any() or (ops.kind != layout.STRING).any():
            raise Uneven
        self.times: Ints = self._data.i8[times.at]
        self.sizes: Ints = ends - starts
        self.ops, spelled = _coded(pieces(self._data.u1, ops.at + 4, ops.at + 3 + self._data.i4[ops.at]))
        self.all_ops = [op.decode() for op in spelled]
        self.names, known = _coded(self._bytes_of(places))
        self.all_names: list[str] = [_name(raw) for raw in known]

    def __len__(self) -> int:
        return len(self.times)

    def token(self, row: int) -> str:
        return str(self._document(self._tokens, row)["_data"])

    def to(self, row: int) -> dict[str, Any] | None:
        """Where a collection was renamed to."""
        return self._document(self._to, row) if self._to.kind[row] == layout.DOCUMENT else None

    def keys(self, rows: Ints, table: str) -> pa.Array:
        places = self._keys.chosen(rows)
        return keys_of(self._data, places.at, places.at + self._data.i4[places.at], table)

    def ids(self, rows: Ints) -> list[Any]:
        """The `_id`s as the driver knows them."""
        raw = b"".join(self._bytes_of(self._keys.chosen(rows)).to_pylist())
        return [document["_id"] for document in bson.decode_all(raw, codec_options=CODEC)]

    def has_document(self, rows: Ints) -> layout.Bits:
        found: layout.Bits = self._documents.kind[rows] == layout.DOCUMENT
        return found

    def documents(self, rows: Ints) -> pa.Array:
        """Of events that have one."""
        return self._bytes_of(self._documents.chosen(rows))

    def befores(self, rows: Ints) -> pa.Array:
        """Documents as they were before, null where that is not told, `null` in JSON where there was none."""
        found = self._befores.chosen(rows)
        there = found.kind == layout.DOCUMENT
        known = pa.concat_arrays([self._bytes_of(found.chosen(there)), pa.array([b"null"], pa.binary())])
        inserted = self.ops[rows] == (self.all_ops.index("insert") if "insert" in self.all_ops else -1)
        places = np.where(inserted, len(known) - 1, np.cumsum(there) - 1)
        return known.take(pa.array(places, mask=~(there | inserted)))

    def _bytes_of(self, found: Found) -> pa.Array:
        """Documents as they lie there; empty where there is none."""
        there = found.kind == layout.DOCUMENT
        sizes = np.where(there, self._data.i4[found.at], 0)
        if there.all():
            return pieces(self._data.u1, found.at, found.at + sizes)
        known = found.at[there]
        values = pieces(self._data.u1, known, known + sizes[there])
        whole = pa.concat_arrays([values, pa.array([b""], pa.binary())])
        return whole.take(pa.array(np.where(there, np.cumsum(there) - 1, len(values))))

    def _document(self, found: Found, row: int) -> dict[str, Any]:
        at = int(found.at[row])
        return bson.decode(self._data.text(at, at + int(self._data.i4[at])), codec_options=CODEC)


def events_of(batch: ReplyBatch) -> Iterator[Events]:
    """Usually one; several if the events are too different to be read together."""
    try:
        yield Events(batch)
        return
    except Uneven as error:
        count = len(batch.starts)
        if count == 1:
            raise SourceUnavailable("an event of the change stream cannot be read") from error
    middle = count // 2
    yield from events_of(ReplyBatch(batch.data, batch.starts[:middle], batch.ends[:middle]))
    yield from events_of(ReplyBatch(batch.data, batch.starts[middle:], batch.ends[middle:]))


def _coded(values: pa.Array) -> tuple[Ints, Sequence[Any]]:
    encoded = values.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _name(raw: bytes) -> str:
    place = bson.decode(raw, codec_options=CODEC) if raw else {}
    return f"{place.get('db', '')}.{place.get('coll', '')}"
