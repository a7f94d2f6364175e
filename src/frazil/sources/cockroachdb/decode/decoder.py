"""Keys and payloads of one table to Arrow columns.

    payloads --vectors.columns_of--> columns           (fast: no Python object for a value)
        `---- TakeExactRoad: once more with numbers from their text (NaN, 1E+2)
                `---- TakeExactRoad ----> values.converter --> the same columns, or an error that names the value

Key columns are taken from the canonical keys, and the payload must agree with them: so that the row that is written
and the delete that removes it later spell their key alike, and a wrongly configured key is noticed. A table without
key columns has keys that only tell its changes apart.

A column's value is that of the first name in `carried_as` which the payload has: of a renamed column rows of both
names may lie in one epoch (H14). Two names with two values are refused.

Rows from before and after an incompatible change of type may lie in one epoch, too: the column takes every value that
it holds, and those that it has outgrown (`SourceSchema.outgrown`) take the rest. In one row all but one of them are
NULL, as they are if the change lies between two epochs. The fast road knows nothing of this: what does not fit takes
the exact one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.pieces import contents
from frazil.errors import BadInput, DoesNotFit, UnknownColumn
from frazil.model import schema as iceberg
from frazil.model.arrow import value_type
from frazil.model.schema import Column, SourceSchema
from frazil.sources.cockroachdb.decode.exact_json import Json, NotJson, dumps, loads, quote
from frazil.sources.cockroachdb.decode.fast.columns import TakeExactRoad, columns_of, plan
from frazil.sources.cockroachdb.decode.keys import EXCERPT, KeyRule
from frazil.sources.cockroachdb.decode.values import Converter, Misfit, canonical, converter
from frazil.sources.cockroachdb.schema.types import Family, parse_source_type
from frazil.sources.net import decoded

_SLICE = 16_384  # what is looked at together stays in the processor's cache
# Arrow takes more spellings for integers than JSON has, such as 0x1F.
_OF_WHOLE_NUMBERS = np.isin(np.arange(256), list(b"[-0123456789]"))
_REFUSALS = (Misfit, pa.ArrowException, OverflowError, UnicodeEncodeError)


@dataclass(frozen=True, slots=True)
class DecodedTable:
    name: str
    source_schema: SourceSchema


@dataclass(frozen=True, slots=True)
class FeedDecoder:
    """`tables` are by the index that travels with changes. Picklable."""

    tables: Mapping[int, DecodedTable]

    def keys(self, table: int, keys: pa.Array) -> pa.RecordBatch:
        """The key columns of canonical key texts; rows without columns if the table has no key."""
        known = self.tables[table]
        columns = known.source_schema.key_columns
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(keys), pa.struct([])))
        arrays = _sliced(known, keys, None, columns, lambda some, _: _key_columns(known, some))
        return pa.RecordBatch.from_arrays(arrays, schema=_schema(columns))

    def rows(self, table: int, keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        """All columns of the table's source schema, and those that they have outgrown; one that a payload lacks is
        NULL.

        Raises UnknownColumn (facts `table`, `columns`), DoesNotFit, or BadInput if key and payload disagree.
        """
        known = self.tables[table]
        columns = (*known.source_schema.columns, *known.source_schema.outgrown)
        arrays = _sliced(known, keys, payloads, columns, lambda some, of_them: _row_columns(known, some, of_them))
        return pa.RecordBatch.from_arrays(arrays, schema=_schema(columns))


def exact_columns(table: DecodedTable, columns: Sequence[Column], keys: pa.Array, payloads: pa.Array) -> list[pa.Array]:
    """The exact road: value by value. The columns, and then those that they have outgrown."""
    known = {name for column in columns for name in column.carried_as}
    rows: list[dict[str, Json]] = []
    unknown: set[str] = set()
    for key, payload in zip(keys.to_pylist(), payloads.to_pylist(), strict=True):
        row = _parsed(table.name, key, payload)
        if not row.keys() <= known:
            unknown.update(name for name, value in row.items() if value is not None and name not in known)
        rows.append(row)
    if unknown:
        raise UnknownColumn(
            f"{table.name}: changes have columns that the table does not have: {', '.join(sorted(unknown))}",
            hint="The table's schema must gain them first.",
            table=table.name,
            columns=sorted(unknown),
        )
    carried = [_carried(table, column, keys, rows) for column in columns]
    outgrown = [[None] * len(rows) for _ in table.source_schema.outgrown]
    for column, values in zip(columns, carried, strict=True):
        _share(table, column, values, outgrown)
    homes = zip((*columns, *table.source_schema.outgrown), (*carried, *outgrown), strict=True)
    return [_exact_column(table, column, keys, values) for column, values in homes]


def fast_columns(table: DecodedTable, columns: Sequence[Column], payloads: pa.Array) -> list[pa.Array]:
    """The fast road. Raises TakeExactRoad."""

    def convert(column: Column) -> Converter:
        return _converter(table.source_schema, column)

    spelled = [column.name for column in columns if _is_spelled(table.source_schema, column)]
    try:
        return columns_of(payloads, plan(columns, convert, spelled=spelled))
    except TakeExactRoad:
        if not any(_has_odd_numbers(column) for column in columns):
            raise
        return columns_of(payloads, plan(columns, convert, spelled=spelled, raw_numbers=True))


def _row_columns(table: DecodedTable, keys: pa.Array, payloads: pa.Array) -> list[pa.Array]:
    columns = table.source_schema.columns
    try:
        arrays = fast_columns(table, columns, payloads)
        arrays += [pa.nulls(len(payloads), value_type(column.type)) for column in table.source_schema.outgrown]
    except TakeExactRoad:
        arrays = exact_columns(table, columns, keys, payloads)
    places = {column.name: i for i, column in enumerate(columns)}
    for column, array in zip(table.source_schema.key_columns, _key_columns(table, keys), strict=True):
        place = places[column.name]
        _agree(table, column, keys, arrays[place], array)
        if arrays[place].null_count:
            _refuse_null(table, column, keys, payloads, arrays[place])
        arrays[place] = array
    return arrays


def _carried(table: DecodedTable, column: Column, keys: pa.Array, rows: Sequence[dict[str, Json]]) -> list[Json]:
    names = column.carried_as
    if len(names) == 1:
        return [row.get(names[0]) for row in rows]
    values = []
    for key, row in zip(keys, rows, strict=True):
        present = [row[name] for name in names if name in row]
        told = [value for value in present if value is not None]
        if len(told) > 1 and _differ(column, told):
            raise BadInput(
                f"{table.name}: the row with key {key.as_py()[:EXCERPT]} has different values under names of one "
                f"column {column.name}: {', '.join(name for name in names if row.get(name) is not None)}",
                hint="A renamed column comes under its old or its new name. If these are two columns, pin both under "
                f"`columns:` of {table.name}.",
                table=table.name,
                key=key.as_py(),
                column=column.name,
            )
        values.append(present[0] if present else None)
    return values


def _share(table: DecodedTable, column: Column, values: list[Json], outgrown: Sequence[list[Json]]) -> None:
    """Moves each value that the column does not hold to the first of those it has outgrown that does. What none of them
    holds stays, to be refused."""
    pairs = zip(table.source_schema.outgrown, outgrown, strict=True)
    olds = [(old, taken) for old, taken in pairs if old.carried_as[0] in column.carried_as]
    if not olds:
        return
    for at, value in enumerate(values):
        if value is None or _holds(table, column, value):
            continue
        home = next((taken for old, taken in olds if _holds(table, old, value)), values)
        values[at], home[at] = None, value


def _holds(table: DecodedTable, column: Column, value: Json) -> bool:
    try:
        pa.array([_converter(table.source_schema, column)(value)], value_type(column.type))
    except _REFUSALS:
        return False
    return True


def _differ(column: Column, values: Sequence[Json]) -> bool:
    """Whether not all of them are one value, however it is spelled."""
    if all(value == values[0] for value in values):
        return False
    convert = converter(column)
    try:
        first = convert(values[0])
        return any(convert(value) != first for value in values)
    except Misfit:
        return True


def _agree(table: DecodedTable, column: Column, keys: pa.Array, in_row: pa.Array, in_key: pa.Array) -> None:
    """A row may lack its key column: that of another column family."""
    differs = pc.fill_null(pc.not_equal(in_row, in_key), False)
    if pc.any(differs, min_count=0).as_py():
        at = pc.index(differs, True).as_py()
        raise BadInput(
            f"the key of table {table.name} changed: its key {keys[at].as_py()[:EXCERPT]} is not what column "
            f"{column.name} holds: {in_row[at].as_py()!r}",
            hint=f"Pin `key: [...]` in the entry of {table.name}: the columns that identify a row, in key order.",
            table=table.name,
            key=keys[at].as_py(),
            column=column.name,
        )


def _refuse_null(table: DecodedTable, column: Column, keys: pa.Array, payloads: pa.Array, in_row: pa.Array) -> None:
    """A row may lack its key column, but not say that it is NULL (H20)."""
    missing = in_row.is_null()
    names = "|".join(re.escape(quote(name)) for name in column.carried_as)
    texts = payloads.filter(missing).cast(pa.string())
    suspicious = pc.match_substring_regex(texts, rf"(?:{names})\s*:\s*null")
    if not pc.any(suspicious, min_count=0).as_py():
        return
    for key, payload in zip(keys.filter(missing).filter(suspicious), texts.filter(suspicious), strict=True):
        row = _parsed(table.name, key.as_py(), payload.as_py().encode("utf-8"))
        if any(name in row for name in column.carried_as):
            raise BadInput(
                f"{table.name}: key column {column.name} is NULL in the row with key {key.as_py()[:EXCERPT]}",
                hint="A row without a key can be neither updated nor deleted: choose other columns with `key:`.",
                table=table.name,
                key=key.as_py(),
                column=column.name,
            )


def _key_columns(table: DecodedTable, keys: pa.Array) -> list[pa.Array]:
    """Key texts become objects {"c0": ..., "c1": ...} and take the same roads as payloads."""
    if not table.source_schema.key:
        return []
    named = table.source_schema.key_columns
    if not named:
        return []
    if len(named) == 1 and (whole := _whole_numbers(named[0], keys)) is not None:
        return [whole]
    columns = tuple(replace(column, name=f"c{i}", carried=()) for i, column in enumerate(named))
    renamed = DecodedTable(table.name, SourceSchema(columns, tuple(column.name for column in columns), ""))
    try:
        return fast_columns(renamed, columns, _key_objects(KeyRule(table.name, columns), keys))
    except TakeExactRoad:
        values = [_parsed_key(table.name, key, len(columns)) for key in keys.to_pylist()]
        return [_exact_column(table, column, keys, [row[i] for row in values]) for i, column in enumerate(named)]


def _whole_numbers(column: Column, keys: pa.Array) -> pa.Array | None:
    """Keys of one integer, `[7]`, without a JSON reader; None if it needs one."""
    if parse_source_type(column.source_type).family is not Family.INT or keys.null_count or not len(keys):
        return None
    if column.type not in (iceberg.INT, iceberg.LONG) or not _OF_WHOLE_NUMBERS[contents(keys)[0]].all():
        return None
    try:
        return pc.cast(pc.utf8_slice_codeunits(keys, 1, -1), value_type(column.type))
    except pa.ArrowInvalid:
        return None


def _key_objects(rule: KeyRule, keys: pa.Array) -> pa.Array:
    if len(rule.columns) == 1:
        inner = pc.utf8_slice_codeunits(keys, 1, -1)
        return pc.binary_join_element_wise('{"c0": ', inner, "}", "")
    if rule.by_column is None or not pc.all(pc.match_substring_regex(keys, rule.by_column), min_count=0).as_py():
        raise TakeExactRoad
    named = ", ".join(rf'"c{i}": \{i + 1}' for i in range(len(rule.columns)))
    return pc.replace_substring_regex(keys, rule.by_column, "{" + named + "}")


def _sliced(
    table: DecodedTable,
    keys: pa.Array,
    payloads: pa.Array | None,
    columns: Sequence[Column],
    decode: Callable[[pa.Array, pa.Array | None], list[pa.Array]],
) -> list[pa.Array]:
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    payloads = payloads.combine_chunks() if isinstance(payloads, pa.ChunkedArray) else payloads

    def part(some: slice) -> list[pa.Array]:
        return decode(keys[some], None if payloads is None else payloads[some])

    parts = [
        decoded(table.name, keys, slice(at, min(at + _SLICE, len(keys))), part) for at in range(0, len(keys), _SLICE)
    ]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return [pa.array([], value_type(column.type)) for column in columns]
    return [pa.concat_arrays(list(pieces)) for pieces in zip(*parts, strict=True)]


def _schema(columns: Sequence[Column]) -> Any:
    return pa.schema([(column.name, value_type(column.type)) for column in columns])


def _parsed(table: str, key: str, payload: bytes | None) -> dict[str, Json]:
    try:
        row = loads(payload if payload is not None else b"")
    except NotJson as error:
        raise BadInput(
            f"{table}: the row with key {key[:EXCERPT]} is not JSON: {error}",
            hint="The file that holds this key is damaged: look for it in the feed.",
            table=table,
            key=key,
        ) from error
    if not isinstance(row, dict):
        raise BadInput(f"{table}: the row with key {key[:EXCERPT]} is not a JSON object", table=table, key=key)
    return row


def _parsed_key(table: str, key: str, count: int) -> list[Json]:
    try:
        values = loads(key)
    except NotJson:
        values = None
    if not isinstance(values, list) or len(values) != count:
        raise BadInput(f"{table}: {key[:EXCERPT]} is not a key of {count} columns", table=table, key=key)
    return values


def _exact_column(table: DecodedTable, column: Column, keys: pa.Array, values: list[Json]) -> pa.Array:
    convert = _converter(table.source_schema, column)
    to = value_type(column.type)
    try:
        return pa.array([None if value is None else convert(value) for value in values], to)
    except _REFUSALS:
        for key, value in zip(keys, values, strict=True):
            try:
                pa.array([None if value is None else convert(value)], to)
            except _REFUSALS as error:
                shown = dumps(value)[:EXCERPT]
                raise DoesNotFit(
                    f"{table.name}: the row with key {key.as_py()[:EXCERPT]} has {shown} in column {column.name} "
                    f"{column.source_type} ({column.type}): {error}",
                    hint=f"Pin `{column.name}` under `columns:` of {table.name} to a type that holds it exactly.",
                    table=table.name,
                    key=key.as_py(),
                    column=column.name,
                    value=shown,
                ) from error
        raise


def _converter(source_schema: SourceSchema, column: Column) -> Converter:
    """A key of unbounded decimals is written in its canonical spelling, or a later delete would not find it."""
    return canonical(column) if _is_spelled(source_schema, column) else converter(column)


def _is_spelled(source_schema: SourceSchema, column: Column) -> bool:
    family = parse_source_type(column.source_type).family
    return column.name in source_schema.key and family is Family.DECIMAL and column.type == iceberg.STRING


def _has_odd_numbers(column: Column) -> bool:
    """Whether its numbers may come as strings (NaN) or with exponents."""
    return isinstance(column.type, iceberg.Decimal) or column.type in (iceberg.FLOAT, iceberg.DOUBLE)
