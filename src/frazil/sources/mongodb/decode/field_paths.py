"""The fields that a table's columns come from, found in many documents at once.

payloads --Fields.of(names)--> walked --at(path)--> Found of one column, also inside of documents
                                             `--decoded--> its values alone, as Python knows them
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import bson
import numpy as np
import pyarrow as pa
from bson.max_key import MaxKey
from bson.min_key import MinKey

from frazil.data.pieces import contents
from frazil.sources.mongodb.decode import bson_scan as layout
from frazil.sources.mongodb.decode.bson_scan import Bytes, Found, Uneven, lengths, walk
from frazil.sources.mongodb.decode.document_ids import CODEC

_LENGTH = struct.Struct("<i")
_REFERENCE = "$ref"
_NOTHING = (type(None), MinKey, MaxKey)


def strangers(payloads: pa.Array, names: Sequence[str]) -> dict[str, int]:
    """Other top-level fields than these that documents have, each with the number of those that have a value there.
    Whatever cannot be walked is looked at one by one, and what cannot be read tells nothing."""
    told = payloads.drop_null()
    with suppress(Exception):
        return Fields.of(told, names).strangers if len(told) else {}
    found: Counter[str] = Counter()
    for payload in told.to_pylist():
        with suppress(Exception):
            document = bson.decode(payload, codec_options=CODEC)
            found.update(name for name, value in document.items() if name not in names and type(value) not in _NOTHING)
    return dict(found)


@dataclass(frozen=True, slots=True)
class Path:
    """The first of the `roots` that a document has, and from there on the way `inside`."""

    roots: tuple[str, ...]
    inside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fields:
    """`strangers` are other names that documents have, each with the number of those that have a value there."""

    data: Bytes
    found: dict[str, Found]
    strangers: dict[str, int]

    @classmethod
    def of(cls, payloads: pa.Array, names: Sequence[str]) -> Fields:
        """Raises Uneven for documents that cannot be walked together."""
        if payloads.null_count:
            raise Uneven
        content, places = contents(payloads)
        data, starts, ends = Bytes(content), places[:-1], places[1:]
        if (ends - starts < 5).any() or (data.i4[starts] != ends - starts).any():
            raise Uneven
        wanted = list(dict.fromkeys(names))
        walked = walk(data, starts, ends, [name.encode() for name in wanted])
        try:
            strangers = {name.decode(): count for name, count in walked.strangers.items() if count}
        except UnicodeDecodeError as error:
            raise Uneven from error
        return cls(data, dict(zip(wanted, walked.fields, strict=True)), strangers)

    def at(self, path: Path) -> Found:
        found = self._first(path.roots)
        for name in path.inside:
            rows = np.flatnonzero(found.kind == layout.DOCUMENT)
            starts = found.at[rows]
            inner = walk(self.data, starts, starts + self.data.i4[starts], [name.encode()])
            if name == _REFERENCE or _REFERENCE.encode() in inner.strangers:
                raise Uneven  # a reference to another document is no document
            found = inner.fields[0].spread(rows, len(found.at))
        return found

    def decoded(self, found: Found) -> list[Any]:
        """The values, None where there is none. Raises BSONError."""
        rows = np.flatnonzero(found.kind)
        some = found.chosen(rows)
        starts, ends = some.at - len(found.name) - 2, some.at + lengths(self.data, some)
        content = self.data.u1.data
        alone = b"".join(
            b"".join((_LENGTH.pack(end - start + 5), content[start:end], b"\x00"))
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        )
        values: list[Any] = [None] * len(found.at)
        name = found.name.decode()
        for row, document in zip(rows.tolist(), bson.decode_all(alone, codec_options=CODEC), strict=True):
            values[row] = document[name]
        return values

    def _first(self, roots: Sequence[str]) -> Found:
        there = [self.found[root] for root in roots if self.found[root].kind.any()]
        if len(there) > 1:
            raise Uneven
        return there[0] if there else self.found[roots[0]]
