"""Keys in quarantine, as one writing task knows them.

    known from the start (driver)    a: 17.0
    found bad by this task           b: 20.3      --report--+
                                     |                      +--> the driver, for the next window
    a 16.0   passes: it came before what is in quarantine   |
    a 18.0   captured (H49)                       --report--+

All changes of a key pass through one task, epoch after epoch, so what a task knows is all there is to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.model.change import CaptureReport

Order = tuple[int, int]


class CapturedKeys:
    """The captured keys of one source table, each with its oldest position in quarantine."""

    def __init__(self, table: int, known: Mapping[str, Order], *, takes_new: bool = True) -> None:
        """`takes_new` if a change that cannot be taken is put away too, and not only what follows one."""
        self.takes_new = takes_new
        self._table = table
        self._known = dict(known)
        self._sent: dict[str, Order] = {}
        self._columns: set[str] = set()
        self._rows = 0
        self._value_set: pa.Array | None = None

    def waiting(self, rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Which of the change rows must wait behind an earlier one of their key; None if none must."""
        if not self._known:
            return None
        if self._value_set is None:
            self._value_set = pa.array(list(self._known), pa.string())
        suspects = pc.is_in(rows.column("key"), value_set=self._value_set).to_numpy(zero_copy_only=False)
        if not suspects.any():
            return None
        found = np.zeros(rows.num_rows, dtype=bool)
        for at in np.flatnonzero(suspects):
            key, order = rows.column("key")[int(at)].as_py(), order_of(rows, int(at))
            found[at] = self.holds(key, order)
            if found[at]:
                self._note(key, order)
        return found if found.any() else None

    def holds(self, key: str, at: Order) -> bool:
        """Whether a change of this key at this position belongs into quarantine."""
        since = self._known.get(key)
        return since is not None and since <= at

    def add(self, key: str, at: Order, column: str | None) -> None:
        """From here on the key captures what follows."""
        since = self._known.get(key)
        if since is None or at < since:
            self._known[key] = at
            self._value_set = None
        self._note(key, at)
        if column:
            self._columns.add(column)

    def count(self, rows: int) -> None:
        self._rows += rows

    @property
    def report(self) -> CaptureReport | None:
        """None if nothing went to quarantine."""
        if not self._rows:
            return None
        return CaptureReport(self._table, self._sent, self._rows, tuple(sorted(self._columns)))

    def _note(self, key: str, at: Order) -> None:
        self._sent[key] = min(at, self._sent.get(key, at))


def order_of(rows: pa.RecordBatch, at: int) -> Order:
    return rows.column("major")[int(at)].as_py(), rows.column("minor")[int(at)].as_py()
