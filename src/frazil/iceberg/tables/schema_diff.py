"""Plans what a table's schema must become for a source's columns to fit. Pure.

    source column --> the table's field: by the source's own identity of it, else by a name that rows carry it by
    field?                                             step
    none                                               add
    another name than the source's                     rename; the rows' old name is remembered
    int, source says long                              widen          (also float->double, decimal precision)
    long, source says int                              none: the column already holds it
    long, source says string                           stop: an error that names table, column and both types
                                                       new-column: <name>_v2 takes the values from now on
    required, source says it may be null               make optional  (never an identifier)
    ours, and a complete description lacks it          none: it reads as NULL; with `drop` it is dropped
    none, and one that held it was dropped by others   stop: added again, it would be NULL in all older rows
    another order than the source's                    move           (others' columns stay where they are)

The same inside structs, lists and maps. Planning again after a plan was applied yields nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from frazil.errors import TableChanged
from frazil.iceberg.tables.column_match import MatchedColumn, matched_columns
from frazil.iceberg.tables.new_schema import OWN, before_column
from frazil.iceberg.tables.schema_steps import Add, Drop, MakeOptional, Move, Rename, SchemaChange, Step
from frazil.iceberg.tables.type_promotion import Contradiction, contradiction, nested, walk
from frazil.model.ids import TableName
from frazil.model.schema import Column, Field, Remembered, Schema, StructOf
from frazil.model.table import CHANGELOG_BEFORE
from frazil.model.write import TableOptions

_CONFIGURATION, _TABLE, _SQL = "configuration", "table", "sql"
_SAYS_NULLABLE = frozenset((_SQL, "enriched"))
_DESCRIBES = frozenset((_SQL, "enriched", _CONFIGURATION))
_DEFAULTS = TableOptions()


def difference(
    table: TableName,
    columns: Sequence[Column],
    schema: Schema,
    *,
    known: Mapping[int, Remembered] | None = None,
    options: TableOptions = _DEFAULTS,
    kept: Collection[int] = (),
) -> SchemaChange:
    """What must change for the columns to fit. `known` is what the table remembers; of the fields `kept` none is
    dropped, since partitions or the sort order rest on them.

    Raises BadInput, or ConfigError where configuration gave the type, for a column that contradicts the table, and
    TableChanged for one that somebody else has dropped.
    """
    memory = known or {}
    sourced = [column for column in columns if column.origin != OWN]
    matched = matched_columns(table, sourced, schema, memory, options)
    lost = _lost(schema, memory)
    _refuse_lost(table, matched, lost)
    own = _own_columns(columns, [place.column for place in matched])
    follows = options.drop and _described(sourced)
    gone, notes = _gone(schema, memory, matched, follows, kept)
    drops: list[Step] = [Drop((field.name,)) for field in gone]
    inner: list[Step] = []
    for place in matched:
        if place.field is not None:
            inner += _reshape(table, schema, place.field, place.column)
    top = [Rename((p.field.name,), p.column.name) for p in matched if p.field and p.field.name != p.column.name]
    adds: list[Add] = [
        Add((), p.column, None if p.retires is None else f"{p.retires.name} {p.retires.type}")
        for p in matched
        if p.field is None
    ]
    for column in own:
        existing = schema.field(column.name)
        if existing is None:
            adds.append(Add((), column))
        elif _is_before(column):
            renamed = {r.to: r.path[0] for r in top}
            inner += _walk_before(table, column, existing, renamed, [field.name for field in gone])
        else:
            inner += _reshape(table, schema, existing, column)
    renames = [*top, *(step for step in inner if isinstance(step, Rename))]
    adds += [_moved_along(step, renames) for step in inner if isinstance(step, Add)]
    changes = [step for step in inner if not isinstance(step, (Add, Drop, Rename))]
    drops += [step for step in inner if isinstance(step, Drop)]
    moves = _moves(schema, gone, matched, adds)
    remembered = _memory(schema, memory, matched, gone)
    before = {field.name: memory[field.id] for field in schema if field.id in memory}
    steps = (*drops, *changes, *renames, *adds, *moves)
    return SchemaChange(
        steps=steps,
        columns=(*(place.column for place in matched), *own),
        memory=remembered,
        remembers_more=remembered != before or bool(lost and _described(sourced)),
        notes=notes,
    )


# what is gone at the source


def _described(columns: Sequence[Column]) -> bool:
    """Whether somebody who knows lists these columns: then a missing one is gone, and not merely absent from a row."""
    return bool(columns) and all(column.origin in _DESCRIBES for column in columns)


def _gone(
    schema: Schema,
    known: Mapping[int, Remembered],
    matched: Sequence[MatchedColumn],
    follows: bool,
    kept: Collection[int],
) -> tuple[list[Field], tuple[str, ...]]:
    """Fields to be dropped, and why others are not."""
    if not follows:
        return [], ()
    wanted = {f.id for place in matched for f in (place.field, place.retires) if f is not None}
    ours = {field_id for field_id, memory in known.items() if not memory.retired}
    gone = [f for f in schema if f.id in ours - wanted and f.id not in schema.identifier_ids]
    notes = [
        f"keeps {field.name}, which the source has dropped: the table is partitioned or sorted by it"
        for field in gone
        if field.id in kept
    ]
    return [field for field in gone if field.id not in kept], tuple(notes)


def _lost(schema: Schema, known: Mapping[int, Remembered]) -> list[Remembered]:
    """Fields that somebody else has dropped: we forget ours in the commit that drops them."""
    there = {field.id for field in schema}
    return [memory for field_id, memory in known.items() if field_id not in there and not memory.retired]


def _refuse_lost(table: TableName, matched: Sequence[MatchedColumn], lost: Sequence[Remembered]) -> None:
    for column in (place.column for place in matched if place.field is None and place.retires is None):
        if not any(_held(memory, column) for memory in lost):
            continue
        raise TableChanged(
            f"table {table}: somebody dropped the column {column.name!r}, which the source still has",
            hint=f"Either add it again, ALTER TABLE {table} ADD COLUMN {column.name} (in Iceberg's words its type is "
            f"{column.type}), and restart: rows that are there read NULL in it until they change at the source. Or "
            f"load the table anew: `frazil drop CONFIG {table} --force` and restart, "
            "if the source still has all of it.",
            table=table.text,
            column=column.name,
            what="dropped column",
        )


def _held(memory: Remembered, column: Column) -> bool:
    """Whether the field held this column of the source."""
    if memory.identity is not None and column.identity is not None:
        return memory.identity == column.identity
    return bool(set(memory.carried) & set(column.carried_as))


# types


def _reshape(table: TableName, schema: Schema, field: Field, column: Column) -> list[Step]:
    try:
        steps = list(walk((field.name,), field.type, column.type))
    except Contradiction as found:
        raise contradiction(table, column, field) from found
    may_be_null = column.origin in _SAYS_NULLABLE and not column.required
    if field.required and may_be_null and field.id not in schema.identifier_ids:
        steps.append(MakeOptional((field.name,)))
    return steps


def _walk_before(
    table: TableName, column: Column, field: Field, renamed: Mapping[str, str], gone: Collection[str]
) -> Iterator[Step]:
    """The row before has the columns of the row: it follows when they are renamed (new name: old one) or dropped."""
    have, want = field.type, column.type
    if not isinstance(have, StructOf) or not isinstance(want, StructOf):
        raise contradiction(table, column, field)
    path = (field.name,)
    leaving = {old for old in renamed.values() if have.field(old) is not None}
    stays: set[str] = set()
    for wanted in want.fields:
        old = renamed.get(wanted.name, wanted.name)
        existing = have.field(old)
        if existing is None and wanted.name not in leaving:
            existing = have.field(wanted.name)
        if existing is None or (existing.name != wanted.name and _occupied(have, wanted.name, leaving)):
            yield Add(path, nested(wanted))
            continue
        stays.add(existing.name)
        try:
            yield from walk((*path, existing.name), existing.type, wanted.type)
        except Contradiction as found:
            raise contradiction(table, column, field) from found
        if existing.name != wanted.name:
            yield Rename((*path, existing.name), wanted.name)
    yield from (Drop((*path, f.name)) for f in have.fields if f.name in gone and f.name not in stays)


def _occupied(struct: StructOf, name: str, leaving: Collection[str]) -> bool:
    return struct.field(name) is not None and name not in leaving


def _own_columns(columns: Sequence[Column], matched: Sequence[Column]) -> list[Column]:
    """A mode's own columns; the row before is made of the columns as the table calls them."""
    own = [column for column in columns if column.origin == OWN]
    return [before_column(matched) if _is_before(column) else column for column in own]


