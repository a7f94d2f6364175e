"""The fast road for lines of the wrapped envelope: a block of lines to columns, without parsing JSON.

    {"after": {"id": 7, ...}, "key": [7], "updated": "1701102296662969433.0000000000"}
    `prefix--'`---- payload ---'       `key'`---------------- suffix -----------------'

CockroachDB prints the fields of a message in one order, and one file has one set of options and one topic. So
the suffix of every line has the length of the first line's and differs only in digits, and the last `, "key": [`
of a line is the message's own: quotes inside of strings are escaped, and no object follows it. Whatever looks
different in any way is left to the exact road. A payload is cut out, not parsed: the decoder does that once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import BadInput
from frazil.model.position import LOGICAL_MAX, Hlc
from frazil.sources.cockroachdb.envelope import NoKey
from frazil.sources.cockroachdb.exact import NotJson, fields, loads
from frazil.sources.cockroachdb.keys import KeyChanged, KeyRule

_PREFIX = b'{"after": '
_KEY = b', "key": '
_BEFORE = b', "before": '
_STAMPS = re.compile(rb'"(mvcc_timestamp|updated)": "(\d{19}\.\d{10})"')
_WALL_POWERS = 10 ** np.arange(18, -1, -1, dtype=np.int64)
_LOGICAL_POWERS = 10 ** np.arange(9, -1, -1, dtype=np.int64)
_DOT = 19


@dataclass(frozen=True, slots=True)
class Template:
    """What follows the key in every line of a file. `digits` are the places in `suffix` where lines differ;
    `updated` is where the commit time starts, None if the file has none and `position` stands for it."""

    suffix: bytes
    digits: tuple[int, ...]
    updated: int | None
    position: Hlc | None
    has_before: bool


@dataclass(frozen=True, slots=True)
class Columns:
    """Lines that took the fast road. A null payload is a delete. `befores` is None if they were not wanted, or if the
    lines do not tell. `rest` holds (line, start, end) of the others."""

    keys: pa.StringArray
    majors: np.ndarray
    minors: np.ndarray
    payloads: pa.BinaryArray
    befores: pa.BinaryArray | None
    rest: tuple[tuple[int, int, int], ...]
    lines: int


def template_of(line: bytes, position: Hlc | None) -> Template | None:
    """None if lines like this one must take the exact road."""
    at = line.rfind(_KEY + b"[")
    if not line.startswith(_PREFIX) or at < 0:
        return None
    try:
        found = fields(line.decode("utf-8"))
    except (NotJson, UnicodeDecodeError):
        return None
    if list(found) != sorted(found) or not {"after", "key"} <= set(found) <= {
        "after",
        "before",
        "key",
        "mvcc_timestamp",
        "topic",
        "updated",
    }:
        return None
    key = found["key"][1].encode("utf-8")
    start = at + len(_KEY)
    if line[start : start + len(key)] != key:
        return None
    suffix = line[start + len(key) :].rstrip(b"\r\n")
    stamps = {match[1]: match.start(2) for match in _STAMPS.finditer(suffix)}
    if len(stamps) != sum(name in found for name in ("mvcc_timestamp", "updated")):
        return None
    updated = stamps.get(b"updated")
    if updated is None and position is None:
        return None
    digits = tuple(at + i for at in sorted(stamps.values()) for i in range(30) if i != _DOT)
    return Template(suffix, digits, updated, position, "before" in found)


def split(block: bytes, template: Template | None, rule: KeyRule | NoKey, wants_before: bool = False) -> Columns:
    """Cuts a block of whole lines. Without a template every line is left to the exact road."""
    data = np.frombuffer(block, dtype=np.uint8)
    newlines = np.flatnonzero(data == 10)
    ends = newlines if block.endswith(b"\n") else np.append(newlines, len(block))
    starts = np.concatenate(([0], newlines + 1))[: len(ends)]
    if template is None:
        return _none(starts, ends)
    cuts = _cut(data, starts, ends, template)
    try:
        keys, payloads, befores = _slices(block, cuts, wants_before and template.has_before)
    except pa.ArrowInvalid:  # a key that is no UTF-8: the exact road names its line
        return _none(starts, ends)
    canonical, understood = canonical_keys(keys, rule)
    if len(cuts.lines) == len(ends) and understood.all():
        return Columns(canonical, cuts.majors, cuts.minors, payloads, befores, (), len(ends))
    keep = pa.array(understood)
    missing = np.setdiff1d(np.arange(len(ends)), cuts.lines[understood], assume_unique=True)
    return Columns(
        keys=canonical.filter(keep),
        majors=cuts.majors[understood],
        minors=cuts.minors[understood],
        payloads=payloads.filter(keep),
        befores=None if befores is None else befores.filter(keep),
        rest=tuple((int(i), int(starts[i]), int(ends[i])) for i in missing),
        lines=len(ends),
    )


def canonical_keys(keys: pa.StringArray, rule: KeyRule | NoKey) -> tuple[pa.StringArray, np.ndarray]:
    """Canonical texts of key arrays, and a mask of those that could be understood."""
    understood = np.ones(len(keys), dtype=bool)
    if isinstance(rule, NoKey):
        return keys, understood
    if rule.as_written is not None and rule.after_hidden is not None:
        as_written = pc.match_substring_regex(keys, rule.as_written)
        if pc.all(as_written, min_count=0).as_py():
            return keys, understood
        hidden = pc.match_substring_regex(keys, rule.after_hidden)
        stripped = pc.replace_substring_regex(keys, rule.after_hidden, r"[\1]")
        keys = pc.if_else(as_written, keys, stripped)
        odd = np.flatnonzero(~pc.or_(as_written, hidden).to_numpy(zero_copy_only=False))
    else:
        odd = np.arange(len(keys))
    if not len(odd):
        return keys, understood
    texts = keys.to_pylist()
    for i in odd:
        try:
            texts[i] = rule.spell(rule.trailing(loads(texts[i])))
        except (BadInput, KeyChanged, NotJson):
            understood[i] = False
    return pa.array(texts, type=pa.string()), understood


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Where payloads and keys lie in the block, for the lines that look like the template."""

    lines: np.ndarray
    payload_starts: np.ndarray
    payload_ends: np.ndarray
    before_starts: np.ndarray
    key_starts: np.ndarray
    key_ends: np.ndarray
    majors: np.ndarray
    minors: np.ndarray
    deletes: np.ndarray


