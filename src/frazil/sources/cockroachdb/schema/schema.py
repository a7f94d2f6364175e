"""Columns and keys of a table, each from the first place that knows.

    configuration > sql > enriched schema > existing target table > inference        (per column, and for the key)

Inference guesses nothing that a later value could silently contradict:

| all values seen                 | type                                                                           |
|---------------------------------|--------------------------------------------------------------------------------|
| whole numbers within 64 bits    | INT8                                                                           |
| numbers with fraction, exponent | DECIMAL(38, max(10, digits seen)); else FLOAT8 if all survive it; else DECIMAL |
| true, false                     | BOOL                                                                           |
| strings                         | STRING, never a timestamp or UUID by looks                                     |
| objects, arrays, mixtures       | JSONB                                                                          |
| only NULL                       | no column yet                                                                  |

The key is inferred where exactly one column equals each trailing key element in every row looked at.
How what the places know comes together is `resolving`'s part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from frazil.errors import BadInput, ConfigError
from frazil.model import schema as iceberg
from frazil.model.schema import Column, Field, KnownTable, ListOf, Type, same_type
from frazil.sources.cockroachdb.schema.enriched import ENRICHED, Described
from frazil.sources.cockroachdb.schema.profile import ColumnProfile, Profile, ValueKind
from frazil.sources.cockroachdb.schema.types import DEFAULT_RULES, TypeRules, column, parse_source_type

CONFIGURATION, SQL, TABLE, INFERRED = "configuration", "sql", "table", "inferred"
_SCALE_MIN = 10
_ALL_RULES = (DEFAULT_RULES, TypeRules(time_as="time"))
_NUMERIC = {ValueKind.INT, ValueKind.NUMBER, ValueKind.NON_FINITE}
_DEFAULT_SOURCE = {
    "boolean": "BOOL",
    "int": "INT4",
    "long": "INT8",
    "float": "FLOAT4",
    "double": "FLOAT8",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "string": "STRING",
    "uuid": "UUID",
}


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What one place knows of a table: some columns, and perhaps the key."""

    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """What the configuration says of a table: source types by column name, and the key."""

    columns: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()


def configured(pinned: Pinned) -> Knowledge:
    """Raises ConfigError for a type that does not exist."""
    columns = tuple(column(name, text, CONFIGURATION) for name, text in pinned.columns.items())
    return Knowledge(columns, pinned.key, CONFIGURATION)


def from_enriched(profile: Profile) -> Knowledge:
    """Columns from the schema beside an enriched message, and key columns from its key or its source."""
    told = profile.schema or Described()
    return Knowledge(told.columns, told.key or profile.primary_keys, ENRICHED)


def from_target(known: KnownTable) -> Knowledge:
    """A field's doc names its source type if we created it; else the type that Iceberg's stands for. The names that
    rows carry it by, and the source's identity of it, are what the table remembers. Retired fields are left out."""
    by_id = {f.id: f.name for f in known.schema}
    key = tuple(by_id[i] for i in known.schema.identifier_ids if i in by_id)
    return Knowledge(known.as_columns(TABLE, _source_type), key, TABLE)


def retired_columns(known: KnownTable) -> tuple[Column, ...]:
    """Fields whose source column goes on in another one: rows of old may still fit them, and them only."""
    return known.as_columns(TABLE, _source_type, retired=True)


def _source_type(of: Field) -> str:
    return _source_of(of.type, of.doc)


def inferred(profile: Profile, table: str) -> Knowledge:
    """Raises BadInput if the key cannot be told; a profile without keys knows columns only."""
    columns = tuple(
        column(name, text, INFERRED)
        for name, text in ((name, inferred_type(seen)) for name, seen in profile.columns.items())
        if text is not None
    )
    return Knowledge(columns, inferred_key(profile, table), INFERRED)