def _is_before(column: Column) -> bool:
    return column.name == CHANGELOG_BEFORE and isinstance(column.type, StructOf)


# order and memory


def _moved_along(step: Add, renames: Sequence[Rename]) -> Add:
    """Additions come after renames, so their parents have the new names."""
    to = {rename.path: rename.to for rename in renames}
    parent = tuple(to.get(step.parent[: at + 1], name) for at, name in enumerate(step.parent))
    return replace(step, parent=parent)


def _moves(
    schema: Schema, gone: Sequence[Field], matched: Sequence[MatchedColumn], adds: Sequence[Add]
) -> tuple[Move, ...]:
    """Columns whose order the source tells share the places they have among themselves; others keep theirs."""
    names = {place.field.id: place.column.name for place in matched if place.field is not None}
    now = [names.get(field.id, field.name) for field in schema if field not in gone]
    now += [add.column.name for add in adds if not add.parent]
    ordered = [place.column.name for place in matched if place.column.origin == _SQL]
    places = [at for at, name in enumerate(now) if name in set(ordered)]
    wanted = list(now)
    for at, name in zip(places, ordered, strict=True):
        wanted[at] = name
    moves = []
    for at, name in enumerate(wanted):
        if now[at] != name:
            now.remove(name)
            now.insert(at, name)
            moves.append(Move(name, wanted[at - 1] if at else None))
    return tuple(moves)


def _memory(
    schema: Schema, known: Mapping[int, Remembered], matched: Sequence[MatchedColumn], gone: Sequence[Field]
) -> dict[str, Remembered]:
    """By name. A name in rows belongs to one field: one that has lost all of its names keeps its values and retires."""
    names = {place.field.id: place.column.name for place in matched if place.field is not None}
    told = [place.column for place in matched if place.column.origin != _TABLE]
    claimed = {name for column in told for name in column.carried_as}
    memory = {}
    for field in schema:
        if field.id in known and field not in gone:
            own, left = known[field.id], tuple(name for name in known[field.id].carried if name not in claimed)
            if field.id not in names and not own.retired and left != own.carried:
                own = replace(own, carried=left) if left else replace(own, identity=None, retired=True)
            memory[names.get(field.id, field.name)] = own
    for place in matched:
        column = place.column
        if column.origin != _TABLE:
            memory[column.name] = Remembered(column.identity, column.carried_as, family=column.family)
        elif column.family is not None:
            own = memory.get(column.name, Remembered(None, column.carried_as))
            memory[column.name] = replace(own, family=column.family)
        if place.retires is not None:
            old = known.get(place.retires.id, Remembered())
            memory[place.retires.name] = Remembered(None, old.names(place.retires.name), retired=True)
    return memory
