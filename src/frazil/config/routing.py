"""Which entry of the configuration takes a source table, and what its target is called.

    shop.public.orders  --an exact entry, else the first pattern-->  entry
                        --{database}.{table} or the entry's own--->  shop.orders

Names are compared part by part from the right: a feed that tells only `orders` matches the entry
`shop.public.orders`, whose parts then also fill the placeholders of the target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from string import Formatter
from typing import TYPE_CHECKING

from frazil.config.engines import ReaderEngine, fitted
from frazil.errors import ConfigError
from frazil.model.ids import BadName, TableName
from frazil.model.write import TableOptions

if TYPE_CHECKING:
    from frazil.config.table_entries import TableEntry
    from frazil.config.volumes import VolumeConfig

DEFAULT_TARGET = "{database}.{table}"
DEFAULT_SCHEMA = "public"
PLACEHOLDERS = ("table", "schema", "database")


@dataclass(frozen=True, slots=True)
class Route:
    """One source table, the entry that takes it, its target, the volume that lies on, if the catalog is not to
    choose, and the engines that read it."""

    source: str
    entry: TableEntry
    target: TableName
    volume: VolumeConfig | None = None
    readers: tuple[ReaderEngine, ...] = ()

    @property
    def options(self) -> TableOptions:
        """How the target is made and written, so that its readers can read it."""
        return fitted(self.entry.options, self.readers)


def is_pattern(source: str) -> bool:
    return "*" in source or "?" in source


def matches(entry_source: str, name: str) -> bool:
    """Whether the parts that both names have agree."""
    pairs = zip(reversed(name.split(".")), reversed(entry_source.split(".")), strict=False)
    return all(fnmatchcase(part, _literal_brackets(pattern)) for part, pattern in pairs)


def target_of(template: str | None, entry_source: str, name: str, pipeline: str) -> TableName:
    """Fills the placeholders: from the table's name, else from the entry, else `public` and the pipeline's name."""
    parts = {"database": pipeline, "schema": DEFAULT_SCHEMA}
    if not is_pattern(entry_source):
        parts |= _parts(entry_source)
    return TableName.parse((template or DEFAULT_TARGET).format(**(parts | _parts(name))))


def check_names(source: str, target: str | None) -> None:
    """Raises ValueError for a target that no table could have."""
    template = target or DEFAULT_TARGET
    try:
        used = {field for _, field, _, _ in Formatter().parse(template) if field is not None}
    except ValueError as error:
        raise ValueError(f"{template!r} has an unpaired brace") from error
    unknown = sorted(used - set(PLACEHOLDERS))
    if unknown:
        raise ValueError(f"unknown placeholder {{{unknown[0]}}}; known are {{table}}, {{schema}} and {{database}}")
    if is_pattern(source) and not used:
        raise ValueError(f"the pattern {source} may match several tables: write {{table}} in the target")
    try:
        name = TableName.parse(template.format(table="t", schema="s", database="d"))
    except (BadName, IndexError) as error:
        raise ValueError(str(error)) from error
    if name.is_reserved:
        raise ValueError(f"the namespace {name.namespace[0]} is reserved")


def target_for(entry: TableEntry, name: str, pipeline: str) -> TableName:
    """The target of a source table that an entry takes. Raises ConfigError if none can be called as it would be."""
    try:
        target = target_of(entry.target, entry.source, name, pipeline)
        if target.is_reserved:
            raise BadName(f"the namespace {target.namespace[0]} is reserved")
    except BadName as error:
        raise ConfigError(
            f"the source table {name} cannot be published under its own name: {error}",
            hint=f"Under `tables:`, add an entry with source: {name} and a target that can be, like "
            f"{_plain(entry.target, name, pipeline)}; then: frazil reload CONFIG.",
            table=name,
        ) from error
    return target


def _plain(template: str | None, name: str, pipeline: str) -> str:
    """The target that the table would have if each character that cannot be part of it was an underscore."""
    parts = {"database": pipeline, "schema": DEFAULT_SCHEMA, **_parts(name)}
    plain = {field: re.sub(r"[^A-Za-z0-9_]", "_", text).strip("_") or "t" for field, text in parts.items()}
    return (template or DEFAULT_TARGET).format(**plain)


class Entries:
    """The entries of a configuration, each found by its names: what one table costs does not depend on how many entries
    there are, unless they are patterns."""

    def __init__(self, entries: Sequence[TableEntry], pipeline: str) -> None:
        self._patterns = [entry for entry in entries if is_pattern(entry.source)]
        self._families = [entry for entry in entries if "+" in entry.source]
        self._exact = [entry for entry in entries if not is_pattern(entry.source)]
        self._by_source: dict[str, int] = {}
        self._by_end: dict[str, list[int]] = {}
        self._by_target: dict[TableName, TableEntry] = {}
        for place, entry in enumerate(self._exact):
            self._by_source[entry.source] = place
            for end in ends_of(entry.source):
                self._by_end.setdefault(end, []).append(place)
            self._by_target[target_of(entry.target, entry.source, entry.source, pipeline)] = entry

    def taking(self, name: str) -> TableEntry | None:
        """The entry that takes this source table; None if none does. Raises ConfigError if two exact ones would."""
        exact = self._naming(name)
        if len(exact) > 1:
            raise ConfigError(
                f"the source table {name} fits two entries: {exact[0].source} and {exact[1].source}",
                hint="create the changefeed WITH full_table_name, so that tables of one name can be told apart",
                table=name,
            )
        return exact[0] if exact else self._pattern(name)

    def wants(self, name: str) -> bool:
        return bool(self._naming(name)) or self._pattern(name) is not None

    def unmet(self, names: Iterable[str]) -> list[TableEntry]:
        """Entries that fit none of these source tables: a typo, or a table that is yet to come."""
        met = {id(entry) for name in names for entry in (*self._naming(name), *self._fitting(name))}
        return [entry for entry in (*self._exact, *self._patterns) if id(entry) not in met]

    def names_family(self, topic: str) -> bool:
        """Whether an entry names a column family (`orders+f1`) as a table of its own."""
        return any(matches(entry.source, topic) for entry in self._families)

    def naming(self, target: TableName) -> TableEntry | None:
        """The exact entry of this target."""
        return self._by_target.get(target)

    def filling(self, target: TableName) -> TableEntry | None:
        """The entry that fills this target, judging by the names alone: an exact one, else the first whose target may
        be called so."""
        by_exactness = (*self._exact, *self._patterns)
        return self.naming(target) or next((entry for entry in by_exactness if _may_fill(entry, target)), None)

    def claiming(self, target: TableName) -> TableEntry | None:
        """The entry because of which the pipeline would make this target again: an exact one of this target, or a
        pattern whose targets may be called so."""
        return self.naming(target) or next((entry for entry in self._patterns if _may_fill(entry, target)), None)

    def _naming(self, name: str) -> list[TableEntry]:
        """Exact entries with the parts that both names have, in their order."""
        shorter = (self._by_source[end] for end in ends_of(name)[1:] if end in self._by_source)
        return [self._exact[place] for place in sorted((*shorter, *self._by_end.get(name, ())))]

    def _pattern(self, name: str) -> TableEntry | None:
        return next(self._fitting(name), None)

    def _fitting(self, name: str) -> Iterator[TableEntry]:
        return (entry for entry in self._patterns if matches(entry.source, name))


def ends_of(name: str) -> list[str]:
    """`a.b.c`, `b.c` and `c`."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def _may_fill(entry: TableEntry, target: TableName) -> bool:
    pieces = Formatter().parse(entry.target or DEFAULT_TARGET)
    pattern = "".join(re.escape(text) + ("" if field is None else r"[^.]+") for text, field, _, _ in pieces)
    return re.fullmatch(pattern, target.text) is not None


def _parts(name: str) -> dict[str, str]:
    return dict(zip(PLACEHOLDERS, reversed(name.split(".")), strict=False))


def _literal_brackets(pattern: str) -> str:
    return pattern.replace("[", "[[]")
