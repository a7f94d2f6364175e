"""Columns and types of Iceberg tables, as values.

The JSON forms are those of the Iceberg specification, so that a schema crosses to iceberg-java,
to an executor and back without a translation of its own.

What a target table remembers of the source's columns, in its property `frazil.columns`.

    {"3": {"identity": "104.2", "carried": ["c", "b"]},     renamed at the source from b to c, the column is field 3
     "5": {"retired": true},                                its source column goes on in another field
     "9": {"carried": ["amount"]},                          amount_v2, which the source calls amount
     "11": {"carried": ["note"], "family": "f2"}}           note comes with the column family f2 (see `model.schema`)

By field id, so that it holds whatever the table's columns are called, by us or by somebody else. It is written in the
commit that changes the schema, and survives a restart; a field that is not listed is none of the source's.

Rows that a source sends in parts: column families.

    table t   id, name          family f1, the primary one: it owns the key          part 0
              note, score       family f2                                            part <number of f2>

    key  part 0                     part f2                    the row after the epoch
    1    UPSERT {id: 1, name: a}    UPSERT {note: x, ...}      1, a, x, ...
    2    UPSERT {id: 2, name: b}    -                          2, b, and of f2 what the row had before
    3    -                          DELETE                     what it had before, NULL in f2's columns
    4    DELETE                     DELETE                     gone: a row is there as long as its primary part is

A change may also come without cells of its family that it did not change. It then travels as a part of its own, below
zero, and the decoder says which cells it has.

A part's number depends on the family's name alone, so that changes which wait in quarantine keep theirs. A family whose
name nobody told, because the table had only one when its rows were sent, is the primary one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_TIMES = ("date", "time", "timestamp", "timestamptz")
_PRIMITIVES = frozenset(("boolean", "int", "long", "float", "double", *_TIMES, "string", "uuid", "binary", "variant"))
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED = re.compile(r"fixed\[(\d+)\]")
DECIMAL_PRECISION_MAX = 38
UNASSIGNED = 0


class BadType(ValueError):
    """Not a type this product knows."""


@dataclass(frozen=True, slots=True)
class Primitive:
    name: str

    def __post_init__(self) -> None:
        if self.name not in _PRIMITIVES and not _FIXED.fullmatch(self.name):
            raise BadType(f"unknown Iceberg type {self.name!r}")

    def to_json(self) -> Any:
        return self.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not (0 < self.precision <= DECIMAL_PRECISION_MAX and 0 <= self.scale <= self.precision):
            raise BadType(f"decimal({self.precision},{self.scale}) is not an Iceberg decimal")

    def to_json(self) -> Any:
        return str(self)

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class ListOf:
    element: Type
    element_id: int = UNASSIGNED
    element_required: bool = False

    def to_json(self) -> Any:
        return {
            "type": "list",
            "element-id": self.element_id,
            "element": self.element.to_json(),
            "element-required": self.element_required,
        }

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    key: Type
    value: Type
    key_id: int = UNASSIGNED
    value_id: int = UNASSIGNED
    value_required: bool = False

    def to_json(self) -> Any:
        return {
            "type": "map",
            "key-id": self.key_id,
            "key": self.key.to_json(),
            "value-id": self.value_id,
            "value": self.value.to_json(),
            "value-required": self.value_required,
        }

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class StructOf:
    fields: tuple[Field, ...]

    def to_json(self) -> Any:
        return {"type": "struct", "fields": [field.to_json() for field in self.fields]}

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{field.name}: {field.type}' for field in self.fields)}>"


Type = Primitive | Decimal | ListOf | MapOf | StructOf

BOOLEAN, INT, LONG, FLOAT, DOUBLE = (Primitive(n) for n in ("boolean", "int", "long", "float", "double"))
DATE, TIME, TIMESTAMP, TIMESTAMPTZ = (Primitive(n) for n in ("date", "time", "timestamp", "timestamptz"))
STRING, UUID, BINARY, VARIANT = (Primitive(n) for n in ("string", "uuid", "binary", "variant"))


def type_from_json(value: Any) -> Type:
    if isinstance(value, str):
        if match := _DECIMAL.fullmatch(value):
            return Decimal(int(match[1]), int(match[2]))
        return Primitive(value)
    match value:
        case {"type": "list", "element": element, "element-id": int(own_id), "element-required": bool(required)}:
            return ListOf(type_from_json(element), own_id, required)
        case {"type": "map", "key": key, "key-id": int(key_id), "value": inner, "value-id": int(value_id), **rest}:
            return MapOf(type_from_json(key), type_from_json(inner), key_id, value_id, bool(rest["value-required"]))
        case {"type": "struct", "fields": list(fields)}:
            return StructOf(tuple(Field.from_json(field) for field in fields))
        case _:
            raise BadType(f"unknown Iceberg type {value!r}")


def same_type(left: Type, right: Type) -> bool:
    """Equal but for the ids a catalog assigned to what is nested, and for docs."""
    match left, right:
        case ListOf(), ListOf():
            return same_type(left.element, right.element)
        case MapOf(), MapOf():
            return same_type(left.key, right.key) and same_type(left.value, right.value)
        case StructOf(), StructOf():
            return [f.name for f in left.fields] == [f.name for f in right.fields] and all(
                same_type(one.type, other.type) for one, other in zip(left.fields, right.fields, strict=True)
            )
        case _:
            return left == right


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table as the catalog knows it: bound by id, never by name or order."""

    id: int
    name: str
    type: Type
    required: bool = False
    doc: str | None = None

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Field:
        return cls(json["id"], json["name"], type_from_json(json["type"]), json["required"], json.get("doc"))

    def to_json(self) -> dict[str, Any]:
        json: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "required": self.required,
            "type": self.type.to_json(),
        }
        return json if self.doc is None else {**json, "doc": self.doc}


