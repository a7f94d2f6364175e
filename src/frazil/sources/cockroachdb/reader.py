"""Reads one file of a feed in a task: bytes to travelling changes, cut into epochs, and a report.

    ndjson --lines.split--> columns ----------------------+
       `--- lines that look different --> envelope -------+--> assign(position, cut) --> batches
    csv, parquet ------> rows --> envelope's rules -------+           `-> dropped, beyond --> report (last row)

Memory is bounded by a block of lines, whatever the file's size. The cut is handed in as a function: which epoch a
position belongs to is decided in one place for all sources.

Of a table with a quarantine a line that is no change travels as what it is, a bad line. One without a commit time is
given that of its file's name: it lies behind every frontier that was published before the file was there, and at or
before every later one. So the line belongs to one epoch, however often its file is read.

A table without a key: a change travels under the feed's own key if the message has one, else under file and line, so
that a file that is read twice gives each change once. A duplicate in another file is another change then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from frazil.errors import BadInput, UnknownColumn
from frazil.model.arrow import TRAVEL
from frazil.model.change import REPORT_EPOCH, Op
from frazil.model.columns import TableShape
from frazil.model.parts import PRIMARY, part_number, primary_family
from frazil.model.ports import Cut, ReadLine, Split
from frazil.model.position import Hlc
from frazil.model.quarantine import BadLine, line_key
from frazil.sources.cockroachdb.csv_rows import csv_rows
from frazil.sources.cockroachdb.envelope import (
    BareDeletes,
    Change,
    Envelope,
    EnvelopeOptions,
    Message,
    NoKey,
    change_of,
    key_of,
    open_message,
    position_of,
)
from frazil.sources.cockroachdb.exact import dumps
from frazil.sources.cockroachdb.families import family_of
from frazil.sources.cockroachdb.keys import EXCERPT, KeyChanged, KeyRule
from frazil.sources.cockroachdb.lines import split as split_lines
from frazil.sources.cockroachdb.lines import template_of
from frazil.sources.cockroachdb.names import FeedFile, Format, parse_name
from frazil.sources.cockroachdb.parquet_rows import parquet_rows
from frazil.sources.cockroachdb.storage import BLOCK, FeedLocation, line_blocks

DROPPED, BEYOND = -1, -2
_ROWS = 20_000

Assign = Callable[[np.ndarray, np.ndarray, Cut], np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """How the files of one table are read."""

    table: str
    shape: TableShape
    options: EnvelopeOptions = field(default_factory=EnvelopeOptions)
    csv_header: bool = False
    wants_before: bool = False


@dataclass(frozen=True, slots=True)
class FeedReader:
    """`tables` are by the index that splits carry; `assign` gives each position its epoch in a cut, DROPPED
    or BEYOND. Picklable if `assign` is."""

    location: FeedLocation
    tables: Mapping[int, TableReading]
    assign: Assign
    block: int = BLOCK
    rules: dict[int, KeyRule | NoKey] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rules = {
            index: KeyRule(t.table, t.shape.key_columns) if t.shape.key else NoKey(t.table)
            for index, t in self.tables.items()
        }
        object.__setattr__(self, "rules", rules)

    def read(self, split: Split, cut: Cut) -> Iterator[pa.RecordBatch]:
        """Travel rows of one file within the cut, then its report. Raises BadInput naming file and line."""
        facts = json.loads(split.facts)
        file = parse_name(split.name, split.size)
        if not isinstance(file, FeedFile):
            raise BadInput(f"{split.name}: not a data file of a changefeed", file=split.name)
        complete_at = Hlc.parse(facts["complete_at"]) if facts.get("complete_at") else None
        reading = self.tables[split.table]
        if complete_at is not None:
            options = replace(reading.options, position_if_absent=complete_at, bare_deletes=BareDeletes.NEVER)
            reading = replace(reading, options=options)
        part = part_number(family_of(file.topic, reading.table), primary_family(reading.shape))
        count = _Count(split, cut, self.assign, complete_at, again=bool(facts.get("again")), part=part)
        for changes in self._changes(file, reading, self.rules[split.table]):
            yield from count.batch(changes)
        yield count.report()

    def reread(self, table: int, raw: bytes) -> ReadLine:
        """One raw line of a JSON feed again. Raises BadInput if it still is no change."""
        reading, rule = self.tables[table], self.rules[table]
        change = _parsed(raw, reading, rule)
        position = change.position.order
        return ReadLine(change.key, *position, change.op is Op.DELETE, change.payload, change.before)

    def _changes(self, file: FeedFile, reading: TableReading, rule: KeyRule | NoKey) -> Iterator[_Columns]:
        match file.format:
            case Format.JSON:
                return self._lines(file, reading, rule)
            case Format.CSV:
                return _chunked(self._csv(file, reading, rule))
            case Format.PARQUET:
                return _chunked(self._parquet(file, reading, rule))

    def _lines(self, file: FeedFile, reading: TableReading, rule: KeyRule | NoKey) -> Iterator[_Columns]:
        options = reading.options
        regular = options.envelope in (Envelope.AUTO, Envelope.WRAPPED)
        fast = regular and options.op_column is None and options.prev_column is None
        before = 0
        with self.location.open(file.path, file.compression) as stream:
            for block in line_blocks(stream, self.block):
                first = block[: block.find(b"\n") + 1 or len(block)]
                template = template_of(first, options.position_if_absent) if fast else None
                found = split_lines(block, template, rule, reading.wants_before)
                if len(found.keys):
                    ops = np.where(found.payloads.is_null().to_numpy(zero_copy_only=False), Op.DELETE, Op.UPSERT)
                    yield _Columns(found.keys, found.majors, found.minors, ops, found.payloads, found.befores)
                rest = (
                    _exact(block[start:end], file, before + line + 1, reading, rule) for line, start, end in found.rest
                )
                yield from _chunked((change for change in rest if change is not None), reading.wants_before)
                before += found.lines

    def _csv(self, file: FeedFile, reading: TableReading, rule: KeyRule | NoKey) -> Iterator[Change]:
        bad, on_bad = _putting_away(file, reading, rule)
        with self.location.open(file.path, file.compression) as stream:
            rows = csv_rows(stream, file.path, reading.table, reading.shape, header=reading.csv_header, on_bad=on_bad)
            for line, row in rows:
                message = Message(envelope=Envelope.WRAPPED, row=row, row_text=dumps(row))
                yield _change(message, dumps(row).encode(), file, line, reading, rule)
        yield from bad

    def _parquet(self, file: FeedFile, reading: TableReading, rule: KeyRule | NoKey) -> Iterator[Change]:
        with self.location.open(file.path) as stream:
            data = bytes(stream.read())
        hidden = {reading.options.op_column, reading.options.prev_column}
        bad, on_bad = _putting_away(file, reading, rule)
        for found in parquet_rows(data, file.path, reading.table, reading.shape, on_bad=on_bad):
            row = {name: value for name, value in found.row.items() if name not in hidden}
            known = {name: value for name, value in row.items() if name in rule.names_in_rows}
            message = Message(
                envelope=Envelope.WRAPPED,
                row=None if found.deleted else row,
                row_text=None if found.deleted else dumps(row),
                before=known if found.deleted else None,
                updated=found.updated,
            )
            yield _change(message, dumps(row).encode(), file, found.number, reading, rule)
        yield from bad


@dataclass(frozen=True, slots=True)
class _Columns:
    keys: pa.StringArray
    majors: np.ndarray
    minors: np.ndarray
    ops: np.ndarray
    payloads: pa.BinaryArray
    befores: pa.BinaryArray | None


@dataclass(slots=True)
class _Count:
    """Cuts batches and remembers what the report tells."""

    split: Split
    cut: Cut
    assign: Assign
    complete_at: Hlc | None
    again: bool
    part: int = PRIMARY
    rows: int = 0
    dropped: int = 0
    beyond: int = 0
    newest: tuple[int, int] | None = None

    def batch(self, found: _Columns) -> Iterator[pa.RecordBatch]:
        if not len(found.keys):
            return
        epochs = np.asarray(self.assign(found.majors, found.minors, self.cut))
        if self.complete_at is not None:
            # Commit times may lie beyond the name of the last file; a complete feed is one epoch all the same.
            epochs = np.where(epochs == BEYOND, len(self.cut.uppers) - 1, epochs)
        dropped, beyond = int((epochs == DROPPED).sum()), int((epochs == BEYOND).sum())
        self.dropped += dropped
        self.beyond += beyond
        self.rows += len(epochs) - dropped - beyond
        major = found.majors.max()
        newest = (int(major), int(found.minors[found.majors == major].max()))
        self.newest = newest if self.newest is None else max(self.newest, newest)
        if dropped + beyond == len(epochs):
            return
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(len(epochs), self.split.table, dtype=np.int32)),
                pa.array(epochs.astype(np.int32)),
                found.keys,
                pa.array(np.full(len(epochs), self.part, dtype=np.int32)),
                pa.array(found.majors.astype(np.int64)),
                pa.array(found.minors.astype(np.int64)),
                pa.array(found.ops.astype(np.int32)),
                found.payloads,
                pa.nulls(len(epochs), pa.binary()) if found.befores is None else found.befores,
            ],
            schema=TRAVEL,
        )
        yield batch.filter(pa.array(epochs >= 0)) if dropped + beyond else batch

    def report(self) -> pa.RecordBatch:
        newest = self.newest
        if newest is not None and self.complete_at is not None:
            newest = min(newest, self.complete_at.order)
        dropped = 0 if self.again else self.dropped
        payload = json.dumps({"rows": self.rows, "dropped": dropped, "beyond": self.beyond}).encode()
        return pa.RecordBatch.from_pylist(
            [
                {
                    "table": self.split.table,
                    "epoch": REPORT_EPOCH,
                    "key": self.split.name,
                    "part": 0,
                    "major": newest[0] if newest else None,
                    "minor": newest[1] if newest else None,
                    "op": int(Op.REPORT),
                    "payload": payload,
                }
            ],
            schema=TRAVEL,
        )


class _placed:
    """Adds file, line and an excerpt to an error of one line."""

    __slots__ = ("excerpt", "line", "path")

    def __init__(self, path: str, line: int, excerpt: str) -> None:
        self.path, self.line, self.excerpt = path, line, excerpt

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, BadInput) and "line" not in error.facts:
            shown = f" in {self.excerpt[:EXCERPT]}" if self.excerpt else ""
            facts = {**error.facts, "file": self.path, "line": self.line}
            raise type(error)(f"{self.path}:{self.line}: {error.message}{shown}", hint=error.hint, **facts) from error


def _exact(raw: bytes, file: FeedFile, line: int, reading: TableReading, rule: KeyRule | NoKey) -> Change | None:
    if not raw.strip():
        return None
    try:
        with _placed(file.path, line, repr(raw[:EXCERPT])):
            return _named(_parsed(raw, reading, rule), file, line)
    except UnknownColumn:
        raise
    except BadInput as error:
        if not reading.options.quarantine:
            raise
        return _bad_line(raw, _opened(raw, reading), error, file, line, reading, rule)


def _parsed(raw: bytes, reading: TableReading, rule: KeyRule | NoKey) -> Change:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8: {error}", table=reading.table) from error
    return change_of(open_message(text, reading.options.envelope), rule, reading.options)


def _change(
    message: Message, raw: bytes, file: FeedFile, line: int, reading: TableReading, rule: KeyRule | NoKey
) -> Change:
    """The change of a row that is no line of JSON."""
    try:
        with _placed(file.path, line, ""):
            return _named(change_of(message, rule, reading.options), file, line)
    except UnknownColumn:
        raise
    except BadInput as error:
        if not reading.options.quarantine:
            raise
        return _bad_line(raw, message, error, file, line, reading, rule)


def _putting_away(
    file: FeedFile, reading: TableReading, rule: KeyRule | NoKey
) -> tuple[list[Change], Callable[[int, str, BadInput], None] | None]:
    """Where rows go that are none, and who brings them there; nobody if they must stop the pipeline."""
    bad: list[Change] = []
    if not reading.options.quarantine:
        return bad, None
    return bad, lambda line, text, error: bad.append(_bad_line(text.encode(), None, error, file, line, reading, rule))


def _named(change: Change, file: FeedFile, line: int) -> Change:
    return change if change.key else replace(change, key=line_key(file.path, line))


def _opened(raw: bytes, reading: TableReading) -> Message | None:
    try:
        return open_message(raw.decode("utf-8"), reading.options.envelope)
    except (BadInput, UnicodeDecodeError):
        return None


def _bad_line(
    raw: bytes,
    message: Message | None,
    error: BadInput,
    file: FeedFile,
    line: int,
    reading: TableReading,
    rule: KeyRule | NoKey,
) -> Change:
    """What can still be told of a line that is no change: perhaps its key, perhaps its position."""
    position, key = None, ""
    if message is not None:
        with suppress(BadInput):
            position = position_of(message, rule, reading.options)
    if message is not None and isinstance(rule, KeyRule):
        with suppress(BadInput, KeyChanged):
            key = key_of(message, message.key, rule, deleted=message.row is None)
    facts = BadLine(
        reason=error.message,
        file=file.path,
        line=line,
        column=error.facts.get("column"),
        keyed=bool(key),
        positioned=position is not None,
    )
    at = position or reading.options.position_if_absent or file.stamp
    return Change(key or line_key(file.path, line), at, Op.BAD, raw, facts.to_bytes())


def _chunked(changes: Iterator[Change], wants_before: bool = False) -> Iterator[_Columns]:
    chunk: list[Change] = []
    for change in changes:
        chunk.append(change)
        if len(chunk) == _ROWS:
            yield _columns(chunk, wants_before)
            chunk = []
    if chunk:
        yield _columns(chunk, wants_before)


def _columns(changes: list[Change], wants_before: bool) -> _Columns:
    befores = [change.before if wants_before or change.op is Op.BAD else None for change in changes]
    return _Columns(
        pa.array([change.key for change in changes], pa.string()),
        np.array([change.position.wall for change in changes], dtype=np.int64),
        np.array([change.position.logical for change in changes], dtype=np.int64),
        np.array([change.op for change in changes], dtype=np.int32),
        pa.array([change.payload for change in changes], pa.binary()),
        pa.array(befores, pa.binary()),
    )
