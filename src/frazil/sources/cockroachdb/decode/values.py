"""One JSON value to the one Python value its column holds, exactly or not at all.

    Json --converter(column)--> what pyarrow takes for the column's type
         --canonical(column)--> the one JSON spelling of a key value

A value that does not fit raises Misfit with the reason; the caller knows table, key and column.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from unicodedata import category, is_normalized
from uuid import UUID

import pyarrow as pa

from frazil.model import schema as iceberg
from frazil.model.schema import Column, ListOf, Type
from frazil.sources.cockroachdb.decode.exact_json import Json, NotJson, Number, as_text, dumps, quote
from frazil.sources.cockroachdb.schema.types import Family, SourceType, parse_source_type

Converter = Callable[[Json], Any]
_NUMERAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?")
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
_BYTES = re.compile(r"\\x((?:[0-9a-fA-F]{2})*)")
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_JSON_NULL = {"__crdb_json_null__": True}  # WITH encode_json_value_null_as_object
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - zone-free on purpose: both timestamp types count from it
_EPOCH_DAY = date(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
_DAY_MICROS = 86_400_000_000
_FLOAT32_END = Decimal(((1 << 25) - 1) << 103)  # from here on, rounding gives infinity
_FLOAT64_END = Decimal(((1 << 54) - 1) << 970)
_EXPONENT_MAX = 10_000
_INVISIBLE_LETTERS = "\u115f\u1160\u3164\uffa0"


class Misfit(ValueError):
    """The value cannot be held exactly by the column's type."""


class NullKey(Misfit):
    """A key value is NULL."""


def converter(column: Column) -> Converter:
    """The exact conversion of this column's values; NULL never reaches it. Raises Misfit when called."""
    return _converter(column.type, parse_source_type(column.source_type))


def _converter(to: Type, source: SourceType) -> Converter:
    if isinstance(to, ListOf) and source.family is Family.VECTOR:
        return _vector
    if isinstance(to, ListOf):
        element = _converter(to.element, source.element or source)
        return lambda value: [None if item is None else element(item) for item in _expect(value, list, "an array")]
    if isinstance(to, iceberg.Decimal):
        precision, scale = to.precision, to.scale
        return lambda value: _decimal(value, precision, scale)
    if not isinstance(to, iceberg.Primitive):
        raise AssertionError(f"CockroachDB has no type for {to}")
    match to.name:
        case "int":
            return lambda value: _integer(value, 32)
        case "long" if source.family is Family.TIME:
            return _time_micros
        case "long":
            return lambda value: _integer(value, 64)
        case "double":
            return lambda value: _float(value, _FLOAT64_END, float)
        case "float":
            return lambda value: _float(value, _FLOAT32_END, float32)
        case "boolean":
            return lambda value: _expect(value, bool, "true or false")
        case "string" if source.family in (Family.JSON, Family.GEO):
            return lambda value: "null" if value == _JSON_NULL else dumps(value)
        case "string" if source.family is Family.DECIMAL:
            return _decimal_text
        case "string":
            return _string
        case "uuid":
            return lambda value: _uuid(value).bytes
        case "date":
            return lambda value: (_date(value) - _EPOCH_DAY).days
        case "timestamp":
            return lambda value: _timestamp_micros(value, zoned=False)
        case "timestamptz":
            return lambda value: _timestamp_micros(value, zoned=True)
        case "time":
            return _clock_micros
        case "binary":
            return _bytes
        case name:
            size = int(name.removeprefix("fixed[").removesuffix("]"))
            return lambda value: _fixed(value, size)


def not_null(value: Json) -> Json:
    """The value of a field that is not NULL: its JSON null as a JSON feed tells it from NULL, if it does."""
    return _JSON_NULL if value is None else value


def canonical(column: Column) -> Callable[[Json], str]:
    """The one spelling of a key value, as JSON text. Raises Misfit, or NullKey for NULL."""
    spelling = _canonical(column)

    def spell(value: Json) -> str:
        if value is None:
            raise NullKey("NULL in a key column")
        try:
            return as_text(spelling(value))
        except NotJson as error:
            raise Misfit(str(error)) from error

    return spell


