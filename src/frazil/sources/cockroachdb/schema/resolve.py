"""What several places know of a table becomes one source schema. Pure.

configuration   amount DECIMAL(12,2)                        the first that knows a column tells its type
sql             c INT8, identity 104.2                      the source's own identity of a column outlives its name:
table           b INT8, identity 104.2, carried b           so rows may carry it as c, and as b for a while
rows            {"c": 1, "new": true}                       what nobody announced is inferred

resolve_shape     places ----------------> SourceSchema
heard_by_rows     + what rows look like -> a described type that rows contradict gives way to the table's,
                                           a type of the table that rows outgrow to a wider or another one;
                                           rows of both types in one epoch have a column each
without_dropped   + what rows look like -> what a complete description lacks, and rows too, is gone
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from frazil.model import schema as iceberg
from frazil.model.schema import Column, SourceSchema, same_type
from frazil.sources.cockroachdb.schema.enriched import ENRICHED
from frazil.sources.cockroachdb.schema.profile import ColumnProfile, Profile, ValueKind
from frazil.sources.cockroachdb.schema.schema import (
    CONFIGURATION,
    INFERRED,
    SQL,
    TABLE,
    Knowledge,
    inferred_type,
)
from frazil.sources.cockroachdb.schema.types import Family, column, parse_source_type

KEYLESS = "none"
_NUMBERS = frozenset((ValueKind.INT, ValueKind.NUMBER, ValueKind.NON_FINITE))
_TEXTS = frozenset((ValueKind.STRING, ValueKind.NON_FINITE))
_KINDS: Mapping[Family, frozenset[ValueKind]] = {
    Family.INT: frozenset((ValueKind.INT,)),
    Family.FLOAT: _NUMBERS,
    Family.DECIMAL: _NUMBERS,
    Family.BOOL: frozenset((ValueKind.BOOL,)),
    Family.JSON: frozenset(ValueKind),
    Family.ARRAY: frozenset((ValueKind.NESTED,)),
    Family.VECTOR: _TEXTS | {ValueKind.NESTED},
    Family.GEO: _TEXTS | {ValueKind.NESTED},
    Family.COLLATED: _TEXTS | {ValueKind.NESTED},
    Family.OID: _TEXTS | {ValueKind.INT},
}
_INT4_DIGITS = 9  # so many always fit


def resolve_schema(places: Sequence[Knowledge], *, key_optional: bool = False) -> SourceSchema | None:
    """The source schema known from these places, the first of them winning; None while columns or key are missing.

    Columns that the source told have the source's names, those that only the table knows the table's.
    """
    told = _told(places)
    of_table = [known for place in places if place.origin == TABLE for known in place.columns]
    found: dict[str, Column] = dict(told)
    names: dict[str, str] = {name: name for name in told}
    table_names: dict[str, str] = {}
    matches = _matches(of_table, told)
    for known in of_table:
        match = matches.get(known.name)
        if match is None and known.name in told:
            continue
        if match is None:
            found[known.name] = known
            table_names[known.name] = known.name
            names.update({name: known.name for name in known.carried_as if name not in told})
            continue
        pin = _stale_pin(known, match, told)
        if pin is not None:
            del found[pin.name]
            match = replace(match, type=pin.type, source_type=pin.source_type, origin=pin.origin)
        earlier = [name for name in known.carried_as if name not in found or name == match.name]
        carried = tuple(dict.fromkeys([match.name, *earlier]))
        identity = match.identity or known.identity
        carried = () if carried == (match.name,) else carried
        found[match.name] = replace(match, carried=carried, identity=identity, family=known.family)
        table_names[known.name] = match.name
        names.update(dict.fromkeys((match.name, *carried), match.name))
    for place in places:
        if place.origin == INFERRED:
            for guess in place.columns:
                if guess.name not in names:
                    found[guess.name] = guess
                    names[guess.name] = guess.name
    key = _key(places, names, table_names)
    if key is None and not (key_optional and found):
        return None
    order: dict[str, None] = {}
    # Types by precedence; the order is the table's own where something knows it, since a pin may name only a few.
    for place in sorted(places, key=lambda place: place.origin == CONFIGURATION):
        of = table_names if place.origin == TABLE else names
        order.update(dict.fromkeys(of[known.name] for known in place.columns if of.get(known.name) in found))
    columns = tuple(found[name] for name in order)
    return SourceSchema(columns, *(key or ((), KEYLESS)))


def heard_by_rows(
    source_schema: SourceSchema, seen: Profile, of_table: Sequence[Column], *, new_columns: bool = False
) -> SourceSchema:
    """The source schema once rows were looked at. `of_table` are the table's columns, retired ones too.

    The source describes its columns as they are now, and rows may be older: one that fits the table's column and not
    the described type is still of the table's. Where nothing but the table tells a type and rows have outgrown it, it
    is widened; with `new_columns` one that cannot be widened becomes what the rows look like. If rows from before and
    after a change lie side by side, those from before go to the column that theirs has outgrown (H14).
    """
    key = set(source_schema.key)
    heard = [
        (known, ()) if known.name in key else _heard(known, seen, of_table, new_columns)
        for known in source_schema.columns
    ]
    outgrown = tuple(old for _, olds in heard for old in olds)
    return replace(source_schema, columns=tuple(known for known, _ in heard), outgrown=outgrown)


def without_dropped(source_schema: SourceSchema, seen: Profile) -> SourceSchema:
    """The source schema without columns that only the table knows, if rows were seen and every column of theirs is
    described: then whoever described them did not forget one."""
    described = {
        name
        for known in source_schema.columns
        if known.origin in (CONFIGURATION, SQL, ENRICHED)
        for name in known.carried_as
    }
    if not seen.columns or not described or not set(seen.columns) <= described:
        return source_schema
    kept = tuple(known for known in source_schema.columns if known.origin != TABLE or known.name in source_schema.key)
    return replace(source_schema, columns=kept)


def fits_rows(seen: ColumnProfile, source_type: str) -> bool:
    """Whether values that look like this may be of that type, judging by their kinds alone."""
    return seen.kinds <= _held(seen, source_type)


def _held(seen: ColumnProfile, source_type: str) -> frozenset[ValueKind]:
    """The kinds of these values that the type holds."""
    family = parse_source_type(source_type).family
    if family is Family.INT and not seen.fits_long:
        return frozenset()
    return _KINDS.get(family, _TEXTS)


def _told(places: Sequence[Knowledge]) -> dict[str, Column]:
    """By the source's names; who tells the type need not know the identity."""
    told: dict[str, Column] = {}
    for place in places:
        if place.origin in (TABLE, INFERRED):
            continue
        for known in place.columns:
            first = told.setdefault(known.name, known)
            if first.identity is None and known.identity is not None:
                told[known.name] = replace(first, identity=known.identity)
    return told


