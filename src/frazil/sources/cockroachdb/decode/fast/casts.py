"""How values of each type are taken by the fast road: what Arrow reads them as, and the vectorised rest.

    read_step(column)   the type pyarrow's JSON reader takes, then a cast      int, string, uuid, timestamp, list, ...
    raw_step(column)    the member's raw text: what is regular at once, what is odd by the exact conversion

Nothing here decides what a value means: whatever is not plainly regular raises TakeExactRoad, or is converted by the
function that the exact road uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.pieces import contents
from frazil.model import schema as iceberg
from frazil.model.arrow import value_type
from frazil.model.schema import Column, ListOf, Type
from frazil.sources.cockroachdb.decode.exact_json import Json, NotJson, loads
from frazil.sources.cockroachdb.decode.values import Misfit
from frazil.sources.cockroachdb.schema.types import Family, SourceType, parse_source_type

_YEAR = r"(?:[1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])"
_DATE = rf"^{_YEAR}-\d\d-\d\d$"
_SECONDS, _FRACTION_MAX = "0000-00-00T00:00:00", 6
_TIME = r"^\d\d:\d\d:\d\d(?:\.\d{1,6})?$"
_UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_HEX = r"^\\x(?:[0-9a-fA-F]{2})*$"
_NUMBER = r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\nrt]|\\u00(?:0[0-8bcef]|1[0-9a-f]))*"'
# The tokens of JSON as `exact.dumps` prints them; that they make a value is the parser's business.
_PRINTED = rf"^(?:[\[\]{{}}]|, |: |{_NUMBER}|{_TEXT}|true|false|null)*$"
_JSON_NULL = '{"__crdb_json_null__": true}'
_UUID_DIGITS = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")
_DECIMAL_BITS_DIGITS = 39  # fewer digits than this always fit into 128 bits
_FRACTION_DIGITS = 38
_DAY_END, _DAY_MICROS = "24:00:00", 86_400_000_000
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_NIBBLES = np.zeros(256, dtype=np.uint8)
for _digit, _text in enumerate("0123456789abcdef"):
    _NIBBLES[ord(_text)] = _NIBBLES[ord(_text.upper())] = _digit


_ZERO = np.uint8(ord("0"))


class TakeExactRoad(Exception):
    """Something here needs a closer look."""


Finish = Callable[[Any], Any]
Give = Callable[[Json], Any]


@dataclass(frozen=True, slots=True)
class Step:
    """`read` is what pyarrow reads the member as, None if its raw text is wanted; `finish` makes the column of it.
    `guard` finds payloads in which pyarrow would change a value without a word."""

    read: Any
    finish: Finish
    guard: str | None = None
    is_number: bool = False


def read_step(column: Column) -> Step | None:
    """None if pyarrow's reader is not exact for the type."""
    source = parse_source_type(column.source_type)
    if isinstance(column.type, ListOf):
        if source.family is not Family.ARRAY or source.element is None:
            return None
        inner = _read_step(column, column.type.element, source.element, r"\[[^\]]*")
        if inner is None:
            return None
        return replace(inner, read=pa.list_(inner.read), finish=lambda array: _elements(array, inner.finish))
    return _read_step(column, column.type, source, "")


def _read_step(column: Column, to: Type, source: SourceType, within: str) -> Step | None:
    if isinstance(to, iceberg.Decimal):
        if not all(_PLAIN_NAME.fullmatch(name) for name in column.carried_as):
            return None
        end = Decimal(10) ** (to.precision - to.scale)
        guard = _decimal_guard(column.carried_as, to, within)
        return Step(value_type(to), lambda array: _within(array, end), guard, is_number=True)
    if not isinstance(to, iceberg.Primitive):
        return None
    family = source.family
    match to.name:
        case "int" | "boolean":
            return Step(value_type(to), _as_read)
        case "long":
            return Step(pa.string(), _time) if family is Family.TIME else Step(pa.int64(), _as_read)
        case "time":
            return Step(pa.string(), _clock)
        case "double":
            return Step(pa.float64(), _finite, is_number=True)
        case "float":
            return Step(pa.float64(), _float32, is_number=True)
        case "string":
            from_text = (Family.JSON, Family.GEO, Family.DECIMAL, Family.INT, Family.FLOAT)
            return None if family in from_text else Step(pa.string(), _as_read)
        case "uuid":
            return Step(pa.string(), _uuid)
        case "binary":
            return Step(pa.string(), _binary)
        case "date":
            return Step(pa.string(), lambda array: _cast(array, _DATE, pa.date32()))
        case "timestamp":
            return Step(pa.string(), lambda array: _moments(array, "", pa.timestamp("us")))
        case "timestamptz":
            return Step(pa.string(), lambda array: _moments(array, "Z", pa.timestamp("us", tz="UTC")))
        case _:
            return None