def _canonical(column: Column) -> Callable[[Json], str]:
    source = parse_source_type(column.source_type)
    exactly = converter(column)
    match source.family:
        case Family.INT:
            return lambda value: str(exactly(value))
        case Family.BOOL:
            return lambda value: dumps(exactly(value))
        case Family.DECIMAL:
            return lambda value: decimal_spelling(_finite(value) if column.type == iceberg.STRING else exactly(value))
        case Family.UUID:
            return lambda value: quote(str(_uuid(value)))
        case Family.BYTES:
            return lambda value: quote("\\x" + _bytes(value).hex())
        case Family.DATE:
            return lambda value: quote(_date(value).isoformat())
        case Family.TIMESTAMP:
            return lambda value: quote(timestamp_text(_timestamp_micros(value, zoned=False)))
        case Family.TIMESTAMPTZ:
            return lambda value: quote(timestamp_text(_timestamp_micros(value, zoned=True)) + "Z")
        case Family.TIME:
            return lambda value: quote(time_text(exactly(value)))
        case Family.COLLATED:
            return lambda value: quote(_collated(value))
        case _:
            return lambda value: quote(_string(value))


def decimal_spelling(value: Decimal) -> str:
    """Plain digits without trailing zeros: 1.0, 1.00 and 1E0 are one key."""
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").removesuffix(".")
    return "0" if text in ("-0", "") else text


def timestamp_text(micros: int) -> str:
    """As CockroachDB prints: the fraction without trailing zeros, none if there is none."""
    moment = _EPOCH + timedelta(microseconds=micros)
    text = f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}"
    return f"{text}.{moment.microsecond:06d}".rstrip("0") if moment.microsecond else text