@dataclass(frozen=True, slots=True)
class Schema:
    """A table's schema with its ids."""

    schema_id: int
    fields: tuple[Field, ...]
    identifier_ids: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Schema:
        fields = tuple(Field.from_json(field) for field in json["fields"])
        return cls(json.get("schema-id", 0), fields, tuple(json.get("identifier-field-ids", ())))

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "struct",
            "schema-id": self.schema_id,
            "identifier-field-ids": list(self.identifier_ids),
            "fields": [field.to_json() for field in self.fields],
        }

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)

    @property
    def identifiers(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.id in self.identifier_ids)

    def select(self, names: tuple[str, ...]) -> tuple[Field, ...]:
        """The fields of these names, in this order. Raises KeyError naming the missing one."""
        by_name = {field.name: field for field in self.fields}
        return tuple(by_name[name] for name in names)


@dataclass(frozen=True, slots=True)
class Column:
    """A column as a source describes it: its Iceberg type, and the source's own type text.

    `name` is the table's column. `origin` says where the knowledge comes from (configuration, sql, enriched,
    table, inferred), for `frazil check` to show. `identity` is what the source itself knows the column by, if it
    has such a thing: it outlives a rename. `carried` are the names under which the source's rows may carry the
    column, where that is not `name` alone: after a rename rows of both names are still on their way, and a column
    whose type changed beyond widening has a new name in the table. `family` is the part of a row that the column comes
    with, where the source sends rows in parts (see `model.schema`); None if nobody told.
    """

    name: str
    type: Type
    source_type: str
    origin: str
    required: bool = False
    identity: str | None = None
    carried: tuple[str, ...] = ()
    family: str | None = None

    @property
    def carried_as(self) -> tuple[str, ...]:
        """The names in rows, the newest first."""
        return self.carried or (self.name,)


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """What a source table looks like: its columns, and its key if it has one.

    `outgrown` are columns of the target table that columns of the source have outgrown, under the table's names: rows
    from before the type changed fit only them. Rows carry them by a name that one of `columns` has, too.

    `leaves_out` if a change may come without cells, which are what they were (PostgreSQL's unchanged TOAST).
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_origin: str
    outgrown: tuple[Column, ...] = ()
    leaves_out: bool = False

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise BadType(f"a column name appears twice: {sorted(n for n in set(names) if names.count(n) > 1)}")
        missing = [name for name in self.key if name not in names]
        if missing:
            raise BadType(f"key column {missing[0]!r} is not among the columns {names}")

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)


COLUMNS_PROPERTY = "frazil.columns"


@dataclass(frozen=True, slots=True)
class Remembered:
    """One field. `carried` are its names in rows, the newest first. A `retired` field keeps its old values and gets no
    new ones."""

    identity: str | None = None
    carried: tuple[str, ...] = ()
    retired: bool = False
    family: str | None = None

    def names(self, field_name: str) -> tuple[str, ...]:
        """The names under which rows carry the field."""
        return () if self.retired else self.carried or (field_name,)

    def to_json(self) -> dict[str, Any]:
        json_form = {"identity": self.identity, "carried": list(self.carried), "retired": self.retired}
        known = {key: value for key, value in json_form.items() if value}
        return known if self.family is None else {**known, "family": self.family}


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A target table as a source may learn from it."""

    schema: Schema
    columns: Mapping[int, Remembered] = field(default_factory=dict)

    def as_columns(
        self, origin: str, source_type: Callable[[Field], str], *, retired: bool = False
    ) -> tuple[Column, ...]:
        """Its fields as columns of the source: the retired ones, or all others."""
        found = []
        for f in self.schema:
            own = self.columns.get(f.id, Remembered())
            if own.retired is retired:
                names = () if own.carried == (f.name,) else own.carried
                text = source_type(f)
                found.append(Column(f.name, f.type, text, origin, f.required, own.identity, names, own.family))
        return tuple(found)


