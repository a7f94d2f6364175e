"""Which field of a table holds which column of the source, and what the table calls it. Pure.

    column c, identity 104.2   --the field remembers this identity--------> field 2, called b: becomes c, carried c, b
    column amount              --rows carry the field by this name--------> field 9, called amount_v2
    column x                   --nothing holds it-------------------------> to be added
    column n string            --field n is long, policy new-column-------> n_v2 takes over, n keeps its values
    column _file, B beside b   --readers could not tell them apart--------> _file_2, B_2, which rows carry as _file, B
    column a.element, list a   --Iceberg calls the list's elements so-----> a.element_2

A column that the table itself told (origin `table`) names its field exactly, a retired one too. Of columns that differ
in case only, and are new at once, the first in byte order keeps its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from frazil.errors import BadInput
from frazil.iceberg.tables.type_promotion import contradiction, fits
from frazil.model.ids import TableName
from frazil.model.schema import (
    Column,
    Field,
    KnownTable,
    ListOf,
    MapOf,
    Remembered,
    Schema,
    SourceSchema,
    StructOf,
    Type,
)
from frazil.model.write import SchemaConflict, TableOptions

_TABLE = "table"
_NOTHING = Remembered()
RESERVED = frozenset(
    (
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    )
)
"""Names that Iceberg's readers have for what they know of a row. Spark looks at no name's case."""


@dataclass(frozen=True, slots=True)
class MatchedColumn:
    """A source column under the table's name for it; `field` holds it already, `retires` is one it takes over from."""

    column: Column
    field: Field | None
    retires: Field | None = None


def match_columns(
    table: TableName, source_schema: SourceSchema, known: KnownTable, options: TableOptions
) -> SourceSchema:
    """The source schema under the names that its columns have in the table, or will have once it has evolved.

    Raises like `difference`, and BadInput if a key column would need another column.
    """
    places = matched_columns(table, source_schema.columns, known.schema, known.columns, options, source_schema.key)
    names = {column.name: place.column.name for column, place in zip(source_schema.columns, places, strict=True)}
    columns = tuple(place.column for place in places)
    # A field that is widened after all holds what it held before, too.
    outgrown = tuple(old for old in source_schema.outgrown if old.name not in names.values())
    key = tuple(names[name] for name in source_schema.key)
    return replace(source_schema, columns=columns, key=key, outgrown=outgrown)


def named(table: TableName, source_schema: SourceSchema, options: TableOptions) -> SourceSchema:
    """The source schema under the names that its columns get in a table that is yet to be made."""
    return match_columns(table, source_schema, KnownTable(Schema(0, ())), options)


def contradictions(source_schema: SourceSchema, known: KnownTable) -> tuple[str, ...]:
    """Columns of the source schema whose type the table's field for them can neither hold nor be widened to."""
    found = _matches(source_schema.columns, known.schema, known.columns)
    return tuple(
        column.name
        for column, field in zip(source_schema.columns, found, strict=True)
        if field is not None and not fits(field.type, column.type)
    )


def matched_columns(
    table: TableName,
    columns: Sequence[Column],
    schema: Schema,
    known: Mapping[int, Remembered],
    options: TableOptions,
    key: Collection[str] = (),
) -> list[MatchedColumn]:
    """Each column with its field. Raises BadInput or ConfigError for one that contradicts the table."""
    found = _matches(columns, schema, known)
    in_rows = [column.carried_as[0] for column in columns]
    _refuse_ambiguous(table, columns, found, known)
    retires: list[Field | None] = [None] * len(columns)
    for place, (column, field) in enumerate(zip(columns, found, strict=True)):
        if field is None or fits(field.type, column.type):
            continue
        if options.on_conflict is SchemaConflict.STOP or field.id in schema.identifier_ids or column.name in key:
            raise contradiction(table, column, field)
        retires[place], found[place] = field, None
    names = _names(columns, found, retires, schema, known)
    matched = []
    for place, column in enumerate(columns):
        field, old = found[place], found[place] or retires[place]
        carried = column.carried
        if column.origin != _TABLE:
            earlier = () if old is None else _memory_of(old, known).names(old.name)
            others = {name for at, name in enumerate(in_rows) if at != place}
            carried = _unique(in_rows[place], *column.carried_as[1:], *earlier, without=others)
        carried = () if carried == (names[place],) else carried
        identity = column.identity
        if identity is None and old is not None:
            identity = _memory_of(old, known).identity
        family = column.family
        if family is None and old is not None:
            family = _memory_of(old, known).family
        column = replace(column, name=names[place], carried=carried, identity=identity, family=family)
        matched.append(MatchedColumn(column, field, retires[place]))
    return matched


def _matches(columns: Sequence[Column], schema: Schema, known: Mapping[int, Remembered]) -> list[Field | None]:
    """For each column the field that holds it. What the table itself told comes first, then identities, then names."""
    found: list[Field | None] = [None] * len(columns)
    claimed: set[int] = set()

    def claim(place: int, candidates: Iterable[Field]) -> None:
        field = next((field for field in candidates if field.id not in claimed), None)
        if found[place] is None and field is not None:
            found[place] = field
            claimed.add(field.id)

    for place, column in enumerate(columns):
        if column.origin == _TABLE:
            claim(place, [field for field in schema if field.name == column.name])
    for place, column in enumerate(columns):
        if column.identity is not None:
            claim(place, [f for f in schema if _active(f, known) and _memory_of(f, known).identity == column.identity])
    for newest in (True, False):
        for place, column in enumerate(columns):
            claim(place, [f for f in schema if _carries(f, known, column, newest)])
    return found


