"""How much a manifest tells of each column of a file, as the table's properties say. Pure.

    write.metadata.metrics.default                        none | counts | truncate(16) | full, of every column
    write.metadata.metrics.max-inferred-column-defaults   without it: of so many columns truncate(16), of others none
    write.metadata.metrics.column.<name>                  of one column

As iceberg-java reads them: what it cannot read counts for nothing, columns that rows are sorted by have bounds, and the
first columns are those of the outermost level, then those inside of each. The key's columns have bounds, too, unless a
property says otherwise: without them every search for a key would have to open every file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from frazil.model.schema import Field, ListOf, MapOf, Schema, StructOf, Type

_PROPERTY = "write.metadata.metrics."
_DEFAULT, _COLUMN, _MOST = _PROPERTY + "default", _PROPERTY + "column.", _PROPERTY + "max-inferred-column-defaults"
_INFERRED_MAX = 100
_TRUNCATE = re.compile(r"truncate\((\d+)\)")


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """`counted` if anything is told. Bounds of texts and bytes are cut to `length`, not at all if that is None; with 0
    there are no bounds."""

    counted: bool = True
    length: int | None = 16


NONE, COUNTS, FULL = MetricsMode(False, 0), MetricsMode(length=0), MetricsMode(length=None)
TRUNCATE_16 = MetricsMode()


@dataclass(frozen=True, slots=True)
class MetricsModes:
    """By field id; picklable."""

    default: MetricsMode = TRUNCATE_16
    columns: Mapping[int, MetricsMode] = field(default_factory=dict, hash=False)

    def of(self, field_id: int) -> MetricsMode:
        return self.columns.get(field_id, self.default)

    @classmethod
    def told(cls, properties: Mapping[str, str], schema: Schema, sorted_by: Collection[int] = ()) -> MetricsModes:
        """What a table with these properties says; `sorted_by` are the fields that its sort order preserves."""
        leaves = dict(_leaves((), schema.fields))
        modes: dict[int, MetricsMode] = {}
        configured = properties.get(_DEFAULT)
        if configured is not None:
            default = parse_mode(configured) or TRUNCATE_16
        elif len(leaves) <= (most := _most(properties)):
            default = TRUNCATE_16
        else:
            first = [number for number, _ in zip(_by_level(schema.fields), range(most), strict=False)]
            default, modes = NONE, dict.fromkeys((*first, *schema.identifier_ids), TRUNCATE_16)
        bounded = default if default.length != 0 else TRUNCATE_16
        modes |= dict.fromkeys(sorted_by, bounded)
        by_name = {name: number for number, name in leaves.items()}
        for key, value in properties.items():
            if key.startswith(_COLUMN) and (number := by_name.get(key.removeprefix(_COLUMN))) is not None:
                modes[number] = parse_mode(value) or default
        return cls(default, modes)


ALL_TOLD = MetricsModes()


def parse_mode(text: str) -> MetricsMode | None:
    """None for what is no mode."""
    plain = text.strip().lower()
    if plain in (names := {"none": NONE, "counts": COUNTS, "full": FULL}):
        return names[plain]
    found = _TRUNCATE.fullmatch(plain)
    return MetricsMode(length=int(found[1])) if found and int(found[1]) > 0 else None


def _most(properties: Mapping[str, str]) -> int:
    try:
        most = int(properties.get(_MOST, _INFERRED_MAX))
    except ValueError:
        return _INFERRED_MAX
    return most if most >= 0 else _INFERRED_MAX


def _inner(type_: Type) -> Sequence[Field]:
    match type_:
        case StructOf(fields):
            return fields
        case ListOf(element, number):
            return (Field(number, "element", element),)
        case MapOf(key, value, key_id, value_id):
            return (Field(key_id, "key", key), Field(value_id, "value", value))
        case _:
            return ()


def _leaves(path: tuple[str, ...], fields: Sequence[Field]) -> Iterator[tuple[int, str]]:
    for one in fields:
        own = (*path, one.name)
        if isinstance(one.type, StructOf | ListOf | MapOf):
            yield from _leaves(own, _inner(one.type))
        else:
            yield one.id, ".".join(own)


def _by_level(fields: Sequence[Field]) -> Iterator[int]:
    """Fields of this level that hold values, then what lies inside of each of the others."""
    nested = [one for one in fields if isinstance(one.type, StructOf | ListOf | MapOf)]
    yield from (one.id for one in fields if one not in nested)
    for one in nested:
        yield from _by_level(_inner(one.type))
