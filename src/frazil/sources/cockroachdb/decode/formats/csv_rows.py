"""Rows of CSV files: values only, in table column order, from feeds with initial_scan='only'.

    1,Alice,NULL  +  columns (id, name, note)  ->  {"id": 1, "name": "Alice", "note": null}

NULL prints without quotes, as the string NULL does: a field NULL is a NULL, except in a column that cannot be
NULL (a key column, or one that is NOT NULL), where it is the string. JSON's null prints as null. An empty string prints
as nothing at all: of a table with one column, as an empty line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from frazil.errors import BadInput, ConfigError, DoesNotFit
from frazil.model.schema import Column, SourceSchema
from frazil.sources.cockroachdb.decode.exact_json import Json, quote
from frazil.sources.cockroachdb.decode.formats.sqltext import json_of
from frazil.sources.cockroachdb.decode.values import Misfit, not_null
from frazil.sources.cockroachdb.schema.types import SourceType, carrier, parse_source_type

FIELD_MAX = 1 << 30
_NULL = "NULL"


OnBad = Callable[[int, str, BadInput], None]


def csv_rows(
    stream: Any, path: str, table: str, source_schema: SourceSchema, *, header: bool, on_bad: OnBad | None = None
) -> Iterator[tuple[int, dict[str, Json]]]:
    """Line numbers and rows. Raises BadInput naming file and line; `on_bad` takes the error of a single row instead,
    with the row's line and text."""
    csv.field_size_limit(FIELD_MAX)
    lines = csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline=""), strict=True)
    columns: Sequence[tuple[Column, SourceType]] | None = None if header else _typed(source_schema.columns)
    line = 0
    try:
        for record in lines:
            line, previous = lines.line_num, line
            if columns is None:
                columns = _typed(_named(record, source_schema, table, path))
            elif record or len(columns) == 1:
                try:
                    row = _row(record or [""], columns, source_schema, f"{path}:{previous + 1}", table)
                except BadInput as error:
                    if on_bad is None:
                        raise
                    on_bad(previous + 1, ",".join(record), error)
                    continue
                yield previous + 1, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"{path}:{line + 1}: not a CSV record: {error}", file=path, line=line + 1) from error


def _typed(columns: Sequence[Column]) -> list[tuple[Column, SourceType]]:
    return [(column, parse_source_type(column.source_type)) for column in columns]


def _named(names: list[str], source_schema: SourceSchema, table: str, path: str) -> list[Column]:
    found = []
    for name in names:
        column = carrier(source_schema, name)
        if column is None:
            raise ConfigError(
                f"{path}: the header names the column {name}, which {table} does not have",
                hint=f"Add it to `columns:` of {table}; CSV files tell no types.",
                table=table,
                column=name,
            )
        found.append(column)
    return found


def _row(
    record: list[str], columns: Sequence[tuple[Column, SourceType]], source_schema: SourceSchema, place: str, table: str
) -> dict[str, Json]:
    if len(record) != len(columns):
        raise BadInput(
            f"{place}: {len(record)} fields, but {table} has {len(columns)} columns",
            hint=f"List all columns of {table} under `columns:` in table order, or create the feed WITH csv_header.",
            table=table,
        )
    row: dict[str, Json] = {}
    for text, (column, source) in zip(record, columns, strict=True):
        name = column.carried_as[0]
        if text == _NULL and not column.required and column.name not in source_schema.key:
            row[name] = None
            continue
        try:
            row[name] = not_null(json_of(text, source))
        except Misfit as error:
            raise DoesNotFit(
                f"{place}: {table}.{column.name} {column.source_type} cannot hold {quote(text[:80])}: {error}",
                hint=f"Check the order and the types under `columns:` of {table}.",
                table=table,
                column=column.name,
                value=text[:80],
            ) from error
    return row
