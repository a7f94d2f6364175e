"""The explicit mapping of a collection: which path becomes which column, as what.

    customer.name -> customer_name string        a path into documents, a column, a cast
    total         -> total decimal(12, 2)
    items         -> items                       no type: what the sample says

A cast takes what has one meaning and nothing else: "12" becomes a number, "twelve" does not.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID as PyUuid

from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.timestamp import Timestamp

from frazil.model import schema as iceberg
from frazil.model.schema import Decimal, Type
from frazil.sources.mongodb.decode.values import plain_text
from frazil.sources.mongodb.schema.bson_types import JSON

ID = "_id"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class MappedField:
    source: str
    target: str
    type: str | None = None


def value_at(document: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What lies at the path; None if nothing does."""
    found: Any = document
    for name in path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def cast_of(type_: Type, doc: str) -> Callable[[Any], Any] | None:
    """What makes a value fit to be a column of this type; None if nothing is to be done. The function raises ValueError
    for a value that cannot become one."""
    if isinstance(type_, Decimal):
        return _decimal
    if doc == JSON:
        return None
    return _CASTS.get(type_)


def _string(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else plain_text(value)


def _whole(value: Any) -> Any:
    match value:
        case bool():
            return int(value)
        case str():
            return int(value)
        case float() if value.is_integer():
            return int(value)
        case Decimal128() if value.to_decimal() == value.to_decimal().to_integral_value():
            return int(value.to_decimal())
        case datetime():
            return (value - _EPOCH) // timedelta(milliseconds=1)
        case int():
            return value
    raise ValueError(value)


def _double(value: Any) -> Any:
    match value:
        case str():
            return float(value)
        case Decimal128():
            exact = value.to_decimal()
            if exact.is_finite() and decimal.Decimal(float(exact)) != exact:
                raise ValueError(value)
            return float(exact)
    return value


def _decimal(value: Any) -> Any:
    match value:
        case str():
            try:
                return Decimal128(value)
            except (decimal.InvalidOperation, ValueError, TypeError) as error:
                raise ValueError(value) from error
        case float():
            return Decimal128(repr(value))
    return value


def _boolean(value: Any) -> Any:
    match value:
        case str() if value.lower() in ("true", "false"):
            return value.lower() == "true"
        case int() | float() if value in (0, 1):
            return bool(value)
    return value


def _moment(value: Any) -> Any:
    match value:
        case str():
            parsed = datetime.fromisoformat(value)
            return parsed if parsed.tzinfo is None else parsed.astimezone(UTC).replace(tzinfo=None)
        case Timestamp():
            return _EPOCH + timedelta(seconds=value.time)
        case int() | Int64() if not isinstance(value, bool):
            return DatetimeMS(int(value))
    return value


def _day(value: Any) -> Any:
    match value:
        case datetime():
            return value.date()
        case str():
            return date.fromisoformat(value)
    raise ValueError(value)


def _uuid(value: Any) -> Any:
    match value:
        case str():
            return PyUuid(value)
        case bytes() if len(value) == 16:
            return PyUuid(bytes=bytes(value))
    return value


_CASTS: Mapping[Type, Callable[[Any], Any]] = {
    iceberg.STRING: _string,
    iceberg.INT: _whole,
    iceberg.LONG: _whole,
    iceberg.DOUBLE: _double,
    iceberg.BOOLEAN: _boolean,
    iceberg.TIMESTAMPTZ: _moment,
    iceberg.DATE: _day,
    iceberg.UUID: _uuid,
}
