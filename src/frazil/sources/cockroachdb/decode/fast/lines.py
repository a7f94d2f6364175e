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

from frazil.data.pieces import pieces
from frazil.sources.cockroachdb.decode.envelope import NoKey
from frazil.sources.cockroachdb.decode.exact_json import NotJson, fields, loads
from frazil.sources.cockroachdb.decode.fast.byte_words import ByteWords
from frazil.sources.cockroachdb.decode.keys import KeyRule
from frazil.sources.cockroachdb.position import LOGICAL_MAX, Hlc

_PREFIX = b'{"after": '
_KEY = b', "key": '
_BEFORE = b', "before": '
_STAMPS = re.compile(rb'"(mvcc_timestamp|updated)": "(\d{19}\.\d{10})"')
_DOT, _STAMP = 19, 30
_WALL_END = 9 * 10**18
"""Beyond it a number of nineteen digits may not fit into 64 bits with a sign."""


@dataclass(frozen=True, slots=True)
class Template:
    """What follows the key in every line of a file. Lines differ in it in `stamps`, which begin at these places;
    `updated` is the one that is the commit time, None if the file has none and `position` stands for it."""

    suffix: bytes
    stamps: tuple[int, ...]
    updated: int | None
    position: Hlc | None
    has_before: bool

    @property
    def literals(self) -> list[tuple[int, bytes]]:
        """What lines have in common, each with its place."""
        borders = [0, *(border for at in self.stamps for border in (at, at + _DOT, at + _DOT + 1, at + _STAMP))]
        spans = zip(borders[::2], [*borders[1::2], len(self.suffix)], strict=True)
        return [(start, self.suffix[start:end]) for start, end in spans if start < end]


@dataclass(frozen=True, slots=True)
class Columns:
    """Lines that took the fast road. A null payload is a delete. `befores` is None if they were not wanted, or if the
    lines do not tell. `rest` holds (line, start, end) of the others, `places` the lines of the block that these are."""

    keys: pa.StringArray
    majors: np.ndarray
    minors: np.ndarray
    payloads: pa.BinaryArray
    befores: pa.BinaryArray | None
    rest: tuple[tuple[int, int, int], ...]
    lines: int
    places: np.ndarray


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
    return Template(suffix, tuple(sorted(stamps.values())), updated, position, "before" in found)


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
        return Columns(canonical, cuts.majors, cuts.minors, payloads, befores, (), len(ends), cuts.lines)
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
        places=cuts.lines[understood],
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
        except Exception:  # whatever it is, the exact road names the line
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
    keys, payloads = pa.array([], pa.string()), pa.array([], pa.binary())
    return Columns(keys, nothing, nothing, payloads, None, rest, len(ends), nothing)


def _cut(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, template: Template) -> _Cuts:
    text, suffix = ByteWords.of(data), template.suffix
    shortest = len(_PREFIX) + len("null") + len(_KEY) + len("[]") + len(suffix)
    lines = np.flatnonzero(ends - starts >= shortest)
    starts, ends = starts[lines], ends[lines]
    ok = text.has(starts, _PREFIX)
    tails = ends - len(suffix)
    for at, literal in template.literals:
        ok &= text.has(tails + at, literal)
    majors, minors, sane = _positions(text, tails, template)
    ok &= sane
    key_ends = ends - len(suffix)
    ok &= data[key_ends - 1] == ord("]")
    marks = text.behind(ord("["), _KEY)
    last = np.searchsorted(marks, key_ends) - 1
    ok &= last >= 0
    key_starts = marks[np.maximum(last, 0)] if len(marks) else np.zeros(len(lines), dtype=np.int64)
    payload_starts = starts + len(_PREFIX)
    payload_ends = before_starts = key_starts - len(_KEY)
    ok &= payload_ends >= payload_starts + len("null")
    if template.has_before:
        colons = text.behind(ord(" "), _BEFORE[:-1]) - len(_BEFORE) + 1
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


def _positions(text: ByteWords, tails: np.ndarray, template: Template) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    fixed = template.position or Hlc(0)
    majors = np.full(len(tails), fixed.wall, dtype=np.int64)
    minors = np.full(len(tails), fixed.logical, dtype=np.int64)
    sane = np.ones(len(tails), dtype=bool)
    for at in template.stamps:
        wall, is_wall = text.number(tails + at, _DOT)
        logical, is_logical = text.number(tails + at + _DOT + 1, _STAMP - _DOT - 1)
        sane &= is_wall & is_logical
        if at == template.updated:
            sane &= (wall < _WALL_END) & (logical <= LOGICAL_MAX)
            majors, minors = wall.astype(np.int64), logical.astype(np.int64)
    return majors, minors, sane


def _slices(
    block: bytes, cuts: _Cuts, wants_before: bool
) -> tuple[pa.StringArray, pa.BinaryArray, pa.BinaryArray | None]:
    keys = pieces(block, cuts.key_starts, cuts.key_ends).cast(pa.string())
    payloads = pieces(block, cuts.payload_starts, cuts.payload_ends, nulls=cuts.deletes)
    befores = pieces(block, cuts.before_starts, cuts.key_starts - len(_KEY)) if wants_before else None
    return keys, payloads, befores


def _narrow(mask: np.ndarray, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return arrays if mask.all() else tuple(array[mask] for array in arrays)
