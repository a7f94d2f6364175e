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
from frazil.sources.mongodb.decode.bson_scan import Bits, Bytes, Found, Ints, elements, walk
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
        return None
    every = bool(there.all())
    some = found if every else found.chosen(there)
    match type_:
        case StructOf():
            return _structs(data, some, type_, there, every)
        case ListOf():
            return _lists(data, some, type_, doc, there, every)
        case Decimal():
            return _decimals(data, some, type_, there, every)
    if type_ == iceberg.STRING:
        return None if doc == JSON else _texts(data, some, there, every)
    if type_ == iceberg.BINARY:
        return _binaries(data, some, there, every)
    if type_ == iceberg.UUID:
        return _uuids(data, some, there, every)
    numbers = _numbers(data, some, type_)
    if numbers is None:
        return None
    if not every:
        wide = np.zeros(len(there), numbers.dtype)
        wide[there] = numbers
        numbers = wide
    array = pa.array(numbers, mask=None if every else ~there)
    return array if array.type == (wanted := value_type(type_)) else array.view(wanted)


def is_empty(found: Found, doc: str) -> bool:
    """Whether a column would show nothing. JSON shows MinKey and MaxKey too."""
    if doc == JSON:
        return bool(np.isin(found.kind, _NOTHING).all())
    return not found.has_value.any()


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


def _texts(data: Bytes, found: Found, there: Bits, every: bool) -> pa.Array | None:
    if _all(found, layout.STRING):
        starts = found.at + 4
        try:
            strings = pieces(data.u1, starts, starts + data.i4[found.at] - 1).cast(pa.string())
        except pa.ArrowInvalid:
            return None
    elif _all(found, layout.OBJECT_ID):
        strings = object_ids(data, found.at)
    else:
        return None
    return strings if every else _spread(strings, there)


def _binaries(data: Bytes, found: Found, there: Bits, every: bool) -> pa.Array | None:
    if not _all(found, layout.BINARY):
        return None
    subtypes = data.u1[found.at + 4]
    if ((subtypes == _UUID) | (subtypes == _OLD_BINARY)).any():
        return None
    starts = found.at + 5
    values = pieces(data.u1, starts, starts + data.i4[found.at])
    return values if every else _spread(values, there)


def _uuids(data: Bytes, found: Found, there: Bits, every: bool) -> pa.Array | None:
    if not _all(found, layout.BINARY) or (data.u1[found.at + 4] != _UUID).any() or (data.i4[found.at] != 16).any():
        return None
    content = data.u1[found.at[:, None] + np.arange(5, 21)].tobytes()
    values = pa.Array.from_buffers(pa.binary(16), len(found.at), [None, pa.py_buffer(content)])
    return values if every else _spread(values, there)


def _decimals(data: Bytes, found: Found, type_: Decimal, there: Bits, every: bool) -> pa.Array | None:
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
    values = pa.Array.from_buffers(
        pa.decimal128(type_.precision, type_.scale), len(signed), [None, pa.py_buffer(halves.tobytes())]
    )
    return values if every else _spread(values, there)


def _structs(data: Bytes, found: Found, type_: StructOf, there: Bits, every: bool) -> pa.Array | None:
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
            if not is_empty(inner, one.doc or ""):
                return None
            child = nulls(len(found.at), one.type)
        children.append(child if every else _spread(child, there))
    fields = [pa.field(one.name, child.type) for one, child in zip(type_.fields, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=None if every else pa.array(~there))


def _lists(data: Bytes, found: Found, type_: ListOf, doc: str, there: Bits, every: bool) -> pa.Array | None:
    if not _all(found, layout.ARRAY):
        return None
    counts, flat = elements(data, found)
    inside = array_at(data, flat, type_.element, inner_doc(doc))
    if inside is None:
        if not is_empty(flat, inner_doc(doc)):
            return None
        inside = nulls(len(flat.at), type_.element)
    sizes = np.zeros(len(there), np.int64)
    sizes[there] = counts
    offsets = np.zeros(len(there) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), inside, mask=None if every else pa.array(~there))


def _spread(values: pa.Array, there: Bits) -> pa.Array:
    """Each value in its document's row, nulls in the others."""
    places = np.cumsum(there) - 1
    return pc.take(values, pa.array(places, mask=~there))


def nulls(count: int, type_: Type) -> pa.Array:
    match type_:
        case StructOf(fields):
            children = [nulls(count, f.type) for f in fields]
            named = [pa.field(f.name, child.type) for f, child in zip(fields, children, strict=True)]
            return pa.StructArray.from_arrays(children, fields=named, mask=pa.repeat(True, count))
        case ListOf(element):
            offsets = pa.repeat(pa.scalar(0, pa.int32()), count + 1)
            return pa.ListArray.from_arrays(offsets, nulls(0, element), mask=pa.repeat(True, count))
    return pa.nulls(count, value_type(type_))
