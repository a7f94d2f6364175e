"""Cuts the changes of a partition into the epochs of a window, for every source.

    positions     lower          uppers[0]      uppers[1]
    --------------|--------------|--------------|------------->
      DROPPED     `- epoch 0 ----'- epoch 1 ----'   BEYOND
      a duplicate                                   stays in its partition for a later window

A position is a pair of 64-bit integers. Comparing pairs by way of one float would lose the logical
part, and a loop over the uppers would be slow; so majors and minors are each replaced by their rank
among the uppers, and the two small ranks packed into one integer that is searched once.

    reader of a source --ReadChanges--> PartitionCutter --change rows within the window--> writing tasks
                                            `--at the end of the partition, its report---> driver
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import REPORT_EPOCH, Op
from frazil.model.frontier import Window
from frazil.model.position import Position
from frazil.sources.base import Cut, InputPartition

DROPPED = -1
BEYOND = -2


def cut_of(window: Window, lower: Position | None) -> Cut:
    """The cut of a table whose newest epoch, published or in flight, ends at `lower`.

    Uppers at or below `lower` keep their place, so that an epoch has one index for all tables of the window.
    """
    return Cut(None if lower is None else lower.order, tuple(upper.order for upper in window.uppers))


def assign(major: NDArray[np.int64], minor: NDArray[np.int64], cut: Cut) -> NDArray[np.int32]:
    """The index of each change's epoch in the window, or DROPPED, or BEYOND."""
    upper_major, upper_minor = np.array(cut.uppers, dtype=np.int64).T
    majors = np.array(sorted({m for m, _ in cut.uppers}), dtype=np.int64)
    minors = np.array(sorted({m for _, m in cut.uppers}), dtype=np.int64)

    def rank(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        place = np.searchsorted(majors, a, side="left")
        # Twice the place leaves a rank between any two majors for those that equal neither.
        is_upper = majors[np.minimum(place, len(majors) - 1)] == a
        packed: NDArray[np.int64] = (2 * place + is_upper) * (len(minors) + 1) + np.searchsorted(minors, b, side="left")
        return packed

    epoch = np.searchsorted(rank(upper_major, upper_minor), rank(major, minor), side="left").astype(np.int32)
    epoch[epoch == len(cut.uppers)] = BEYOND
    if cut.lower is not None:
        lower_major, lower_minor = cut.lower
        epoch[(major < lower_major) | ((major == lower_major) & (minor <= lower_minor))] = DROPPED
    return epoch


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """Changes as a source read them. Without `befores` or `lines` there are none; without `parts` all are of the one
    part that the partition is of."""

    keys: pa.StringArray
    majors: np.ndarray
    minors: np.ndarray
    ops: np.ndarray
    payloads: pa.BinaryArray
    befores: pa.BinaryArray | None = None
    lines: pa.Int64Array | None = None
    parts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.keys)


class PartitionCutter:
    """What becomes of the changes of one partition, and what its report tells. `part` is the column family that the
    partition is of. With `ends` nothing lies beyond: later changes belong to the last epoch of the window."""

    def __init__(self, partition: InputPartition, cut: Cut, *, part: int = 0, ends: Position | None = None) -> None:
        self._partition, self._cut, self._part = partition, cut, part
        self._ends = None if ends is None else ends.order
        self._rows = self._dropped = self._beyond = 0
        self._newest: tuple[int, int] | None = None

    def take(self, changes: ReadChanges) -> pa.RecordBatch | None:
        """The change rows within the window; None if there are none."""
        if not len(changes):
            return None
        epochs = assign(changes.majors, changes.minors, self._cut)
        if self._ends is not None:
            epochs[epochs == BEYOND] = len(self._cut.uppers) - 1
        self._dropped += int((epochs == DROPPED).sum())
        self._beyond += int((epochs == BEYOND).sum())
        major = changes.majors.max()
        newest = (int(major), int(changes.minors[changes.majors == major].max()))
        self._newest = newest if self._newest is None else max(self._newest, newest)
        kept = epochs >= 0
        if not kept.any():
            return None
        batch = self._change_rows(changes, epochs)
        batch = batch if kept.all() else batch.filter(pa.array(kept))
        self._rows += batch.num_rows
        return batch

    def _change_rows(self, changes: ReadChanges, epochs: NDArray[np.int32]) -> pa.RecordBatch:
        count = len(epochs)
        columns = {
            "table": pa.repeat(pa.scalar(self._partition.table, pa.int32()), count),
            "epoch": pa.array(epochs, pa.int32()),
            "key": changes.keys,
            "part": pa.array(np.full(count, self._part) if changes.parts is None else changes.parts, pa.int32()),
            "major": pa.array(changes.majors, pa.int64()),
            "minor": pa.array(changes.minors, pa.int64()),
            "op": pa.array(changes.ops, pa.int32()),
            "payload": changes.payloads,
            "before": pa.nulls(count, pa.binary()) if changes.befores is None else changes.befores,
            "partition": pa.nulls(count, pa.int64()),
            "line": pa.nulls(count, pa.int64()) if changes.lines is None else changes.lines,
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in CHANGE_SCHEMA.names], schema=CHANGE_SCHEMA)

    def report(self, **facts: Any) -> pa.RecordBatch:
        """The last row of the partition. `facts` are the source's own, or take the place of what was counted; those
        that say nothing are left out."""
        newest = self._newest
        if newest is not None and self._ends is not None:
            newest = min(newest, self._ends)
        counted = {"rows": self._rows, "dropped": self._dropped, "beyond": self._beyond}
        row = {
            "table": self._partition.table,
            "epoch": REPORT_EPOCH,
            "key": self._partition.name,
            "part": 0,
            "major": None if newest is None else newest[0],
            "minor": None if newest is None else newest[1],
            "op": int(Op.REPORT),
            "payload": json.dumps(counted | {name: fact for name, fact in facts.items() if fact is not None}).encode(),
        }
        return pa.RecordBatch.from_pylist([row], schema=CHANGE_SCHEMA)
