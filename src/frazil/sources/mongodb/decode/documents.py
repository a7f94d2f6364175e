"""Raw BSON documents: where each one lies among those that lie one behind the other, and its key.

raw batch --places--> [0, 118, 240, ...] --keys--> canonical texts of the `_id`s, see `ids`
"""

from __future__ import annotations

import struct

import bson
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.pieces import pieces
from frazil.errors import BadInput
from frazil.sources.mongodb.decode import bson_scan as layout
from frazil.sources.mongodb.decode.arrays import object_ids
from frazil.sources.mongodb.decode.bson_scan import Bytes, Ints, value_size
from frazil.sources.mongodb.decode.document_ids import CODEC, SUSPECT, id_text

_LENGTH = struct.Struct("<i")
_LONG = struct.Struct("<q")
_ID = int.from_bytes(b"_id\x00", "little")


def places(raw: bytes) -> list[int]:
    """Where documents that lie one behind the other begin, and where the last one ends."""
    found, at, end, length = [0], 0, len(raw), _LENGTH.unpack_from
    while at < end:
        at += length(raw, at)[0]
        found.append(at)
    return found


def keys_of(data: Bytes, starts: Ints, ends: Ints, table: str) -> pa.Array:
    """`key_of` of all documents that begin and end there."""
    kinds = data.u1[starts + 4] * (data.i4[starts + 5] == _ID)
    at = starts + 9
    if (kinds == layout.OBJECT_ID).all():
        return object_ids(data, at)
    if (is_short := kinds == layout.INT32).all() or (is_short | (kinds == layout.INT64)).all():
        numbers = pa.array(np.where(is_short, data.i4[at].astype(np.int64), data.i8[at])).cast(pa.string())
        return pc.binary_join_element_wise('{"$numberLong":"', numbers, '"}', "")
    if (kinds == layout.STRING).all():
        plain = _plain_texts(data, at)
        if plain is not None:
            return plain
    borders = zip(starts.tolist(), ends.tolist(), strict=True)
    return pa.array([key_of(data.text(start, end), table) for start, end in borders], pa.string())


def _plain_texts(data: Bytes, at: Ints) -> pa.Array | None:
    """None if one of them could be taken for something else, or is no text."""
    try:
        found = pieces(data.u1, at + 4, at + 3 + data.i4[at]).cast(pa.string())
    except pa.ArrowInvalid:
        return None
    return None if pc.any(pc.match_substring_regex(found, SUSPECT)).as_py() else found


def key_of(document: bytes, table: str) -> str:
    """The canonical text of a document's `_id`, also if the rest of the document is damaged. Raises BadInput."""
    # The server stores `_id` as a document's first field.
    if document[5:9] == b"_id\x00":
        kind = document[4]
        if kind == layout.OBJECT_ID:
            return document[9:21].hex()
        if kind == layout.INT32:
            return f'{{"$numberLong":"{_LENGTH.unpack_from(document, 9)[0]}"}}'
        if kind == layout.INT64:
            return f'{{"$numberLong":"{_LONG.unpack_from(document, 9)[0]}"}}'
    try:
        return id_text(bson.decode(only_id(document), codec_options=CODEC)["_id"])
    except Exception as error:  # damaged bytes break in more ways than the driver's own errors tell
        raise BadInput(
            f"{table}: a document has an _id that cannot be read: {error}",
            hint="Find it with db.collection.find().sort({_id: 1}) in mongosh and give it a proper _id.",
            table=table,
        ) from error


def only_id(document: bytes) -> bytes:
    """The document cut behind its first field where the length of that is told by its type; else the whole."""
    size = value_size(document, document[4], 9) if document[5:9] == b"_id\x00" else None
    if size is None:
        return document
    body = document[4 : 9 + size] + b"\x00"
    return _LENGTH.pack(len(body) + 4) + body
