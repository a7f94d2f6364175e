"""Whether one type can hold another, and what has to change for it. Pure.

    have struct<a: int>, want struct<a: long, b: string>  -->  Widen a, Add b
    have long, want string                                -->  Contradiction

What a type has besides stays as it is: old files hold it, and rows without it read as NULL.
"""

from __future__ import annotations

from collections.abc import Iterator

from frazil.errors import BadInput, ConfigError, FrazilError
from frazil.iceberg.tables.new_schema import OWN, can_promote, optional
from frazil.iceberg.tables.schema_steps import Add, Path, Step, Widen
from frazil.model.ids import TableName
from frazil.model.schema import Column, Field, ListOf, MapOf, StructOf, Type, same_type

_CONFIGURATION = "configuration"


class Contradiction(Exception):
    """Two types that no widening brings together."""


def fits(have: Type, want: Type) -> bool:
    try:
        list(walk((), have, want))
    except Contradiction:
        return False
    return True


def walk(path: Path, have: Type, want: Type) -> Iterator[Step]:
    """The steps by which the first type holds the second; what it has besides stays. Raises Contradiction."""
    match have, want:
        case StructOf(), StructOf():
            for wanted in want.fields:
                existing = have.field(wanted.name)
                if existing is None:
                    yield Add(path, nested(wanted))
                else:
                    yield from walk((*path, existing.name), existing.type, wanted.type)
        case ListOf(), ListOf():
            yield from walk((*path, "element"), have.element, want.element)
        case MapOf(), MapOf():
            # Iceberg lets no key of a map change.
            if list(walk((*path, "key"), have.key, want.key)):
                raise Contradiction
            yield from walk((*path, "value"), have.value, want.value)
        case _ if same_type(have, want) or can_promote(want, have):
            return
        case _ if can_promote(have, want):
            yield Widen(path, have, want)
        case _:
            raise Contradiction


def nested(field: Field) -> Column:
    return Column(field.name, optional(field.type), field.doc or "", OWN)


def contradiction(table: TableName, column: Column, existing: Field) -> FrazilError:
    """The error that stops a table whose column cannot hold what the source sends."""
    kind = ConfigError if column.origin == _CONFIGURATION else BadInput
    return kind(
        f"table {table}: column {existing.name!r} is {existing.type}, but its source type {column.source_type} "
        f"(from {column.origin}) needs {column.type}",
        hint=f"pin a source type for {column.name} in tables[].columns that fits {existing.type}; "
        "or set on_schema_conflict: new-column, and new values go to a new column; "
        f"or drop the column in {table}: it is added anew, for rows that come from then on",
        table=table.text,
        column=existing.name,
        existing=str(existing.type),
        wanted=str(column.type),
    )
