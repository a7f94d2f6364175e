"""The server's replies to commands that open and read cursors, without an object for each document.

{cursor: {firstBatch | nextBatch: [...], id, postBatchResumeToken}, ...} --read_reply--> Reply(cursor, batch, token)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import bson
import numpy as np
import pyarrow as pa
from bson.raw_bson import RawBSONDocument

from frazil.data.pieces import pieces
from frazil.sources.mongodb.decode.bson_scan import Bytes, Ints, value_size
from frazil.sources.mongodb.decode.document_ids import CODEC
from frazil.sources.mongodb.decode.documents import keys_of, only_id, places

RAW: bson.CodecOptions[Any] = CODEC.with_options(document_class=RawBSONDocument)
"""With these a reply is bytes."""
_LENGTH = struct.Struct("<i")
_LONG = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class ReplyBatch:
    """Documents within `data`: where they begin and end."""

    data: bytes
    starts: list[int]
    ends: list[int]

    @classmethod
    def joined(cls, documents: Sequence[bytes]) -> ReplyBatch:
        return cls.lying(b"".join(documents))

    @classmethod
    def lying(cls, data: bytes) -> ReplyBatch:
        """Of documents that lie one behind the other."""
        borders = places(data)
        return cls(data, borders[:-1], borders[1:])

    @property
    def located(self) -> tuple[Bytes, Ints, Ints]:
        """The bytes, and where documents begin and end, as arrays."""
        return Bytes(self.data), np.array(self.starts, np.int64), np.array(self.ends, np.int64)

    def rows(self, table: str) -> tuple[pa.Array, pa.Array]:
        """Canonical keys, and documents. Raises BadInput for an `_id` that cannot be read."""
        data, starts, ends = self.located
        return keys_of(data, starts, ends, table), pieces(data.u1, starts, ends)

    def without_first(self) -> ReplyBatch:
        return ReplyBatch(self.data, self.starts[1:], self.ends[1:])

    @property
    def first_id(self) -> bytes:
        return only_id(self.data[self.starts[0] : self.ends[0]])

    @property
    def last_id(self) -> bytes:
        return only_id(self.data[self.starts[-1] : self.ends[-1]])


@dataclass(frozen=True, slots=True)
class Reply:
    """`cursor` is 0 if it has no more, `token` empty if it is none of a change stream."""

    cursor: int
    batch: ReplyBatch
    token: str


def read_reply(reply: bytes) -> Reply:
    _, cursor_at, _ = _elements(reply, 0)["cursor"]
    told = _elements(reply, cursor_at)
    token = ""
    if "postBatchResumeToken" in told:
        _, at, end = told["postBatchResumeToken"]
        token = str(bson.decode(reply[at:end]).get("_data", ""))
    _, id_at, _ = told["id"]
    _, at, end = told["firstBatch"] if "firstBatch" in told else told["nextBatch"]
    return Reply(_LONG.unpack_from(reply, id_at)[0], _array(reply, at + 4, end - 1), token)


def _array(reply: bytes, at: int, stop: int) -> ReplyBatch:
    """An array is a document with the numbers of its elements for names."""
    starts: list[int] = []
    ends: list[int] = []
    length, digits, more = _LENGTH.unpack_from, 1, 10
    while at < stop:
        if len(starts) == more:
            digits, more = digits + 1, more * 10
        at += digits + 2
        starts.append(at)
        at += length(reply, at)[0]
        ends.append(at)
    return ReplyBatch(reply, starts, ends)


def _elements(raw: bytes, start: int) -> dict[str, tuple[int, int, int]]:
    """The fields of the document that begins there: type, where the value begins, where it ends."""
    found, at, end = {}, start + 4, start + _LENGTH.unpack_from(raw, start)[0] - 1
    while at < end:
        kind, behind = raw[at], raw.index(0, at + 1)
        value = behind + 1
        size = value_size(raw, kind, value)
        assert size is not None, "a reply holds documents, arrays, numbers, texts and moments"
        found[raw[at + 1 : behind].decode()] = (kind, value, value + size)
        at = value + size
    return found
