"""What values look like: the union of all that was seen at a place, and the Iceberg type that holds it. Pure.

    documents --kind_of_documents--> DocumentOf{name: string, tags: [string]} --union--> ... --typed--> Iceberg type

    int, long            long                  anything and null      itself: every column is optional
    int, double          double                long, double           double while every long is one exactly; else json
    decimal, int         decimal               decimal, double        json
    objectId, string     json                  anything else mixed    json: a conflict, which is reported

    ObjectId string   Int32 int   Int64 long   Double double   Boolean boolean   DateTime timestamptz   UUID uuid
    Binary binary, whatever its subtype        Decimal128 decimal(38, s); as text if no decimal holds all of them
    Regex, JavaScript, Symbol string           BSON Timestamp string t:i            MinKey, MaxKey NULL
    DBRef, JavaScript with scope json          document struct                      array list

A string holds JSON (relaxed extended JSON) where kinds differ, where a document cannot be a struct (no fields, too
many, too deep, names that no table can have), and in arrays of which no element was seen yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID as PyUuid

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from frazil.model.schema import (
    BINARY,
    BOOLEAN,
    DECIMAL_PRECISION_MAX,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMPTZ,
    UNASSIGNED,
    UUID,
    Decimal,
    Field,
    ListOf,
    StructOf,
    Type,
)
from frazil.sources.mongodb.schema.types import JSON as JSON

DEPTH_MAX = 32
FIELDS_MAX = 1000
SCALE_MIN = 10
EXACT_DOUBLE = 2**53


@dataclass(frozen=True, slots=True)
class Scalar:
    name: str


@dataclass(frozen=True, slots=True)
class DecimalOf:
    """At most so many digits before and behind the point."""

    digits: int
    scale: int


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """None while no element was seen."""

    element: BsonType | None


@dataclass(frozen=True, slots=True)
class DocumentOf:
    fields: Mapping[str, BsonType] = field(default_factory=dict)


BsonType = Scalar | DecimalOf | ArrayOf | DocumentOf
OnConflict = Callable[[str, BsonType, BsonType], None]

BOOL_KIND, INT_KIND, LONG_KIND, BIG_KIND, DOUBLE_KIND = (
    Scalar(n) for n in ("bool", "int", "long", "bigLong", "double")
)
STRING_KIND, OBJECT_ID, DATE_KIND, JSON_KIND = (Scalar(n) for n in ("string", "objectId", "date", JSON))
DECIMAL_TEXT = Scalar("decimalText")
_NOTHING_SEEN = (type(None), MinKey, MaxKey)
_SIMPLE: Mapping[type, BsonType] = {
    bool: BOOL_KIND,
    int: INT_KIND,
    float: DOUBLE_KIND,
    str: STRING_KIND,
    ObjectId: OBJECT_ID,
    datetime: DATE_KIND,
    DatetimeMS: DATE_KIND,
    bytes: Scalar("binary"),
    Binary: Scalar("binary"),
    PyUuid: Scalar("uuid"),
    Regex: Scalar("regex"),
    Timestamp: Scalar("timestamp"),
    DBRef: JSON_KIND,
}
_TYPES: Mapping[str, tuple[Type, str]] = {
    "bool": (BOOLEAN, "bool"),
    "int": (INT, "int"),
    "long": (LONG, "long"),
    "bigLong": (LONG, "long"),
    "double": (DOUBLE, "double"),
    "string": (STRING, "string"),
    "objectId": (STRING, "objectId"),
    "date": (TIMESTAMPTZ, "date"),
    "binary": (BINARY, "binary"),
    "uuid": (UUID, "uuid"),
    "regex": (STRING, "regex"),
    "javascript": (STRING, "javascript"),
    "timestamp": (STRING, "timestamp"),
    "decimalText": (STRING, "decimal"),
    JSON: (STRING, JSON),
}
_NUMBERS = {"int": 10, "long": 19, "bigLong": 19}


def silent(_path: str, _one: BsonType, _other: BsonType) -> None:
    """For whoever does not want to hear of conflicts."""


def kind_of(value: Any, path: str = "", tell: OnConflict = silent, depth: int = 0) -> BsonType | None:
    """None for what tells nothing."""
    kind = type(value)
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple
    if kind in _NOTHING_SEEN:
        return None
    if kind is Int64:
        return LONG_KIND if -EXACT_DOUBLE <= value <= EXACT_DOUBLE else BIG_KIND
    if kind is Decimal128:
        return _decimal(value)
    if kind is Code:
        return Scalar("javascript") if value.scope is None else JSON_KIND
    if depth >= DEPTH_MAX:
        return JSON_KIND
    if isinstance(value, dict):
        return _document(value, path, tell, depth)
    if isinstance(value, list):
        element: BsonType | None = None
        for inner in value:
            element = union(element, kind_of(inner, f"{path}[]", tell, depth + 1), f"{path}[]", tell)
        return ArrayOf(element)
    return JSON_KIND


def kind_of_documents(documents: Iterable[dict[str, Any]], tell: OnConflict = silent) -> DocumentOf:
    """The union of them all."""
    seen: BsonType | None = DocumentOf()
    for document in documents:
        seen = union(seen, _document(document, "", tell, 0, top=True), "", tell)
    assert isinstance(seen, DocumentOf)
    return seen


def union(one: BsonType | None, other: BsonType | None, path: str = "", tell: OnConflict = silent) -> BsonType | None:
    """What holds both; json if nothing else does."""
    if one is None or one == other:
        return other
    if other is None:
        return one
    match one, other:
        case DocumentOf(), DocumentOf():
            return _merged(one, other, path, tell)
        case ArrayOf(), ArrayOf():
            return ArrayOf(union(one.element, other.element, f"{path}[]", tell))
        case DecimalOf(), DecimalOf():
            return DecimalOf(max(one.digits, other.digits), max(one.scale, other.scale))
        case (DecimalOf() as decimal, Scalar(name)) | (Scalar(name), DecimalOf() as decimal) if name in _NUMBERS:
            return DecimalOf(max(decimal.digits, _NUMBERS[name]), decimal.scale)
        case (DecimalOf(), Scalar("decimalText")) | (Scalar("decimalText"), DecimalOf()):
            return DECIMAL_TEXT
        case Scalar(), Scalar():
            found = _scalars({one.name, other.name})
            if found is not None:
                return found
    if JSON_KIND not in (one, other):
        tell(path, one, other)
    return JSON_KIND


def typed(kind: BsonType | None, depth: int = 0) -> tuple[Type, str]:
    """The Iceberg type and the text that tells what a string in it is."""
    match kind:
        case Scalar(name):
            return _TYPES[name]
        case DecimalOf(digits, scale):
            if digits + scale > DECIMAL_PRECISION_MAX:
                return _TYPES["decimalText"]
            roomy = max(scale, min(SCALE_MIN, DECIMAL_PRECISION_MAX - digits))
            return Decimal(DECIMAL_PRECISION_MAX, roomy), "decimal"
        case ArrayOf(element):
            inner, doc = typed(element, depth + 1)
            return ListOf(inner), f"array<{doc}>"
        case DocumentOf(fields) if can_be_struct(fields, depth):
            return StructOf(tuple(_field(name, inner, depth) for name, inner in fields.items())), "object"
    return _TYPES[JSON]


def can_be_struct(names: Iterable[str], depth: int = 0) -> bool:
    """Engines compare names without regard to case, and a dot in one cannot be told from a path."""
    known = list(names)
    folded = {name.casefold() for name in known}
    plain = all(name and "." not in name and "`" not in name and name.isprintable() for name in known)
    return plain and 0 < len(known) <= FIELDS_MAX and len(folded) == len(known) and depth < DEPTH_MAX


def kind_in_table(type_: Type, doc: str | None) -> BsonType:
    """What a column of a table holds, judging by its type and its doc."""
    match type_:
        case Decimal(precision, scale):
            return DecimalOf(precision - scale, scale)
        case ListOf(element):
            return ArrayOf(kind_in_table(element, inner_doc(doc)))
        case StructOf(fields):
            return DocumentOf({f.name: kind_in_table(f.type, f.doc) for f in fields})
    if type_ == STRING:
        named = {told: Scalar(name) for name, (as_type, told) in _TYPES.items() if as_type == STRING}
        return named.get(doc or "", STRING_KIND)
    by_type = {as_type: Scalar(name) for name, (as_type, _) in reversed(list(_TYPES.items()))}
    return by_type.get(type_, JSON_KIND)


def inner_doc(doc: str | None) -> str:
    """What the elements of an array are told to be."""
    return doc[len("array<") : -1] if doc and doc.startswith("array<") and doc.endswith(">") else ""


def evolved(type_: Type, doc: str, seen: BsonType, path: str, tell: OnConflict) -> tuple[Type, str]:
    """The table's type, or one that it can be widened to, or if there is none another one altogether."""
    if type_ == STRING:
        return type_, doc
    match type_, seen:
        case StructOf(fields), DocumentOf(names):
            if not can_be_struct({f.name: None for f in fields} | dict(names)):
                return _TYPES[JSON]
            return _evolved_struct(fields, names, path, tell), doc
        case ListOf(element), ArrayOf(None):
            return ListOf(element), doc
        case ListOf(element), ArrayOf(Scalar() | DecimalOf() | ArrayOf() | DocumentOf() as inside):
            inner, told = evolved(element, inner_doc(doc), inside, f"{path}[]", tell)
            return ListOf(inner), f"array<{told}>"
        case Decimal(precision, scale), DecimalOf(digits, seen_scale):
            if seen_scale <= scale and digits <= precision - scale:
                return type_, doc
            if seen_scale <= scale and digits + scale <= DECIMAL_PRECISION_MAX:
                return Decimal(DECIMAL_PRECISION_MAX, scale), doc
        case Decimal(precision, scale), Scalar(name) if name in _NUMBERS:
            return evolved(type_, doc, DecimalOf(_NUMBERS[name], 0), path, tell)
    known = kind_in_table(type_, doc)
    if known == seen:
        return type_, doc
    return typed(union(known, seen, path, tell))


