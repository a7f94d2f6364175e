"""Binds decoded columns to the fields of a table.

    decoder's batch     id, name, tags                  by name, once per source schema
    table's fields      1 id, 2 name, 5 note, 6 tags    -> id, name, null, tags with field ids

From here on a column is its field id (H30), and so is whatever is nested in it: structs bind by name at each level. A
column the batch lacks is null; one the table lacks is an error, never dropped (the schema evolves first). Types may
differ in ways that lose nothing, such as int into a promoted long; a value that does not fit is an error, never
clamped or rounded (H39).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.arrow_types import arrow_schema
from frazil.data.cast import cast, may_become, nulls, unknown_fields
from frazil.errors import BadInput, ConfigError, DoesNotFit, UnknownColumn
from frazil.model.ids import TableName
from frazil.model.schema import DOUBLE, FLOAT, Field, ListOf, MapOf, Schema, StructOf


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
        self._refuse([name for name in given if name not in self._names and name not in self._ignored])
        arrays = [
            self._fit(field, target.type, given.get(field.name), batch)
            for field, target in zip(self._fields, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _fit(self, field: Field, target: pa.DataType, values: pa.Array | None, batch: pa.RecordBatch) -> pa.Array:
        array = nulls(batch.num_rows, target) if values is None else self._convert(field, target, values)
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
        self._refuse(list(unknown_fields(values.type, target, field.name)))
        if not may_become(values.type, target):
            raise DoesNotFit(
                f"{self._table}: column {field.name!r} is {field.type} and cannot take {values.type}",
                hint=f"Change the column's type in {self._table}, or cast it at the source.",
                table=self._table.text,
                column=field.name,
            )
        try:
            return cast(values, target)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise DoesNotFit(
                f"{self._table}: a value of column {field.name!r} does not fit {field.type}: {error}",
                hint=f"Widen the column in {self._table}, or mend the value at the source.",
                table=self._table.text,
                column=field.name,
            ) from error

    def _refuse(self, unknown: Sequence[str]) -> None:
        if unknown:
            raise UnknownColumn(
                f"{self._table} has no column {unknown[0]!r}",
                hint=f"Add the column to {self._table} and run again: the schema evolves before an epoch is written.",
                table=self._table.text,
                columns=list(unknown),
            )

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
        if field.type in (FLOAT, DOUBLE) or isinstance(field.type, (ListOf, MapOf, StructOf)):
            raise ConfigError(
                f"{table}: key column {name!r} is {field.type}, which cannot identify a row",
                hint="Choose other key columns, or cast it to a decimal or a string under `columns:`.",
                table=table.text,
                column=name,
            )
        fields.append(field)
    return tuple(fields)


def optional_but(key: Sequence[str], fields: Sequence[Field]) -> tuple[Field, ...]:
    """The fields, of which only those of the key must have a value."""
    return tuple(field if field.name in key else replace(field, required=False) for field in fields)
