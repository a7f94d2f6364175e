"""Keys: which elements of a message's key array identify a row, in one spelling.

    key array   ["us-east-1", 0]      [2, 0]            [1.00]
    key columns a                     a                 d DECIMAL
    canonical   [0]                   [0]               [1]

K key columns are the last K elements: hidden hash-shard buckets and regions come first. A row keeps one key
when the table becomes regional, and one decimal in two spellings is one key (H51).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from frazil.errors import BadInput, ConfigError, DoesNotFit
from frazil.model.schema import Column
from frazil.sources.cockroachdb.decode.exact_json import Json, dumps
from frazil.sources.cockroachdb.decode.values import Misfit, NullKey, canonical
from frazil.sources.cockroachdb.schema.types import Family, collation, parse_source_type

_HIDDEN = r'(?:(?:-?[0-9.]+|"[^"\\]*"|null|true|false), )*'
_MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,5}[1-9])?"
# Texts that are canonical as they stand, if they are values at all, which the decoder finds out; what does not match
# is spelled out value by value.
_CANONICAL_AS_WRITTEN = {
    Family.TEXT: r'"[^"\\]*"',
    Family.UUID: r'"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"',
    Family.BOOL: r"true|false",
    Family.COLLATED: r'"[ !#-\[\]-~]*"',
    Family.BYTES: r'"\\\\x(?:[0-9a-f]{2})*"',
    Family.DATE: r'"[0-9]{4}-[0-9]{2}-[0-9]{2}"',
    Family.TIMESTAMP: rf'"{_MOMENT}"',
    Family.TIMESTAMPTZ: rf'"{_MOMENT}Z"',
    Family.DECIMAL: r"0|-?[1-9][0-9]{0,17}|-?(?:0|[1-9][0-9]{0,17})\.[0-9]{0,17}[1-9]",
}
_EXTENSION = re.compile(r"[-_]u[-_]", re.IGNORECASE)  # options of a locale, such as to compare without case
_WHOLE_DIGITS = {"int": 8, "long": 17}
_GROUPS_MAX = 9  # RE2 knows \1 to \9, and reads \10 as the first group and a zero
EXCERPT = 120


class KeyChanged(ValueError):
    """The message's key and the row's key columns say different things."""


@dataclass(frozen=True)
class KeyRule:
    """How the keys of one table are read. Refuses key columns that cannot identify a row."""

    table: str
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise ConfigError(
                f"{self.table}: no key columns are known",
                hint=f"Set `key: [...]` in the entry of {self.table}.",
                table=self.table,
            )
        for column in self.columns:
            family = parse_source_type(column.source_type).family
            reason = {
                Family.FLOAT: "a floating point number is no key: equal values may differ in their last digits (H21)",
                Family.VECTOR: "a vector cannot be an Iceberg key",
                Family.ARRAY: "an array cannot be an Iceberg key",
                Family.JSON: "JSON has several spellings of one value",
                Family.GEO: "a source schema has several spellings",
            }.get(family)
            if family is Family.COLLATED and _EXTENSION.search(collation(column.source_type)):
                reason = "strings that differ, as in their case, may be equal under this collation"
            if reason:
                raise ConfigError(
                    f"{self.table}: column {column.name} {column.source_type} cannot be part of the key: {reason}",
                    hint=f"Choose other columns with `key: [...]`, or pin `{column.name}` to a type that compares "
                    "exactly (a string, a DECIMAL) if its values allow it.",
                    table=self.table,
                    column=column.name,
                )

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def names_in_rows(self) -> frozenset[str]:
        """All names under which rows may carry the key columns."""
        return frozenset(name for column in self.columns for name in column.carried_as)

    @cached_property
    def _spellings(self) -> tuple[Callable[[Json], str], ...]:
        return tuple(canonical(column) for column in self.columns)

    def __getstate__(self) -> dict[str, object]:
        return {"table": self.table, "columns": self.columns}

    def spell(self, values: list[Json]) -> str:
        """The canonical text of these key values, one for each key column. Raises DoesNotFit, or BadInput on NULL."""
        spelled = []
        for column, spelling, value in zip(self.columns, self._spellings, values, strict=True):
            try:
                spelled.append(spelling(value))
            except NullKey as error:
                raise BadInput(
                    f"{self.table}: key column {column.name} is NULL in {dumps(values)[:EXCERPT]}",
                    hint="A row without a key can be neither updated nor deleted: choose other columns with `key:`.",
                    table=self.table,
                    column=column.name,
                ) from error
            except Misfit as error:
                shown = dumps(value)[:EXCERPT]
                raise DoesNotFit(
                    f"{self.table}: key column {column.name} {column.source_type} cannot hold {shown}: {error}",
                    hint=f"Pin the type of {column.name} under `columns:`.",
                    table=self.table,
                    column=column.name,
                    value=shown,
                ) from error
        return "[" + ", ".join(spelled) + "]"

    def trailing(self, array: list[Json]) -> list[Json]:
        """The elements of a message's key array that the key columns stand for."""
        if len(array) < len(self.columns):
            raise KeyChanged(f"its key {dumps(array)[:EXCERPT]} has fewer elements than the key columns {self.names}")
        return array[len(array) - len(self.columns) :]

    def of_row(self, row: Mapping[str, Json]) -> list[Json]:
        """Key values of a row that has all of its columns, under any name that carries them."""
        return [_carried(row, column, None) for column in self.columns]

    def named(self, key: Mapping[str, Json]) -> list[Json]:
        """Key values of a key that is an object. Raises KeyChanged if it lacks one."""
        for column in self.columns:
            if not any(name in key for name in column.carried_as):
                raise KeyChanged(f"its key has the columns {list(key)}, not {column.name}")
        return self.of_row(key)

    def is_in(self, row: Mapping[str, Json]) -> bool:
        """Whether the row has all key columns."""
        return all(any(name in row for name in column.carried_as) for column in self.columns)

    def agreed(self, array: list[Json], row: Mapping[str, Json]) -> str:
        """The key of a row, checked against its message's key array. Columns of another family's row are
        taken from the array. Raises KeyChanged."""
        trailing = self.trailing(array)
        text = self.spell(trailing)
        values = [_carried(row, column, value) for column, value in zip(self.columns, trailing, strict=True)]
        if values != trailing and self.spell(values) != text:
            raise KeyChanged(
                f"its key {dumps(array)[:EXCERPT]} is not what the key columns {self.names} hold: "
                f"{dumps(values)[:EXCERPT]}"
            )
        return text

    @cached_property
    def _parts(self) -> tuple[str, ...] | None:
        parts = []
        for column in self.columns:
            family = parse_source_type(column.source_type).family
            digits = _WHOLE_DIGITS.get(str(column.type))
            if family is Family.INT and digits:
                parts.append(rf"(?:0|-?[1-9][0-9]{{0,{digits}}})")
            elif family in _CANONICAL_AS_WRITTEN:
                parts.append(f"(?:{_CANONICAL_AS_WRITTEN[family]})")
            else:
                return None
        return tuple(parts)

    @cached_property
    def as_written(self) -> str | None:
        """A pattern of key arrays that are canonical as they stand; None if the values need a closer look."""
        return None if self._parts is None else r"^\[" + ", ".join(self._parts) + r"\]$"

    @cached_property
    def after_hidden(self) -> str | None:
        """As `as_written`, for arrays with hidden elements in front; the key is the one group."""
        return None if self._parts is None else rf"^\[{_HIDDEN}(" + ", ".join(self._parts) + r")\]$"

    @cached_property
    def by_column(self) -> str | None:
        """As `as_written`, with a group for each column; None if there are more groups than a replacement can name."""
        if self._parts is None or len(self._parts) > _GROUPS_MAX:
            return None
        return r"^\[" + ", ".join(f"({part})" for part in self._parts) + r"\]$"


def _carried(row: Mapping[str, Json], column: Column, absent: Json) -> Json:
    return next((row[name] for name in column.carried_as if name in row), absent)