def _matches(of_table: Sequence[Column], told: Mapping[str, Column]) -> dict[str, Column]:
    """By the table's names, the told column that each of its columns holds: by identity, else by the name that rows
    carry it by, else by one of its old names that no identity speaks against."""
    found: dict[str, Column] = {}
    identities = {column.identity: column for column in told.values() if column.identity is not None}

    def claim(known: Column, candidates: Iterable[Column | None]) -> None:
        taken = {column.name for column in found.values()}
        match = next((column for column in candidates if column is not None and column.name not in taken), None)
        if match is not None:
            found.setdefault(known.name, match)

    for known in of_table:
        claim(known, [identities.get(known.identity or "")])
    for known in of_table:
        claim(known, [told.get(known.carried_as[0])])
    for known in of_table:
        older = [told[name] for name in known.carried_as[1:] if name in told]
        claim(known, [column for column in older if None in (column.identity, known.identity)])
    return found


def _stale_pin(known: Column, match: Column, told: Mapping[str, Column]) -> Column | None:
    """What the configuration says of the column under a name that it had before."""
    old = [told[name] for name in known.carried_as if name in told and name != match.name]
    return next((pin for pin in old if pin.origin == CONFIGURATION and pin.identity is None), None)


def _key(
    places: Sequence[Knowledge], names: Mapping[str, str], table_names: Mapping[str, str]
) -> tuple[tuple[str, ...], str] | None:
    place = next((place for place in places if place.key), None)
    if place is None:
        return None
    of = table_names if place.origin == TABLE else names
    if not all(name in of for name in place.key):
        return None
    return tuple(of[name] for name in place.key), place.origin


def _heard(
    known: Column, seen: Profile, of_table: Sequence[Column], new_columns: bool
) -> tuple[Column, tuple[Column, ...]]:
    """The column that rows fit, and those that it has outgrown if some rows fit only them."""
    values = next((seen.columns[name] for name in known.carried_as if name in seen.columns), None)
    if values is None or not values.kinds or known.origin not in (SQL, ENRICHED, TABLE):
        return known, ()
    if fits_rows(values, known.source_type):
        wider = _wider(known, values) if known.origin == TABLE else None
        return (known if wider is None else _guessed(known, wider)), ()
    row_name = known.carried_as[0]
    older = [of for of in of_table if row_name in of.carried_as and not same_type(of.type, known.type)]
    if known.origin != TABLE:
        fitting = next((of for of in older if fits_rows(values, of.source_type)), None)
        if fitting is not None:
            return fitting, ()
    if not new_columns:
        return known, ()
    if values.kinds <= _held(values, known.source_type).union(*(_held(values, of.source_type) for of in older)):
        return known, tuple(replace(of, family=known.family) for of in older)
    return _grown(known, values) if known.origin == TABLE else (known, ())


def _grown(known: Column, values: ColumnProfile) -> tuple[Column, tuple[Column, ...]]:
    """What rows look like that nobody describes; where that is no other type of the table's, what those look like that
    do not fit."""
    beyond = replace(values, kinds=values.kinds - _held(values, known.source_type))
    for these, outgrown in ((values, ()), (beyond, (known,))):
        guess = _guessed(known, inferred_type(these) or known.source_type)
        if not same_type(guess.type, known.type):
            return guess, outgrown
    return known, ()


def _guessed(known: Column, source_type: str) -> Column:
    guess = column(known.name, source_type, INFERRED)
    return replace(guess, identity=known.identity, carried=known.carried, family=known.family)


def _wider(known: Column, values: ColumnProfile) -> str | None:
    """A source type that Iceberg can widen the column to, if it must."""
    match known.type:
        case iceberg.INT if values.kinds == {ValueKind.INT} and values.fits_long and values.digits > _INT4_DIGITS:
            return "INT8"
        case iceberg.Decimal(precision, scale):
            fits = ValueKind.NON_FINITE not in values.kinds and values.kinds <= _NUMBERS and values.scale <= scale
            if fits and precision - scale < values.digits <= iceberg.DECIMAL_PRECISION_MAX - scale:
                return f"DECIMAL({iceberg.DECIMAL_PRECISION_MAX},{scale})"
    return None