def _carries(field: Field, known: Mapping[int, Remembered], column: Column, newest: bool) -> bool:
    """Whether rows carry the field by the column's name. By a name of old only if no identity speaks against it."""
    memory = _memory_of(field, known)
    names = memory.names(field.name)
    if newest:
        return names[:1] == column.carried_as[:1]
    strangers = None not in (memory.identity, column.identity) and memory.identity != column.identity
    return column.carried_as[0] in names and not strangers


def _refuse_ambiguous(
    table: TableName, columns: Sequence[Column], found: Sequence[Field | None], known: Mapping[int, Remembered]
) -> None:
    """Raises BadInput if a column was renamed and its old name belongs to another one by now: a row with that name may
    mean either."""
    in_rows = {column.carried_as[0] for column in columns}
    for column, field in zip(columns, found, strict=True):
        if field is None or column.origin == _TABLE:
            continue
        old, new = _memory_of(field, known).names(field.name)[0], column.carried_as[0]
        if old != new and old in in_rows and field.name != new:
            raise BadInput(
                f"table {table}: column {old!r} is called {new!r} at the source now, and another column is called "
                f"{old!r}: rows from before the change cannot be told from later ones",
                hint=f"once all rows from before are published, ALTER TABLE {table} RENAME COLUMN {field.name} TO "
                f"{new}, then run again",
                table=table.text,
                column=old,
            )


def _names(
    columns: Sequence[Column],
    found: Sequence[Field | None],
    retires: Sequence[Field | None],
    schema: Schema,
    known: Mapping[int, Remembered],
) -> list[str]:
    """What each column is called in the table. A name that is taken by a field of somebody else, or by one that keeps
    old values, is never taken away from it."""
    matched = {field.id for field in found if field is not None}
    fixed = [(field.name, field.type) for field in schema if field.id not in matched]
    names = ["" if field is None else field.name for field in found]
    wanted = {}
    for place, (column, field) in enumerate(zip(columns, found, strict=True)):
        if field is not None and column.origin != _TABLE:
            in_rows = column.carried_as[0]
            if _memory_of(field, known).names(field.name)[0] != in_rows:
                wanted[place] = in_rows
    while True:
        kept = [(name, columns[place].type) for place, name in enumerate(names) if name and place not in wanted]
        taken = {each for name, type_ in (*fixed, *kept) for each in _names_within(name, type_)}
        refused = [place for place, name in wanted.items() if not _is_free(name, columns[place].type, taken)]
        if not refused:
            break
        for place in refused:
            del wanted[place]
    for place, name in wanted.items():
        names[place] = name
        taken |= set(_names_within(name, columns[place].type))
    given = {column.name for column in columns}
    called = {name for name, _ in fixed} | set(names)
    fresh = [place for place, field in enumerate(found) if field is None]
    for place in sorted(fresh, key=lambda place: (retires[place] is not None, columns[place].name)):
        column = columns[place]
        is_new = retires[place] is None and column.name not in called
        names[place] = _told_apart(column, taken, given) if is_new else _version(column, taken)
        taken |= set(_names_within(names[place], column.type))
        called.add(names[place])
    return names


def _names_within(name: str, type_: Type) -> Iterator[str]:
    """By what Iceberg finds a field and those inside of it: no two of a table may be the same."""
    yield name
    inner: tuple[tuple[str, Type], ...] = ()
    match type_:
        case ListOf(element):
            inner = (("element", element),)
        case MapOf(key, value):
            inner = (("key", key), ("value", value))
        case StructOf(fields):
            inner = tuple((field.name, field.type) for field in fields)
    for part, type_of_part in inner:
        yield from _names_within(f"{name}.{part}", type_of_part)


def _is_free(name: str, type_: Type, taken: Collection[str]) -> bool:
    """Whether no reader takes it, or a field inside of it, for another one."""
    folded = {each.casefold() for each in _names_within(name, type_)}
    return name.casefold() not in RESERVED and folded.isdisjoint(other.casefold() for other in taken)


def _told_apart(column: Column, taken: Collection[str], given: Collection[str]) -> str:
    """The name, or what no reader takes for another one; never what another column of the source is called."""
    made_up, number = column.name, 2
    while not _is_free(made_up, column.type, taken if made_up == column.name else {*taken, *given}):
        made_up, number = f"{column.name}_{number}", number + 1
    return made_up


def _version(column: Column, taken: Collection[str]) -> str:
    name, number = column.carried_as[0], 2
    while not _is_free(f"{name}_v{number}", column.type, taken):
        number += 1
    return f"{name}_v{number}"


def _unique(*names: str, without: Collection[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name not in without))


def _memory_of(field: Field, known: Mapping[int, Remembered]) -> Remembered:
    return known.get(field.id, _NOTHING)


def _active(field: Field, known: Mapping[int, Remembered]) -> bool:
    return not _memory_of(field, known).retired
