"""Builders with defaults for the tests of the workers, and a decoder small enough to trust."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa

from frazil.ingest.write.change_rows import read_output
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import REPORT_EPOCH, Op
from frazil.model.files import FileClosed, FileKind, Message, Resolved
from frazil.model.ids import TableName
from frazil.model.position import Position
from frazil.model.schema import LONG, STRING, Field, Schema
from frazil.model.write import DeleteMode, EpochTarget, ParquetSettings, TableTask, WriteJob
from frazil.sources.cockroachdb.position import Hlc

USERS = Schema(3, (Field(1, "id", LONG, required=True), Field(2, "name", STRING)), identifier_ids=(1,))
CHANGELOG = Schema(
    3, (Field(1, "id", LONG), Field(2, "name", STRING), Field(3, "_op", STRING), Field(4, "_position", STRING))
)
R1, R2, R3 = Hlc(1_000), Hlc(2_000), Hlc(3_000)


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Keys like `[7]`, payloads like `{"id": 7, "name": "x"}`; types as Arrow finds them, then cast to `types`."""

    types: tuple[tuple[str, pa.DataType], ...] = (("id", pa.int64()), ("name", pa.string()))
    key: tuple[str, ...] = ("id",)

    def keys(self, _table: int, keys: pa.Array) -> pa.RecordBatch:
        values = [json.loads(key) for key in keys.to_pylist()]
        types = dict(self.types)
        return pa.record_batch(
            {name: pa.array([value[i] for value in values], types[name]) for i, name in enumerate(self.key)}
        )

    def rows(self, _table: int, _keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        rows = [json.loads(payload) for payload in payloads.to_pylist()]
        return pa.record_batch({name: pa.array([row.get(name) for row in rows], t) for name, t in self.types})


def upsert(
    key: int, at: int, name: str | None = None, *, minor: int = 0, table: int = 0, epoch: int = 0
) -> dict[str, object]:
    payload = json.dumps({"id": key, "name": f"n{key}" if name is None else name}).encode()
    return row(table, epoch, f"[{key}]", at, minor, Op.UPSERT, payload)


def delete(key: int, at: int, *, minor: int = 0, table: int = 0, epoch: int = 0) -> dict[str, object]:
    return row(table, epoch, f"[{key}]", at, minor, Op.DELETE, None)


def report(partition: str, at: int | None, *, rows: int = 0, dropped: int = 0, table: int = 0) -> dict[str, object]:
    payload = json.dumps({"rows": rows, "dropped": dropped}).encode()
    return row(table, REPORT_EPOCH, partition, at, None if at is None else 0, Op.REPORT, payload)


def row(
    table: int, epoch: int, key: str, major: int | None, minor: int | None, op: Op, payload: bytes | None
) -> dict[str, object]:
    return {
        "table": table,
        "epoch": epoch,
        "key": key,
        "part": 0,
        "major": major,
        "minor": minor,
        "op": int(op),
        "payload": payload,
        "before": None,
        "partition": None,
        "line": None,
    }


def change_rows(rows: Iterable[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=CHANGE_SCHEMA)


def in_batches(batch: pa.RecordBatch, sizes: Sequence[int]) -> list[pa.RecordBatch]:
    """Cut after `sizes` rows each; the rest is one more batch."""
    parts, start = [], 0
    for size in sizes:
        parts.append(batch.slice(start, size))
        start += size
    return [*parts, batch.slice(start)] if start < batch.num_rows else parts


def table_task(
    folder: Path,
    *,
    index: int = 0,
    schema: Schema = USERS,
    key: tuple[str, ...] = ("id",),
    mode: DeleteMode = DeleteMode.EQUALITY,
    epochs: Sequence[Position] = (R1,),
    deletes: bool = True,
) -> TableTask:
    targets = tuple(
        EpochTarget(
            epoch, uuid5(NAMESPACE_URL, f"{index}{epoch.text}"), f"{folder}/t{index}/epoch={epoch.text}", deletes
        )
        for epoch in epochs
    )
    return TableTask(
        index=index,
        format_version=3,
        data_location="d",
        name=TableName.parse(f"shop.t{index}"),
        schema=schema,
        key=key,
        mode=mode,
        epochs=targets,
    )


def write_job(*tables: TableTask, shards: int = 1, attempt: str = "j1", **parquet: int) -> WriteJob:
    return WriteJob(tables=tables, attempt=attempt, shards=shards, parquet=ParquetSettings(**parquet))  # type: ignore[arg-type]


def read_back(output: Iterable[pa.RecordBatch]) -> tuple[list[Message], list[object]]:
    rows = [(r["kind"], r["message"]) for batch in output for r in batch.to_pylist()]
    messages, reports = read_output(rows, Hlc)
    return messages, list(reports)


def files(messages: Iterable[Message], kind: FileKind | None = None) -> list[FileClosed]:
    return [m for m in messages if isinstance(m, FileClosed) and kind in (None, m.kind)]


def resolved(messages: Iterable[Message]) -> list[Resolved]:
    return [m for m in messages if isinstance(m, Resolved)]
