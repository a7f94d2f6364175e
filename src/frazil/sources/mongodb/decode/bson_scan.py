"""Where the fields of many BSON documents lie: all documents are walked together, one field at a time.

    documents, one behind the other     {_id, name, total} {_id, name, total} {_id, total}
    step                                 ^~~~               ^~~~               ^~~~            _id: in all of them
                                              ^~~~~              ^~~~~                         name: in two
                                                     ^~~~~              ^~~~~       ^~~~~      total: in all

A step looks for one name in every document at once, with numpy; a document in which another field comes first waits
until that is looked for. Names that nobody asked for are stepped over and counted. What cannot be walked like that
(lengths that make no sense, fields in ever other orders) raises Uneven: then documents are decoded one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Kinds = NDArray[np.uint8]
Bits = NDArray[np.bool_]

DOUBLE, STRING, DOCUMENT, ARRAY, BINARY, OBJECT_ID, BOOLEAN, DATE = 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x08, 0x09
INT32, TIMESTAMP, INT64, DECIMAL = 0x10, 0x11, 0x12, 0x13
ABSENT = 0x00
_REGEX = 0x0B
_NO_VALUE = (ABSENT, 0x06, 0x0A, 0xFF, 0x7F)
_PASSES_MAX = 12
_STEPS_MAX = 128
_ELEMENTS_MAX = 256
_ROOM = 16
_LENGTH = struct.Struct("<i")

# By type: how long a value is beside its own length, and the least that its length may be; -1 if it tells none.
_BESIDE = np.full(256, -1, np.int64)
_LEAST = np.full(256, -1, np.int64)
for _kind, _size in {DOUBLE: 8, 0x06: 0, OBJECT_ID: 12, BOOLEAN: 1, DATE: 8, 0x0A: 0, INT32: 4, TIMESTAMP: 8}.items():
    _BESIDE[_kind] = _size
for _kind, _size in {INT64: 8, DECIMAL: 16, 0xFF: 0, 0x7F: 0}.items():
    _BESIDE[_kind] = _size
for _kind, _size, _least in ((STRING, 4, 1), (0x0D, 4, 1), (0x0E, 4, 1), (0x0C, 16, 1), (BINARY, 5, 0)):
    _BESIDE[_kind], _LEAST[_kind] = _size, _least
for _kind in (DOCUMENT, ARRAY, 0x0F):
    _BESIDE[_kind], _LEAST[_kind] = 0, 5
_HAS_VALUE = np.ones(256, np.bool_)
_HAS_VALUE[list(_NO_VALUE)] = False


def value_size(document: bytes, kind: int, at: int) -> int | None:
    """How long the value is that begins there; None if neither its type nor a length before it tells."""
    told = _LENGTH.unpack_from(document, at)[0] if _LEAST[kind] >= 0 else 0
    return None if _BESIDE[kind] < 0 else int(_BESIDE[kind]) + told


class Uneven(Exception):
    """These documents cannot be walked together."""


class Bytes:
    """BSON in memory, of which any place can be read as a number, of many places at once."""

    def __init__(self, data: bytes | NDArray[np.uint8]) -> None:
        self.size = len(data)
        # With room behind it, so that a number can be read at the very last byte too.
        self.u1 = np.zeros(self.size + _ROOM, np.uint8)
        self.u1[: self.size] = np.frombuffer(data, np.uint8)
        self.i4: NDArray[np.int32] = self._read_as("<i4")
        self.i8: Ints = self._read_as("<i8")
        self.u8: NDArray[np.uint64] = self._read_as("<u8")
        self.f8: NDArray[np.float64] = self._read_as("<f8")

    def _read_as(self, kind: str) -> NDArray[Any]:
        dtype = np.dtype(kind)
        return np.ndarray((len(self.u1) - dtype.itemsize + 1,), dtype, self.u1.data, 0, (1,))

    def text(self, start: int, end: int) -> bytes:
        return self.u1[start:end].tobytes()


@dataclass(slots=True)
class Found:
    """Of each document: the type of one field's value, ABSENT if it has none, and where the value begins."""

    name: bytes
    kind: Kinds
    at: Ints

    @classmethod
    def nowhere(cls, name: bytes, count: int) -> Found:
        return cls(name, np.zeros(count, np.uint8), np.zeros(count, np.int64))

    @property
    def has_value(self) -> Bits:
        """Whether there is one that a column would show: null, undefined, MinKey and MaxKey are none."""
        return _HAS_VALUE[self.kind]

    def chosen(self, rows: Ints | Bits) -> Found:
        return Found(self.name, self.kind[rows], self.at[rows])

    def spread(self, rows: Ints, count: int) -> Found:
        """The same among more documents, of which these `rows` are those it knows."""
        wide = Found.nowhere(self.name, count)
        wide.kind[rows], wide.at[rows] = self.kind, self.at
        return wide


