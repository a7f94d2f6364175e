"""Change rows that were put away, as rows of the quarantine table.

    bad_values     a change whose values do not decode or bind: why, and which column
    captured_rows  a change that waits behind one of its key
    bad_lines      a raw line, with what the reader knew of it

`source` is what the ids are made with: it must be the same for a source table in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import BadInput
from frazil.ingest.write.change_rows import FileOf, PositionText
from frazil.model import quarantine as q
from frazil.model.change import Op

_TEXT_OF = {int(Op.DELETE): "delete", int(Op.UPSERT): "upsert"}


def bad_values(
    rows: pa.RecordBatch, errors: Sequence[BadInput], source: str, position_text: PositionText, file_of: FileOf
) -> pa.RecordBatch:
    """One row for each change and its error."""
    columns = _columns(rows, source, position_text) | _places(rows, file_of)
    columns[q.REASON] = pa.array([error.message for error in errors], pa.string())
    columns[q.COLUMN] = pa.array([_text(error.facts.get("column")) for error in errors], pa.string())
    columns[q.CAPTURED] = pa.repeat(False, rows.num_rows)
    return pa.record_batch(columns)


def captured_rows(rows: pa.RecordBatch, source: str, position_text: PositionText, file_of: FileOf) -> pa.RecordBatch:
    columns = _columns(rows, source, position_text) | _places(rows, file_of)
    columns[q.REASON] = pa.repeat(q.WAITS, rows.num_rows)
    columns[q.CAPTURED] = pa.repeat(True, rows.num_rows)
    return pa.record_batch(columns)


def bad_lines(
    rows: pa.RecordBatch, source: str, position_text: PositionText
) -> tuple[pa.RecordBatch, np.ndarray[Any, np.dtype[np.bool_]]]:
    """The rows, and which of them capture what follows of their key."""
    told = [q.BadLine.from_bytes(facts) for facts in rows.column("before").to_pylist()]
    columns = _columns(rows, source, position_text)
    keyed = pa.array([line.keyed for line in told], pa.bool_())
    positioned = pa.array([line.positioned for line in told], pa.bool_())
    nothing = pa.scalar(None, pa.string())
    columns[q.KEY] = pc.if_else(keyed, columns[q.KEY], nothing)
    columns[q.POSITION] = pc.if_else(positioned, columns[q.POSITION], nothing)
    columns[q.OP] = pa.nulls(rows.num_rows, pa.string())
    columns[q.BEFORE] = pa.nulls(rows.num_rows, pa.binary())
    columns[q.REASON] = pa.array([line.reason for line in told], pa.string())
    columns[q.COLUMN] = pa.array([line.column for line in told], pa.string())
    columns[q.FILE] = pa.array([line.file for line in told], pa.string())
    columns[q.LINE] = pa.array([line.line for line in told], pa.int64())
    columns[q.CAPTURED] = pa.repeat(False, rows.num_rows)
    return pa.record_batch(columns), keyed.to_numpy(zero_copy_only=False)


def no_before(before: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where the source told no earlier row, or said that there was none."""
    none = pc.or_(before.is_null(), pc.fill_null(pc.equal(before, pa.scalar(b"null", pa.binary())), True))
    found: np.ndarray[Any, np.dtype[np.bool_]] = none.to_numpy(zero_copy_only=False)
    return found


def _columns(rows: pa.RecordBatch, source: str, position_text: PositionText) -> dict[str, pa.Array]:
    places = zip(*(rows.column(name).to_pylist() for name in ("key", "part", "major", "minor")), strict=True)
    ids = [str(q.change_id(source, *place)) for place in places]
    return {
        q.ID: pa.array(ids, pa.string()),
        q.KEY: rows.column("key"),
        q.OP: pa.array([_TEXT_OF.get(op) for op in rows.column("op").to_pylist()], pa.string()),
        q.POSITION: position_text(rows.column("major"), rows.column("minor")),
        q.PAYLOAD: rows.column("payload"),
        q.BEFORE: rows.column("before"),
        q.MAJOR: rows.column("major"),
        q.MINOR: rows.column("minor"),
        q.PART: rows.column("part"),
    }


def _places(rows: pa.RecordBatch, file_of: FileOf) -> dict[str, pa.Array]:
    """Where each change was read, as far as its source has files and lines."""
    files = [None if partition is None else file_of(partition) for partition in _partitions(rows)]
    return {q.FILE: pa.array(files, pa.string()), q.LINE: rows.column("line")}


def _partitions(rows: pa.RecordBatch) -> list[int | None]:
    """Only of rows that know their line: other sources' partitions are nothing to look into."""
    found: list[int | None] = pc.if_else(rows.column("line").is_valid(), rows.column("partition"), None).to_pylist()
    return found


def _text(value: object) -> str | None:
    return None if value is None else str(value)
