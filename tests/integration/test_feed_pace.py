"""Which snapshots a feed becomes, which tables it fills, and how little of it is looked at twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from feed_builders import Lab, at, delete, stop_when, table, upsert
from pyspark.sql import SparkSession

from frazil.app.pipeline import Pipeline
from frazil.clock import SystemClock
from frazil.errors import SourceLost
from frazil.model.results import RunProgress
from frazil.sources.cockroachdb.feed.file_names import stem_of
from frazil.sources.cockroachdb.feed.listing import Counters, DirectoryLister, FeedListing

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(spark, warehouse, namespace, tmp_path)


def row(a: int, second: int, b: str = "x") -> str:
    return upsert([a], at(second), a=a, b=b)


class MovableClock(SystemClock):
    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


def step_by_step(pipeline: Pipeline, steps: list[tuple[Callable[[RunProgress], bool], Callable[[], Any]]]) -> None:
    """Runs as a daemon: as soon as the first condition holds its action is done, then the next; then it stops."""
    stop, left = Event(), list(steps)

    def listen(progress: RunProgress) -> None:
        while left and left[0][0](progress):
            left.pop(0)[1]()
        if not left:
            stop.set()

    pipeline.run(stop=stop, on_progress=listen)
    assert not left, "it stopped before all conditions held"


def has(name: str, epochs: int) -> Callable[[RunProgress], bool]:
    return lambda progress: any(t.name.endswith(f".{name}") and t.epochs >= epochs for t in progress.tables)


def is_at(second: int) -> Callable[[RunProgress], bool]:
    return lambda progress: progress.resolved == at(second).text


# snapshots


def five_epochs(lab: Lab) -> None:
    """Table t changes in each of five epochs, u in the first and the fourth."""
    lab.tables = [table("t"), table("u")]
    for epoch in range(5):
        second = 10 * epoch
        lab.feed.data(at(second + 1), [row(1, second + 1, f"{epoch}"), row(10 + epoch, second + 2)])
        if epoch in (0, 3):
            lab.feed.data(at(second + 1), [row(1, second + 1, f"{epoch}")], topic="u")
        lab.feed.resolved(at(second + 5))


def test_every_resolved_timestamp_that_changed_a_table_is_a_snapshot_of_it(lab: Lab) -> None:
    five_epochs(lab)
    summary = lab.run()
    assert (summary.epochs, summary.resolved) == (7, at(45).text)
    assert lab.resolved("t") == [at(second).text for second in (5, 15, 25, 35, 45)]
    assert lab.resolved("u") == [at(5).text, at(35).text]
    for epoch in range(5):
        expected = [(1, f"{epoch}"), *((10 + n, "x") for n in range(epoch + 1))]
        assert [tuple(found.values()) for found in lab.rows("t", at(10 * epoch + 5))] == expected
    assert [found["b"] for found in lab.rows("u", at(25))] == ["0"]


def test_latest_coalesces_what_is_behind_into_one_snapshot(lab: Lab) -> None:
    five_epochs(lab)
    lab.settings = {"snapshot": "latest"}
    assert lab.run().epochs == 2
    assert lab.resolved("t") == lab.resolved("u") == [at(45).text]
    assert [tuple(found.values()) for found in lab.rows("t")] == [(1, "4"), *((10 + n, "x") for n in range(5))]
    assert [found["b"] for found in lab.rows("u")] == ["3"]


@pytest.mark.parametrize("epochs_per_job", [1, 2])
def test_epochs_are_the_same_however_many_one_job_reads(lab: Lab, epochs_per_job: int) -> None:
    five_epochs(lab)
    lab.settings = {"limits": {"epochs_per_job": epochs_per_job, "epochs_in_flight": 1}}
    lab.run()
    assert lab.resolved("t") == [at(second).text for second in (5, 15, 25, 35, 45)]
    assert [found["b"] for found in lab.rows("t", at(25))] == ["2", "x", "x", "x"]


def test_the_pause_between_rounds_waits_until_all_that_is_resolved_is_published(lab: Lab) -> None:
    class Hurried(SystemClock):
        """Counts the pauses between rounds instead of waiting."""

        pauses = 0

        def wait(self, seconds: float, until: Event | None = None) -> bool:
            if seconds < timedelta(hours=1).total_seconds():
                return super().wait(seconds, until)
            self.pauses += 1
            return False

    five_epochs(lab)
    lab.settings = {"epoch_interval": "1h", "limits": {"epochs_per_job": 2, "epochs_in_flight": 1}}
    clock = Hurried()
    with lab.open(clock) as pipeline:
        pipeline.run(once=True)
    assert clock.pauses == 1
    assert lab.resolved("t") == [at(second).text for second in (5, 15, 25, 35, 45)]


def test_a_quiet_table_shows_its_position_by_a_heartbeat(lab: Lab) -> None:
    clock = MovableClock()
    lab.feed.data(at(1), [row(1, 1)])
    lab.feed.resolved(at(2))

    def much_later() -> None:
        clock.ahead += timedelta(minutes=11)
        lab.feed.resolved(at(600))

    with lab.open(clock) as pipeline:
        step_by_step(pipeline, [
            (has("t", 1), lambda: lab.feed.resolved(at(3))),
            (is_at(3), much_later),
            (has("t", 2), lambda: None),
        ])  # fmt: skip
    newest, first = lab.epochs()
    assert (first.resolved, newest.resolved) == (at(2).text, at(600).text)
    assert (newest.rows, newest.data_files, newest.delete_files) == (0, 0, 0)
    assert lab.rows() == [{"a": 1, "b": "x"}]


def test_a_table_that_joins_a_running_feed_is_loaded_from_its_first_row(lab: Lab) -> None:
    """H54: its frontier must not be moved, by a heartbeat or otherwise, before its scan arrives."""
    clock = MovableClock()
    lab.tables = [table("t"), table("u")]
    lab.feed.data(at(1), [row(1, 1)])
    lab.feed.data(at(1), [row(n, 601) for n in range(3)], topic="u")  # the scan's first file: all of it lies ahead
    lab.feed.resolved(at(2))

    def heartbeats() -> None:
        clock.ahead += timedelta(minutes=11)
        lab.feed.resolved(at(600))

    def scan() -> None:
        lab.feed.data(at(601), [row(n, 601) for n in range(3, 5)], topic="u")
        lab.feed.data(at(601), [row(2, 602)])
        lab.feed.resolved(at(700))

    with lab.open(clock) as pipeline:
        step_by_step(pipeline, [(has("t", 1), heartbeats), (has("t", 2), scan), (has("u", 1), lambda: None)])
    assert lab.resolved("u") == [at(700).text]
    assert [found["a"] for found in lab.rows("u")] == [0, 1, 2, 3, 4]
    assert [found["a"] for found in lab.rows("t", at(600))] == [1]


def test_a_table_added_to_the_configuration_later_gets_all_that_the_feed_holds(lab: Lab) -> None:
    for second, topic in ((1, "t"), (1, "u"), (11, "t"), (11, "u")):
        lab.feed.data(at(second), [row(second, second)], topic=topic)
    lab.feed.resolved(at(5))
    lab.feed.resolved(at(15))
    lab.run()
    lab.tables = [table("t"), table("u")]
    lab.feed.data(at(21), [delete([1], at(21))], topic="u")
    lab.feed.resolved(at(25))
    lab.run()
    assert [found["a"] for found in lab.rows("t")] == [1, 11]
    assert [found["a"] for found in lab.rows("u", at(5))] == [1]
    assert [found["a"] for found in lab.rows("u", at(15))] == [1, 11]
    assert [found["a"] for found in lab.rows("u")] == [11]
    assert len(lab.epochs("t")) == 2


def test_a_pattern_takes_what_no_exact_entry_takes(lab: Lab) -> None:
    lab.tables = [
        {"source": "shop.public.*", "target": f"{lab.namespace}.all_{{table}}"},
        table("shop.public.orders", target=f"{lab.namespace}.orders", columns={"a": "INT8", "b": "STRING"}),
        {"source": "shop.audit.*", "target": f"{lab.namespace}.{{schema}}_{{table}}"},
    ]
    for topic in ("shop.public.orders", "shop.public.items", "shop.audit.log", "other.public.items"):
        lab.feed.data(at(1), [row(1, 1, topic)], topic=topic)
    lab.feed.resolved(at(2))
    assert lab.run().tables == 3
    for name, topic in (("orders", "shop.public.orders"), ("all_items", "shop.public.items"),
                        ("audit_log", "shop.audit.log")):  # fmt: skip
        assert lab.rows(name) == [{"a": 1, "b": topic}]


def test_an_append_only_table_is_a_changelog_of_every_version(lab: Lab) -> None:
    lab.tables = [table(deletes="append-only")]
    lab.feed.data(at(1), [row(1, 1, "one"), row(1, 2, "two"), row(1, 1, "one"), delete([1], at(3)), row(2, 4)])
    lab.feed.resolved(at(2))
    lab.feed.resolved(at(5))
    lab.run()
    lab.feed.data(at(6), [row(2, 4), row(2, 6, "y"), delete([9], at(7))])
    lab.feed.resolved(at(8))
    lab.run()
    found = sorted((r["_position"], r["_op"], r["a"], r["b"]) for r in lab.rows())
    upserted, deleted = found[0][1], found[2][1]
    assert found == [
        (at(1).text, upserted, 1, "one"),
        (at(2).text, upserted, 1, "two"),
        (at(3).text, deleted, 1, None),
        (at(4).text, upserted, 2, "x"),
        (at(6).text, upserted, 2, "y"),
        (at(7).text, deleted, 9, None),
    ]
    assert (upserted, deleted) == ("upsert", "delete")
    assert len(lab.rows(resolved=at(2))) == 2


# listing


def listing_of(pipeline: Pipeline) -> FeedListing:
    source: Any = pipeline.assembled.parts.source
    listing: FeedListing = source.listing
    return listing


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where each listing starts."""
    found: list[str] = []
    listed = DirectoryLister.names_after

    def noting(lister: DirectoryLister, start: str, counters: Counters) -> Iterator[tuple[str, int]]:
        found.append(start)
        return listed(lister, start, counters)

    monkeypatch.setattr(DirectoryLister, "names_after", noting)
    return found


