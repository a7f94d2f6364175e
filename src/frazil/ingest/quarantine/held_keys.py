"""Keys in quarantine, as the driver knows them: what is in the table, and what is on its way there.

    quarantine table at its head --keys--> in the table --+
    tasks of the last windows ----keys--> in flight ------+--> WriteJob.quarantined: they capture what follows (H49)
    lines ahead of the main table --- as if keys of their own +

A replay by another process takes rows out of the table. It is noticed by the table's head before the next window is
written. A key whose rows are in flight is not in the table yet, so it is kept until the head shows their epoch.

A line without a key captures nothing. But after a crash between the quarantine's commit and the main table's it is read
again, and must be known not to be put away twice, nor be missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from frazil.commit.frontier_check import At, read_frontier
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.change import CaptureReport
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import LedgerEntry, TableHead
from frazil.model.ports import Committer
from frazil.model.position import Position, is_before
from frazil.model.write import Role

Order = tuple[int, int]


class ReadsKeys(Protocol):
    def keys(self, table: TableName, snapshot_id: int) -> tuple[Mapping[str, Order], int]:
        """The keys of a quarantine table, each with its oldest position, and the number of rows."""

    def lines(self, table: TableName, snapshot_id: int, after: Order | None) -> Mapping[str, Order]:
        """Its lines without a key that lie beyond a position, by what they travel under, each with its own."""


@dataclass
class _Known:
    snapshot_id: int | None = None
    resolved: Position | None = None
    keys: Mapping[str, Order] = field(default_factory=dict)
    rows: int = 0
    in_flight: list[tuple[Position, Mapping[str, Order]]] = field(default_factory=list)
    lines: Mapping[str, Order] = field(default_factory=dict)
    """As of the first look: nothing that is put away later is read again before the next one."""


class HeldKeys:
    """`tell` is told how many rows are in quarantine whenever that is found out."""

    def __init__(
        self, committer: Committer, reading: ReadsKeys, job: JobId, tell: Callable[[TargetTable, int], None]
    ) -> None:
        self._committer = committer
        self._reading = reading
        self._job = job
        self._tell = tell
        self._known: dict[TableName, _Known] = {}
        self._lock = Lock()

    def forget(self, targets: Iterable[TargetTable]) -> None:
        """After a doubt nothing of them is in flight, and the tables say what is in them. How many rows that is, is
        told at once: a quiet table may have no window for long."""
        with self._lock:
            for table in targets:
                self._known.pop(table.target, None)
                held = None if table.stats is None else table.stats.rows
                if table.role is Role.QUARANTINE and held is not None:
                    self._tell(table, held)

    def keys(self, quarantine: TargetTable) -> Mapping[str, Order]:
        """The keys that capture what follows, as of now, and lines that will be read again."""
        name = quarantine.target
        known = self._known.get(name)
        if known is None or known.keys or known.in_flight:
            head = self._committer.head(name)
            if known is None or head.snapshot_id != known.snapshot_id:
                known = self._read(quarantine, head, known)
        return _oldest([known.keys, known.lines, *(keys for _, keys in known.in_flight)])

    def sent(self, quarantine: TargetTable, last: Position, reports: Iterable[CaptureReport]) -> None:
        """A window was written with rows for the quarantine: all of them are in it once it has published `last`, the
        last epoch of the window that it has files of."""
        keys = _oldest([report.keys for report in reports])
        if keys:
            with self._lock:
                self._known.setdefault(quarantine.target, _Known()).in_flight.append((last, keys))

    def landed(self, quarantine: TargetTable, entry: LedgerEntry) -> None:
        """An epoch of the quarantine is published. Where the table was not looked at yet, the look will tell."""
        with self._lock:
            known = self._known.get(quarantine.target)
            if known is not None and is_before(known.resolved, entry.resolved):
                known.rows += entry.rows
                self._tell(quarantine, known.rows)

    def _read(self, quarantine: TargetTable, head: TableHead, known: _Known | None) -> _Known:
        keys: Mapping[str, Order] = {}
        rows = 0
        if head.snapshot_id is not None:
            keys, rows = self._reading.keys(quarantine.target, head.snapshot_id)
        match read_frontier(head, self._job):
            case At(entry):
                resolved: Position | None = entry.resolved
            case _:
                resolved = None
        lines = self._lines(quarantine, head, resolved) if known is None else known.lines
        with self._lock:
            waiting = [] if known is None else [sent for sent in known.in_flight if is_before(resolved, sent[0])]
            found = _Known(head.snapshot_id, resolved, keys, rows, waiting, lines)
            self._known[quarantine.target] = found
            self._tell(quarantine, rows)
        return found

    def _lines(self, quarantine: TargetTable, head: TableHead, resolved: Position | None) -> Mapping[str, Order]:
        main_table = quarantine.progress.begins
        if head.snapshot_id is None or resolved is None or not is_before(main_table, resolved):
            return {}
        after = None if main_table is None else main_table.order
        return self._reading.lines(quarantine.target, head.snapshot_id, after)


def _oldest(places: Iterable[Mapping[str, Order]]) -> dict[str, Order]:
    found: dict[str, Order] = {}
    for keys in places:
        for key, order in keys.items():
            found[key] = min(order, found.get(key, order))
    return found
