"""The toy source: it reads its journal from the start each time."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.model.change import Op, PartitionReport
from frazil.model.frontier import Frontier, Window
from frazil.model.position import Position, is_before
from frazil.model.schema import LONG, STRING, Column, KnownTable, SourceSchema, part_without
from frazil.sources.base import Cut, InputPartition, SourceTable
from frazil.sources.cutting_reader import PartitionCutter, ReadChanges
from frazil.sources.registry import PipelineFacts
from toy_source.kind import Tick, ToyConfig

SCHEMA = SourceSchema(
    columns=(
        Column("id", LONG, "long", "journal", required=True),
        Column("name", STRING, "string", "journal"),
        Column("note", STRING, "string", "journal"),
    ),
    key=("id",),
    key_origin="journal",
    leaves_out=True,
)
Line = Mapping[str, Any]
CELLS = ("name", "note")


def open_source(config: ToyConfig, facts: PipelineFacts) -> Journal:
    return Journal(config.journal, config.shout)


def left_out(line: Line) -> list[str]:
    """The cells that a change came without."""
    return [name for name in CELLS if line["op"] == "set" and name not in line["row"]]


def lines_of(path: str) -> list[Line]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


class Journal:
    def __init__(self, path: str, shouts: bool) -> None:
        self._path, self._shouts = path, shouts
        self._reached: Position | None = None

    @property
    def incarnation(self) -> str:
        return f"toy:{self._path}"

    def tables(self) -> Sequence[SourceTable]:
        return [
            SourceTable(name) for name in sorted({line["table"] for line in lines_of(self._path) if "table" in line})
        ]

    def for_tables(self, tables: Collection[str]) -> Journal:
        return Journal(self._path, self._shouts)

    def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
        known = [frontier.position for frontier in frontiers.values() if frontier is not None]
        self._reached = min(known, key=lambda at: at.order) if known and len(known) == len(frontiers) else None

    def latest(self) -> tuple[Position, ...]:
        told = [Tick(line["tick"]) for line in lines_of(self._path) if line["op"] == "resolved"]
        return tuple(tick for tick in told if is_before(self._reached, tick))

    @property
    def is_caught_up(self) -> bool:
        return True

    def partitions(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[InputPartition]:
        self._reached = window.upper
        return [InputPartition(number, name, "{}", 100) for name, number in index.items()]

    def resume_state(self, table: str, upper: Position, reports: Sequence[PartitionReport]) -> str:
        return ""

    def commit(self, published: Position) -> None: ...

    def stop(self) -> None: ...

    def schemas(
        self,
        partitions: Sequence[InputPartition],
        targets: Mapping[str, KnownTable],
        *,
        look: bool = False,
        ask: bool = False,
    ) -> Mapping[str, SourceSchema]:
        return {partition.name: SCHEMA for partition in partitions}

    def schema_changed(self, table: str, partitions: Sequence[InputPartition]) -> bool:
        return False

    def preview(self, table: str, target: KnownTable | None) -> SourceSchema:
        return SCHEMA

    def reader(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> JournalReader:
        return JournalReader(self._path)

    def decoder(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> JournalDecoder:
        return JournalDecoder(self._shouts)


@dataclass(frozen=True, slots=True)
class JournalReader:
    path: str

    def read(self, partition: InputPartition, cut: Cut) -> Iterator[pa.RecordBatch]:
        cutter = PartitionCutter(partition, cut)
        own = [line for line in lines_of(self.path) if line.get("table") == partition.name]
        rows = cutter.take(
            ReadChanges(
                keys=pa.array([str(line["id"]) for line in own], pa.string()),
                majors=np.array([line["tick"] for line in own], np.int64),
                minors=np.zeros(len(own), np.int64),
                ops=np.array([Op.DELETE if line["op"] == "del" else Op.UPSERT for line in own], np.int32),
                payloads=pa.array([json.dumps(line).encode() for line in own], pa.binary()),
                parts=np.array([part_without(left_out(line)) for line in own], np.int32),
            )
        )
        if rows is not None:
            yield rows
        yield cutter.report()


@dataclass(frozen=True, slots=True)
class JournalDecoder:
    shouts: bool

    def keys(self, table: int, keys: pa.Array) -> pa.RecordBatch:
        return pa.record_batch({"id": keys.cast(pa.int64())})

    def rows(self, table: int, keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        rows = [json.loads(payload)["row"] for payload in payloads.to_pylist()]
        names = [row.get("name") for row in rows]
        names = [name.upper() if self.shouts and name else name for name in names]
        notes = pa.array([row.get("note") for row in rows], pa.string())
        return pa.record_batch({"id": keys.cast(pa.int64()), "name": pa.array(names, pa.string()), "note": notes})

    def sent(self, table: int, payloads: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        missing = [left_out(json.loads(payload)) for payload in payloads.to_pylist()]
        return np.array([[True, *(name not in out for name in CELLS)] for out in missing], np.bool_).reshape(-1, 3)
