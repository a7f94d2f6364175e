"""Binds decoded columns to the fields of a table.

    decoder's batch     id, name, tags                  by name, once per batch shape
    table's fields      1 id, 2 name, 5 note, 6 tags    -> id, name, null, tags with field ids

From here on a column is its field id (H30). A column the batch lacks is null; one the table lacks is an error,
never dropped (the schema evolves first). Types may differ in ways that lose nothing, such as int into a promoted
long; a value that does not fit is an error, never clamped or rounded (H39).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import BadInput, ConfigError, DoesNotFit, UnknownColumn
from frazil.model.columns import DOUBLE, FLOAT, Field, ListOf, Schema
from frazil.model.names import TableName
from frazil.workers.arrow_types import arrow_schema

_UUID_DIGITS = 32


class Binding:
    """Turns batches of named columns into batches of exactly these fields.

    `key` columns must not be null (H20). Columns named in `ignored` serve the fold and are no part of the table
    unless it has a field of that name.
    """

    def __init__(
        self, table: TableName, fields: Sequence[Field], key: Sequence[str] = (), ignored: Collection[str] = ()
    ) -> None:
        self._table = table
        self._fields = tuple(fields)
        self._names = frozenset(field.name for field in fields)
        self._key = tuple(key)
        self._ignored = frozenset(ignored)
        self.schema = arrow_schema(fields)

    def bind(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises UnknownColumn, DoesNotFit, or BadInput for a null where none may be."""
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        unknown = [name for name in given if name not in self._names and name not in self._ignored]
        if unknown:
            raise UnknownColumn(
                f"{self._table} has no column {unknown[0]!r}",
                hint=f"Add the column to {self._table} and run again: the schema evolves before an epoch is written.",
                table=self._table.text,
                columns=unknown,
            )
        arrays = [
            self._fit(field, target.type, given.get(field.name), batch)
            for field, target in zip(self._fields, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _fit(self, field: Field, target: pa.DataType, values: pa.Array | None, batch: pa.RecordBatch) -> pa.Array:
        array = pa.nulls(batch.num_rows, target) if values is None else self._convert(field, target, values)
        if array.null_count and field.name in self._key:
            raise BadInput(
                f"{self._table}: key column {field.name!r} is null in {self._row(array, batch)}",
                hint="A key cannot be null: choose other key columns for the table, or mend the row at the source.",
                table=self._table.text,
                column=field.name,
            )
        if array.null_count and field.required:
            raise BadInput(
                f"{self._table}: required column {field.name!r} has no value in {self._row(array, batch)}",
                hint=f"Make it optional: ALTER TABLE {self._table.sql} ALTER COLUMN `{field.name}` DROP NOT NULL.",
                table=self._table.text,
                column=field.name,
            )
        return array

    def _convert(self, field: Field, target: pa.DataType, values: pa.Array) -> pa.Array:
        if values.type == target and not pa.types.is_nested(target):
            return values
        if not _may_become(values.type, target):
            raise DoesNotFit(
                f"{self._table}: column {field.name!r} is {field.type} and cannot take {values.type}",
                hint=f"Change the column's type in {self._table}, or cast it at the source.",
                table=self._table.text,
                column=field.name,
            )
        try:
            return _cast(values, target)
        except (pa.ArrowInvalid, ValueError) as error:
            raise DoesNotFit(
                f"{self._table}: a value of column {field.name!r} does not fit {field.type}: {error}",
                hint=f"Widen the column in {self._table}, or mend the value at the source.",
                table=self._table.text,
                column=field.name,
            ) from error

    def _row(self, array: pa.Array, batch: pa.RecordBatch) -> str:
        index = pc.index(pc.is_null(array), True).as_py()
        shown = [name for name in self._key if name in batch.schema.names]
        if not shown:
            return f"row {index} of a batch"
        return "the row with key " + ", ".join(f"{name}={batch.column(name)[index].as_py()!r}" for name in shown)


def key_fields(table: TableName, schema: Schema, key: Sequence[str]) -> tuple[Field, ...]:
    """The fields of a key, in the key's order. Raises ConfigError for a column that is missing or whose type
    cannot be compared exactly (H21)."""
    fields = []
    for name in key:
        field = schema.field(name)
        if field is None:
            raise ConfigError(
                f"{table} has no key column {name!r}",
                hint=f"Name columns of the table under `key:`; it has {', '.join(f.name for f in schema)}.",
                table=table.text,
                column=name,
            )
        if field.type in (FLOAT, DOUBLE) or isinstance(field.type, ListOf):
            raise ConfigError(
                f"{table}: key column {name!r} is {field.type}, which cannot identify a row",
                hint="Choose other key columns, or cast it to a decimal or a string under `columns:`.",
                table=table.text,
                column=name,
            )
        fields.append(field)
    return tuple(fields)


def _may_become(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a checked cast can only widen, re-label or fail."""
    types = pa.types
    if types.is_null(source) or source == target:
        return True
    if types.is_list(target):
        return (types.is_list(source) or types.is_large_list(source)) and _may_become(
            source.value_type, target.value_type
        )
    if target == pa.uuid():
        return _is_text(source) or (types.is_fixed_size_binary(source) and source.byte_width == 16)
    if types.is_floating(target):
        return bool(types.is_floating(source) and source.bit_width <= target.bit_width)
    if types.is_timestamp(target):
        return types.is_timestamp(source) and (source.tz is None) == (target.tz is None)
    same_family: tuple[tuple[Any, Any], ...] = (
        (types.is_integer, types.is_integer),
        (types.is_decimal, types.is_decimal),
        (_is_text, _is_text),
        (_is_bytes, _is_bytes),
        (types.is_time, types.is_time),
    )
    return any(is_source(source) and is_target(target) for is_source, is_target in same_family)


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    if target == pa.uuid():
        return _uuids(values)
    if pa.types.is_list(target) and not pa.types.is_null(values.type):
        # Not a plain cast: the elements may be uuids, and the element's field id has to come from the target.
        start, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
        offsets = pc.subtract(values.offsets, values.offsets[0]).cast(pa.int32())
        elements = _cast(values.values.slice(start, end - start), target.value_type)
        if elements.null_count and not target.value_field.nullable:
            raise ValueError("an element of the list is null and must not be")
        mask = values.is_null() if values.null_count else None
        return pa.ListArray.from_arrays(offsets, elements, type=target, mask=mask)
    return values if values.type == target else values.cast(target, safe=True)


def _uuids(values: pa.Array) -> pa.Array:
    if values.type == pa.uuid():
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.uuid())
    if _is_text(values.type):
        values = _uuid_bytes(values)
    return pa.ExtensionArray.from_storage(pa.uuid(), values)


def _uuid_bytes(texts: pa.Array) -> pa.Array:
    """All texts at once: the hex digits of a column without gaps are one long number."""
    filled = pc.fill_null(texts, "0" * _UUID_DIGITS).cast(pa.string())
    digits = pc.replace_substring(filled, "-", "")
    lengths = pc.binary_length(digits)
    if len(digits) and pc.any(pc.not_equal(lengths, _UUID_DIGITS)).as_py():
        bad = filled.filter(pc.not_equal(lengths, _UUID_DIGITS))[0].as_py()
        raise ValueError(f"{bad!r} is no uuid")
    raw = bytes.fromhex("".join(digits.to_pylist()))
    if len(raw) != 16 * len(texts):
        raise ValueError("a text with spaces is no uuid")
    plain = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(raw)])
    return pc.if_else(texts.is_null(), pa.scalar(None, pa.binary(16)), plain) if texts.null_count else plain


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_))
