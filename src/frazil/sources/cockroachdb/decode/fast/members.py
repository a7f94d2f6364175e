"""The members of JSON objects as raw text, found without parsing a value.

    {"id": 7, "doc": {"a": [1, ", "]}, "n": 22.30}
    `1   2  `2  `2  2     structure: depth outside of strings; a member ends at a comma or brace of the top level
      -> doc: {"a": [1, ", "]}      n: 22.30

A whole slice of payloads is looked at as one array of bytes: quotes that are not escaped tell what is inside of a
string, brackets outside of strings tell the depth. It relies on the payloads being JSON, which the caller's parser
checks on the same bytes; whatever is spelled unusually raises Irregular.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.pieces import pieces
from frazil.sources.cockroachdb.decode.exact_json import quote

DEPTH_MAX = 64  # deeper values are left to the exact road, which knows its own bound
_QUOTE, _OPEN, _CLOSE, _COMMA, _COLON = 1, 2, 3, 4, 5
_KIND = np.zeros(256, dtype=np.uint8)
_STEP = np.zeros(6, dtype=np.int8)
for _text, _kind in (('"', _QUOTE), ("{[", _OPEN), ("}]", _CLOSE), (",", _COMMA), (":", _COLON)):
    _KIND[[ord(_char) for _char in _text]] = _kind
_STEP[_OPEN], _STEP[_CLOSE] = 1, -1
_TABLE = _KIND.tobytes()  # bytes.translate is several times as fast as an indexed look into the array
_BACKSLASH = ord("\\")
_NULL = b"null"


class Irregular(Exception):
    """The payloads are not spelled as expected."""


@dataclass(frozen=True, slots=True)
class Members:
    """Where the known members of each row lie: by name the rows that have it, and the borders of its values."""

    buffer: Any
    rows: int
    places: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]

    def has(self, name: str) -> np.ndarray:
        """Which rows have the member, be it null."""
        mask = np.zeros(self.rows, dtype=bool)
        mask[self.places[name][0]] = True
        return mask

    def raw(self, name: str) -> pa.StringArray:
        """The text of the member in each row; null where it is absent or JSON's null."""
        rows, starts, ends = self.places[name]
        found = pieces(self.buffer, starts, ends, pa.string())
        if len(rows) != self.rows:
            at = np.full(self.rows, -1, dtype=np.int64)
            at[rows] = np.arange(len(rows))
            found = found.take(pa.array(at, mask=at < 0))
        return pc.if_else(pc.equal(found, "null"), pa.scalar(None, pa.string()), found)


def scan(buffer: Any, starts: np.ndarray, names: Sequence[str]) -> Members:
    """The members of the objects that begin at `starts` in a buffer of valid UTF-8.

    Raises Irregular for names that are not known and not null, names that appear twice in one object at any depth,
    and objects that do not begin where they should.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    at, kinds = _outside_of_strings(data)
    depths = np.cumsum(_STEP[kinds], dtype=np.int32)
    if not len(at) or depths[-1] != 0 or depths.max() > DEPTH_MAX:
        raise Irregular
    nested_colons = np.flatnonzero((kinds == _COLON) & (depths > 1))
    if len(nested_colons):
        _refuse_twice(buffer, at, kinds, depths, nested_colons)
    top = np.flatnonzero(((depths == 1) & (kinds != _QUOTE) & (kinds != _CLOSE)) | ((depths == 0) & (kinds == _CLOSE)))
    top_kinds, top_at = kinds[top], at[top]
    opens = top_kinds == _OPEN
    if not np.array_equal(top_at[opens], starts):
        raise Irregular
    colons = np.flatnonzero(top_kinds == _COLON)
    rows = (np.cumsum(opens) - 1)[colons]
    colon_at, end_at = top_at[colons], top_at[colons + 1]
    value_at = colon_at + 1 + (data[colon_at + 1] == ord(" "))
    if not (data[colon_at - 1] == ord('"')).all():
        raise Irregular
    places: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    unknown = np.ones(len(colons), dtype=bool)
    for name in names:
        mine = _named(data, colon_at, quote(name).encode("utf-8"))
        if (np.diff(rows[mine]) <= 0).any():
            raise Irregular
        unknown[mine] = False
        places[name] = (rows[mine], value_at[mine], end_at[mine])
    if unknown.any():
        _accept_nulls(buffer, data, at, top[colons[unknown]], rows[unknown], value_at[unknown], end_at[unknown])
    return Members(buffer, len(starts), places)


def _outside_of_strings(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places and kinds of the structure: quotes, and what lies between strings."""
    everywhere = np.frombuffer(data.tobytes().translate(_TABLE), dtype=np.uint8)
    at = np.flatnonzero(everywhere != 0)
    kinds = everywhere[at]
    quotes = kinds == _QUOTE
    places = np.flatnonzero(quotes)
    suspects = places[data[np.maximum(at[places] - 1, 0)] == _BACKSLASH]
    if len(suspects):
        quotes[suspects[_odd_backslashes(data, at[suspects])]] = False
    inside = np.logical_xor.accumulate(quotes)
    kept = np.flatnonzero(quotes | ~inside)
    return at[kept], kinds[kept]


