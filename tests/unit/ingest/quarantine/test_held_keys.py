"""Which keys are in quarantine, as the driver knows it while another process takes rows out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from frazil.config.routing import Route
from frazil.config.table_entries import TableEntry
from frazil.ingest.loop.table_stats import TableStats
from frazil.ingest.loop.target_tables import SourceState, TargetTable
from frazil.ingest.quarantine.held_keys import HeldKeys
from frazil.model.change import CaptureReport
from frazil.model.ids import JobId, TableName, batch_id
from frazil.model.ledger import Fence, LedgerEntry, SnapshotFacts, TableHead
from frazil.model.write import Role
from frazil.sources.cockroachdb.position import Hlc

JOB = JobId("shop")
R1, R2, R3 = Hlc(1_000), Hlc(2_000), Hlc(3_000)


@dataclass
class World:
    """A quarantine table: its keys, and the snapshots that made it."""

    keys_: dict[str, tuple[int, int]] = field(default_factory=dict)
    lines_: dict[str, tuple[int, int]] = field(default_factory=dict)
    ancestry: list[SnapshotFacts] = field(default_factory=list)
    reads: int = 0
    told: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        route = Route("t", TableEntry(source="t"), TableName.parse("shop.t"))
        self.table = TargetTable(SourceState(route, 0), Role.QUARANTINE)
        self.capturing = HeldKeys(self, self, JOB, lambda _, rows: self.told.append(rows))  # type: ignore[arg-type]

    def head(self, table: TableName) -> TableHead:
        assert table.text == "shop.t__quarantine"
        return TableHead(uuid="u", ancestry=tuple(self.ancestry), properties={})

    def keys(self, _table: TableName, snapshot_id: int) -> tuple[dict[str, tuple[int, int]], int]:
        assert snapshot_id == self.ancestry[0].snapshot_id
        self.reads += 1
        return dict(self.keys_), len(self.keys_)

    def lines(self, _table: TableName, snapshot_id: int, after: tuple[int, int] | None) -> dict[str, tuple[int, int]]:
        assert snapshot_id == self.ancestry[0].snapshot_id
        return {line: at for line, at in self.lines_.items() if after is None or at > after}

    def publishes(self, epoch: Hlc, **keys: tuple[int, int]) -> LedgerEntry:
        entry = LedgerEntry(
            job=JOB,
            batch_id=batch_id(JOB, self.table.target, epoch),
            lower=None,
            resolved=epoch,
            notes="",
            fence=Fence(1, UUID(int=1)),
            incarnation="",
            config_hash="",
            operation="append",
            data_files=1,
            delete_files=0,
            rows=len(keys),
            deletes=0,
        )
        self.keys_.update(keys)
        self._snapshot(entry.to_summary())
        return entry

    def replays(self, *keys: str) -> None:
        for key in keys:
            del self.keys_[key]
        self._snapshot({"frazil.operation": "replay"})

    def _snapshot(self, summary: dict[str, str]) -> None:
        number = len(self.ancestry) + 1
        self.ancestry.insert(0, SnapshotFacts(number, number - 1 or None, number, number, summary))

    def sends(self, upper: Hlc, **keys: tuple[int, int]) -> None:
        self.capturing.sent(self.table, upper, [CaptureReport(0, keys, len(keys))])

    @property
    def captured(self) -> dict[str, Any]:
        return dict(self.capturing.keys(self.table))


def test_after_a_start_the_table_says_what_is_captured() -> None:
    """H49, after a restart."""
    world = World()
    world.publishes(R1, a=(5, 0))
    assert world.captured == {"a": (5, 0)}
    assert world.told == [1]


def test_keys_in_flight_are_captured_before_their_epoch_is_published_and_after() -> None:
    """H49, across windows in flight."""
    world = World()
    assert world.captured == {}
    world.sends(R1, a=(5, 0))
    assert world.captured == {"a": (5, 0)}
    entry = world.publishes(R1, a=(5, 0))
    world.capturing.landed(world.table, entry)
    assert world.captured == {"a": (5, 0)}


def test_a_replay_by_another_process_releases_its_keys() -> None:
    world = World()
    world.publishes(R1, a=(5, 0), b=(6, 0))
    assert set(world.captured) == {"a", "b"}
    world.replays("a")
    assert set(world.captured) == {"b"}


def test_a_replay_does_not_release_a_key_that_has_rows_in_flight() -> None:
    """H49: they were captured behind the change that is replayed, and are not in the table yet."""
    world = World()
    world.publishes(R1, a=(5, 0))
    assert set(world.captured) == {"a"}
    world.sends(R2, a=(1_500, 0))
    world.replays("a")
    assert world.captured == {"a": (1_500, 0)}
    world.publishes(R2, a=(1_500, 0))
    assert world.captured == {"a": (1_500, 0)}
    world.replays("a")
    assert world.captured == {}


def test_an_epoch_that_lands_before_the_table_was_looked_at_does_not_hide_what_it_holds() -> None:
    """H49."""
    world = World()
    world.capturing.landed(world.table, world.publishes(R1, a=(5, 0)))
    assert world.captured == {"a": (5, 0)}


def test_lines_without_a_key_are_told_where_the_quarantine_is_ahead_of_its_mirror() -> None:
    """Only these will be read again, and must be found in the quarantine then."""
    world = World(lines_={"#f:7": (500, 0), "#g:1": (1_500, 0)})
    world.publishes(R2)
    world.table.begin_behind(R1)
    assert world.captured == {"#g:1": (1_500, 0)}
    world.capturing.forget([world.table])
    world.table.begin_behind(R2)
    assert world.captured == {}


def test_the_oldest_position_of_a_key_counts() -> None:
    world = World()
    world.publishes(R1, a=(5, 0))
    assert world.captured == {"a": (5, 0)}
    world.sends(R2, a=(1_500, 0))
    assert world.captured == {"a": (5, 0)}


def test_nothing_is_read_while_nothing_is_in_quarantine_or_nothing_changed() -> None:
    world = World()
    assert world.captured == world.captured == {}
    assert world.reads == 0
    world.publishes(R1, a=(5, 0))
    world.capturing.forget([world.table])
    assert world.captured == world.captured == {"a": (5, 0)}
    assert world.reads == 1


def test_what_is_in_quarantine_is_told_when_the_ledger_was_read_and_not_only_with_the_next_window() -> None:
    world = World()
    world.table.stats = TableStats(records=3, position_deletes=1)
    world.capturing.forget([world.table])
    assert (world.told, world.reads) == ([2], 0)


def test_rows_of_other_tables_are_not_taken_for_those_of_a_quarantine() -> None:
    world = World()
    main_table = TargetTable(world.table.origin, stats=TableStats(records=3))
    world.capturing.forget([main_table, world.table])
    assert world.told == []