def raw_step(column: Column, convert: Give) -> Step:
    """`convert` is the exact conversion of one value."""
    source = parse_source_type(column.source_type)
    to = column.type
    arrow = value_type(to)
    vector: Finish
    match source.family, to:
        case Family.JSON | Family.GEO, iceberg.Primitive("string"):
            regular, vector = _PRINTED, _printed
        case Family.DECIMAL, iceberg.Primitive("string"):
            regular, vector = f"^{_NUMBER}$", _as_read
        case _, iceberg.Decimal(precision, scale):
            fraction = rf"(?:\.\d{{1,{scale}}})?" if scale else ""
            whole = rf"[1-9]\d{{0,{precision - scale - 1}}}" if precision > scale else "0"
            regular, vector = rf"^-?(?:0|{whole}){fraction}$", lambda texts: pc.cast(texts, arrow)
        case _, iceberg.Primitive("double"):
            regular, vector = f"^{_NUMBER}$", lambda texts: _finite(pc.cast(texts, pa.float64()))
        case _, iceberg.Primitive("float"):
            regular, vector = f"^{_NUMBER}$", lambda texts: _float32(pc.cast(texts, pa.float64()))
        case _:
            return Step(None, lambda texts: _by_value(texts, convert, arrow))
    return Step(None, lambda texts: _mixed(texts, regular, vector, convert, arrow))


def by_value(column: Column, convert: Give) -> Step:
    """Every value by the exact conversion; only the splitting is fast."""
    arrow = value_type(column.type)
    return Step(None, lambda texts: _by_value(texts, convert, arrow))


def _mixed(texts: Any, regular: str, vector: Finish, convert: Give, arrow: Any) -> Any:
    fits = pc.fill_null(pc.match_substring_regex(texts, regular), True)
    if pc.all(fits, min_count=0).as_py():
        return vector(texts)
    odd = pc.invert(fits)
    array = vector(pc.if_else(fits, texts, pa.scalar(None, pa.string())))
    return pc.replace_with_mask(array, odd, _by_value(texts.filter(odd), convert, arrow))


def _by_value(texts: Any, convert: Give, arrow: Any) -> Any:
    try:
        parsed = (None if text is None else loads(text) for text in texts.to_pylist())
        return pa.array([None if value is None else convert(value) for value in parsed], arrow)
    except (Misfit, NotJson, OverflowError, UnicodeEncodeError) as error:
        raise TakeExactRoad from error


def _printed(texts: Any) -> Any:
    return pc.if_else(pc.equal(texts, _JSON_NULL), "null", texts)


def _elements(array: Any, finish: Finish) -> Any:
    if array.offset:
        array = pa.concat_arrays([array])
    values = finish(array.values)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(array.offsets, values, type=pa.list_(values.type), mask=mask)


def _decimal_guard(names: tuple[str, ...], to: iceberg.Decimal, within: str) -> str:
    """Finds decimals that pyarrow would change without a word: it lets those that need more than 128 bits once
    scaled wrap around, and takes those far below the scale for zero."""
    return (
        rf'"(?:{"|".join(names)})"\s*:\s*{within}"?[-+]?'
        rf"(?:[0-9]{{{_DECIMAL_BITS_DIGITS - to.scale},}}|[0-9.]+[eE]|[0-9]*\.[0-9]{{{_FRACTION_DIGITS},}})"
    )


def _as_read(array: Any) -> Any:
    return array


def _within(array: Any, end: Decimal) -> Any:
    """pyarrow checks the digits that were written, not those that scaling adds."""
    extremes = pc.min_max(array).as_py()
    if extremes["min"] is not None and not -end < extremes["min"] <= extremes["max"] < end:
        raise TakeExactRoad
    return array