def _odd_backslashes(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Which quotes have an odd number of backslashes in front of them, and so are text."""
    odd = np.zeros(len(places), dtype=bool)
    going = np.arange(len(places))
    back = 1
    while len(going):
        going = going[places[going] >= back]
        going = going[data[places[going] - back] == _BACKSLASH]
        odd[going] = back % 2 == 1
        back += 1
    return odd


def _named(data: np.ndarray, colons: np.ndarray, name: bytes) -> np.ndarray:
    """Which of these colons follow exactly this name."""
    found = np.flatnonzero(colons > len(name))
    # The last characters tell most names apart; then the whole, and that nothing but the string begins there.
    for back, char in enumerate(reversed(name), start=1):
        found = found[data[colons[found] - back] == char]
    before = data[colons[found] - len(name) - 1]
    alone: np.ndarray = found[(before == ord("{")) | (before == ord(" ")) | (before == ord(","))]
    return alone


def _accept_nulls(
    buffer: Any,
    data: np.ndarray,
    at: np.ndarray,
    colons: np.ndarray,
    rows: np.ndarray,
    value_at: np.ndarray,
    end_at: np.ndarray,
) -> None:
    """A column of nulls that the table does not have is no column yet."""
    if (end_at - value_at != len(_NULL)).any():
        raise Irregular
    for i, char in enumerate(_NULL):
        if (data[value_at + i] != char).any():
            raise Irregular
    names = pieces(buffer, at[colons - 2], at[colons], pa.string())
    if pc.any(pc.match_substring(names, "\\")).as_py() or _repeats(rows, names):
        raise Irregular


def _refuse_twice(buffer: Any, at: np.ndarray, kinds: np.ndarray, depths: np.ndarray, colons: np.ndarray) -> None:
    """A colon is preceded by the two quotes of its name. Names with escapes are left to those who unescape them."""
    objects = np.zeros(len(colons), dtype=np.int64)
    depth_of = depths[colons]
    before = 0
    for depth in range(2, int(depth_of.max()) + 1):
        here = np.flatnonzero((depths == depth) & ((kinds == _OPEN) | (kinds == _COLON)))
        opened = np.cumsum(kinds[here] == _OPEN)
        objects[depth_of == depth] = before + opened[kinds[here] == _COLON]
        before += int(opened[-1]) + 1
    if _repeats(objects, pieces(buffer, at[colons - 2], at[colons], pa.string())):
        raise Irregular


def _repeats(owners: np.ndarray, names: pa.StringArray) -> bool:
    codes = names.dictionary_encode()
    pairs = owners * len(codes.dictionary) + codes.indices.to_numpy()
    pairs.sort()
    return bool((np.diff(pairs) == 0).any())
