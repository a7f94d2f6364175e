"""Column families: which topics make up one table, and which family each of its columns belongs to. Pure.

    topics    t+f1  t+f2  u      entries t, u          -->  tables t (f1, f2) and u
                                 entries t, u, t+f2    -->  tables t (f1), u and t+f2
    rows      of t+f1 {id, name}                       -->  f1 has name, and the key id: it is the primary family
              of t+f2 {note}                           -->  f2 has note

A row of a feed holds all columns of its family, NULLs too, so one row of each family tells which columns it has. The
primary key lies in one family only; JSON rows hold it in that one, Parquet rows in all of them.
A table that had a single family was sent as t; what that topic holds is the primary family, whose name it did not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from frazil.errors import BadInput, ConfigError
from frazil.model.schema import UNNAMED, Column, SourceSchema, families, primary_family
from frazil.sources.base import InputPartition
from frazil.sources.cockroachdb.feed.file_names import Format, data_file
from frazil.sources.cockroachdb.schema.profile import Profile
from frazil.sources.cockroachdb.schema.schema import Knowledge, from_enriched

_SEPARATOR = "+"
_DEFAULT_PRIMARY = "primary"


@dataclass(frozen=True, slots=True)
class FamilyRows:
    """What rows of one family and one version of the table's schema look like."""

    family: str
    version: int
    profile: Profile


def table_of(topic: str, is_named: Callable[[str], bool], is_wanted: Callable[[str], bool]) -> str:
    """The source table that a topic belongs to: the table whose family it is, unless the topic itself is named as a
    table (`is_named`) or nobody wants the whole one (`is_wanted`)."""
    table, found, _ = topic.partition(_SEPARATOR)
    return topic if not found or is_named(topic) or not is_wanted(table) else table


def family_of(topic: str, table: str) -> str:
    """Which family of the table the topic holds."""
    return UNNAMED if topic == table else topic.removeprefix(table + _SEPARATOR)


def is_of(topic: str, table: str) -> bool:
    return topic.startswith(table + _SEPARATOR)


def families_of(table: str, partitions: Iterable[InputPartition]) -> set[str]:
    """The families that have files among these."""
    return {family_of(data_file(partition.name).topic, table) for partition in partitions}


def named_families(table: str, partitions: Iterable[InputPartition]) -> set[str]:
    return families_of(table, partitions) - {UNNAMED}


def family_rows(
    table: str, partitions: Sequence[InputPartition], profile: Callable[[Sequence[InputPartition]], Profile]
) -> list[FamilyRows]:
    """What rows look like, of each family by itself. Raises ConfigError for CSV files of a family."""
    if not named_families(table, partitions):
        return [FamilyRows(UNNAMED, 0, profile(partitions))]
    grouped: dict[tuple[str, int], list[InputPartition]] = {}
    for partition in partitions:
        file = data_file(partition.name)
        family = family_of(file.topic, table)
        if family != UNNAMED and file.format is Format.CSV:
            raise ConfigError(
                f"{table}: CSV files do not tell which columns the family {family} has",
                hint=f"Write the changefeed in JSON, or name the family as a table of its own: {file.topic}.",
                table=table,
            )
        grouped.setdefault((family, file.schema_version), []).append(partition)
    return [FamilyRows(family, version, profile(own)) for (family, version), own in grouped.items()]


def combined(rows: Sequence[FamilyRows]) -> Profile:
    """All families as if they were one. Only the family that owns the key says what the key is: where that cannot be
    told, every column that may be part of it is named."""
    by_family: dict[str, Profile] = {}
    for one in rows:
        by_family[one.family] = by_family.get(one.family, Profile()).merge(one.profile)
    whole = reduce(Profile.merge, by_family.values(), Profile())
    owners = {name: seen for name, seen in by_family.items() if seen.key_places and seen.key_places[0]}
    if len(owners) > 1 and _DEFAULT_PRIMARY in owners:
        owners = {_DEFAULT_PRIMARY: owners[_DEFAULT_PRIMARY]}
    if not owners:
        return whole
    places = [seen.key_places or () for seen in owners.values()]
    together = tuple(frozenset().union(*of_one_place) for of_one_place in zip(*places, strict=False))
    return replace(whole, key_places=together)


