"""What the values of a table look like, gathered in tasks and merged: the ground for inference.

    partition --profile_partition--> Profile --merge--> Profile --schema.inferred--> columns, key

A profile is small whatever it saw: for each column the kinds of its values and how many digits they need; for
each place in the key, counted from its end, the columns that held the same value in every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from functools import reduce
from typing import Any

from frazil.errors import BadInput
from frazil.sources.cockroachdb.decode.envelope import EnvelopeOptions, Message, open_message
from frazil.sources.cockroachdb.decode.exact_json import Json, Number
from frazil.sources.cockroachdb.decode.formats.parquet_rows import parquet_rows
from frazil.sources.cockroachdb.decode.placing import placed, text_of
from frazil.sources.cockroachdb.feed.file_names import FeedFile, Format, parse_name
from frazil.sources.cockroachdb.feed.location import FeedLocation, line_blocks
from frazil.sources.cockroachdb.schema.enriched import Described

_NON_FINITE = ("NaN", "Infinity", "-Infinity")
_INT64 = 1 << 63
_BEYOND = 1 << 31  # more digits than any type has


class ValueKind(StrEnum):
    BOOL = "bool"
    INT = "int"
    NUMBER = "number"
    NON_FINITE = "non-finite"
    STRING = "string"
    NESTED = "nested"


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """`digits` before the point, `scale` after it, of numbers; `doubles`: all of them survive a double."""

    kinds: frozenset[ValueKind] = frozenset()
    fits_long: bool = True
    digits: int = 0
    scale: int = 0
    doubles: bool = True

    def merge(self, other: ColumnProfile) -> ColumnProfile:
        return ColumnProfile(
            self.kinds | other.kinds,
            self.fits_long and other.fits_long,
            max(self.digits, other.digits),
            max(self.scale, other.scale),
            self.doubles and other.doubles,
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """`key_places[i]` are the columns that equal the i-th key element from the end in all rows seen; there are
    as many places as the shortest key has elements, None before any key was seen."""

    columns: Mapping[str, ColumnProfile] = field(default_factory=dict)
    key_places: tuple[frozenset[str], ...] | None = None
    rows: int = 0
    schema: Described | None = None
    primary_keys: tuple[str, ...] = ()

    def without_key(self) -> Profile:
        return replace(self, key_places=None)

    def merge(self, other: Profile) -> Profile:
        columns = dict(self.columns)
        for name, column in other.columns.items():
            columns[name] = columns[name].merge(column) if name in columns else column
        if self.key_places is None or other.key_places is None:
            places = self.key_places if other.key_places is None else other.key_places
        else:
            places = tuple(a & b for a, b in zip(self.key_places, other.key_places, strict=False))
        return Profile(
            columns,
            places,
            self.rows + other.rows,
            other.schema or self.schema,
            other.primary_keys or self.primary_keys,
        )


def merged(profiles: Iterable[Profile]) -> Profile:
    return reduce(Profile.merge, profiles, Profile())


def profile_partition(
    location: FeedLocation, path: str, options: EnvelopeOptions | None = None, rows_max: int | None = None
) -> Profile:
    """Reads one file, or its first rows. Raises BadInput naming file and line. CSV files tell nothing."""
    options = options or EnvelopeOptions()
    file = parse_name(path)
    if not isinstance(file, FeedFile):
        raise BadInput(f"{path}: not a data file of a changefeed", file=path)
    seen = _Seen({options.op_column, options.prev_column} - {None})
    if file.format is Format.PARQUET:
        with location.open(path) as stream:
            data = bytes(stream.read())
        for found in parquet_rows(data, path, file.topic, None):
            if not found.deleted and seen.add(Message(envelope=options.envelope, row=found.row)) == rows_max:
                break
    if file.format is not Format.JSON:
        return seen.profile()
    line = 0
    with location.open(path, file.compression) as stream:
        for block in line_blocks(stream):
            for raw in block.splitlines():
                line += 1
                if not raw.strip():
                    continue
                try:
                    with placed(path, line, raw):
                        rows = seen.add(open_message(text_of(raw), options.envelope))
                except BadInput:
                    if options.quarantine:
                        continue  # the reader puts the line away
                    raise
                if rows == rows_max:
                    return seen.profile()
    return seen.profile()


class _Seen:
    def __init__(self, hidden: set[Any]) -> None:
        self._hidden = hidden
        self._columns: dict[str, ColumnProfile] = {}
        self._places: list[set[str]] | None = None
        self._rows = 0
        self._schema: Described | None = None
        self._primary_keys: tuple[str, ...] = ()

    def add(self, message: Message) -> int:
        """The number of messages seen. One that raises leaves no trace."""
        row = {name: value for name, value in (message.row or {}).items() if name not in self._hidden}
        looks = {name: of_value(value) for name, value in row.items()}
        self._rows += 1
        self._schema = message.schema or self._schema
        self._primary_keys = tuple(message.source.get("primary_keys") or ()) or self._primary_keys
        if isinstance(message.key, dict):
            self._primary_keys = tuple(message.key)
        for name, kinds in looks.items():
            known = self._columns.get(name)
            self._columns[name] = kinds if known is None else known.merge(kinds) if kinds != known else known
        if isinstance(message.key, list) and row:
            self._match_key(message.key, row)
        return self._rows

    def _match_key(self, key: list[Json], row: Mapping[str, Json]) -> None:
        if self._places is None:
            self._places = [set(row) for _ in key]
        del self._places[len(key) :]
        for names, value in zip(self._places, reversed(key), strict=False):
            names.intersection_update([name for name in names if name in row and same(row[name], value)])

    def profile(self) -> Profile:
        places = None if self._places is None else tuple(frozenset(names) for names in self._places)
        return Profile(dict(self._columns), places, self._rows, self._schema, self._primary_keys)


def same(left: Json, right: Json) -> bool:
    return bool(left == right and isinstance(left, Number) == isinstance(right, Number))


def of_value(value: Json) -> ColumnProfile:
    match value:
        case None:
            return ColumnProfile()
        case bool():
            return ColumnProfile(frozenset([ValueKind.BOOL]))
        case Number():
            return _of_number(value)
        case str():
            return ColumnProfile(frozenset([ValueKind.NON_FINITE if value in _NON_FINITE else ValueKind.STRING]))
        case _:
            return ColumnProfile(frozenset([ValueKind.NESTED]))


def _of_number(text: str) -> ColumnProfile:
    try:
        number = Decimal(text)
    except ArithmeticError:  # an exponent beyond all bounds: only its text holds it
        return ColumnProfile(frozenset([ValueKind.NUMBER]), False, _BEYOND, _BEYOND, False)
    exponent = int(number.as_tuple().exponent)
    digits = max(number.adjusted() + 1, 0) if number else 0
    if text.lstrip("-").isdigit():
        whole = int(number)
        return ColumnProfile(frozenset([ValueKind.INT]), -_INT64 <= whole < _INT64, digits, 0, _is_double(text, number))
    return ColumnProfile(frozenset([ValueKind.NUMBER]), True, digits, max(-exponent, 0), _is_double(text, number))


def _is_double(text: str, number: Decimal) -> bool:
    nearest = float(text)
    return nearest not in (float("inf"), float("-inf")) and Decimal(repr(nearest)) == number
