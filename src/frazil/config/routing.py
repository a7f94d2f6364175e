"""Which entry of the configuration takes a source table, and what its target is called.

    shop.public.orders  --an exact entry, else the first pattern-->  entry
                        --{database}.{table} or the entry's own--->  shop.orders

Names are compared part by part from the right: a feed that tells only `orders` matches the entry
`shop.public.orders`, whose parts then also fill the placeholders of the target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from string import Formatter
from typing import TYPE_CHECKING

from frazil.errors import ConfigError
from frazil.model.names import PLAIN_SYSTEM_NAMESPACE, SYSTEM_NAMESPACE, BadName, TableName

if TYPE_CHECKING:
    from frazil.config.catalogs import CatalogConfig
    from frazil.config.model import PipelineConfig
    from frazil.config.tables import TableEntry
    from frazil.config.volumes import VolumeConfig

DEFAULT_TARGET = "{database}.{table}"
DEFAULT_SCHEMA = "public"
PLACEHOLDERS = ("table", "schema", "database")


@dataclass(frozen=True, slots=True)
class Route:
    """One source table, the entry that takes it, its target, and the volume that lies on, if the catalog is not to
    choose."""

    source: str
    entry: TableEntry
    target: TableName
    volume: VolumeConfig | None = None


def is_pattern(source: str) -> bool:
    return "*" in source or "?" in source


def matches(entry_source: str, name: str) -> bool:
    """Whether the parts that both names have agree."""
    pairs = zip(reversed(name.split(".")), reversed(entry_source.split(".")), strict=False)
    return all(fnmatchcase(part, _literal_brackets(pattern)) for part, pattern in pairs)


def names_family(entries: Sequence[TableEntry], topic: str) -> bool:
    """Whether an entry names a column family (`orders+f1`) as a table of its own."""
    return any("+" in entry.source and matches(entry.source, topic) for entry in entries)


def wants(entries: Sequence[TableEntry], name: str) -> bool:
    return any(matches(entry.source, name) for entry in entries)


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
    if name.namespace[0] in (SYSTEM_NAMESPACE, PLAIN_SYSTEM_NAMESPACE):
        raise ValueError(f"the namespace {name.namespace[0]} is reserved")


def route(config: PipelineConfig, names: Iterable[str]) -> Sequence[Route]:
    """The tables this pipeline takes, in the order given; tables that no entry names are left out.

    Raises ConfigError if one table fits two exact entries, or if two tables would fill one target.
    """
    routes: dict[TableName, Route] = {}
    for name in names:
        entry = entry_for(config.tables, name)
        if entry is None:
            continue
        target = target_of(entry.target, entry.source, name, config.pipeline)
        if target in routes:
            raise ConfigError(
                f"two source tables claim one target: {routes[target].source} and {name} would both fill {target}",
                hint="give one of them an entry with a target of its own, or use {schema} or {database} in the target",
                target=target.text,
                sources=(routes[target].source, name),
            )
        routes[target] = Route(name, entry, target, volume_of(config, entry))
    return tuple(routes.values())


def entry_for(entries: Sequence[TableEntry], name: str) -> TableEntry | None:
    """The entry that takes this source table; None if none does. Raises ConfigError if two exact ones would."""
    fitting = [entry for entry in entries if matches(entry.source, name)]
    exact = [entry for entry in fitting if not is_pattern(entry.source)]
    if len(exact) > 1:
        raise ConfigError(
            f"the source table {name} fits two entries: {exact[0].source} and {exact[1].source}",
            hint="create the changefeed WITH full_table_name, so that tables of one name can be told apart",
            source=name,
        )
    return next(iter(exact or fitting), None)


def volume_of(config: PipelineConfig, entry: TableEntry) -> VolumeConfig | None:
    """Where the files of an entry's tables lie; None if its catalog decides."""
    name = entry.volume or catalog_of(config, entry).volume
    return None if name is None else config.volumes[name]


def catalog_of(config: PipelineConfig, entry: TableEntry | None) -> CatalogConfig:
    """The catalog that has an entry's tables."""
    return config.catalog if entry is None or entry.catalog is None else config.catalogs[entry.catalog]


def entry_of_target(config: PipelineConfig, target: TableName) -> TableEntry | None:
    """The entry that fills this target, judging by the names alone: an exact one, else the first whose target may be
    called so."""
    exact = [entry for entry in config.tables if not is_pattern(entry.source)]
    for entry in exact:
        if target_of(entry.target, entry.source, entry.source, config.pipeline) == target:
            return entry
    by_exactness = sorted(config.tables, key=lambda entry: is_pattern(entry.source))
    return next((entry for entry in by_exactness if _may_fill(entry.target or DEFAULT_TARGET, target)), None)


def claim_on(config: PipelineConfig, target: TableName) -> TableEntry | None:
    """The entry because of which the pipeline would make this target again: an exact one of this target, or a pattern
    whose targets may be called so."""
    for entry in config.tables:
        if is_pattern(entry.source):
            if _may_fill(entry.target or DEFAULT_TARGET, target):
                return entry
        elif target_of(entry.target, entry.source, entry.source, config.pipeline) == target:
            return entry
    return None


def _may_fill(template: str, target: TableName) -> bool:
    pieces = Formatter().parse(template)
    pattern = "".join(re.escape(text) + ("" if field is None else r"[^.]+") for text, field, _, _ in pieces)
    return re.fullmatch(pattern, target.text) is not None


def _parts(name: str) -> dict[str, str]:
    return dict(zip(PLACEHOLDERS, reversed(name.split(".")), strict=False))


def _literal_brackets(pattern: str) -> str:
    return pattern.replace("[", "[[]")
