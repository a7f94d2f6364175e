"""The loop that keeps all tables of a pipeline going, whatever one of them does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import pytest
from loop_world import LoopWorld, Stream, StreamSource, TimelessSource, at, state_of

from frazil.errors import BadInput, ConfigError, SourceLost, SourceUnavailable, Unexplained
from frazil.ingest.loop.supervisor import Supervisor
from frazil.ingest.loop.table_state import UNEXPLAINED_MAX
from frazil.model.frontier import Frontier
from frazil.model.ids import TableName
from frazil.model.position import BatchNumber, Position
from frazil.model.state import TableState
from frazil.observability.logs import _FIELDS


def is_stopped(run: Supervisor, table: str) -> bool:
    return table in run.tables and state_of(run, table) is TableState.STOPPED


def bad_row() -> BadInput:
    return BadInput("a row that nobody can read", table="bad")


def test_a_table_with_a_bad_row_stops_however_long_its_source_takes_to_tell_it() -> None:
    """An empty look is no answer: the loop apart waits for what the source has to tell, and meets the row there."""
    stream = Stream({"good": [1, 3], "bad": [2]}, [4], silent_looks=5, faults={"bad": bad_row})
    world = LoopWorld(stream)
    run = world.run(
        until=lambda run: (
            len(stream.opened) > 20 or (is_stopped(run, "lake.bad") and world.published("lake.good") == at(4).text)
        )
    )
    assert state_of(run, "lake.bad") is TableState.STOPPED
    assert world.published("lake.good") == at(4).text
    assert len(stream.opened) <= 4, "all of them, then each by itself"


@pytest.mark.parametrize("told", ["shop.public.bad", "bad", "shop.public.bad+f1"])
@pytest.mark.parametrize("once", [True, False])
def test_a_table_that_an_error_calls_by_its_full_name_stops_alone(told: str, once: bool) -> None:
    """A sinkless feed fails at its first bad row, before its names were heard."""
    stream = Stream({"good": [1], "bad": [2]}, [4])

    class Relayed(StreamSource):
        def latest(self) -> tuple[Position, ...]:
            if "bad" in stream.opened[self._number]:
                raise BadInput("a row that is no change", table=told)
            return super().latest()

        def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
            super().initial(frontiers)
            self._number = len(stream.opened) - 1

        def for_tables(self, tables: Collection[str]) -> Relayed:
            return Relayed(stream)

    world = LoopWorld(stream)
    world.parts = replace(world.parts, source=Relayed(stream))
    if once:
        with pytest.raises(BadInput, match="no change"):
            world.run(once=True)
    else:
        run = world.run(until=lambda run: is_stopped(run, "lake.bad") and world.published("lake.good") == at(4).text)
        assert state_of(run, "lake.good") is TableState.STEADY_STATE
    assert world.published("lake.good") == at(4).text


def test_a_table_that_goes_well_alone_and_fails_among_others_does_not_stop_them_again_and_again() -> None:
    """As one that is younger than the position of the others, and empty: it joins them with nothing published."""
    stream = Stream({"good": [1], "new": []}, [4])

    class Together(StreamSource):
        def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
            super().initial(frontiers)
            if len(frontiers) > 1:
                raise SourceLost("do the targets exist at the specified cursor time?", tables=("new",))

        def for_tables(self, tables: Collection[str]) -> Together:
            return Together(stream)

    world = LoopWorld(stream)
    world.parts = replace(world.parts, source=Together(stream))
    began = world.parts.clock.monotonic()
    world.run(until=lambda run: world.parts.clock.monotonic() - began > 100)
    assert world.published("lake.good") == at(4).text
    assert 3 <= len(stream.opened) <= 10


def test_a_table_that_keeps_failing_disturbs_the_others_once() -> None:
    """Its volume is away, say. It joins them when it has caught up, not when it has waited."""

    def away() -> SourceUnavailable:
        return SourceUnavailable("its volume is away", table="bad")

    stream = Stream({"good": [1], "bad": [2]}, [4], faults={"bad": away})
    world = LoopWorld(stream)
    run = world.run(until=lambda run: stream.met["bad"] >= 6)
    assert world.published("lake.good") == at(4).text
    assert stream.opened.count(("bad", "good")) == 1
    assert state_of(run, "lake.bad") is TableState.BACKOFF


def test_a_run_that_only_drains_waits_for_what_the_source_has_to_tell() -> None:
    stream = Stream({"good": [1]}, [4], silent_looks=5)
    world = LoopWorld(stream)
    world.run(once=True)
    assert world.published("lake.good") == at(4).text


@pytest.mark.parametrize("once", [False, True])
def test_a_table_that_no_target_can_be_named_after_is_refused_and_the_others_go_on(once: bool) -> None:
    """Also at the next start: nothing was published that could be recalled."""
    stream = Stream({"good": [1, 3], "order items": [2]}, [4])
    world = LoopWorld(stream)
    for _ in range(2):
        world.stop.clear()
        if once:
            with pytest.raises(ConfigError, match="order items"):
                world.run(once=True)
        else:
            run = world.run(until=lambda run: world.published("lake.good") == at(4).text and bool(run.refused))
            assert "lake.order items" in str(run.refused["order items"])
            assert "source: order items" in run.refused["order items"].hint
        assert world.published("lake.good") == at(4).text


def test_a_table_with_an_odd_name_that_appears_later_is_refused_and_the_others_go_on() -> None:
    stream = Stream({"good": [1]}, [2])
    world = LoopWorld(stream)

    def comes_and_goes_on(run: Supervisor) -> bool:
        if world.published("lake.good") == at(2).text:
            stream.changes["order items"] = [3]
            stream.changes["late"] = [3]
            stream.resolved.append(4)
        return world.published("lake.late") == at(4).text and bool(run.refused)

    run = world.run(until=comes_and_goes_on)
    assert set(run.refused) == {"order items"}
    assert world.published("lake.late") == at(4).text


def test_of_two_tables_that_claim_one_target_the_one_it_holds_goes_on() -> None:
    """The newcomer is refused, also when the daemon starts again and finds both."""
    stream = Stream({"a.public.t": [1], "a.public.u": [1]}, [4], silent_looks=3)
    world = LoopWorld(stream)
    world.run(until=lambda run: world.published("lake.t") == at(4).text)
    stream.changes |= {"b.public.t": [5], "a.public.t": [1, 5]}
    stream.resolved.append(6)
    world.stop.clear()
    run = world.run(
        until=lambda run: world.published("lake.t") == at(6).text and world.published("lake.u") == at(6).text
    )
    assert set(run.refused) == {"b.public.t"}
    assert "a.public.t" in str(run.refused["b.public.t"])


def test_a_table_is_not_filled_with_the_rows_of_another_one() -> None:
    """The first one is not offered any more, as when its files are gone: what the target holds is still its."""
    stream = Stream({"a.public.t": [1], "a.public.u": [1]}, [4], silent_looks=3)
    world = LoopWorld(stream)
    world.run(until=lambda run: world.published("lake.t") == at(4).text)
    stream.changes = {"b.public.t": [5], "a.public.u": [1, 5]}
    stream.resolved.append(6)
    world.stop.clear()
    run = world.run(until=lambda run: is_stopped(run, "lake.t") and world.published("lake.u") == at(6).text)
    assert "a.public.t" in str(run.tables["lake.t"].trouble)
    assert world.published("lake.t") == at(4).text


def test_a_table_that_is_called_as_anothers_changelog_is_refused_and_the_others_go_on() -> None:
    table = {"source": "*", "target": "lake.{table}", "deletes": "equality", "changelog": True}
    world = LoopWorld(Stream({"t": [1], "t__changelog": [1], "u": [1]}, [4]), [table])
    run = world.run(until=lambda run: all(world.published(f"lake.{name}") == at(4).text for name in ("t", "u")))
    assert set(run.refused) == {"t__changelog"}


@pytest.mark.parametrize("sources", [("*",), ("good", "bad")])
def test_a_target_that_cannot_be_read_at_a_start_stops_alone(sources: tuple[str, ...]) -> None:
    """Before any loop runs all targets are asked how far they are, and whose they are."""
    tables = [{"source": name, "target": "lake.{table}", "deletes": "equality"} for name in sources]
    stream = Stream({"good": [1], "bad": [2]}, [4], silent_looks=3)
    world = LoopWorld(stream, tables)
    world.run(until=lambda run: world.published("lake.good") == world.published("lake.bad") == at(4).text)
    world.shelf.damaged.add("lake.bad")
    stream.changes["good"].append(5)
    stream.resolved.append(6)
    world.stop.clear()
    run = world.run(until=lambda run: is_stopped(run, "lake.bad") and world.published("lake.good") == at(6).text)
    assert state_of(run, "lake.bad") is TableState.STOPPED
    assert world.published("lake.good") == at(6).text


def test_a_worker_that_dies_now_and_then_holds_up_its_window_and_nothing_else() -> None:
    stream = Stream({"good": [1], "bad": [2]}, [4])

    def dies_twice() -> BaseException | None:
        return RuntimeError("Python worker exited unexpectedly (crashed)") if stream.met["bad"] <= 2 else None

    stream.faults["bad"] = dies_twice
    world = LoopWorld(stream)
    world.run(until=lambda run: world.published("lake.good") == world.published("lake.bad") == at(4).text)
    assert world.published("lake.good") == world.published("lake.bad") == at(4).text
    assert stream.opened == [("bad", "good")] * 3


@pytest.mark.parametrize("once", [False, True])
def test_a_table_that_kills_every_worker_stops_alone(once: bool) -> None:
    """Nobody can tell from a dead worker whose row it had: after some attempts each table is read by itself."""
    stream = Stream({"good": [1, 3], "bad": [2], "other": [1]}, [4])
    stream.faults["bad"] = lambda: RuntimeError("Python worker exited unexpectedly (crashed)")
    world = LoopWorld(stream)
    if once:
        with pytest.raises(Unexplained, match="Python worker"):
            world.run(once=True)
    else:
        run = world.run(until=lambda run: is_stopped(run, "lake.bad") and world.published("lake.good") is not None)
        assert state_of(run, "lake.bad") is TableState.STOPPED
    assert world.published("lake.good") == world.published("lake.other") == at(4).text
    assert stream.met["bad"] == 2 * UNEXPLAINED_MAX


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_table_that_gets_its_other_name_while_it_is_read_apart_goes_on_under_that() -> None:
    """As when the feed is made anew with full names: the loop apart ends later, and knows the old name only."""
    stream = Stream({"t": [1], "good": [1]}, [2])
    world = LoopWorld(stream)

    def is_renamed() -> BaseException | None:
        if stream.met["t"] == 2:  # alone by now
            stream.changes = {"good": [1, 3], "db.public.t": [1, 3]}
            stream.resolved = [2, 4]
            wait_for(lambda: world.published("lake.t") == at(4).text)
        return SourceUnavailable("busy", table="t")

    stream.faults["t"] = is_renamed
    run = world.run(until=lambda run: stream.met["t"] == 2 and world.published("lake.t") == at(4).text)
    assert run.tables["lake.t"].source == "db.public.t"
    assert world.published("lake.t") == at(4).text


def test_failures_before_there_is_any_table_count_only_in_a_row() -> None:
    """A daemon may wait for its first table for weeks, and now and then something fails."""
    stream = Stream({}, [1])
    world = LoopWorld(stream)
    polls = iter(range(1_000_000))

    class NowAndThen(StreamSource):
        def latest(self) -> tuple[Position, ...]:
            if next(polls) % 5 == 4:
                raise RuntimeError("the line broke")
            stream.resolved.append(stream.resolved[-1] + 1)
            return super().latest()

    world.parts = replace(world.parts, source=NowAndThen(stream))
    world.run(until=lambda run: len(stream.opened) > 2 * UNEXPLAINED_MAX)
    assert len(stream.opened) > 2 * UNEXPLAINED_MAX


def test_a_table_that_fails_behind_a_window_without_changes_holds_nobody_up_for_ever() -> None:
    """Each new loop reads that window again: that is no progress, and its failures count."""
    stream = Stream({"good": [1], "bad": [1]}, [2])
    world = LoopWorld(stream, heartbeat="1h", limits={"epochs_per_job": 1})
    world.run(once=True)
    stream.changes.update(good=[1, 7], bad=[1, 5])
    stream.resolved += [4, 6, 8]
    stream.faults.update(good=lambda: None, bad=lambda: RuntimeError("a worker is gone"))
    run = world.run(until=lambda run: is_stopped(run, "lake.bad") and stream.met["good"] > 0)
    assert state_of(run, "lake.bad") is TableState.STOPPED
    assert stream.met["good"] > 0


def test_a_table_that_cannot_be_read_holds_up_no_run_that_begins() -> None:
    stream = Stream({"good": [1], "bad": [1]}, [2])
    world = LoopWorld(stream, [{"source": name, "target": "lake.{table}"} for name in ("good", "bad")])
    world.run(once=True)
    stream.resolved += [4]
    stream.silent_looks = 5
    world.shelf.unavailable.add("lake.bad")
    run = world.run(until=lambda run: world.published("lake.good") == at(4).text)
    assert world.published("lake.good") == at(4).text
    assert state_of(run, "lake.bad") is not TableState.STEADY_STATE


def wait_for(holds: Callable[[], bool]) -> None:
    """The bound only keeps a broken run from hanging."""
    for _ in range(500):
        if holds():
            return
        time.sleep(0.01)


def test_an_assertion_that_fails_ends_the_run() -> None:
    stream = Stream({"good": [1], "bad": [2]}, [4], faults={"bad": lambda: AssertionError("this cannot be")})
    with pytest.raises(AssertionError, match="this cannot be"):
        LoopWorld(stream).run()
    assert stream.met["bad"] == 1


def test_entries_that_name_no_table_of_the_source_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A refused table is told of by itself."""
    entries = [{"source": name, "target": f"lake{at}.{{table}}", "deletes": "equality"}
               for at, name in enumerate(("good", "goood", "g*", "missing_*", "order*"))]  # fmt: skip
    world = LoopWorld(Stream({"good": [1, 3], "order items": [2]}, [2, 4]), entries)
    with caplog.at_level(logging.WARNING, "frazil.pipeline"):
        world.run(until=lambda run: world.published("lake0.good") == at(4).text)
    (told,) = [record for record in caplog.records if "no table that these entries name" in record.message]
    assert told.__dict__[_FIELDS] == {"entries": ["goood", "missing_*"]}