def test_a_second_run_lists_only_what_lies_behind_the_frontier(lab: Lab, starts: list[str]) -> None:
    """The ledgers tell which tables of the feed are meant: nothing behind the frontier is looked at again."""
    for second in range(0, 100, 10):
        lab.feed.data(at(second + 1), [row(second, second + 1)])
        lab.feed.resolved(at(second + 5))
    lab.run()
    frontier = lab.feed.files[-1]
    lab.feed.data(at(101), [row(7, 101)])
    lab.feed.resolved(at(105))
    with lab.open() as pipeline:
        starts.clear()
        pipeline.run(once=True)
        counters = listing_of(pipeline).counters
        assert min(starts) == stem_of(frontier)
        assert counters.names <= 2 + 3, "two new files, listed and listed again with what has the frontier's stem"
    assert [found["a"] for found in lab.rows()] == [0, 7, *range(10, 100, 10)]


def test_a_pattern_needs_one_look_at_the_whole_feed(lab: Lab, starts: list[str]) -> None:
    lab.tables = [{"source": "*", "target": f"{lab.namespace}.{{table}}", "key": ["a"]}]
    for second in range(0, 30, 10):
        lab.feed.data(at(second + 1), [row(second, second + 1)])
        lab.feed.resolved(at(second + 5))
    lab.run()
    frontier = lab.feed.files[-1]
    lab.feed.data(at(101), [row(7, 101)])
    lab.feed.resolved(at(105))
    with lab.open() as pipeline:
        starts.clear()
        pipeline.run(once=True)
    first, *later = starts
    assert first == ""
    assert min(later) == stem_of(frontier)
    assert [found["a"] for found in lab.rows()] == [0, 7, 10, 20]


