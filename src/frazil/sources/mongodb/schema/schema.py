"""What a collection's table looks like: from the mapping, from the table itself, and from documents. Pure.

    auto        the table's columns, widened by what was seen  +  a column for each field nobody knew  +  the key _id
    explicit    the mapped paths, and the key

A field's own name is what documents carry it by; its column has another one where no table could have that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from frazil.errors import ConfigError
from frazil.model.schema import Column, KnownTable, SourceSchema, Type, same_type
from frazil.sources.mongodb.decode.document_ids import NotOfType, pinned_type
from frazil.sources.mongodb.schema.bson_types import BsonType, DocumentOf, OnConflict, evolved, silent, typed
from frazil.sources.mongodb.schema.mapping import ID, MappedField
from frazil.sources.mongodb.schema.types import named_type

CONFIGURATION, TABLE, INFERRED = "configuration", "table", "inferred"
_NO_NAME = re.compile(r"[.`\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionSettings:
    """What the configuration says of one collection. `fields` is its explicit mapping, None in auto mode; `pins` are
    types of top-level fields that are not to be inferred. `wants_before` if documents as they were before a change are
    kept too."""

    fields: tuple[MappedField, ...] | None = None
    pins: Mapping[str, str] = field(default_factory=dict)
    sample: int = 1000
    wants_before: bool = False

    @property
    def is_explicit(self) -> bool:
        return self.fields is not None

    @property
    def roots(self) -> tuple[str, ...] | None:
        """The top-level fields that an explicit mapping takes something of; None in auto mode."""
        if self.fields is None:
            return None
        return tuple(sorted({ID, *(one.source.split(".")[0] for one in self.fields)}))


def schema_of(
    table: str,
    settings: CollectionSettings,
    seen: DocumentOf,
    id_type: tuple[Type, str] | None,
    target: KnownTable | None,
    tell: OnConflict = silent,
) -> SourceSchema | None:
    """None if neither the table nor a document tells the key. Raises ConfigError for an impossible mapping."""
    if settings.fields is not None:
        return _explicit(table, settings.fields, seen, id_type, target)
    return _auto(table, settings, seen, id_type, target, tell)


def _auto(
    table: str,
    settings: CollectionSettings,
    seen: DocumentOf,
    id_type: tuple[Type, str] | None,
    target: KnownTable | None,
    tell: OnConflict,
) -> SourceSchema | None:
    pins = {name: pin for name, text in settings.pins.items() if (pin := named_type(text)) is not None}
    columns: list[Column] = []
    key: str | None = None
    for known in _table_columns(target):
        name = known.carried_as[0]
        if name == ID:
            key = known.name
        elif name in pins:
            known = _pinned(known, *pins[name])
        elif name in seen.fields:
            known = _widened(known, seen.fields[name], tell)
        columns.append(known)
    told = {name for column in columns for name in column.carried_as}
    if key is None:
        id_type = _key_type(table, pins.get(ID), id_type)
        if id_type is None:
            return None
        key = ID
        columns.insert(0, Column(ID, *id_type, CONFIGURATION if ID in pins else INFERRED, required=True))
        told.add(ID)
    taken = {column.name.casefold() for column in columns} | _names_in(target)
    fresh: dict[str, tuple[Type, str, str]] = {
        name: (*pin, CONFIGURATION) for name, pin in pins.items() if name not in told
    }
    for name, kind in seen.fields.items():
        if name not in told and name not in fresh:
            fresh[name] = (*typed(kind), INFERRED)
    for name, (type_, doc, origin) in fresh.items():
        called = column_name(name, taken)
        taken.add(called.casefold())
        columns.append(Column(called, type_, doc, origin, carried=() if called == name else (name,)))
    return SourceSchema(tuple(columns), (key,), CONFIGURATION if ID in pins else "_id")


def _explicit(
    table: str,
    fields: Sequence[MappedField],
    seen: DocumentOf,
    id_type: tuple[Type, str] | None,
    target: KnownTable | None,
) -> SourceSchema | None:
    mapped = list(fields)
    if not any(one.source == ID for one in mapped):
        mapped.insert(0, MappedField(ID, ID))
    columns, key = [], ID
    before = {column.name: column for column in _table_columns(target)}
    for one in mapped:
        found = None if one.type is None else named_type(one.type)
        origin = CONFIGURATION if found else INFERRED
        known = before.get(one.target)
        if known is not None and (found is None or (one.source == ID and same_type(found[0], known.type))):
            # A key is spelled as the table began, or older rows would stay beside newer ones.
            found, origin = (known.type, known.source_type), TABLE
        if one.source == ID:
            key = one.target
            found = found if origin == TABLE else _key_type(table, found, id_type)
            if found is None:
                return None
        elif found is None:
            kind = _kind_at(seen, one.source.split("."))
            if kind is None:
                raise ConfigError(
                    f"{table}: no document that was looked at has a value at {one.source!r}, and nothing else tells "
                    f"the type of {one.target!r}",
                    hint=f"Correct the path, or give the field a type: {{source: {one.source}, target: {one.target}, "
                    "type: string}.",
                    table=table,
                    path=one.source,
                )
            found = typed(kind)
        carried = () if one.source == one.target else (one.source,)
        columns.append(Column(one.target, *found, origin, required=one.source == ID, carried=carried))
    return SourceSchema(tuple(columns), (key,), "_id")


def _key_type(table: str, pin: tuple[Type, str] | None, found: tuple[Type, str] | None) -> tuple[Type, str] | None:
    try:
        return found if pin is None else pinned_type(pin, found)
    except NotOfType as error:
        raise ConfigError(
            f"{table}: the key _id cannot be {error}",
            hint="It can be string, long, uuid, timestamp or json; without a type its values tell.",
            table=table,
        ) from error


def unmapped(fields: Iterable[MappedField], seen: DocumentOf) -> list[str]:
    """Fields of documents that no mapping takes."""
    roots = CollectionSettings(fields=tuple(fields)).roots or ()
    return sorted(name for name in seen.fields if name not in roots)


def missing_paths(fields: Iterable[MappedField], seen: DocumentOf) -> list[str]:
    """Mapped paths that no document has."""
    return [one.source for one in fields if one.source != ID and _kind_at(seen, one.source.split(".")) is None]


def column_name(name: str, taken: set[str]) -> str:
    """What a column for this field may be called: a name that is not taken, whatever the case of its letters."""
    plain = _NO_NAME.sub("_", name) or "_"
    called, number = plain, 2
    while called.casefold() in taken:
        called, number = f"{plain}_{number}", number + 1
    return called


def _kind_at(seen: DocumentOf, path: Sequence[str]) -> BsonType | None:
    found: BsonType | None = seen
    for name in path:
        if not isinstance(found, DocumentOf):
            return None
        found = found.fields.get(name)
    return found


def _table_columns(target: KnownTable | None) -> Sequence[Column]:
    return () if target is None else target.as_columns(TABLE, lambda known: known.doc or "")


def _names_in(target: KnownTable | None) -> set[str]:
    return set() if target is None else {f.name.casefold() for f in target.schema}


def _widened(known: Column, seen: BsonType, tell: OnConflict) -> Column:
    type_, doc = evolved(known.type, known.source_type, seen, known.name, tell)
    if same_type(type_, known.type):
        return known
    return replace(known, type=type_, source_type=doc or known.source_type, origin=INFERRED, required=False)


def _pinned(known: Column, type_: Type, doc: str) -> Column:
    if same_type(type_, known.type) and doc == known.source_type:
        return known
    return replace(known, type=type_, source_type=doc, origin=CONFIGURATION)
