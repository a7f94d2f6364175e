"""The fast road of decoding: a slice of payloads to Arrow columns, without a Python object for each value.

    payloads --joined by newlines--> pyarrow.json, explicit types --> vectorised casts --> columns
                                          `-- anything unusual --> TakeExactRoad

It may give up at any time, and never guesses: what it returns is what the exact road would return.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from frazil.model import columns as iceberg
from frazil.model.arrow import value_type
from frazil.model.columns import Column
from frazil.sources.cockroachdb.types import Family, parse_source_type

_BYTES_MAX = (1 << 31) - (1 << 16)
_YEAR = r"(?:[1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])"
_DATE = rf"^{_YEAR}-\d\d-\d\d$"
_TIMESTAMP = rf"^{_YEAR}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{{1,6}})?$"
_TIMESTAMPTZ = _TIMESTAMP[:-1] + "Z$"
_TIME = r"^\d\d:\d\d:\d\d(?:\.\d{1,6})?$"
_UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_HEX = r"^\\x(?:[0-9a-fA-F]{2})*$"
_UUID_DIGITS = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")
_DECIMAL_BITS_DIGITS = 39  # fewer digits than this always fit into 128 bits
_FRACTION_DIGITS = 38
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_NIBBLES = np.zeros(256, dtype=np.uint8)
for _digit, _text in enumerate("0123456789abcdef"):
    _NIBBLES[ord(_text)] = _NIBBLES[ord(_text.upper())] = _digit


class TakeExactRoad(Exception):
    """Something here needs a closer look."""


Finish = Callable[[Any], Any]


def plan(columns: Sequence[Column]) -> tuple[tuple[Any, Finish], ...] | None:
    """For each column the type to read from JSON, and what to do then. None if one of them is always exact."""
    steps = [_step(column) for column in columns]
    return None if any(step is None for step in steps) else tuple(step for step in steps if step is not None)


def columns_of(payloads: pa.Array, columns: Sequence[Column], steps: Sequence[tuple[Any, Finish]]) -> list[pa.Array]:
    """Raises TakeExactRoad."""
    try:
        texts = payloads.cast(pa.string())
        # A first line `null` would bring pyarrow down, and an empty one would shift the rows.
        if texts.null_count or not pc.all(pc.starts_with(texts, "{"), min_count=0).as_py():
            raise TakeExactRoad
        guard = _decimal_guard(columns)
        if guard and pc.any(pc.match_substring_regex(texts, guard), min_count=0).as_py():
            raise TakeExactRoad
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")
        buffer = joined[0].as_buffer()
        if buffer.size >= _BYTES_MAX:
            raise TakeExactRoad
        found = pj.read_json(
            pa.BufferReader(buffer),
            read_options=pj.ReadOptions(use_threads=False, block_size=buffer.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(
                    [(column.name, step[0]) for column, step in zip(columns, steps, strict=True)]
                ),
                unexpected_field_behavior="infer",
            ),
        )
        known = {column.name for column in columns}
        surprising = any(f.name not in known and not pa.types.is_null(f.type) for f in found.schema)
        if surprising or found.num_rows != len(payloads):
            raise TakeExactRoad
        return [
            finish(found.column(column.name).combine_chunks())
            for column, (_, finish) in zip(columns, steps, strict=True)
        ]
    except pa.ArrowException as error:
        raise TakeExactRoad from error


def _step(column: Column) -> tuple[Any, Finish] | None:
    family = parse_source_type(column.source_type).family
    to = column.type
    if isinstance(to, iceberg.Decimal):
        if not _PLAIN_NAME.fullmatch(column.name):
            return None
        end = Decimal(10) ** (to.precision - to.scale)
        return value_type(to), lambda array: _within(array, end)
    if not isinstance(to, iceberg.Primitive):
        return None
    match to.name:
        case "int" | "boolean":
            return value_type(to), _as_read
        case "long":
            return (pa.string(), _time) if family is Family.TIME else (pa.int64(), _as_read)
        case "float" | "double":
            return value_type(to), _finite
        case "string":
            exact_only = family in (Family.JSON, Family.GEO, Family.DECIMAL, Family.INT, Family.FLOAT)
            return None if exact_only else (pa.string(), _as_read)
        case "uuid":
            return pa.string(), _uuid
        case "binary":
            return pa.string(), _binary
        case "date":
            return pa.string(), lambda array: _cast(array, _DATE, pa.date32())
        case "timestamp":
            return pa.string(), lambda array: _cast(array, _TIMESTAMP, pa.timestamp("us"))
        case "timestamptz":
            return pa.string(), lambda array: _cast(array, _TIMESTAMPTZ, pa.timestamp("us", tz="UTC"))
        case _:
            return None


def _decimal_guard(columns: Sequence[Column]) -> str | None:
    """Finds decimals that pyarrow would change without a word: it lets those that need more than 128 bits once
    scaled wrap around, and takes those far below the scale for zero."""
    found = [
        rf'"{column.name}"\s*:\s*"?[-+]?'
        rf"(?:[0-9]{{{_DECIMAL_BITS_DIGITS - column.type.scale},}}|[0-9.]+[eE]|[0-9]*\.[0-9]{{{_FRACTION_DIGITS},}})"
        for column in columns
        if isinstance(column.type, iceberg.Decimal)
    ]
    return "|".join(found) or None


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


def _checked(array: Any, pattern: str) -> Any:
    if not pc.all(pc.match_substring_regex(array, pattern), min_count=0).as_py():
        raise TakeExactRoad
    return array


def _cast(array: Any, pattern: str, to: Any) -> Any:
    return pc.cast(_checked(array, pattern), to)


def _time(array: Any) -> Any:
    """As a moment of the first day: strings are not cast to times."""
    moments = pc.binary_join_element_wise("1970-01-01", _checked(array, _TIME), "T")
    return pc.cast(pc.cast(moments, pa.timestamp("us")), pa.int64())


def _uuid(array: Any) -> Any:
    _checked(array, _UUID)
    digits, _ = _buffers(pc.fill_null(array, _NO_UUID))
    nibbles = _NIBBLES[digits.reshape(len(array), 36)[:, _UUID_DIGITS]]
    packed = (nibbles[:, 0::2] << 4) | nibbles[:, 1::2]
    found = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(array), [None, pa.py_buffer(packed.tobytes())])
    return _with_nulls_of(array, found)


def _binary(array: Any) -> Any:
    _checked(array, _HEX)
    digits, offsets = _buffers(pc.utf8_slice_codeunits(pc.fill_null(array, "\\x"), 2))
    nibbles = _NIBBLES[digits]
    packed = (nibbles[0::2] << 4) | nibbles[1::2]
    borders = (offsets // 2).astype(np.int32)
    found = pa.BinaryArray.from_buffers(
        pa.binary(), len(array), [None, pa.py_buffer(borders.tobytes()), pa.py_buffer(packed.tobytes())]
    )
    return _with_nulls_of(array, found)


def _with_nulls_of(array: Any, found: Any) -> Any:
    return found if not array.null_count else pc.if_else(array.is_valid(), found, pa.scalar(None, found.type))


def _buffers(array: Any) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a string array without nulls, and its offsets into them."""
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets - offsets[0]
