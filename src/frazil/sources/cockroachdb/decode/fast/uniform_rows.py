"""The quickest road of decoding: rows that are printed alike, told apart by the places of their quotes.

    {"amount": 31.50, "city": "Turin", "id": 7}        one row is parsed; all others with as many quotes are compared
     ^      ^          ^    ^  ^     ^  ^  ^           with it between the values, byte for byte
              `---'             `---'       `'          values: between two quotes, or up to the next name

CockroachDB prints the columns of a table in one order. Without a backslash every quote of a row opens or closes a name
or a string, so their places tell where values lie, and nothing has to be parsed. A string where another row has a
NULL, an escape, a value that is no plain number: such a row is told to be odd, and is for a JSON reader. What comes of
the others is what that reader would read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.pieces import contents, pieces
from frazil.sources.cockroachdb.decode.exact_json import NotJson, fields
from frazil.sources.cockroachdb.decode.fast.byte_words import BEHIND, ByteWords, Mask, Places

_QUOTE, _BACKSLASH, _SPACE = ord('"'), ord("\\"), ord(" ")
_MINUS, _DOT, _ZERO = ord("-"), ord("."), ord("0")
_DIGITS = np.isin(np.arange(256), list(b"0123456789"))
_NULL, _TRUE, _FALSE = b"null", b"true", b"false"
_DIGITS_MAX = 38
"""More of them, with those that scaling adds, may not fit into 128 bits."""
_WORTH_IT = 0.5
_NAME_MAX = BEHIND // 2


@dataclass(frozen=True, slots=True)
class Regular:
    """The columns of the rows in `rows`, by name, each of the type that was asked for. A column that none of the rows
    has is not among them."""

    rows: Mask
    columns: Mapping[str, Any]


def read_regular(texts: pa.StringArray, types: Mapping[str, Any]) -> Regular | None:
    """None if the rows are not alike, have other names, or a type is none for this road. Raises ArrowInvalid for a
    value that does not fit its type."""
    if not len(texts) or not all(map(_is_known, types.values())):
        return None
    text = _Text.of(texts)
    rows, marks = _alike_by_quotes(text)
    if rows.sum() < _WORTH_IT * len(rows):
        return None
    members = _members(texts[int(rows.argmax())].as_py())
    if members is None or not types.keys() >= members.keys():
        return None
    values, alike = _values(text, np.flatnonzero(rows), marks, members)
    columns = {}
    for place, (name, is_quoted) in enumerate(members.items()):
        column, fine = values.column(place, is_quoted, types[name])
        columns[name] = column
        alike &= fine
    if not alike.all():
        rows[np.flatnonzero(rows)[~alike]] = False
        if rows.sum() < _WORTH_IT * len(rows):
            return None
        columns = {name: column.filter(pa.array(alike)) for name, column in columns.items()}
    return Regular(rows, {name: _typed(column, types[name]) for name, column in columns.items()})


def _is_known(type_: Any) -> bool:
    kinds = (pa.types.is_string, pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_float64)
    return any(is_kind(type_) for is_kind in kinds)


def _members(row: str) -> dict[str, bool] | None:
    """The names of a row and whether their values stand in quotes; None if it is not printed as we know it."""
    try:
        found = fields(row)
    except NotJson:
        return None
    members = {name: raw.startswith('"') for name, (_, raw) in found.items()}
    if any(len(name.encode()) > _NAME_MAX for name in members):
        return None
    printed = ", ".join(f'"{name}": {raw}' for name, (_, raw) in found.items())
    return members if members and row == f"{{{printed}}}" else None


@dataclass(frozen=True, slots=True)
class _Text:
    """The rows, one after the other, and where each begins and ends."""

    bytes: ByteWords
    starts: Places
    ends: Places

    @classmethod
    def of(cls, texts: pa.StringArray) -> _Text:
        data, offsets = contents(texts)
        return cls(ByteWords.of(data), offsets[:-1], offsets[1:])

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        return self.bytes.data


def _alike_by_quotes(text: _Text) -> tuple[Mask, Places]:
    """Rows with as many quotes as most have, and nothing that makes a quote mean something else; the places of their
    quotes, the first ones first."""
    count = len(text.starts)
    quotes = np.flatnonzero(text.data == _QUOTE)
    each = len(quotes) // count
    marks = quotes[: each * count].reshape(count, each)
    if each and len(quotes) == marks.size and (marks[:, 0] > text.starts).all() and (marks[:, -1] < text.ends).all():
        rows = np.ones(count, np.bool_)
    else:
        firsts = np.searchsorted(quotes, text.starts)
        counts = np.diff(np.append(firsts, len(quotes)))
        each = int(np.bincount(counts).argmax())
        rows = counts == each
        marks = quotes[firsts[rows][:, None] + np.arange(each)]
    strange = np.flatnonzero((text.data == _BACKSLASH) | (text.data < _SPACE))
    if len(strange):
        before = rows.copy()
        rows[np.searchsorted(text.ends, strange, side="right")] = False
        marks = marks[rows[before]]
    return rows, np.ascontiguousarray(marks.T)


def _values(text: _Text, rows: Places, marks: Places, members: Mapping[str, bool]) -> tuple[_Values, Mask]:
    """Where values lie, and which rows have nothing else than the first one between them."""
    starts, ends = text.starts[rows], text.ends[rows]
    borders = np.empty((2 * len(members), len(rows)), np.int64)
    alike = text.data[ends - 1] == ord("}")
    mark, quoted_before = 0, False
    for place, (name, is_quoted) in enumerate(members.items()):
        literal = f'{"{" if place == 0 else ", "}"{name}": {chr(_QUOTE) if is_quoted else ""}'.encode()
        begin = starts if place == 0 else marks[mark] - 2
        alike &= text.bytes.has(begin, literal)
        if place:
            alike &= _ends_at(borders[2 * place - 2 : 2 * place], begin, quoted_before)
        borders[2 * place] = begin + len(literal)
        borders[2 * place + 1] = marks[mark + 3] if is_quoted else begin
        mark += 4 if is_quoted else 2
        quoted_before = is_quoted
    alike &= _ends_at(borders[-2:], ends - 1, quoted_before)
    if not alike.all():  # what is not may point anywhere
        borders[:, ~alike] = starts[~alike]
    return _Values(text, borders), alike


def _ends_at(borders: Places, following: Places, is_quoted: bool) -> Mask:
    """A value with quotes must end right before what follows; one without ends there."""
    if is_quoted:
        return np.asarray(borders[1] + 1 == following)
    borders[1] = following
    return np.asarray(following > borders[0])


@dataclass(frozen=True, slots=True)
class _Values:
    """Of each member two rows of `borders`: where its values begin, and where they end."""

    text: _Text
    borders: Places

    def column(self, place: int, is_quoted: bool, type_: Any) -> tuple[pa.StringArray, Mask]:
        """The texts of a column, and which of them are what its type wants, and plain enough."""
        starts, ends = self.borders[2 * place : 2 * place + 2]
        # The whole was UTF-8, and it was cut at quotes and digits.
        if is_quoted:
            return pieces(self.text.data, starts, ends, pa.string()), np.full(len(starts), pa.types.is_string(type_))
        nulls = self._are(starts, ends, _NULL)
        texts = pieces(self.text.data, starts, ends, pa.string(), nulls=nulls if nulls.any() else None)
        if pa.types.is_string(type_):
            return texts, nulls
        if pa.types.is_boolean(type_):
            return texts, nulls | self._are(starts, ends, _TRUE) | self._are(starts, ends, _FALSE)
        return texts, nulls | _are_numbers(texts, type_)

    def _are(self, starts: Places, ends: Places, literal: bytes) -> Mask:
        found = (ends - starts == len(literal)) & (self.text.data[starts] == literal[0])
        return np.asarray(found & self.text.bytes.has(starts, literal)) if found.any() else found


def _are_numbers(texts: pa.StringArray, type_: Any) -> Mask:
    """Plain numbers of JSON: no exponent, no zero in front of other digits, and few enough digits."""
    data, offsets = contents(texts)
    if not len(data):
        return np.zeros(len(texts), np.bool_)
    starts, ends = offsets[:-1], offsets[1:]
    is_whole = pa.types.is_integer(type_)
    lengths = ends - starts
    fine = (lengths >= 1) & (lengths <= _DIGITS_MAX - (type_.scale if pa.types.is_decimal(type_) else 0))
    last = np.maximum(ends - 1, 0)
    negative = data[np.minimum(starts, last)] == _MINUS
    first = np.minimum(starts + negative, last)
    second = data[np.minimum(first + 1, last)]
    digit = data[first]
    fine &= _DIGITS[digit] & _DIGITS[data[last]]
    fine &= (digit != _ZERO) | (first == last) | (second == _DOT)
    odd = np.flatnonzero(data - np.uint8(_ZERO) > 9)
    if len(odd):
        rows = np.searchsorted(ends, odd, side="right")
        minus, dot = data[odd] == _MINUS, data[odd] == _DOT
        fine[rows[~(minus | dot)]] = False
        fine[rows[minus & (odd != starts[rows])]] = False
        dotted = rows[dot]
        fine[dotted if is_whole else dotted[1:][np.diff(dotted) == 0]] = False
    if is_whole:
        fine &= ~(negative & (digit == _ZERO))
    return fine


def _typed(texts: pa.StringArray, type_: Any) -> Any:
    return texts if pa.types.is_string(type_) else pc.cast(texts, type_)