def _none(starts: np.ndarray, ends: np.ndarray) -> Columns:
    nothing = np.zeros(0, dtype=np.int64)
    rest = tuple((i, int(s), int(e)) for i, (s, e) in enumerate(zip(starts, ends, strict=True)))
    return Columns(pa.array([], pa.string()), nothing, nothing, pa.array([], pa.binary()), None, rest, len(ends))


def _cut(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, template: Template) -> _Cuts:
    suffix = np.frombuffer(template.suffix, dtype=np.uint8)
    shortest = len(_PREFIX) + len("null") + len(_KEY) + len("[]") + len(suffix)
    lines = np.flatnonzero(ends - starts >= shortest)
    lines, starts, ends = _narrow(_begins_with(data, starts[lines], _PREFIX), lines, starts[lines], ends[lines])
    tails = _windows(data, ends - len(suffix), len(suffix))
    digits = np.array(template.digits, dtype=np.int64)
    literal = np.setdiff1d(np.arange(len(suffix)), digits)
    ok = (tails[:, literal] == suffix[literal]).all(axis=1)
    ok &= ((tails[:, digits] - 48) < 10).all(axis=1)
    majors, minors, sane = _positions(tails, template)
    ok &= sane
    key_ends = ends - len(suffix)
    ok &= data[key_ends - 1] == ord("]")
    marks = _marks(data, b"[", _KEY)
    last = np.searchsorted(marks, key_ends) - 1
    ok &= last >= 0
    key_starts = marks[np.maximum(last, 0)] if len(marks) else np.zeros(len(lines), dtype=np.int64)
    payload_starts = starts + len(_PREFIX)
    payload_ends = before_starts = key_starts - len(_KEY)
    ok &= payload_ends >= payload_starts + len("null")
    if template.has_before:
        colons = _marks(data, b" ", _BEFORE[:-1]) - len(_BEFORE) + 1
        first, beyond = np.searchsorted(colons, payload_starts), np.searchsorted(colons, payload_ends)
        ok &= beyond - first == 1
        if len(colons):
            payload_ends = np.where(ok, colons[np.minimum(first, len(colons) - 1)], payload_ends)
            before_starts = np.where(ok, payload_ends + len(_BEFORE), before_starts)
    safe_starts = np.where(ok, payload_starts, 0)
    safe_ends = np.where(ok, payload_ends, 1)
    deletes = (safe_ends - safe_starts == 4) & (data[safe_starts] == ord("n"))
    ok &= deletes | ((data[safe_starts] == ord("{")) & (data[safe_ends - 1] == ord("}")))
    borders = (payload_starts, payload_ends, before_starts, key_starts, key_ends)
    kept = _narrow(ok, lines, *borders, majors, minors, deletes)
    return _Cuts(*kept)