def test_a_feed_that_was_emptied_is_not_taken_for_a_quiet_one(lab: Lab) -> None:
    """Nothing in it names the table any more; its ledger does."""
    lab.feed.data(at(1), [row(1, 1)])
    lab.feed.resolved(at(2))
    lab.run()
    shutil.rmtree(lab.feed.root)
    lab.feed.root.mkdir()
    with pytest.raises(SourceLost, match="overcompacted"):
        lab.run()


def test_a_feed_made_anew_with_full_names_goes_on(lab: Lab) -> None:
    """A changefeed created again at the same place WITH full_table_name and cursor = the last resolved timestamp."""
    lab.tables = [table("shop.public.t")]
    old = lab.feed.data(at(1), [row(1, 1)], topic="t")
    lab.feed.resolved(at(2))
    lab.run()
    (lab.feed.root / old).unlink()
    lab.feed.data(at(2).next(), [row(2, 3)], topic="shop.public.t", session="b" * 16)
    lab.feed.resolved(at(4))
    lab.run()
    assert [found["a"] for found in lab.rows()] == [1, 2]
    assert [found["a"] for found in lab.rows(resolved=at(2))] == [1]


def test_a_feed_whose_resolved_file_is_gone_is_overcompacted(lab: Lab) -> None:
    lab.feed.data(at(1), [row(1, 1)])
    path = lab.feed.resolved(at(2))
    lab.run()
    kept = (lab.feed.root / path).read_bytes()
    (lab.feed.root / path).unlink()
    lab.feed.data(at(3), [row(2, 3)])
    lab.feed.resolved(at(4))
    with pytest.raises(SourceLost, match="overcompacted") as lost:
        lab.run()
    assert lost.value.exit_code == 4
    assert at(2).text in str(lost.value)
    assert lab.rows() == [{"a": 1, "b": "x"}]
    (lab.feed.root / path).write_bytes(kept)
    lab.run()
    assert [found["a"] for found in lab.rows()] == [1, 2]


