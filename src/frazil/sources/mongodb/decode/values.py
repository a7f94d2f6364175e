"""Values of one place in many documents as one Arrow array, each exactly or not at all.

    [1, 2, None]                    int      by pyarrow at once: the types of the values are looked at as a set
    [{"a": 1}, {"a": 2, "b": 3}]    struct   field by field, and so on down
    [[1], [], None]                 list     the elements of all lists together

A value that its column cannot hold raises BsonMisfit, a field that a struct does not have is noted by its path.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID as PyUuid

import numpy as np
import pyarrow as pa
from bson import json_util
from bson.binary import Binary, UuidRepresentation
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from frazil.model import schema as iceberg
from frazil.model.arrow import value_type
from frazil.model.schema import Decimal, ListOf, StructOf, Type
from frazil.sources.mongodb.decode.document_ids import regex_text
from frazil.sources.mongodb.schema.bson_types import EXACT_DOUBLE, JSON, inner_doc

_NONE = type(None)
_NO_VALUE = frozenset((_NONE, MinKey, MaxKey))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_JSON = json_util.JSONOptions(json_mode=json_util.JSONMode.RELAXED, uuid_representation=UuidRepresentation.STANDARD)


class BsonMisfit(ValueError):
    """The value at this place of the batch does not fit; `path` leads to it within its document."""

    def __init__(self, place: int, path: str, value: Any, wanted: str) -> None:
        super().__init__(f"{short(value)} does not fit {wanted}")
        self.place, self.path, self.value, self.wanted = place, path, value, wanted


def array_of(values: Sequence[Any], type_: Type, doc: str, path: str, unknown: set[str]) -> pa.Array:
    """Raises BsonMisfit. Fields that a struct lacks and that have a value are added to `unknown`."""
    seen = set(map(type, values))
    if type_ == iceberg.STRING and doc == JSON:
        return pa.array([None if value is None else json_text(value) for value in values], pa.string())
    if seen & {MinKey, MaxKey}:
        values = [None if type(value) in _NO_VALUE else value for value in values]
    seen -= _NO_VALUE
    if not seen:
        return pa.nulls(len(values), value_type(type_))
    match type_:
        case StructOf():
            return _structs(values, seen, type_, path, unknown)
        case ListOf():
            return _lists(values, seen, type_, doc, path, unknown)
        case Decimal():
            return _one_by_one(values, type_, path, _to_decimal)
    if type_ == iceberg.STRING:
        if seen == {str}:
            return pa.array(values, pa.string())
        return pa.array([None if value is None else plain_text(value) for value in values], pa.string())
    exact, convert = _SCALARS.get(type_, (frozenset[type](), _refuse))
    if seen <= exact:
        try:
            return pa.array(values, value_type(type_))
        except (pa.ArrowInvalid, OverflowError):
            pass
    return _one_by_one(values, type_, path, convert)


def json_text(value: Any) -> str:
    return json_util.dumps(value, json_options=_JSON, ensure_ascii=False, separators=(",", ":"))


def plain_text(value: Any) -> str:
    """A string is itself, an ObjectId its digits, a number its text; whatever else has no text of its own is JSON."""
    match value:
        case Code() if value.scope is not None:
            return json_text(value)
        case str():
            return str(value)
        case ObjectId() | PyUuid() | Decimal128():
            return str(value)
        case Regex():
            return regex_text(value)
        case Timestamp():
            return f"{value.time}:{value.inc}"
        case _:
            return json_text(value)


def short(value: Any) -> str:
    """For an error message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _one_by_one(values: Sequence[Any], type_: Type, path: str, convert: Callable[[Any], Any]) -> pa.Array:
    arrow, found = value_type(type_), []
    for place, value in enumerate(values):
        try:
            found.append(None if value is None else convert(value))
        except (ValueError, OverflowError) as error:
            raise BsonMisfit(place, path, value, str(type_)) from error
    try:
        return pa.array(found, arrow)
    except (pa.ArrowInvalid, OverflowError):
        pass
    for place, value in enumerate(found):
        try:
            pa.array([value], arrow)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise BsonMisfit(place, path, values[place], str(type_)) from error
    raise AssertionError(f"{path}: each value fits {type_}, and all together do not")