def _positions(tails: np.ndarray, template: Template) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if template.updated is None:
        position = template.position or Hlc(0)
        majors = np.full(len(tails), position.wall, dtype=np.int64)
        minors = np.full(len(tails), position.logical, dtype=np.int64)
        return majors, minors, np.ones(len(tails), dtype=bool)
    at = template.updated
    wall = tails[:, at : at + _DOT].astype(np.int64) - 48
    logical = tails[:, at + _DOT + 1 : at + 30].astype(np.int64) - 48
    minors = logical @ _LOGICAL_POWERS
    return wall @ _WALL_POWERS, minors, (wall[:, 0] < 9) & (minors <= LOGICAL_MAX)


def _slices(
    block: bytes, cuts: _Cuts, wants_before: bool
) -> tuple[pa.StringArray, pa.BinaryArray, pa.BinaryArray | None]:
    """One array over the whole block, cut at every border, then only what is wanted taken from it."""
    count = len(cuts.lines)
    before_ends = cuts.key_starts - len(_KEY)
    borders = np.stack(
        [cuts.payload_starts, cuts.payload_ends, cuts.before_starts, before_ends, cuts.key_starts, cuts.key_ends],
        axis=1,
    ).ravel()
    offsets = np.concatenate(([0], borders, [len(block)])).astype(np.int32)
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(block)]
    )
    at = 6 * np.arange(count, dtype=np.int64)
    payloads = pieces.take(pa.array(at + 1, mask=cuts.deletes))
    befores = pieces.take(pa.array(at + 3)) if wants_before else None
    keys = pieces.take(pa.array(at + 5))
    return keys.cast(pa.string()), payloads, befores


def _narrow(mask: np.ndarray, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return arrays if mask.all() else tuple(array[mask] for array in arrays)


def _windows(data: np.ndarray, starts: np.ndarray, width: int) -> np.ndarray:
    if not len(starts):
        return np.zeros((0, width), dtype=np.uint8)
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(data, width)[starts]
    return windows


def _begins_with(data: np.ndarray, starts: np.ndarray, text: bytes) -> np.ndarray:
    found: np.ndarray = (_windows(data, starts, len(text)) == np.frombuffer(text, dtype=np.uint8)).all(axis=1)
    return found


def _marks(data: np.ndarray, mark: bytes, before: bytes) -> np.ndarray:
    """Places of `mark` that have `before` in front of them."""
    places = np.flatnonzero(data == mark[0])
    places = places[places >= len(before)]
    for back, char in enumerate(reversed(before), start=1):
        places = places[data[places - back] == char]
    return places