def time_text(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _expect(value: Json, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise Misfit(f"{what} is expected")
    return value


def _string(value: Json) -> str:
    if isinstance(value, Number) or not isinstance(value, str):
        raise Misfit("a string is expected")
    return value


def _collated(value: Json) -> str:
    """Strings of which no two are equal under a collation that tells case and accents apart: composed, and without
    what collations skip (controls, formats, loose marks)."""
    text = _string(value)
    if not text.isascii() and not is_normalized("NFC", text):
        raise Misfit("a collated key in another normal form than NFC may equal one that is written differently")
    if not (text.isascii() and text.isprintable()) and not all(_is_told_apart(char) for char in text):
        raise Misfit("a collated key with characters that collations skip may equal one that lacks them")
    return text


def _is_told_apart(char: str) -> bool:
    kind = category(char)
    return (kind[0] in "LNPS" or kind == "Zs") and char not in _INVISIBLE_LETTERS


def _integer(value: Json, bits: int) -> int:
    number = _finite(_expect(value, Number, "a whole number"))
    if number.adjusted() > 20:
        raise Misfit(f"beyond {bits} bits")
    whole = int(number)
    if whole != number:
        raise Misfit("a whole number is expected")
    if not -(1 << bits - 1) <= whole < 1 << bits - 1:
        raise Misfit(f"beyond {bits} bits")
    return whole


def _finite(value: Json) -> Decimal:
    if not isinstance(value, str) or not _NUMERAL.fullmatch(value):
        raise Misfit("a finite number is expected")
    try:
        number = Decimal(value)
    except ArithmeticError as error:
        raise Misfit("a number of reasonable size is expected") from error
    if abs(number.adjusted()) > _EXPONENT_MAX:
        raise Misfit("a number of reasonable size is expected")
    return number


def _decimal(value: Json, precision: int, scale: int) -> Decimal:
    number = _finite(value)
    if not number:
        return Decimal(0).scaleb(-scale)
    if number.adjusted() >= precision - scale:
        raise Misfit(f"more than {precision - scale} digits before the point")
    sign, digits, exponent = number.as_tuple()
    excess = -scale - int(exponent)
    if excess > 0 and any(digits[max(len(digits) - excess, 0) :]):
        raise Misfit(f"more than {scale} digits after the point")
    kept = digits[: len(digits) - excess] if excess > 0 else digits + (0,) * -excess
    return Decimal((sign, kept, -scale))


def _decimal_text(value: Json) -> str:
    if isinstance(value, Number) or (isinstance(value, str) and value in _NON_FINITE):
        return str(value)
    raise Misfit("a number is expected")


def _float(value: Json, end: Decimal, parse: Callable[[str], float]) -> float:
    if isinstance(value, Number):
        if _finite(value).copy_abs() >= end:
            raise Misfit("beyond the range of the floating point type")
        return parse(value)
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    raise Misfit("a number is expected")


def float32(text: str) -> float:
    """The number as a float of 32 bits, if that is the number: the text is what such a float prints as, or its exact
    value with all the digits of a double. A number with more digits than a float holds is refused, not rounded."""
    given = float(text)
    held = pa.scalar(given, pa.float64()).cast(pa.float32())
    if given != held.as_py() and given != float(held.cast(pa.string()).as_py()):
        raise Misfit("more digits than a FLOAT4 holds")
    return float(held.as_py())


def _vector(value: Json) -> list[float]:
    text = _string(value)
    if not (text.startswith("[") and text.endswith("]")):
        raise Misfit("a vector like [1,2,3] is expected")
    parts = [part.strip() for part in text[1:-1].split(",")] if text != "[]" else []
    if not all(_NUMERAL.fullmatch(part) for part in parts):
        raise Misfit("a vector of numbers is expected")
    return [_float(Number(part), _FLOAT32_END, float32) for part in parts]


def _uuid(value: Json) -> UUID:
    text = _string(value)
    if not _UUID.fullmatch(text):
        raise Misfit("a UUID is expected")
    return UUID(text)


def _bytes(value: Json) -> bytes:
    match = _BYTES.fullmatch(_string(value))
    if match is None:
        raise Misfit("bytes are expected as \\x and pairs of hex digits")
    return bytes.fromhex(match[1])


def _fixed(value: Json, size: int) -> bytes:
    data = _bytes(value)
    if len(data) != size:
        raise Misfit(f"{size} bytes are expected, not {len(data)}")
    return data


def _date(value: Json) -> date:
    match = _DATE.fullmatch(_string(value))
    if match is None:
        raise Misfit("a date of the years 0001 to 9999 is expected")
    try:
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError as error:
        raise Misfit(str(error)) from error


def _micros(fraction: str | None) -> int:
    digits = (fraction or "").rstrip("0")
    if len(digits) > 6:
        raise Misfit("finer than a microsecond")
    return int(digits.ljust(6, "0"))


def _timestamp_micros(value: Json, *, zoned: bool) -> int:
    match = _TIMESTAMP.fullmatch(_string(value))
    if match is None:
        raise Misfit("a timestamp of the years 0001 to 9999 is expected")
    *parts, fraction, zone = match.groups()
    if zoned != (zone is not None):
        raise Misfit("a time zone is expected" if zoned else "a timestamp without time zone is expected")
    try:
        moment = datetime(*(int(part) for part in parts))  # type: ignore[arg-type]  # noqa: DTZ001
        micros = (moment - _EPOCH) // _MICRO + _micros(fraction) - _offset_seconds(zone) * 1_000_000
        _EPOCH + timedelta(microseconds=micros)
    except (ValueError, OverflowError) as error:
        raise Misfit(str(error)) from error
    return micros


def _offset_seconds(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:])
    return -seconds if zone[0] == "-" else seconds


def _time_micros(value: Json) -> int:
    match = _TIME.fullmatch(_string(value))
    if match is None:
        raise Misfit("a time of day is expected")
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3])
    micros = (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + _micros(match[4])
    if minutes > 59 or seconds > 59 or micros > _DAY_MICROS:
        raise Misfit("a time of day is expected")
    return micros


def _clock_micros(value: Json) -> int:
    micros = _time_micros(value)
    if micros == _DAY_MICROS:
        raise Misfit("24:00:00 is beyond the time type")
    return micros