def _structs(values: Sequence[Any], seen: set[type], type_: StructOf, path: str, unknown: set[str]) -> pa.Array:
    if seen != {dict}:
        raise _first_other(values, dict, path, type_)
    names = {field.name for field in type_.fields}
    present = [value if value is not None else {} for value in values]
    for value in present:
        if not value.keys() <= names:
            unknown.update(f"{path}.{name}" for name in value.keys() - names if type(value[name]) not in _NO_VALUE)
    children = [
        array_of([value.get(f.name) for value in present], f.type, f.doc or "", f"{path}.{f.name}", unknown)
        for f in type_.fields
    ]
    mask = pa.array([value is None for value in values], pa.bool_())
    fields = [pa.field(f.name, child.type) for f, child in zip(type_.fields, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _lists(values: Sequence[Any], seen: set[type], type_: ListOf, doc: str, path: str, unknown: set[str]) -> pa.Array:
    if seen != {list}:
        raise _first_other(values, list, path, type_)
    lengths = [0 if value is None else len(value) for value in values]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    flat = [inner for value in values if value is not None for inner in value]
    try:
        elements = array_of(flat, type_.element, inner_doc(doc), f"{path}[]", unknown)
    except BsonMisfit as misfit:
        place = int(np.searchsorted(offsets, misfit.place, side="right")) - 1
        raise BsonMisfit(place, misfit.path, misfit.value, misfit.wanted) from misfit
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=mask)


def _first_other(values: Sequence[Any], wanted: type, path: str, type_: Type) -> BsonMisfit:
    place = next(at for at, value in enumerate(values) if value is not None and type(value) is not wanted)
    return BsonMisfit(place, path, values[place], str(type_))


def _refuse(value: Any) -> Any:
    raise ValueError(f"{value!r}")


def _to_bool(value: Any) -> bool:
    return value if type(value) is bool else _refuse(value)


def _to_int(value: Any) -> int:
    if type(value) in (int, Int64):
        return int(value)
    if type(value) is float and value.is_integer():
        return int(value)
    return int(_refuse(value))


def _to_double(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) in (int, Int64) and -EXACT_DOUBLE <= value <= EXACT_DOUBLE:
        return float(value)
    return float(_refuse(value))


def _to_decimal(value: Any) -> Any:
    if type(value) is Decimal128:
        number = value.to_decimal()
        return number if number.is_finite() else _refuse(value)
    if type(value) in (int, Int64):
        return decimal.Decimal(int(value))
    return _refuse(value)


def _to_bytes(value: Any) -> bytes:
    return bytes(value) if type(value) in (bytes, Binary) else _refuse(value)


def _to_uuid(value: Any) -> bytes:
    return value.bytes if type(value) is PyUuid else _refuse(value)


def _to_microseconds(value: Any) -> int:
    if type(value) is DatetimeMS:
        micros = int(value) * 1000
        return micros if -(2**63) <= micros < 2**63 else int(_refuse(value))
    if type(value) is datetime:
        naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return (naive - _EPOCH) // timedelta(microseconds=1)
    return int(_refuse(value))


_SCALARS: dict[Type, tuple[frozenset[type], Callable[[Any], Any]]] = {
    iceberg.BOOLEAN: (frozenset((bool,)), _to_bool),
    iceberg.INT: (frozenset((int, Int64)), _to_int),
    iceberg.LONG: (frozenset((int, Int64)), _to_int),
    iceberg.DOUBLE: (frozenset((float,)), _to_double),
    iceberg.BINARY: (frozenset((bytes,)), _to_bytes),
    iceberg.UUID: (frozenset(), _to_uuid),
    iceberg.TIMESTAMPTZ: (frozenset((datetime,)), _to_microseconds),
    iceberg.TIMESTAMP: (frozenset((datetime,)), _to_microseconds),
    iceberg.DATE: (frozenset((date,)), _refuse),
}
