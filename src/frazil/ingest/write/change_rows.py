"""The two Arrow schemas of a write job, and how the driver reads what comes back.

    reader --change rows--> blocks, shuffle, sort --change rows--> worker --OUTPUT rows--> driver
                                                                            kind 0  a Message, as `wire` writes it
                                                                            kind 1  a PartitionReport, as JSON
                                                                            kind 2  a definite error, pickled
                                                                            kind 3  a CaptureReport, as JSON

A report travels as a row of its own, in epoch -1 (see `model.change`), and passes through the worker untouched,
so the driver learns what the readers found from the very job that wrote the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from frazil.errors import FrazilError, UnknownColumn
from frazil.model import wire
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import REPORT_EPOCH, CaptureReport, Op, PartitionReport, Report
from frazil.model.files import Message
from frazil.model.position import Position
from frazil.spark.errors import unpacked

OUTPUT = pa.schema([("kind", pa.int32()), ("message", pa.binary())])
OUTPUT_DDL = "kind int, message binary"

KIND_MESSAGE = 0
KIND_REPORT = 1
KIND_ERROR = 2
KIND_CAPTURED = 3

PositionOf = Callable[[int, int], Position]
PositionText = Callable[[pa.Array, pa.Array], pa.Array]


FileOf = Callable[[int], str]
"""The name of a partition, by the number that travels."""


def from_partition(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """The same rows, which say which partition they were read from."""
    place = batch.schema.get_field_index("partition")
    return batch.set_column(place, batch.schema.field(place), pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows))


def unplaced(partition: int) -> str:
    """For changes that were read from no partition of a job."""
    raise AssertionError(f"no job has given the number {partition} to a partition")


def as_change_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with exactly TRAVEL's columns and types, whatever flavour of string Spark chose."""
    if batch.schema.equals(CHANGE_SCHEMA):
        return batch
    arrays = [batch.column(field.name) for field in CHANGE_SCHEMA]
    return pa.RecordBatch.from_arrays(
        [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, CHANGE_SCHEMA, strict=True)],
        schema=CHANGE_SCHEMA,
    )


def text_like(position: Position) -> PositionText:
    """The columnar text form of positions of this kind."""
    return type(position).texts


def report_json(table: int, partition: str, major: int | None, minor: int | None, payload: bytes | None) -> bytes:
    """One report, as the worker passes it on. No position means that the partition held no change."""
    found = json.loads(payload) if payload else {}
    newest = None if major is None or major < 0 else [major, minor or 0]
    report = {
        "table": table,
        "partition": partition,
        "rows": found.get("rows", 0),
        "dropped": found.get("dropped", 0),
        "newest": newest,
    }
    report |= {name: found[name] for name in ("left_out", "scanned") if name in found}
    return json.dumps(report).encode()


def error_row(table: int, partition: str, packed_error: bytes) -> pa.RecordBatch:
    """A reader's definite error as a TRAVEL row: it passes through the shuffle in place of the partition's report."""
    row = {
        "table": table,
        "epoch": REPORT_EPOCH,
        "key": partition,
        "part": 0,
        "op": int(Op.ERROR),
        "payload": packed_error,
    }
    return pa.RecordBatch.from_pylist([row], schema=CHANGE_SCHEMA)


def capture_json(report: CaptureReport) -> bytes:
    facts = {"table": report.table, "keys": report.keys, "rows": report.rows, "columns": report.columns}
    return json.dumps(facts).encode()


def output_batch(
    messages: Sequence[Message] = (),
    reports: Sequence[bytes] = (),
    errors: Sequence[bytes] = (),
    captured: Sequence[CaptureReport] = (),
) -> pa.RecordBatch:
    """OUTPUT rows: the messages in their order, then the reports, then errors, then what went to quarantine."""
    parts = (
        (KIND_MESSAGE, [wire.encode(message) for message in messages]),
        (KIND_REPORT, reports),
        (KIND_ERROR, errors),
        (KIND_CAPTURED, [capture_json(report) for report in captured]),
    )
    kinds = [kind for kind, bodies in parts for _ in bodies]
    bodies = [body for _, bodies in parts for body in bodies]
    return pa.record_batch([pa.array(kinds, pa.int32()), pa.array(bodies, pa.binary())], schema=OUTPUT)


def read_output(rows: Iterable[Any], position_of: PositionOf) -> tuple[list[Message], list[Report]]:
    """Messages and reports of (kind, bytes) rows, each in the order given.

    Raises the error that a task answered with, `wire.BadMessage` for bytes of another version, ValueError for a
    kind nobody writes.
    """
    messages: list[Message] = []
    reports: list[Report] = []
    errors: list[FrazilError] = []
    for kind, body in rows:
        if kind == KIND_MESSAGE:
            messages.append(wire.decode(bytes(body)))
        elif kind == KIND_REPORT:
            reports.append(_report(json.loads(bytes(body)), position_of))
        elif kind == KIND_CAPTURED:
            reports.append(_captured(json.loads(bytes(body))))
        elif kind == KIND_ERROR:
            errors.append(unpacked(bytes(body)))
        else:
            raise ValueError(f"a worker's output row has the unknown kind {kind!r}")
    if errors:
        # What must stop the epoch goes before what the schema can still learn; then always the same one.
        raise min(errors, key=lambda error: (isinstance(error, UnknownColumn), str(error)))
    return messages, reports


def _report(facts: dict[str, Any], position_of: PositionOf) -> PartitionReport:
    newest = facts["newest"]
    return PartitionReport(
        table=facts["table"],
        partition=facts["partition"],
        rows=facts["rows"],
        dropped=facts["dropped"],
        newest=None if newest is None else position_of(newest[0], newest[1]),
        left_out=facts.get("left_out", {}),
        scanned=facts.get("scanned", 0),
    )


def _captured(facts: dict[str, Any]) -> CaptureReport:
    keys = {key: (major, minor) for key, (major, minor) in facts["keys"].items()}
    return CaptureReport(facts["table"], keys, facts["rows"], tuple(facts["columns"]))