@dataclass(slots=True)
class Walked:
    """`fields` are those asked for, in that order. `strangers` are other names, each with the number of documents that
    have a value there."""

    fields: list[Found]
    strangers: dict[bytes, int] = field(default_factory=dict)


def walk(data: Bytes, starts: Ints, ends: Ints, names: Sequence[bytes]) -> Walked:
    """Finds fields of the documents that begin and end there. Of a name that a document has twice the last counts.
    Raises Uneven."""
    count = len(starts)
    walked = Walked([Found.nowhere(name, count) for name in names])
    if not count:
        return walked
    known = [(name, _Word.of(name), found) for name, found in zip(names, walked.fields, strict=True)]
    at = starts + 4
    waiting = np.arange(count)
    passes = steps = 0
    while passes < _PASSES_MAX and steps < _STEPS_MAX:
        moved = False
        for name, word, found in known:
            sel, places = _matching(data, waiting, at, word)
            if not len(sel):
                continue
            kinds, values = data.u1[places], places + len(name) + 2
            found.kind[sel], found.at[sel] = kinds, values
            at[sel] = _behind(data, kinds, values, ends[sel])
            moved = True
        waiting = _unfinished(data, waiting, at, ends)
        if len(waiting) and not moved:
            waiting = _step_over(data, waiting, at, ends, walked)
        if not len(waiting):
            return walked
        passes, steps = (passes + 1, steps) if moved else (passes, steps + 1)
    raise Uneven


def lengths(data: Bytes, found: Found) -> Ints:
    """How long each value is, without its type and name. Raises Uneven."""
    return _sizes(data, found.kind, found.at)


def elements(data: Bytes, arrays: Found) -> tuple[Ints, Found]:
    """Of arrays: how many elements each has, and all of them, one array's behind another's. Raises Uneven."""
    count = len(arrays.at)
    ends = arrays.at + data.i4[arrays.at].astype(np.int64)
    at = arrays.at + 4
    waiting = np.arange(count)
    rows, kinds, values = [], [], []
    for number in range(_ELEMENTS_MAX + 1):
        waiting = _unfinished(data, waiting, at, ends)
        if not len(waiting):
            break
        name = str(number).encode()
        sel, places = _matching(data, waiting, at, _Word.of(name))
        if len(sel) != len(waiting) or number == _ELEMENTS_MAX:
            raise Uneven
        own, inside = data.u1[places], places + len(name) + 2
        at[sel] = _behind(data, own, inside, ends[sel])
        rows.append(sel)
        kinds.append(own)
        values.append(inside)
    if not rows:
        return np.zeros(count, np.int64), Found.nowhere(b"", 0)
    all_rows = np.concatenate(rows)
    order = np.argsort(all_rows, kind="stable")
    flat = Found(b"", np.concatenate(kinds)[order], np.concatenate(values)[order])
    return np.bincount(all_rows, minlength=count).astype(np.int64), flat


