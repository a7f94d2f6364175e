"""Column metrics of one file, in the form a manifest keeps them, taken from the rows as they are written.

    observe(rows) ...            counts, smallest and largest value of each column
    finish(footer)               + sizes from the footer the writer still holds  ->  ColumnMetrics

Nothing is read back from storage. Bounds follow Iceberg's single-value serialisation; strings and binaries are
cut to 16 code points or bytes, or to what the table says (`model.metrics_modes`), and a cut upper bound is raised so
that it stays an upper bound, or left out where nothing greater of that length exists. NaN is counted and never a bound;
-0.0 lies below 0.0; a column without values has no bounds. A column inside a struct is counted by rows, and is null
where the struct is. One inside a list or a map has its size only, as iceberg-java keeps it: the number of elements is
not the number of rows, and a reader must not prune by it.

A uuid has no bounds either. iceberg-java compares uuids as signed numbers while the bytes of a bound order as
unsigned ones (apache/iceberg#14216): with bounds it skips files that hold the wanted row, and does not apply an
equality delete whose key lies in the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from decimal import Context
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.data.arrow_types import leaves
from frazil.model.files import ColumnMetrics
from frazil.model.metrics_modes import ALL_TOLD, MetricsMode, MetricsModes
from frazil.model.schema import DOUBLE, FLOAT, UUID, Decimal, Field, Primitive, StructOf, Type

BOUND_LENGTH = ALL_TOLD.default.length
_SURROGATE_FIRST, _SURROGATE_LAST, _CODE_POINT_MAX = 0xD800, 0xDFFF, 0x10FFFF
_EXACT = Context(prec=80)
_FORMATS = {
    "boolean": "<?",
    "int": "<i",
    "date": "<i",
    "long": "<q",
    "time": "<q",
    "timestamp": "<q",
    "timestamptz": "<q",
    "float": "<f",
    "double": "<d",
}


class _Gauge:
    """Counts and extremes of one column so far."""

    __slots__ = ("_largest", "_mode", "_nans", "_nulls", "_smallest", "_type", "_values")

    def __init__(self, type_: Type, mode: MetricsMode) -> None:
        self._type = type_
        self._mode = mode
        self._values = 0
        self._nulls = 0
        self._nans: int | None = 0 if type_ in (FLOAT, DOUBLE) else None
        self._smallest: Any = None
        self._largest: Any = None

    def observe(self, column: pa.ChunkedArray) -> None:
        self._values += len(column)
        self._nulls += column.null_count
        has_bounds = self._mode.length != 0 and has_order(self._type)
        if column.null_count == len(column) or not (has_bounds or self._nans is not None):
            return
        if self._nans is None:
            extremes = pc.min_max(_comparable(column))
            smallest, largest = extremes["min"].as_py(), extremes["max"].as_py()
        else:
            numbers = column.filter(pc.invert(pc.is_nan(column)))
            self._nans += len(column) - column.null_count - (len(numbers) - numbers.null_count)
            if len(numbers) == numbers.null_count or not has_bounds:
                return
            smallest, largest = _float_extremes(numbers)
        if self._smallest is None or _order(smallest) < _order(self._smallest):
            self._smallest = smallest
        if self._largest is None or _order(largest) > _order(self._largest):
            self._largest = largest

    def finish(self, field_id: int, size: int) -> ColumnMetrics:
        return ColumnMetrics(
            field_id=field_id,
            size=size,
            values=self._values,
            nulls=self._nulls,
            nans=self._nans,
            lower=None if self._smallest is None else lower_bound(self._type, self._smallest, self._mode.length),
            upper=None if self._largest is None else upper_bound(self._type, self._largest, self._mode.length),
        )


class FileMetrics:
    """Gathers the metrics of one file. Rows are observed in the file's own Arrow schema. `modes` say of which columns
    nothing is told, and how much of the others."""

    def __init__(self, fields: Sequence[Field], modes: MetricsModes = ALL_TOLD) -> None:
        self._types = [field.type for field in fields]
        self._leaves = [leaf for field in fields for leaf in leaves(field)]
        self._told = [modes.of(leaf.id).counted for leaf in self._leaves]
        self._gauges = [
            None if leaf.repeated or not told else _Gauge(leaf.type, modes.of(leaf.id))
            for leaf, told in zip(self._leaves, self._told, strict=True)
        ]

    def observe(self, rows: pa.Table) -> None:
        single = (gauge for leaf, gauge in zip(self._leaves, self._gauges, strict=True) if not leaf.repeated)
        columns = (
            leaf for type_, column in zip(self._types, rows.columns, strict=True) for leaf in _flat(type_, column)
        )
        for gauge, column in zip(single, columns, strict=True):
            if gauge is not None:
                gauge.observe(column)

    def finish(self, footer: pq.FileMetaData) -> tuple[ColumnMetrics, ...]:
        """Of the Parquet columns that are told of, in the order of the file; a list under the id of its element."""
        sizes = [0] * len(self._leaves)
        for group_index in range(footer.num_row_groups):
            group = footer.row_group(group_index)
            for index in range(group.num_columns):
                sizes[index] += group.column(index).total_compressed_size
        return tuple(
            ColumnMetrics(field_id=leaf.id, size=size) if gauge is None else gauge.finish(leaf.id, size)
            for leaf, gauge, size, told in zip(self._leaves, self._gauges, sizes, self._told, strict=True)
            if told
        )


def _flat(type_: Type, column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """The leaves of a column that are not repeated, null wherever a struct around them is."""
    if isinstance(type_, StructOf):
        for field, child in zip(type_.fields, _children(column), strict=True):
            yield from _flat(field.type, child)
    elif isinstance(type_, (Primitive, Decimal)):
        yield column


def _children(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    chunks = [chunk.flatten() for chunk in column.chunks]
    return [
        pa.chunked_array([children[place] for children in chunks], column.type.field(place).type)
        for place in range(column.type.num_fields)
    ]


def has_order(type_: Type) -> bool:
    """Whether all readers agree on the order of the type, so that they may skip by it."""
    return type_ != UUID


def split_offsets(footer: pq.FileMetaData) -> tuple[int, ...]:
    """Where the row groups start: at these a reader may cut the file."""
    offsets = []
    for index in range(footer.num_row_groups):
        first = footer.row_group(index).column(0)
        dictionary = first.dictionary_page_offset
        offsets.append(first.data_page_offset if not dictionary else min(dictionary, first.data_page_offset))
    return tuple(sorted(offsets))


def lower_bound(type_: Type, smallest: Any, length: int | None = BOUND_LENGTH) -> bytes:
    """The serialised lower bound of a smallest value, cut where the type is cut."""
    match type_:
        case Primitive("string"):
            return bytes(smallest).decode()[:length].encode()
        case Primitive("binary"):
            return bytes(smallest)[:length]
        case _:
            return single_value(type_, smallest)


def upper_bound(type_: Type, largest: Any, length: int | None = BOUND_LENGTH) -> bytes | None:
    """The serialised upper bound of a largest value, or None if none of the allowed length exists."""
    match type_:
        case Primitive("string"):
            text = _raise_text(bytes(largest).decode(), length)
            return None if text is None else text.encode()
        case Primitive("binary"):
            return _raise_bytes(bytes(largest), length)
        case _:
            return single_value(type_, largest)


def single_value(type_: Type, value: Any) -> bytes:
    """Iceberg's binary form of one value: integers for dates and times, bytes for strings, uuid and binary."""
    match type_:
        case Decimal(_, scale):
            unscaled = int(value.scaleb(scale, _EXACT))
            bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
            return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)
        case Primitive(name) if name in _FORMATS:
            return struct.pack(_FORMATS[name], value)
        case _:
            return bytes(value)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same buffers under a type that yields what `single_value` takes, in the order Iceberg compares by:
    integers for dates and times (no calendar of Python's narrows them), bytes for strings."""
    type_ = column.type
    if pa.types.is_date32(type_) or pa.types.is_temporal(type_):
        storage = pa.int32() if pa.types.is_date32(type_) else pa.int64()
        return pa.chunked_array([chunk.view(storage) for chunk in column.chunks], storage)
    if pa.types.is_string(type_):
        return pa.chunked_array([chunk.view(pa.binary()) for chunk in column.chunks], pa.binary())
    return column


def _float_extremes(numbers: pa.ChunkedArray) -> tuple[float, float]:
    """Arrow holds -0.0 and 0.0 for equal and returns either; the signs of the zeros decide."""
    extremes = pc.min_max(numbers)
    smallest, largest = extremes["min"].as_py(), extremes["max"].as_py()
    if smallest == 0.0 or largest == 0.0:
        zeros = numbers.filter(pc.equal(numbers, 0.0)).drop_null().to_numpy()
        negative = np.signbit(zeros)
        smallest = (-0.0 if negative.any() else 0.0) if smallest == 0.0 else smallest
        largest = (-0.0 if negative.all() else 0.0) if largest == 0.0 else largest
    return smallest, largest


def _order(value: Any) -> Any:
    """Sorts -0.0 below 0.0 and leaves all else as it is."""
    return (value, math.copysign(1.0, value)) if isinstance(value, float) else value


def _raise_text(text: str, length: int | None) -> str | None:
    if length is None or len(text) <= length:
        return text
    for end in range(length - 1, -1, -1):
        following = ord(text[end]) + 1
        if _SURROGATE_FIRST <= following <= _SURROGATE_LAST:
            following = _SURROGATE_LAST + 1
        if following <= _CODE_POINT_MAX:
            return text[:end] + chr(following)
    return None


def _raise_bytes(data: bytes, length: int | None) -> bytes | None:
    if length is None or len(data) <= length:
        return data
    for end in range(length - 1, -1, -1):
        if data[end] < 0xFF:
            return data[:end] + bytes([data[end] + 1])
    return None
