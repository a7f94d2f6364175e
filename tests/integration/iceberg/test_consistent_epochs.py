"""`_frazil.consistent_epochs`: every moment is recorded, only the newest stay, and the table never piles up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from iceberg_builders import MeddledClock

from frazil.clock import SystemClock
from frazil.errors import StorageUnavailable
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.system.consistent_epochs import ConsistentEpochs
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName
from frazil.model.position import BatchNumber
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark

SHOP, BANK = JobId("shop"), JobId("bank")
ORDERS, ITEMS = TableName(("shop",), "orders"), TableName(("shop",), "items")
SECOND = 1_000_000_000


class TickingClock(SystemClock):
    """Each look is a second later."""

    def __init__(self) -> None:
        self._now = datetime(2026, 11, 18, tzinfo=UTC)

    def now(self) -> datetime:
        self._now += timedelta(seconds=1)
        return self._now


def record(epochs: ConsistentEpochs, job: JobId, *numbers: int) -> None:
    for number in numbers:
        assert epochs.record(job, Frontier(Hlc(number * SECOND)), {ORDERS: number, ITEMS: None})


def told(epochs: ConsistentEpochs, job: JobId) -> list[int]:
    """The moments, newest first."""
    found = epochs.recorded(job)
    for epoch in found:
        assert epoch.snapshots == {"shop.orders": Hlc.parse(epoch.resolved).wall // SECOND, "shop.items": None}
        assert epoch.recorded_at is not None
    return [Hlc.parse(epoch.resolved).wall // SECOND for epoch in found]


def files(catalog: Catalog) -> int:
    return catalog.spark.table(f"{catalog.settings.name}._frazil.consistent_epochs.files").count()


def test_the_newest_moments_stay_and_lie_in_few_files(own: Catalog) -> None:
    epochs = ConsistentEpochs(own, MeddledClock(), kept=3, tidy_every=6)
    record(epochs, BANK, 1, 2)
    before = {epoch.resolved: epoch for epoch in epochs.recorded(BANK)}
    most = 0
    for number in range(1, 21):
        record(epochs, SHOP, number)
        most = max(most, files(own))
    assert most <= 10
    assert told(epochs, SHOP) == [20, 19, 18]
    assert own.spark.table(f"{own.settings.name}._frazil.consistent_epochs").where("pipeline = 'shop'").count() < 20
    assert {epoch.resolved: epoch for epoch in epochs.recorded(BANK)} == before


def test_the_ledgers_time_of_a_moment_stands_there_and_positions_without_time_are_in_the_order_of_their_records(
    own: Catalog,
) -> None:
    epochs = ConsistentEpochs(own, TickingClock(), kept=2, tidy_every=2)
    noon = datetime(2026, 11, 18, 12, tzinfo=UTC)
    for number in (8, 9, 10):
        assert epochs.record(SHOP, Frontier(BatchNumber(number)), {ORDERS: number})
        assert epochs.record(BANK, Frontier(BatchNumber(number), "", noon + timedelta(hours=number)), {ORDERS: number})
    assert [epoch.resolved for epoch in epochs.recorded(SHOP)] == ["batch:10", "batch:9"]
    told = [(epoch.resolved, epoch.source_time) for epoch in epochs.recorded(BANK)]
    assert told == [("batch:10", noon + timedelta(hours=10)), ("batch:9", noon + timedelta(hours=9))]


def test_what_another_process_left_is_tidied_by_the_first_record(own: Catalog) -> None:
    record(ConsistentEpochs(own, MeddledClock(), tidy_every=100), SHOP, *range(1, 7))
    again = ConsistentEpochs(own, MeddledClock(), kept=2, tidy_every=5)
    record(again, SHOP, 7)
    assert files(own) == 1
    assert told(again, SHOP) == [7, 6]
    record(again, SHOP, 8)
    assert files(own) == 2, "and not with every record"


def test_a_moment_that_is_recorded_while_it_is_tidied_is_not_lost(own: Catalog) -> None:
    clock, other = MeddledClock(), ConsistentEpochs(own, MeddledClock(), tidy_every=100)
    epochs = ConsistentEpochs(own, clock, kept=10, tidy_every=3)
    record(epochs, SHOP, 1, 2, 3)

    def after_the_next_file() -> None:
        clock.before_writing = lambda: record(other, SHOP, 5)

    clock.before_writing = after_the_next_file
    record(epochs, SHOP, 4)
    assert told(epochs, SHOP) == [5, 4, 3, 2, 1]


def test_a_record_stands_even_if_nobody_can_tidy_up_after_it(
    own: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    epochs = ConsistentEpochs(own, MeddledClock(), tidy_every=1)
    record(epochs, SHOP, 1)

    def fails(*_: object) -> None:
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(epochs, "_keep_newest", fails)
    record(epochs, SHOP, 2)
    assert "the disk is full" in caplog.text
    assert told(epochs, SHOP) == [2, 1]
