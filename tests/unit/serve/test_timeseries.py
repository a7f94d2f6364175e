"""The bounded series behind the plots. Time is given, so nothing here waits."""

from __future__ import annotations

from itertools import pairwise
from threading import Thread

import pytest
from observability_builders import after, progress, table

from frazil.model.frontier import LoadProgress
from frazil.model.results import RunProgress
from frazil.serve.http.timeseries import EVERY_SECONDS, OLDER_KEPT, RECENT_KEPT, Series, Timeseries


def recorded(*rows: int, every: float = 5.0) -> Timeseries:
    history = Timeseries(every=every)
    for number, count in enumerate(rows):
        history.record(after(number * every), progress(table(rows=count)))
    return history


def of(history: Timeseries, name: str = "lake.orders") -> Series:
    series = history.series(name)
    assert series is not None
    return series


def test_a_point_has_all_that_a_plot_shows() -> None:
    history = Timeseries()
    history.record(after(0), progress(table(rows=7, deletes=2)))
    series = of(history)
    assert (series.at, series.lag_seconds, series.rows) == ((after(0).timestamp(),), (1.5,), (9,))
    assert (series.epochs, series.snapshots, series.data_files, series.delete_files) == ((3,), (5,), (4,), (1,))
    assert series.rows_per_second == (None,)


def test_rows_per_second_are_the_rows_between_two_points() -> None:
    assert of(recorded(0, 50, 50, 150)).rows_per_second == (None, 10.0, 0.0, 20.0)


def test_a_count_that_begins_anew_is_not_a_negative_rate() -> None:
    history = recorded(100, 200, 0, 50)
    assert of(history).rows_per_second == (None, 20.0, None, 10.0)
    assert history.rows_per_second("lake.orders") == 10.0


def test_the_present_rate_looks_back_half_a_minute_only() -> None:
    history = recorded(*[0] * 100, *range(0, 700, 100))
    assert history.rows_per_second("lake.orders") == 20.0
    assert recorded(5).rows_per_second("lake.orders") is None
    assert Timeseries().rows_per_second("lake.orders") is None


def test_points_that_come_too_often_are_left_out_and_early_ones_are_not() -> None:
    history = Timeseries(every=5.0)
    for seconds in (0, 1, 2, 4.9, 9.9, 10, 15.2):
        history.record(after(seconds), progress())
    start = after(0).timestamp()
    assert [at - start for at in of(history).at] == pytest.approx([0, 4.9, 9.9, 15.2])


def test_a_run_of_any_length_is_kept_in_outline_and_its_end_in_detail() -> None:
    history = Timeseries()
    for number in range(40_000):
        history.record(after(number * EVERY_SECONDS), progress(table(rows=number)))
        if number % 1000 == 0:
            assert len(of(history).at) <= RECENT_KEPT + OLDER_KEPT
    series = of(history)
    assert series.rows[0] == 0
    assert series.rows[-1] == 39_999
    assert series.rows[-RECENT_KEPT:] == tuple(range(40_000 - RECENT_KEPT, 40_000))
    steps = [later - earlier for earlier, later in pairwise(series.rows)]
    assert max(steps) <= 2 * 40_000 / (OLDER_KEPT / 2)
    assert min(steps) > 0
    assert {rate for rate in series.rows_per_second[1:] if rate is not None} == {1 / EVERY_SECONDS}


def test_a_table_that_left_the_pipeline_is_forgotten_but_not_while_nothing_is_known() -> None:
    history = Timeseries()
    history.record(after(0), progress(table("lake.a"), table("lake.b")))
    history.record(after(5), RunProgress(()))
    assert len(of(history, "lake.a").at) == 1
    history.record(after(10), progress(table("lake.b")))
    assert history.series("lake.a") is None
    assert len(of(history, "lake.b").at) == 2


def test_a_clock_that_is_set_back_begins_the_series_anew() -> None:
    history = recorded(1, 2, 3)
    history.record(after(-60), progress(table(rows=4)))
    assert of(history).rows == (4,)


def test_the_end_of_a_load_is_told_from_its_present_pace() -> None:
    history = Timeseries()
    for number in range(4):
        load = LoadProgress(done=number * 1000, total=10_000)
        history.record(after(number * 5), progress(table(load=load)))
    assert history.load_ends_in("lake.orders", 7000) == 35.0
    assert history.load_ends_in("lake.orders", -5) == 0.0
    history.record(after(20), progress(table(load=None)))
    assert history.load_ends_in("lake.orders", 7000) is None


def test_a_load_that_stands_still_has_no_end() -> None:
    history = Timeseries()
    for number in range(3):
        history.record(after(number * 5), progress(table(load=LoadProgress(5, 10))))
    assert history.load_ends_in("lake.orders", 5) is None


@pytest.mark.parametrize("wrong", [{"every": 0}, {"recent_kept": 1}, {"older_kept": 0}])
def test_a_history_without_room_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="needs time"):
        Timeseries(**wrong)


def test_it_may_be_read_while_it_is_written() -> None:
    history = Timeseries(recent_kept=8, older_kept=8)
    uneven: list[str] = []

    def read() -> None:
        while not (series := history.series("lake.orders")) or series.rows[-1] < 2999:
            if series and len({len(series.at), len(series.rows), len(series.rows_per_second)}) != 1:
                uneven.append(repr(series))

    reader = Thread(target=read, daemon=True)
    reader.start()
    for number in range(3000):
        history.record(after(number * 5), progress(table(rows=number)))
    reader.join(60)
    assert not reader.is_alive()
    assert uneven == []
