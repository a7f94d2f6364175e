"""Builds feeds on disk as CockroachDB would write them, and reads them through the source."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from frazil.model.change import REPORT_EPOCH, Op, PartitionReport
from frazil.model.frontier import Frontier, Window
from frazil.model.position import Position
from frazil.model.schema import SourceSchema
from frazil.sources.cockroachdb.beginning import FeedMemory
from frazil.sources.cockroachdb.decode.decoder import DecodedTable, FeedDecoder
from frazil.sources.cockroachdb.decode.exact_json import dumps, loads
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.latecomers import Latecomers
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.resume_state import Notes
from frazil.sources.cockroachdb.schema.types import column
from frazil.sources.cockroachdb.source import CloudFeed, TableSettings
from frazil.sources.cutting_reader import cut_of

BASE = 1_700_000_000_000_000_000


def at(second: int, logical: int = 0, nanos: int = 0) -> Hlc:
    return Hlc(BASE + second * 1_000_000_000 + nanos, logical)


def source_schema(key: Iterable[str] = ("a",), **columns: str) -> SourceSchema:
    given = columns or {"a": "INT8", "b": "STRING"}
    return SourceSchema(
        tuple(column(name, text, "configuration") for name, text in given.items()), tuple(key), "configuration"
    )


def upsert(key: list[Any], updated: Hlc, **row: Any) -> str:
    after = dumps({name: _json(row[name]) for name in sorted(row)})
    return f'{{"after": {after}, "key": {dumps(_json(key))}, "updated": "{updated}"}}'


def delete(key: list[Any], updated: Hlc) -> str:
    return f'{{"after": null, "key": {dumps(_json(key))}, "updated": "{updated}"}}'


def _json(value: Any) -> Any:
    return loads(json.dumps(value))


@dataclass
class Feed:
    root: Path
    layout: str = "daily"
    files: list[str] = field(default_factory=list)

    def data(
        self,
        stamp: Hlc,
        lines: Iterable[str] | bytes,
        *,
        topic: str = "t",
        session: str = "a" * 16,
        schema: str = "1",
        extension: str = "ndjson",
        number: int = 0,
        writer: str = "1-1",
    ) -> str:
        body = lines if isinstance(lines, bytes) else "".join(line + "\n" for line in lines).encode()
        if extension.endswith(".gz"):
            body = gzip.compress(body)
        if extension.endswith(".zst"):
            body = pa.compress(body, codec="zstd", asbytes=True)
        return self._put(
            f"{stamp.file_stamp}-{session}-{writer}-{number:08x}-{topic}-{schema}.{extension}", stamp, body
        )

    def resolved(self, stamp: Hlc) -> str:
        return self._put(f"{stamp.file_stamp}.RESOLVED", stamp, f'{{"resolved":"{stamp}"}}'.encode())

    def _put(self, name: str, stamp: Hlc, body: bytes) -> str:
        day = f"{name[:4]}-{name[4:6]}-{name[6:8]}/"
        folder = {"flat": "", "daily": day, "hourly": f"{day}{name[8:10]}/"}[self.layout]
        path = self.root / (folder + name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        self.files.append(folder + name)
        return folder + name


class Register:
    """Keeps a text, as the register of pipelines does."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.kept: list[str] = []

    def recall(self) -> str:
        return self.text

    def keep(self, text: str) -> None:
        self.text = text
        self.kept.append(text)


@dataclass
class Pipeline:
    """Reads a feed window by window and keeps the tables, as the daemon and the lake would."""

    feed: Feed
    schemas: Mapping[str, SourceSchema]
    settings: Mapping[str, TableSettings] = field(default_factory=dict)
    complete: bool = False
    frontiers: dict[str, Frontier | None] = field(default_factory=dict)
    latecomers: Latecomers | None = None
    memory: FeedMemory | None = None
    state: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    published: list[Position] = field(default_factory=list)
    reports: list[PartitionReport] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.frontiers = {table: self.frontiers.get(table) for table in self.schemas}
        self.state = {table: {} for table in self.schemas}
        self.restart()

    def restart(self) -> None:
        location = FeedLocation(str(self.feed.root))
        self.source = CloudFeed(
            location, tables=self.settings, complete=self.complete, latecomers=self.latecomers, memory=self.memory
        )
        self.source.initial(self.frontiers)

    def drain(self, one_window: bool = False) -> list[Position]:
        uppers = self.source.latest()
        windows = [Window(uppers)] if one_window and uppers else [Window((upper,)) for upper in uppers]
        for window in windows:
            self._publish(window)
        return list(uppers)

    def rows(self, table: str = "t") -> list[dict[str, Any]]:
        return [row for _, row in sorted(self.state[table].items())]

    def carried(self, table: str = "t") -> list[str]:
        """Files that the frontier's notes name."""
        frontier = self.frontiers[table]
        return [] if frontier is None else list(Notes.parse(frontier.notes).carried)

    def _publish(self, window: Window) -> None:
        index = {table: i for i, table in enumerate(self.schemas)}
        partitions = self.source.partitions(window, self.frontiers, index)
        reader = self.source.reader(index, self.schemas)
        newest: dict[tuple[str, int, str], tuple[Any, ...]] = {}
        reports = []
        for partition in partitions:
            table = next(name for name, i in index.items() if i == partition.table)
            frontier = self.frontiers[table]
            self.read.append(partition.name)
            for batch in reader.read(partition, cut_of(window, frontier.position if frontier else None)):
                for row in batch.to_pylist():
                    if row["epoch"] == REPORT_EPOCH:
                        counts = loads(row["payload"])
                        position = None if row["major"] is None else Hlc(row["major"], row["minor"])
                        reports.append(
                            PartitionReport(
                                partition.table,
                                row["key"],
                                int(counts["rows"]),
                                int(counts["dropped"]),
                                position,
                                scanned=int(counts.get("scanned", 0)),
                            )
                        )
                        continue
                    if row["op"] == Op.BAD:
                        continue
                    place = (table, row["epoch"], row["key"])
                    version = (row["major"], row["minor"], row["op"], row["payload"])
                    newest[place] = max(newest.get(place, version), version, key=lambda v: v[:3])
        for (table, _, key), (_, _, op, payload) in sorted(newest.items(), key=lambda item: item[0]):
            if op == Op.DELETE:
                self.state[table].pop(key, None)
            else:
                self.state[table][key] = decoded(table, self.schemas[table], key, payload)
        with_rows = {report.table for report in reports if report.rows}
        self.frontiers = {
            table: Frontier(window.upper, self.source.resume_state(table, window.upper, reports))
            if self.frontiers[table] is not None or index[table] in with_rows
            else None
            for table in self.schemas
        }
        self.reports += reports
        self.published += window.uppers
        self.source.commit(window.upper)


def decoded(table: str, its_shape: SourceSchema, key: str, payload: bytes) -> dict[str, Any]:
    decoder = FeedDecoder({0: DecodedTable(table, its_shape)})
    (row,) = decoder.rows(0, pa.array([key]), pa.array([payload], pa.binary())).to_pylist()
    return dict(row)