def enriched(rows: Sequence[FamilyRows]) -> Knowledge:
    """The schemas beside enriched messages, each of which tells one family's columns."""
    told = [from_enriched(one.profile) for one in sorted(rows, key=lambda one: one.version)]
    columns = {column.name: column for knowledge in told for column in knowledge.columns}
    key = next((knowledge.key for knowledge in reversed(told) if knowledge.key), ())
    return Knowledge(tuple(columns.values()), key, from_enriched(Profile()).origin)


def with_families(
    table: str,
    source_schema: SourceSchema,
    met: Collection[str],
    rows: Sequence[FamilyRows],
    taken_out: Callable[[], Sequence[str]],
) -> SourceSchema:
    """The source schema, whose columns know their families as far as rows or the table's own memory tell. `met` are the
    families that have files, `taken_out` tells those that are tables of their own.

    Raises ConfigError or BadInput if rows of the table cannot be put together: nobody tells whether they exist.
    """
    if not set(met) - {UNNAMED} and not families(source_schema):
        return source_schema
    primary = _primary(table, source_schema, met, rows)
    owner: dict[str, str] = {}
    for one in sorted(rows, key=lambda one: (one.family != UNNAMED, one.version)):
        owner.update(dict.fromkeys(one.profile.columns, one.family))
    columns = tuple(
        replace(column, family=primary if column.name in source_schema.key else _family(column, owner))
        for column in source_schema.columns
    )
    outgrown = tuple(replace(column, family=_family(column, owner)) for column in source_schema.outgrown)
    found = replace(source_schema, columns=columns, outgrown=outgrown)
    if primary is None:
        _refuse_without_primary(table, set(met) - set(families(found)), taken_out())
    return found


def _family(column: Column, owner: dict[str, str]) -> str | None:
    told = next((owner[name] for name in column.carried_as if name in owner), None)
    return column.family if told is None or (told == UNNAMED and column.family is not None) else told


def _primary(table: str, source_schema: SourceSchema, met: Collection[str], rows: Sequence[FamilyRows]) -> str | None:
    def holds_key(profile: Profile) -> bool:
        return all(any(name in profile.columns for name in key.carried_as) for key in source_schema.key_columns)

    known = primary_family(source_schema)
    owners = {one.family for one in rows if holds_key(one.profile)}
    named = owners - {UNNAMED}
    if len(named) == 1:
        return named.pop()
    if known:
        return known
    if _DEFAULT_PRIMARY in (named or met):
        return _DEFAULT_PRIMARY
    if named:
        raise ConfigError(
            f"{table}: which of its column families {', '.join(sorted(named))} owns the key cannot be told: rows of "
            "all of them hold it",
            hint=f"Write the changefeed in JSON; or name each family as a table of its own: {_entries(table, named)}.",
            table=table,
        )
    return UNNAMED if UNNAMED in met else known


def _refuse_without_primary(table: str, untold: Collection[str], taken_out: Sequence[str]) -> None:
    if taken_out:
        raise ConfigError(
            f"{table}: none of the column families that it is put together of owns its key: "
            f"{_entries(table, taken_out)} is a table of its own",
            hint=f"The family that owns the key tells whether a row of {table} exists. Name all families as tables of "
            f"their own, or take the entry of that one out.",
            table=table,
        )
    if untold:
        raise BadInput(
            f"{table}: nothing tells which column family owns its key: of {', '.join(sorted(untold))} only deletes "
            "were seen so far",
            hint="Start the changefeed with an initial scan; or name each family as a table of its own: "
            f"{_entries(table, untold)}.",
            table=table,
        )


def _entries(table: str, names: Collection[str]) -> str:
    return ", ".join(f"{table}{_SEPARATOR}{name}" for name in sorted(names))