def remembered(properties: Mapping[str, str]) -> dict[int, Remembered]:
    """By field id. What cannot be read is forgotten: names still tell the columns then."""
    try:
        entries = json.loads(properties.get(COLUMNS_PROPERTY, "{}"))
        return {
            int(number): Remembered(
                entry.get("identity"),
                tuple(entry.get("carried", ())),
                bool(entry.get("retired")),
                entry.get("family"),
            )
            for number, entry in entries.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}


def columns_property(columns: Mapping[int, Remembered]) -> str:
    return json.dumps({str(field_id): columns[field_id].to_json() for field_id in sorted(columns)})


PRIMARY = 0
UNNAMED = ""
"""The only family of a table: the source does not tell its name."""
_NUMBERS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ColumnFamily:
    """What travels as `part`, and the table's columns that come with it."""

    number: int
    columns: tuple[str, ...]


def families(source_schema: SourceSchema) -> tuple[str, ...]:
    """The families that columns are known to belong to, sorted; () if the source sends whole rows."""
    known = {column.family for column in source_schema.columns if column.family is not None}
    return tuple(sorted(known)) if known - {UNNAMED} else ()


def primary_family(source_schema: SourceSchema) -> str | None:
    """The family that owns the key columns; None if nobody told."""
    known = [column.family for column in source_schema.key_columns if column.family is not None]
    return next((family for family in known if family != UNNAMED), UNNAMED if known else None)


def part_number(family: str, primary: str | None) -> int:
    if family in (UNNAMED, primary):
        return PRIMARY
    digest = hashlib.sha256(family.encode()).digest()
    return int.from_bytes(digest[:8], "big") % _NUMBERS + 1


def part_without(columns: Iterable[str]) -> int:
    """The part as which a change of the primary family travels that came without cells. The fold keeps the newest
    change of each set, and so loses nothing: for every cell the newest change that has it is the newest of its set."""
    names = "\0".join(sorted(columns))
    return -part_number(names, None) if names else PRIMARY


def parts_of(source_schema: SourceSchema) -> tuple[ColumnFamily, ...]:
    """The primary part first; () if the source sends whole rows. A column of which nobody told the family is in none:
    no part of a row says anything about it."""
    named = families(source_schema)
    if not named and source_schema.leaves_out:
        names = (column.name for column in (*source_schema.columns, *source_schema.outgrown))
        return (ColumnFamily(PRIMARY, tuple(names)),)
    if not named:
        return ()
    primary = primary_family(source_schema)
    columns: dict[int, list[str]] = {PRIMARY: []}
    owners: dict[int, str] = {}
    for family in named:
        number = part_number(family, primary)
        if number != PRIMARY and owners.setdefault(number, family) != family:
            raise BadType(f"the column families {owners[number]!r} and {family!r} cannot be told apart")
        own = [column.name for column in (*source_schema.columns, *source_schema.outgrown) if column.family == family]
        columns.setdefault(number, []).extend(own)
    return tuple(ColumnFamily(number, tuple(columns[number])) for number in sorted(columns))
