"""Values that lie in BSON documents as Arrow arrays, whole columns at a time.

    Found(types, places) --the type of the column--> numpy reads all values at once --> Array
                                   `-- any value of another type --> None: `values` says what becomes of those

What comes out is what `values.array_of` makes of the decoded values; here are only the cases in which nothing is to be
decided: each value has exactly the type that the column was made for, or is absent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.data.pieces import pieces
from frazil.model import schema as iceberg
from frazil.model.arrow import value_type
from frazil.model.schema import Decimal, ListOf, StructOf, Type
from frazil.sources.mongodb.decode import bson_scan as layout
from frazil.sources.mongodb.decode.bson_scan import Bytes, Found, Ints, elements, walk
from frazil.sources.mongodb.schema.bson_types import JSON, inner_doc

_HEX = np.frombuffer("".join(f"{n:02x}" for n in range(256)).encode(), np.uint16)
_MILLIS_MAX = (2**63 - 1) // 1000
_UUID, _OLD_BINARY = 4, 2
_REFERENCE = b"$ref"
_NOTHING = np.array([layout.ABSENT, 0x06, 0x0A], np.uint8)
_POWERS = np.array([10**n for n in range(19)], np.int64)


def array_at(data: Bytes, found: Found, type_: Type, doc: str) -> pa.Array | None:
    """None if it takes more than reading. Raises layout.Uneven."""
    there = found.has_value
    if not there.any():
        # JSON shows MinKey and MaxKey too.
        is_empty = doc != JSON or np.isin(found.kind, _NOTHING).all()
        return pa.nulls(len(there), value_type(type_)) if is_empty else None
    if there.all():
        return _read(data, found, type_, doc)
    values = _read(data, found.chosen(there), type_, doc)
    # Each value in its document's row, nulls in the others.
    return None if values is None else pc.take(values, pa.array(np.cumsum(there) - 1, mask=~there))


def _read(data: Bytes, found: Found, type_: Type, doc: str) -> pa.Array | None:
    match type_:
        case StructOf():
            return _structs(data, found, type_)
        case ListOf():
            return _lists(data, found, type_, doc)
        case Decimal():
            return _decimals(data, found, type_)
    if type_ == iceberg.STRING:
        return None if doc == JSON else _texts(data, found)
    if type_ == iceberg.BINARY:
        return _binaries(data, found)
    if type_ == iceberg.UUID:
        return _uuids(data, found)
    numbers = _numbers(data, found, type_)
    if numbers is None:
        return None
    array = pa.array(numbers)
    return array if array.type == (wanted := value_type(type_)) else array.view(wanted)


def object_ids(data: Bytes, at: Ints) -> pa.Array:
    """The hex digits of ObjectIds."""
    digits = _HEX[data.u1[at[:, None] + np.arange(12)]]
    offsets = np.arange(len(at) + 1, dtype=np.int32) * 24
    return pa.Array.from_buffers(pa.string(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(digits.tobytes())])


def _all(found: Found, kind: int) -> bool:
    return bool((found.kind == kind).all())


def _numbers(data: Bytes, found: Found, type_: Type) -> NDArray[Any] | None:
    """Of a boolean, a moment or a number: what its array is made of."""
    if type_ == iceberg.INT:
        return data.i4[found.at] if _all(found, layout.INT32) else None
    if type_ == iceberg.LONG:
        if _all(found, layout.INT64):
            return data.i8[found.at]
        is_short = found.kind == layout.INT32
        if not (is_short | (found.kind == layout.INT64)).all():
            return None
        return np.where(is_short, data.i4[found.at].astype(np.int64), data.i8[found.at])
    if type_ == iceberg.DOUBLE:
        return data.f8[found.at] if _all(found, layout.DOUBLE) else None
    if type_ == iceberg.BOOLEAN:
        return data.u1[found.at].astype(np.bool_) if _all(found, layout.BOOLEAN) else None
    if type_ in (iceberg.TIMESTAMPTZ, iceberg.TIMESTAMP) and _all(found, layout.DATE):
        millis = data.i8[found.at]
        return None if (np.abs(millis) > _MILLIS_MAX).any() else millis * 1000
    return None


def _texts(data: Bytes, found: Found) -> pa.Array | None:
    if _all(found, layout.STRING):
        starts = found.at + 4
        try:
            return pieces(data.u1, starts, starts + data.i4[found.at] - 1).cast(pa.string())
        except pa.ArrowInvalid:
            return None
    return object_ids(data, found.at) if _all(found, layout.OBJECT_ID) else None


def _binaries(data: Bytes, found: Found) -> pa.Array | None:
    if not _all(found, layout.BINARY):
        return None
    subtypes = data.u1[found.at + 4]
    if ((subtypes == _UUID) | (subtypes == _OLD_BINARY)).any():
        return None
    starts = found.at + 5
    return pieces(data.u1, starts, starts + data.i4[found.at])


def _uuids(data: Bytes, found: Found) -> pa.Array | None:
    if not _all(found, layout.BINARY) or (data.u1[found.at + 4] != _UUID).any() or (data.i4[found.at] != 16).any():
        return None
    content = data.u1[found.at[:, None] + np.arange(5, 21)].tobytes()
    return pa.Array.from_buffers(pa.binary(16), len(found.at), [None, pa.py_buffer(content)])


def _decimals(data: Bytes, found: Found, type_: Decimal) -> pa.Array | None:
    """Those whose digits fit into 63 bits: two 64-bit halves, of which the upper one repeats the sign."""
    if not _all(found, layout.DECIMAL):
        return None
    low, high = data.u8[found.at], data.u8[found.at + 8]
    shift = type_.scale + ((high >> np.uint64(49)) & np.uint64(0x3FFF)).astype(np.int64) - 6176
    plain = (high >> np.uint64(61)) & np.uint64(3) != 3
    if not plain.all() or (high & np.uint64((1 << 49) - 1)).any() or (low >> np.uint64(63)).any():
        return None
    if (shift < 0).any() or (shift >= len(_POWERS)).any():
        return None
    digits, factor = low.astype(np.int64), _POWERS[shift]
    most = 10 ** min(type_.precision, 18) - 1
    if (digits > most // factor).any():
        return None
    signed = np.where(high >> np.uint64(63) == 1, -digits, digits) * factor
    halves = np.empty((len(signed), 2), np.int64)
    halves[:, 0], halves[:, 1] = signed, signed >> 63
    return pa.Array.from_buffers(value_type(type_), len(signed), [None, pa.py_buffer(halves.tobytes())])


def _structs(data: Bytes, found: Found, type_: StructOf) -> pa.Array | None:
    if not _all(found, layout.DOCUMENT):
        return None
    names = [one.name.encode() for one in type_.fields]
    walked = walk(data, found.at, found.at + data.i4[found.at], names)
    if any(count or name == _REFERENCE for name, count in walked.strangers.items()) or _REFERENCE in names:
        return None
    children = []
    for one, inner in zip(type_.fields, walked.fields, strict=True):
        child = array_at(data, inner, one.type, one.doc or "")
        if child is None:
            return None
        children.append(child)
    fields = [pa.field(one.name, child.type) for one, child in zip(type_.fields, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields)


def _lists(data: Bytes, found: Found, type_: ListOf, doc: str) -> pa.Array | None:
    if not _all(found, layout.ARRAY):
        return None
    counts, flat = elements(data, found)
    inside = array_at(data, flat, type_.element, inner_doc(doc))
    if inside is None:
        return None
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), inside)
