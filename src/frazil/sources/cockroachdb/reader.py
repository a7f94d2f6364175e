"""Reads one file of a feed in a task: bytes to change rows, cut into epochs, and a report.

    ndjson --lines.split--> columns ----------------------+
       `--- lines that look different --> envelope -------+--> assign(position, cut) --> batches
    csv, parquet ------> rows --> envelope's rules -------+           `-> dropped, beyond --> report (last row)

Memory is bounded by a block of lines, whatever the file's size. The cut is handed in as a function: which epoch a
position belongs to is decided in one place for all sources.

Of a table with a quarantine a line that is no change travels as what it is, a bad line. One without a commit time is
given that of its file's name: it lies behind every frontier that was published before the file was there, and at or
before every later one. So the line belongs to one epoch, however often its file is read. Only of a late file the name
says the frontier's own time, and its lines lie just behind it.

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
from frazil.model.change import Op
from frazil.model.quarantine import BadLine, line_key
from frazil.model.schema import SourceSchema, part_number, primary_family
from frazil.sources.base import Cut, InputPartition, ReadLine
from frazil.sources.cockroachdb.decode.envelope import (
    BareDeletes,
    Envelope,
    EnvelopeOptions,
    FeedChange,
    Message,
    NoKey,
    change_of,
    key_of,
    open_message,
    position_of,
)
from frazil.sources.cockroachdb.decode.exact_json import Json, dumps
from frazil.sources.cockroachdb.decode.fast.lines import split as split_lines
from frazil.sources.cockroachdb.decode.fast.lines import template_of
from frazil.sources.cockroachdb.decode.formats.csv_rows import csv_rows
from frazil.sources.cockroachdb.decode.formats.parquet_rows import parquet_rows
from frazil.sources.cockroachdb.decode.keys import KeyRule
from frazil.sources.cockroachdb.decode.placing import placed, text_of
from frazil.sources.cockroachdb.feed.file_names import FeedFile, Format, parse_name
from frazil.sources.cockroachdb.feed.location import BLOCK, FeedLocation, line_blocks
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.schema.families import family_of
from frazil.sources.cutting_reader import PartitionCutter, ReadChanges
from frazil.sources.net import netted, of_table

_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """How the files of one table are read."""

    table: str
    source_schema: SourceSchema
    options: EnvelopeOptions = field(default_factory=EnvelopeOptions)
    csv_header: bool = False
    wants_before: bool = False


@dataclass(frozen=True, slots=True)
class FeedReader:
    """`tables` are by the index that partitions carry. Picklable."""

    location: FeedLocation
    tables: Mapping[int, TableReading]
    block: int = BLOCK
    rules: dict[int, KeyRule | NoKey] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rules = {
            index: KeyRule(t.table, t.source_schema.key_columns) if t.source_schema.key else NoKey(t.table)
            for index, t in self.tables.items()
        }
        object.__setattr__(self, "rules", rules)

    def read(self, partition: InputPartition, cut: Cut) -> Iterator[pa.RecordBatch]:
        """Change rows of one file within the cut, then its report. Raises BadInput naming file and line."""
        facts = json.loads(partition.facts)
        file = parse_name(partition.name, partition.size)
        if not isinstance(file, FeedFile):
            raise BadInput(f"{partition.name}: not a data file of a changefeed", file=partition.name)
        complete_at = Hlc.parse(facts["complete_at"]) if facts.get("complete_at") else None
        reading = self.tables[partition.table]
        if complete_at is not None:
            options = replace(reading.options, position_if_absent=complete_at, bare_deletes=BareDeletes.NEVER)
            reading = replace(reading, options=options)
        part = part_number(family_of(file.topic, reading.table), primary_family(reading.source_schema))
        cutter, scanned = PartitionCutter(partition, cut, part=part, ends=complete_at), 0
        with of_table(reading.table):
            moved = replace(file, stamp=file.stamp.next()) if facts.get("late") else file
            of_file = _FileRows(self.location, self.block, moved, reading, self.rules[partition.table])
            for changes in of_file.changes():
                scanned += _scanned(changes, file.stamp)
                if (rows := cutter.take(changes)) is not None:
                    yield rows
        # What is read again was counted before.
        yield cutter.report(scanned=scanned or None, dropped=0 if facts.get("again") else None)

    def reread(self, table: int, raw: bytes) -> ReadLine:
        """One raw line of a JSON feed again. Raises BadInput if it still is no change."""
        reading, rule = self.tables[table], self.rules[table]
        with netted("cannot be read", table=reading.table):
            change = change_of(open_message(text_of(raw), reading.options.envelope), rule, reading.options)
        position = change.position.order
        return ReadLine(change.key, *position, change.op is Op.DELETE, change.payload, change.before)


@dataclass(frozen=True, slots=True)
class _FileRows:
    """One file, read as its table wants it."""

    location: FeedLocation
    block: int
    file: FeedFile
    reading: TableReading
    rule: KeyRule | NoKey

    def changes(self) -> Iterator[ReadChanges]:
        match self.file.format:
            case Format.JSON:
                return self._lines()
            case Format.CSV:
                return _chunked(self._csv())
            case Format.PARQUET:
                return _chunked(self._parquet())

    def _lines(self) -> Iterator[ReadChanges]:
        options, wants_before = self.reading.options, self.reading.wants_before
        regular = options.envelope in (Envelope.AUTO, Envelope.WRAPPED)
        fast = regular and options.op_column is None and options.prev_column is None
        before = 0
        with self.location.open(self.file.path, self.file.compression) as stream:
            for block in line_blocks(stream, self.block):
                first = block[: block.find(b"\n") + 1 or len(block)]
                template = template_of(first, options.position_if_absent) if fast else None
                found = split_lines(block, template, self.rule, wants_before)
                if len(found.keys):
                    ops = np.where(found.payloads.is_null().to_numpy(zero_copy_only=False), Op.DELETE, Op.UPSERT)
                    lines = pa.array(found.places + before + 1, pa.int64())
                    yield ReadChanges(found.keys, found.majors, found.minors, ops, found.payloads, found.befores, lines)
                rest = ((before + line + 1, block[start:end]) for line, start, end in found.rest)
                yield from _chunked((self._line(line, raw) for line, raw in rest if raw.strip()), wants_before)
                before += found.lines

    def _csv(self) -> Iterator[FeedChange]:
        file, reading, bad = self.file, self.reading, list[FeedChange]()
        with self.location.open(file.path, file.compression) as stream:
            rows = csv_rows(
                stream, file.path, reading.table, reading.source_schema, header=reading.csv_header, on_bad=self._to(bad)
            )
            for line, row in rows:
                yield self._row(line, row, Message(envelope=Envelope.WRAPPED, row=row, row_text=dumps(row)))
        yield from bad

    def _parquet(self) -> Iterator[FeedChange]:
        reading, bad = self.reading, list[FeedChange]()
        with self.location.open(self.file.path) as stream:
            data = bytes(stream.read())
        hidden = {reading.options.op_column, reading.options.prev_column}
        rows = parquet_rows(data, self.file.path, reading.table, reading.source_schema, on_bad=self._to(bad))
        for found in rows:
            row = {name: value for name, value in found.row.items() if name not in hidden}
            known = {name: value for name, value in row.items() if name in self.rule.names_in_rows}
            message = Message(
                envelope=Envelope.WRAPPED,
                row=None if found.deleted else row,
                row_text=None if found.deleted else dumps(row),
                before=known if found.deleted else None,
                updated=found.updated,
            )
            yield self._row(found.number, row, message)
        yield from bad

    def _line(self, line: int, raw: bytes) -> FeedChange:
        return self._change(line, raw, lambda: open_message(text_of(raw), self.reading.options.envelope), excerpt=raw)

    def _row(self, line: int, row: Mapping[str, Json], message: Message) -> FeedChange:
        """The change of a row that is no line of JSON."""
        return self._change(line, dumps(row).encode(), lambda: message)

    def _change(self, line: int, raw: bytes, opened: Callable[[], Message], excerpt: bytes = b"") -> FeedChange:
        message = None
        try:
            with placed(self.file.path, line, excerpt):
                message = opened()
                change = change_of(message, self.rule, self.reading.options)
                return replace(change, key=change.key or line_key(self.file.path, line), line=line)
        except UnknownColumn:
            raise
        except BadInput as error:
            if not self.reading.options.quarantine:
                raise
            return self._bad(line, raw, message, error)

    def _to(self, bad: list[FeedChange]) -> Callable[[int, str, BadInput], None] | None:
        """Who brings rows there that are none; nobody if they must stop the pipeline."""
        if not self.reading.options.quarantine:
            return None
        return lambda line, text, error: bad.append(self._bad(line, text.encode(), None, error))

    def _bad(self, line: int, raw: bytes, message: Message | None, error: BadInput) -> FeedChange:
        """What can still be told of a line that is no change: perhaps its key, perhaps its position."""
        position, key, options = None, "", self.reading.options
        if message is not None:
            with suppress(Exception):
                position = position_of(message, self.rule, options)
            if isinstance(self.rule, KeyRule):
                with suppress(Exception):
                    key = key_of(message, message.key, self.rule, deleted=message.row is None)
        facts = BadLine(
            reason=error.message,
            file=self.file.path,
            line=line,
            column=error.facts.get("column"),
            keyed=bool(key),
            positioned=position is not None,
        )
        at = position or options.position_if_absent or self.file.stamp
        return FeedChange(key or line_key(self.file.path, line), at, Op.BAD, raw, facts.to_bytes())


def _scanned(changes: ReadChanges, begins: Hlc) -> int:
    """How many rows lie at the very stamp of their file, as those of a scan do; a bad line may have no other moment."""
    at_begin = (changes.majors == begins.wall) & (changes.minors == begins.logical)
    return int((at_begin & (changes.ops == Op.UPSERT)).sum())


def _chunked(changes: Iterator[FeedChange], wants_before: bool = False) -> Iterator[ReadChanges]:
    chunk: list[FeedChange] = []
    for change in changes:
        chunk.append(change)
        if len(chunk) == _ROWS:
            yield _columns(chunk, wants_before)
            chunk = []
    if chunk:
        yield _columns(chunk, wants_before)


def _columns(changes: list[FeedChange], wants_before: bool) -> ReadChanges:
    befores = [change.before if wants_before or change.op is Op.BAD else None for change in changes]
    return ReadChanges(
        pa.array([change.key for change in changes], pa.string()),
        np.array([change.position.wall for change in changes], dtype=np.int64),
        np.array([change.position.logical for change in changes], dtype=np.int64),
        np.array([change.op for change in changes], dtype=np.int32),
        pa.array([change.payload for change in changes], pa.binary()),
        pa.array(befores, pa.binary()),
        pa.array([change.line for change in changes], pa.int64()),
    )