def shown(kind: BsonType) -> str:
    """For people."""
    match kind:
        case Scalar(name):
            return {"bigLong": "long", "decimalText": "decimal"}.get(name, name)
        case DecimalOf():
            return "decimal"
        case ArrayOf():
            return "array"
        case DocumentOf():
            return "object"


def _evolved_struct(fields: tuple[Field, ...], seen: Mapping[str, BsonType], path: str, tell: OnConflict) -> StructOf:
    known = {f.name: f for f in fields}
    kept = []
    for f in fields:
        if f.name not in seen:
            kept.append(f)
            continue
        inner, doc = evolved(f.type, f.doc or "", seen[f.name], _below(path, f.name), tell)
        kept.append(Field(f.id, f.name, inner, False, doc or f.doc))
    added = [_field(name, inner, path.count(".") + 1) for name, inner in seen.items() if name not in known]
    return StructOf((*kept, *added))


def _field(name: str, kind: BsonType, depth: int) -> Field:
    inner, doc = typed(kind, depth + 1)
    return Field(UNASSIGNED, name, inner, False, doc)


def _document(value: Mapping[str, Any], path: str, tell: OnConflict, depth: int, top: bool = False) -> BsonType:
    if not top and not can_be_struct(value, depth):
        return JSON_KIND if value else DocumentOf()
    fields = {}
    for name, inner in value.items():
        kind = kind_of(inner, _below(path, name), tell, depth + 1)
        if kind is not None:
            fields[name] = kind
    return DocumentOf(fields)


def _merged(one: DocumentOf, other: DocumentOf, path: str, tell: OnConflict) -> BsonType:
    fields = dict(one.fields)
    for name, kind in other.fields.items():
        found = union(fields.get(name), kind, _below(path, name), tell)
        assert found is not None
        fields[name] = found
    return DocumentOf(fields)


def _scalars(names: set[str]) -> BsonType | None:
    if names <= {"int", "long", "bigLong"}:
        return BIG_KIND if "bigLong" in names else LONG_KIND
    if names <= {"int", "long", "double"}:
        return DOUBLE_KIND
    return None


def _decimal(value: Decimal128) -> BsonType:
    number = value.to_decimal()
    if not number.is_finite():
        return DECIMAL_TEXT
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    return DecimalOf(max(len(digits) + exponent, 0), max(-exponent, 0))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