def test_a_carried_file_that_is_gone_is_a_loss(lab: Lab) -> None:
    path = lab.feed.root / lab.feed.data(at(1), [row(1, 1), row(2, 9)])
    lab.feed.resolved(at(5))
    lab.run()
    kept = path.read_bytes()
    path.unlink()
    lab.feed.resolved(at(10))
    with pytest.raises(SourceLost, match="still holds rows beyond") as lost:
        lab.run()
    assert lost.value.facts["file"] in lab.feed.files
    path.write_bytes(kept)
    lab.run()
    assert [found["a"] for found in lab.rows()] == [1, 2]


def test_files_behind_the_frontier_may_be_deleted(lab: Lab) -> None:
    """All but the frontier's own resolved file and the files it carries."""
    for second in (0, 10, 20):
        lab.feed.data(at(second + 1), [row(second, second + 1)])
        lab.feed.resolved(at(second + 5))
    lab.run()
    for path in lab.feed.files[:-1]:
        (lab.feed.root / path).unlink()
    lab.feed.data(at(31), [row(30, 31)])
    lab.feed.resolved(at(35))
    lab.run()
    assert [found["a"] for found in lab.rows()] == [0, 10, 20, 30]


def test_another_feed_at_the_same_pipeline_is_refused(lab: Lab) -> None:
    """H9: positions of another source say nothing about this table."""
    lab.feed.data(at(1), [row(1, 1)])
    lab.feed.resolved(at(2))
    lab.run()
    lab.feed.root = lab.root / "other"
    lab.feed.data(at(1), [row(5, 1)])
    lab.feed.resolved(at(2))
    with pytest.raises(SourceLost, match="cannot be compared"):
        lab.run()
    assert [found["a"] for found in lab.rows()] == [1]


def test_a_daemon_stops_when_asked(lab: Lab) -> None:
    stop = Event()
    lab.feed.data(at(1), [row(1, 1)])
    lab.feed.resolved(at(2))
    with lab.open() as pipeline:
        summary = pipeline.run(stop=stop, on_progress=stop_when(has("t", 1), stop))
    assert summary.epochs == 1
