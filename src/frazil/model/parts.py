"""Rows that a source sends in parts: column families.

    table t   id, name          family f1, the primary one: it owns the key          part 0
              note, score       family f2                                            part <number of f2>

    key  part 0                     part f2                    the row after the epoch
    1    UPSERT {id: 1, name: a}    UPSERT {note: x, ...}      1, a, x, ...
    2    UPSERT {id: 2, name: b}    -                          2, b, and of f2 what the row had before
    3    -                          DELETE                     what it had before, NULL in f2's columns
    4    DELETE                     DELETE                     gone: a row is there as long as its primary part is

A part's number depends on the family's name alone, so that changes which wait in quarantine keep theirs. A family whose
name nobody told, because the table had only one when its rows were sent, is the primary one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from frazil.model.columns import BadType, TableShape

PRIMARY = 0
UNNAMED = ""
"""The only family of a table: the source does not tell its name."""
_NUMBERS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Part:
    """What travels as `part`, and the table's columns that come with it."""

    number: int
    columns: tuple[str, ...]


def families(shape: TableShape) -> tuple[str, ...]:
    """The families that columns are known to belong to, sorted; () if the source sends whole rows."""
    known = {column.family for column in shape.columns if column.family is not None}
    return tuple(sorted(known)) if known - {UNNAMED} else ()


def primary_family(shape: TableShape) -> str | None:
    """The family that owns the key columns; None if nobody told."""
    known = [column.family for column in shape.key_columns if column.family is not None]
    return next((family for family in known if family != UNNAMED), UNNAMED if known else None)


def part_number(family: str, primary: str | None) -> int:
    if family in (UNNAMED, primary):
        return PRIMARY
    digest = hashlib.sha256(family.encode()).digest()
    return int.from_bytes(digest[:8], "big") % _NUMBERS + 1


def parts_of(shape: TableShape) -> tuple[Part, ...]:
    """The primary part first; () if the source sends whole rows. A column of which nobody told the family is in none:
    no part of a row says anything about it."""
    named = families(shape)
    if not named:
        return ()
    primary = primary_family(shape)
    columns: dict[int, list[str]] = {PRIMARY: []}
    owners: dict[int, str] = {}
    for family in named:
        number = part_number(family, primary)
        if number != PRIMARY and owners.setdefault(number, family) != family:
            raise BadType(f"the column families {owners[number]!r} and {family!r} cannot be told apart")
        own = [column.name for column in (*shape.columns, *shape.outgrown) if column.family == family]
        columns.setdefault(number, []).extend(own)
    return tuple(Part(number, tuple(columns[number])) for number in sorted(columns))