def test_where_positions_tell_no_time_lag_status_and_outliving_go_by_the_ledger() -> None:
    """H52, and after a restart: an LSN or an offset has no time, but the source knew it when it was published."""
    stream = Stream({"good": [1], "bad": [1]}, [2], silent_looks=3, at=BatchNumber)
    world = LoopWorld(stream, source=TimelessSource, resync_after="1h")
    world.run(until=lambda run: all(world.published(f"lake.{name}") == "batch:2" for name in ("good", "bad")))
    head = world.shelf.head(TableName.parse("lake.bad"))
    entry = head.newest(world.config.job)
    assert entry is not None
    assert entry.source_time == at(2).source_time

    stream.faults["bad"] = bad_row
    stream.changes = {"good": [7000], "bad": [7000]}
    stream.resolved.append(7200)
    world.stop.clear()
    run = world.run(until=lambda run: state_of(run, "lake.bad") is TableState.NEEDS_RESYNC)
    assert state_of(run, "lake.bad") is TableState.NEEDS_RESYNC
    assert world.published("lake.good") == "batch:7200"
    assert world.published("lake.bad") == "batch:2"
    assert run.tables["lake.good"].done_time == at(7200).source_time
    later = at(7260).source_time
    assert later is not None
    assert run.tables["lake.good"].lag(later) == 60.0