@dataclass(frozen=True, slots=True)
class _Word:
    """A name with its end, as numbers of eight bytes each, of which the last is cut to what it has."""

    words: tuple[tuple[int, np.uint64, np.uint64], ...]

    @classmethod
    def of(cls, name: bytes) -> _Word:
        whole = name + b"\x00"
        words = []
        for offset in range(0, len(whole), 8):
            part = whole[offset : offset + 8]
            mask = (1 << 8 * len(part)) - 1
            words.append((offset + 1, np.uint64(mask), np.uint64(int.from_bytes(part, "little"))))
        return cls(tuple(words))


def _matching(data: Bytes, waiting: Ints, at: Ints, word: _Word) -> tuple[Ints, Ints]:
    """Those of the documents in which the next field has this name, and where it begins."""
    places = at[waiting]
    for offset, mask, wanted in word.words:
        # A long name may end behind the last byte: there is nothing that it could be found in.
        within = places + offset if offset <= 1 else np.minimum(places + offset, data.size)
        same = (data.u8[within] & mask) == wanted
        if not same.all():
            waiting, places = waiting[same], places[same]
            if not len(waiting):
                return waiting, places
    there = data.u1[places] != 0
    return (waiting, places) if there.all() else (waiting[there], places[there])


def _sizes(data: Bytes, kinds: Kinds, values: Ints) -> Ints:
    first = int(kinds[0]) if len(kinds) else ABSENT
    if len(kinds) and first != _REGEX and (kinds == first).all():
        if _BESIDE[first] < 0:
            raise Uneven
        if _LEAST[first] < 0:
            return np.full(len(kinds), _BESIDE[first], np.int64)
        told = data.i4[values].astype(np.int64)
        if (told < _LEAST[first]).any():
            raise Uneven
        same: Ints = told + _BESIDE[first]
        return same
    sizes = _BESIDE[kinds]
    for row in np.flatnonzero(kinds == _REGEX):
        sizes[row] = _regex_size(data, int(values[row]))
    if (sizes < 0).any():
        raise Uneven
    variable = np.flatnonzero(_LEAST[kinds] >= 0)
    if len(variable):
        told = data.i4[values[variable]].astype(np.int64)
        if (told < _LEAST[kinds[variable]]).any():
            raise Uneven
        sizes[variable] += told
    return sizes


def _regex_size(data: Bytes, at: int) -> int:
    """Two texts, each with a zero behind it."""
    end = at
    for _ in range(2):
        zeros = np.flatnonzero(data.u1[end : data.size] == 0)
        if not len(zeros):
            raise Uneven
        end += int(zeros[0]) + 1
    return end - at


def _behind(data: Bytes, kinds: Kinds, values: Ints, ends: Ints) -> Ints:
    behind = values + _sizes(data, kinds, values)
    if (behind >= ends).any():
        raise Uneven
    return behind


def _unfinished(data: Bytes, waiting: Ints, at: Ints, ends: Ints) -> Ints:
    places = at[waiting]
    done = data.u1[places] == 0
    if not done.any():
        return waiting
    if (places[done] != ends[waiting[done]] - 1).any():
        raise Uneven
    left: Ints = waiting[~done]
    return left


def _step_over(data: Bytes, waiting: Ints, at: Ints, ends: Ints, walked: Walked) -> Ints:
    """Steps over one name that nobody asked for."""
    start = int(at[waiting[0]])
    stop = start + 1 + int(np.argmax(data.u1[start + 1 : data.size] == 0))
    name = data.text(start + 1, stop)
    sel, places = _matching(data, waiting, at, _Word.of(name))
    if not len(sel):
        raise Uneven
    kinds, values = data.u1[places], places + len(name) + 2
    at[sel] = _behind(data, kinds, values, ends[sel])
    walked.strangers[name] = walked.strangers.get(name, 0) + int(_HAS_VALUE[kinds].sum())
    return _unfinished(data, waiting, at, ends)
