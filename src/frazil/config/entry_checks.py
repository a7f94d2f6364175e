"""What an entry of `tables:` says wrongly by itself: keys, partitions and orders that do not fit the columns that it
names. A source asks, since it knows the types that these may have. Pure.

    columns: {id: INT8, at: TIMESTMP}   --> columns.at: unknown column type; did you mean TIMESTAMP?
    partition: ["day(id)"]              --> partition: day does not take long

A column that is not pinned may still be told by the source, by its rows or by the table. Where nothing else is asked
before the table is made, the pinned ones are all there are: a changefeed's table whose whole key is pinned and which
nobody describes over SQL, a collection with an explicit mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from frazil.config.table_entries import TableEntry
from frazil.errors import ConfigError
from frazil.model.partition import takes
from frazil.model.schema import DOUBLE, FLOAT, ListOf, MapOf, StructOf, Type
from frazil.model.table import CHANGELOG_BEFORE, CHANGELOG_OP, CHANGELOG_POSITION

Judgement = tuple[str, tuple[str | int, ...]]
"""What is wrong, and the path to it within the entry."""

_LIKELY_A_SLIP = 0.85
_NESTED = (ListOf, MapOf, StructOf)


@dataclass(frozen=True, slots=True)
class KnownColumns:
    """The columns that an entry tells, with their types where it tells these too. `whole` if there are no others."""

    types: Mapping[str, Type | None]
    whole: bool
    named: str = "pinned columns"

    def type_of(self, column: str) -> Type | None:
        return self.types.get(column)

    def lacks(self, column: str) -> bool:
        return self.whole and column not in self.types and column.partition(".")[0] not in self.types

    def nearest(self, column: str, likeness: float) -> str | None:
        return next(iter(get_close_matches(column, self.types, n=1, cutoff=likeness)), None)


def judge_types(
    entry: TableEntry,
    texts: Iterable[tuple[str, str | None, tuple[str | int, ...]]],
    parse: Callable[[str], Type | None],
    types: dict[str, Type | None],
) -> Iterator[Judgement]:
    """Adds to `types` what `parse` makes of (column, text, path)."""
    for column, text, path in texts:
        types[column] = None
        try:
            types[column] = None if text is None else parse(text)
        except ConfigError as error:
            nearest = error.facts.get("nearest")
            meant = "" if nearest is None else f"; did you mean {nearest}?"
            yield _of(entry, f"{error.message}{meant}"), path


def judge_key(entry: TableEntry, known: KnownColumns) -> Iterator[Judgement]:
    for name in entry.key:
        type_ = known.type_of(name)
        if name not in known.types and (nearest := known.nearest(name, _LIKELY_A_SLIP)) and nearest not in entry.key:
            meant = f"{name!r} is not among the pinned columns; did you mean {nearest!r}? Else pin its type under"
            yield _of(entry, f"{meant} `columns:` too"), ("key",)
        elif entry.deletes.needs_key and (type_ in (FLOAT, DOUBLE) or isinstance(type_, _NESTED)):
            text = f"{name!r} is {type_}, which cannot identify a row: name other columns, or pin it as DECIMAL"
            yield _of(entry, text), ("key",)


def judge_layout(entry: TableEntry, known: KnownColumns) -> Iterator[Judgement]:
    for wanted in entry.options.partition:
        type_ = known.type_of(wanted.column)
        if known.lacks(wanted.column):
            yield _of(entry, _lacking(wanted.column, known)), ("partition",)
        elif type_ is not None and not takes(wanted.transform, type_):
            text = f"{wanted.transform} does not take {type_}, the type of {wanted.column!r}"
            yield _of(entry, text), ("partition",)
    for order in entry.options.sort:
        if known.lacks(order.column):
            yield _of(entry, _lacking(order.column, known)), ("sort",)
        elif isinstance(type_ := known.type_of(order.column), _NESTED):
            yield _of(entry, f"rows cannot be sorted by {order.column!r}, which is {type_}"), ("sort",)
    if entry.changelog or not entry.deletes.needs_key:
        for name in (CHANGELOG_OP, CHANGELOG_POSITION, CHANGELOG_BEFORE):
            if name in entry.columns:
                yield _of(entry, "a changelog needs a column of this name for itself"), ("columns", name)


def _lacking(column: str, known: KnownColumns) -> str:
    nearest = known.nearest(column, 0.6)
    meant = f"; did you mean {nearest!r}?" if nearest else f": {', '.join(known.types)}. Name it there too"
    return f"{column!r} is not among the {known.named}{meant}"


def _of(entry: TableEntry, text: str) -> str:
    return f"{text} ({entry.source})"