def _finite(array: Any) -> Any:
    """NaN and infinity come as strings; a number that became infinite did not fit."""
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        raise TakeExactRoad
    return array


def _float32(array: Any) -> Any:
    """The rule of `values.float32`."""
    held = pc.cast(_finite(array), pa.float32(), safe=False)
    same = pc.equal(pc.cast(held, pa.float64()), array)
    if not pc.all(same, min_count=0).as_py():
        printed = pc.cast(pc.cast(held, pa.string()), pa.float64())
        if not pc.all(pc.or_(same, pc.equal(printed, array)), min_count=0).as_py():
            raise TakeExactRoad
    return _finite(held)


def _checked(array: Any, pattern: str) -> Any:
    if not pc.all(pc.match_substring_regex(array, pattern), min_count=0).as_py():
        raise TakeExactRoad
    return array


def _cast(array: Any, pattern: str, to: Any) -> Any:
    return pc.cast(_checked(array, pattern), to)


def _moments(array: Any, zone: str, to: Any) -> Any:
    """Moments as they are printed: a year that is not zero, seconds, up to six digits of a fraction, and the zone."""
    data, offsets = contents(array.drop_null() if array.null_count else array)
    starts, ends = offsets[:-1], offsets[1:] - len(zone)
    whole = len(_SECONDS)
    extra = ends - starts - whole
    has_fraction = extra > 0
    if ((extra < 0) | (extra == 1) | (extra > 1 + _FRACTION_MAX)).any():
        raise TakeExactRoad
    places = [(starts + at, char) for at, char in enumerate(_SECONDS) if char != "0"]
    places += [(starts[has_fraction] + whole, "."), *((ends + at, char) for at, char in enumerate(zone))]
    # Whatever stands at no other place than these is a digit, if there are no other bytes that are none.
    others = sum(len(where) for where, _ in places)
    if any((data[where] != ord(char)).any() for where, char in places) or np.count_nonzero(data - _ZERO > 9) != others:
        raise TakeExactRoad
    early = starts[data[starts] == _ZERO]
    if len(early) and (data[early[:, None] + np.arange(4)] == _ZERO).all(axis=1).any():
        raise TakeExactRoad
    return pc.cast(array, to)


def _time(array: Any) -> Any:
    """As a moment of the first day: strings are not cast to times. The end of the day is the start of the next."""
    ends = pc.equal(_checked(array, _TIME), _DAY_END)
    moments = pc.binary_join_element_wise("1970-01-01", pc.if_else(ends, "00:00:00", array), "T")
    micros = pc.cast(pc.cast(moments, pa.timestamp("us")), pa.int64())
    return pc.if_else(ends, _DAY_MICROS, micros)


def _clock(array: Any) -> Any:
    if pc.any(pc.equal(array, _DAY_END), min_count=0).as_py():
        raise TakeExactRoad
    return pc.cast(_time(array), pa.time64("us"))


def _uuid(array: Any) -> Any:
    _checked(array, _UUID)
    digits, _ = contents(pc.fill_null(array, _NO_UUID))
    nibbles = _NIBBLES[digits.reshape(len(array), 36)[:, _UUID_DIGITS]]
    packed = (nibbles[:, 0::2] << 4) | nibbles[:, 1::2]
    found = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(array), [None, pa.py_buffer(packed.tobytes())])
    return _with_nulls_of(array, found)


def _binary(array: Any) -> Any:
    _checked(array, _HEX)
    digits, offsets = contents(pc.utf8_slice_codeunits(pc.fill_null(array, "\\x"), 2))
    nibbles = _NIBBLES[digits]
    packed = (nibbles[0::2] << 4) | nibbles[1::2]
    borders = (offsets // 2).astype(np.int32)
    found = pa.BinaryArray.from_buffers(
        pa.binary(), len(array), [None, pa.py_buffer(borders.tobytes()), pa.py_buffer(packed.tobytes())]
    )
    return _with_nulls_of(array, found)


def _with_nulls_of(array: Any, found: Any) -> Any:
    return found if not array.null_count else pc.if_else(array.is_valid(), found, pa.scalar(None, found.type))