def inferred_type(seen: ColumnProfile) -> str | None:
    """A source type that holds all values seen; None if all were NULL."""
    kinds = seen.kinds
    if not kinds:
        return None
    if kinds == {ValueKind.BOOL}:
        return "BOOL"
    if kinds <= {ValueKind.STRING, ValueKind.NON_FINITE}:
        return "STRING"
    if not kinds <= _NUMERIC:
        return "JSONB"
    if kinds == {ValueKind.INT} and seen.fits_long:
        return "INT8"
    scale = max(_SCALE_MIN, seen.scale)
    if ValueKind.NON_FINITE not in kinds and seen.digits + scale <= iceberg.DECIMAL_PRECISION_MAX:
        return f"DECIMAL({iceberg.DECIMAL_PRECISION_MAX},{scale})"
    return "FLOAT8" if seen.doubles else "DECIMAL"


def inferred_key(profile: Profile, table: str) -> tuple[str, ...]:
    """The key columns in key order, () if no key was seen. Raises BadInput if there are several answers or none."""
    if profile.key_places is None:
        return ()
    key: list[str] = []
    for place, names in enumerate(profile.key_places, start=1):
        if not names:
            break
        if len(names) > 1:
            raise BadInput(
                f"{table}: the key cannot be told from {profile.rows} rows: element {place} from the end equals "
                f"each of the columns {', '.join(sorted(names))}",
                hint=f"Set `key: [...]` in the entry of {table}: the primary key columns, in key order.",
                table=table,
                candidates=sorted(names),
            )
        key.insert(0, next(iter(names)))
    if not key or len(set(key)) != len(key):
        raise BadInput(
            f"{table}: the key cannot be told: no one column equals its last element in all {profile.rows} rows",
            hint=f"Set `key: [...]` in the entry of {table}: the primary key columns, in key order.",
            table=table,
        )
    return tuple(key)


def check_enough(table: str, places: Sequence[Knowledge], profile: Profile, *, is_csv: bool) -> None:
    """Raises if no source schema was found and more rows like these would not tell one either; waiting for them would
    be waiting forever. Returns if all that was seen are deletes."""
    if is_csv:
        raise ConfigError(
            f"{table}: CSV files tell neither types nor key",
            hint=f"List all columns of {table} under `columns:` in table order, and its key under `key:`.",
            table=table,
        )
    if not profile.columns:
        return
    key = next((place.key for place in places if place.key), ())
    known = {column.name for place in places for column in place.columns}
    missing = [name for name in key if name not in known]
    if missing:
        raise ConfigError(
            f"{table}: nothing tells the type of the key column {missing[0]}: none of the {profile.rows} rows looked "
            f"at has a value of it; they have {', '.join(sorted(known)) or 'none'}",
            hint=f"Correct `key:` in the entry of {table}; or pin the type of {missing[0]} under `columns:`.",
            table=table,
            column=missing[0],
        )
    raise BadInput(
        f"{table}: the key cannot be told, since the messages do not carry it",
        hint=f"Set `key: [...]` in the entry of {table}: the primary key columns, in key order.",
        table=table,
    )


def for_family(knowledge: Knowledge, profile: Profile) -> Knowledge:
    """One column family holds some of the table's columns; the key is known in all of them."""
    kept = {*profile.columns, *knowledge.key}
    return replace(knowledge, columns=tuple(known for known in knowledge.columns if known.name in kept))


def ruled(knowledge: Knowledge, rules: TypeRules) -> Knowledge:
    """The same columns with the Iceberg types that a pipeline wants where it has a choice."""
    if rules == DEFAULT_RULES:
        return knowledge
    typed = tuple(replace(c, type=parse_source_type(c.source_type, rules).type) for c in knowledge.columns)
    return replace(knowledge, columns=typed)


def _source_of(to: Type, doc: str | None) -> str:
    if doc:
        try:
            if any(same_type(parse_source_type(doc, rules).type, to) for rules in _ALL_RULES):
                return doc
        except ConfigError:
            pass
    if isinstance(to, ListOf):
        return _source_of(to.element, None) + "[]"
    if isinstance(to, iceberg.Decimal):
        return f"DECIMAL({to.precision},{to.scale})"
    return _DEFAULT_SOURCE.get(to.name, "BYTES") if isinstance(to, iceberg.Primitive) else "JSONB"
