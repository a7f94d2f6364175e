"""Sorts the rows that become one row group by the table's sort order.

    waiting rows --sort--> row group          a file of one row group is sorted as a whole, and only that one says so

What waits in memory is bounded, so a larger file is sorted within each of its row groups: readers still skip by the
row groups' bounds, but nobody is told that the file as a whole lies in order.
The order is Iceberg's: nulls where the field puts them, -0.0 before 0.0, NaN after every number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import ConfigError
from frazil.model.ids import TableName
from frazil.model.schema import Decimal, Primitive, Schema
from frazil.model.sort import SortField

Sort = Callable[[pa.Table], pa.Table]


def sorter(table: TableName, schema: Schema, order: Sequence[SortField]) -> Sort | None:
    """What sorts rows of the schema, or None if there is no order. Raises ConfigError for a column that is missing or
    cannot be ordered."""
    for field in order:
        found = schema.field(field.column)
        if found is None or not isinstance(found.type, Primitive | Decimal) or found.type.to_json() == "variant":
            raise ConfigError(
                f"{table} cannot be sorted by {field.column!r}: "
                + ("it has no such column" if found is None else f"its type is {found.type}"),
                hint="Name columns of simple types under `sort:`.",
                table=table.text,
                column=field.column,
            )
    return _Sorter(tuple(order)) if order else None


class _Sorter:
    def __init__(self, order: tuple[SortField, ...]) -> None:
        self._order = order

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows in order; equal ones keep theirs."""
        keys: dict[str, pa.ChunkedArray] = {}
        directions = []
        for number, field in enumerate(self._order):
            column = rows.column(field.column)
            # Nulls are a key of their own, since Arrow knows one place for the nulls of all keys only.
            keys[f"null{number}"] = pc.is_null(column)
            directions.append((f"null{number}", "descending" if field.nulls_first else "ascending"))
            keys[f"value{number}"] = _comparable(column)
            directions.append((f"value{number}", "descending" if field.descending else "ascending"))
        return rows.take(pc.sort_indices(pa.table(keys), sort_keys=directions))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks: list[Any] = [c.storage if isinstance(c, pa.ExtensionArray) else c for c in column.chunks]
    if pa.types.is_floating(column.type):
        return pa.chunked_array([_ordered_bits(chunk) for chunk in chunks], pa.int64())
    type_ = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
    return pa.chunked_array(chunks, type_)


def _ordered_bits(floats: pa.Array) -> pa.Array:
    """Integers that order like the floats do: the bits of a negative one count backwards."""
    whole = floats.cast(pa.float64())
    # A NaN may have a sign, which means nothing.
    bits = pc.if_else(pc.is_nan(whole), pa.scalar(float("nan")), whole).view(pa.int64())
    turned = pc.bit_wise_xor(bits, pa.scalar((1 << 63) - 1, pa.int64()))
    return pc.if_else(pc.less(bits, 0), turned, bits)
