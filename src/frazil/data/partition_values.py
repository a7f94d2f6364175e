"""Rows by partition: which rows of a batch share all partition values, and how these values are told to a manifest.

    rows --transforms--> day        bucket
                         20,000     3         -> rows 0, 2    ["2024-10-04", 3]
                         null       3         -> row 1        [null, 3]

Values are told in Iceberg's JSON form of single values: dates, times, decimals and uuids as texts, binaries as hex
digits, and of a float every bit that tells it from another (NaN, infinities and the sign of zero included). Texts are
spelled as iceberg-java spells them: what is told here and what is read from a manifest later must be the same place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID as Uuid

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.transforms import BoundField
from frazil.model.arrow import value_type
from frazil.model.schema import DATE, TIME, TIMESTAMP, TIMESTAMPTZ, UUID, Decimal, Primitive, Type

_YEAR_MAX = 9999
_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Partition:
    """The values of all fields of a spec, in JSON form. `key` tells partitions apart, also where values do not
    equal themselves."""

    key: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Partition:
        return cls(json.dumps(values), tuple(values))


def by_partition(rows: pa.RecordBatch, fields: Sequence[BoundField]) -> Iterator[tuple[Partition, Indices | None]]:
    """Each partition among the rows with the places of its rows, in their order; no places mean all rows."""
    if rows.num_rows == 0:
        return
    columns = [field.values(rows) for field in fields]
    codes = np.zeros(rows.num_rows, np.int64)
    for field, column in zip(fields, columns, strict=True):
        if field.field.transform.name != "void":
            codes = _combined(codes, column)
    order = np.argsort(codes, kind="stable").astype(np.int64)
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    firsts = pa.array(order[np.concatenate([[0], ends])])
    values = zip(*(json_values(f.type, c.take(firsts)) for f, c in zip(fields, columns, strict=True)), strict=True)
    if len(ends) == 0:
        yield Partition.of(next(values, ())), None
        return
    for tuple_, places in zip(values, np.split(order, ends), strict=True):
        yield Partition.of(tuple_), places


def json_values(type_: Type, values: pa.Array) -> list[Any]:
    """Every value in the form that ContentFileParser reads a partition value in."""
    if isinstance(type_, Decimal):
        return [None if value is None else f"{value:f}" for value in values.to_pylist()]
    if type_ in (DATE, TIME, TIMESTAMP, TIMESTAMPTZ):
        # No calendar of Python's in between: it knows neither the year 0 nor the year 10000.
        storage = pa.int32() if type_ == DATE else pa.int64()
        return [None if value is None else _calendar(type_, value) for value in values.view(storage).to_pylist()]
    if type_ == UUID:
        return [None if value is None else str(Uuid(bytes=value)) for value in values.to_pylist()]
    if isinstance(type_, Primitive) and (type_.name == "binary" or type_.name.startswith("fixed[")):
        return [None if value is None else value.hex().upper() for value in values.to_pylist()]
    plain: list[Any] = values.to_pylist()
    return plain


def json_scalar(type_: Type, value: Any) -> pa.Scalar:
    """A value in Iceberg's JSON form of single values, as the column has it."""
    kind = value_type(type_)
    if value is None:
        return pa.scalar(None, kind)
    if type_ == UUID:
        return pa.scalar(Uuid(value).bytes, kind)
    if isinstance(type_, Primitive) and (type_.name == "binary" or type_.name.startswith("fixed[")):
        return pa.scalar(bytes.fromhex(value), kind)
    if type_ in (DATE, TIME, TIMESTAMP, TIMESTAMPTZ):
        # Arrow reads no time of day, and no year of more than four digits.
        return pa.array([_calendar_number(type_, value)], pa.int32() if type_ == DATE else pa.int64()).view(kind)[0]
    return pa.scalar(value).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)


def _calendar_number(type_: Type, text: str) -> int:
    """Days or microseconds, of a date, time or timestamp in Iceberg's JSON form. Raises ValueError for another text."""
    if type_ == DATE:
        return _days(text)
    if type_ == TIME:
        return _micros(text)
    date, _, time = text.partition("T")
    return _days(date) * _DAY + _micros(time.removesuffix("Z").removesuffix("+00:00"))


def _days(text: str) -> int:
    return int(np.datetime64(text.removeprefix("+"), "D").astype(np.int64))


def _micros(text: str) -> int:
    clock, _, fraction = text.partition(".")
    hours, minutes, seconds = (int(part) for part in f"{clock}:00".split(":")[:3])
    return hours * _HOUR + minutes * _MINUTE + seconds * _SECOND + int(fraction[:6].ljust(6, "0"))


def _combined(codes: Indices, column: pa.Array) -> Indices:
    """Codes that also tell the column's values apart; always smaller than the number of rows, so never too large."""
    if pa.types.is_floating(column.type):
        # By their bits: a reader takes the partition's value for the row's, and 0.0 is not -0.0.
        column = column.view(pa.int32() if column.type == pa.float32() else pa.int64())
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if len(encoded.dictionary) == 1:
        return codes
    return np.unique(codes * len(encoded.dictionary) + own, return_inverse=True)[1].astype(np.int64)


def _calendar(type_: Type, value: int) -> str:
    if type_ == DATE:
        return _date(value)
    if type_ == TIME:
        return _time(value)
    days, micros = divmod(value, _DAY)
    return f"{_date(days)}T{_time(micros)}{'+00:00' if type_ == TIMESTAMPTZ else ''}"


def _date(days: int) -> str:
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    number = int(year)
    # Java has four digits at least behind a minus sign too, and a plus sign before more than four.
    sign = "-" if number < 0 else "+" if number > _YEAR_MAX else ""
    return f"{sign}{abs(number):04}-{month}-{day}"


def _time(micros: int) -> str:
    hours, rest = divmod(micros, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    seconds, rest = divmod(rest, _SECOND)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"{hours:02}:{minutes:02}:{seconds:02}{fraction}"
