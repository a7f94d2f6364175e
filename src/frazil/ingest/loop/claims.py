"""Which of a source's tables a pipeline takes, and which it refuses. A target belongs to one source table. Pure.

    names that the source offers --route_of--> claims: a main table's target, and those of its side tables
                                     |             |
             no target can be called |             | two claims on one target
             so, or two entries fit  v             v
                                  refused <-- all but the one whose rows the target holds

If the target holds nobody's rows yet, a side table's claim goes first, since somebody asked for it; of two main tables
neither is taken: which of them came first is not known at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from frazil.config.pipeline_config import PipelineConfig
from frazil.config.routing import Route, matches
from frazil.errors import ConfigError
from frazil.model.ids import TableName
from frazil.model.write import Role, main_table_of, side_table

Keeper = Callable[[TableName], str]
"""The source table whose rows a target holds; empty if it holds none."""


@dataclass(frozen=True, slots=True)
class Claims:
    """`refused` are source tables, each with why."""

    routes: tuple[Route, ...]
    refused: Mapping[str, ConfigError]


def claimed(config: PipelineConfig, names: Iterable[str], keeper: Keeper) -> Claims:
    """The tables this pipeline takes, in the order given; those that no entry names are left out."""
    routes: list[Route] = []
    refused: dict[str, ConfigError] = {}
    for name in names:
        try:
            taken = config.route_of(name)
            if taken is not None:
                _check_catalog(config, taken)
                routes.append(taken)
        except ConfigError as error:
            refused[name] = error
    claims: dict[TableName, list[tuple[Route, Role]]] = {}
    for taken in routes:
        for role in config.roles(taken):
            claims.setdefault(side_table(taken.target, role), []).append((taken, role))
    for target, several in claims.items():
        if len(several) > 1:
            winner = _winner(several, keeper(target))
            for taken, _ in several:
                if taken.source != winner:
                    others = [other.source for other, _ in several if other is not taken]
                    refused.setdefault(taken.source, _conflict(taken, target, others, winner))
    return Claims(tuple(taken for taken in routes if taken.source not in refused), refused)


def _check_catalog(config: PipelineConfig, taken: Route) -> None:
    """A name stands for one table, which is looked for where the first entry that may fill it says. Raises ConfigError
    if that is not where this one is to be."""
    if not config.catalogs:
        return
    wanted = config.catalog_of(taken.entry).name
    led = config.catalog_of(config.entries.filling(main_table_of(taken.target))).name
    if led != wanted:
        raise ConfigError(
            f"{taken.source} would fill {taken.target} in the catalog {wanted}, but another entry keeps such targets "
            f"in {led}",
            hint=f"Give the entry of {taken.source} a target unlike those of the others; then: frazil reload CONFIG.",
            table=taken.source,
            target=taken.target.text,
        )


def _winner(several: Sequence[tuple[Route, Role]], keeper: str) -> str:
    """A name with or without database and schema is the same one, unless two of them could be meant."""
    if keeper:
        same = [taken.source for taken, _ in several if matches(keeper, taken.source)]
        return same[0] if len(same) == 1 else keeper
    beside = [taken.source for taken, role in several if role is not Role.MAIN]
    return beside[0] if len(beside) == 1 else ""


def _conflict(taken: Route, target: TableName, others: Sequence[str], winner: str) -> ConfigError:
    kept = f", which is {winner}'s" if winner else ""
    return ConfigError(
        f"two source tables claim one target: {taken.source} and {', '.join(others)} would both fill {target}{kept}",
        hint=f"Under `tables:`, add an entry with source: {taken.source} and a target of its own, or use {{schema}} or "
        "{database} in the pattern's target; then: frazil reload CONFIG.",
        table=taken.source,
        target=target.text,
        sources=(taken.source, *others),
    )
