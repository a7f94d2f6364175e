"""The epoch buffer: what is taken, what is ignored, what stops the epoch."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from commit_builders import ITEMS, ORDERS, at, file

from frazil.commit.buffer import EpochBuffer
from frazil.errors import BadInput
from frazil.model.files import FileKind, Resolved


def test_an_epoch_is_ready_once_every_worker_has_resolved_it_or_later() -> None:
    buffer = EpochBuffer(2)
    buffer.take(Resolved(at(10), 0, 2))
    assert not buffer.ready(at(10))
    buffer.take(Resolved(at(20), 1, 2))
    assert buffer.ready(at(10))
    assert not buffer.ready(at(20))
    assert buffer.resolved == at(10)


def test_files_are_kept_by_table_and_epoch() -> None:
    buffer = EpochBuffer(1)
    for message in (
        file("a", epoch=10),
        file("b", epoch=20),
        file("c", epoch=20, table=ITEMS),
        file("d", FileKind.EQUALITY_DELETE, epoch=20),
        Resolved(at(20), 0, 1),
    ):
        assert buffer.take(message)
    assert [f.path for f in buffer.files(ORDERS, at(10))] == ["a"]
    assert [f.path for f in buffer.files(ORDERS, at(20))] == ["b", "d"]
    assert buffer.tables(at(20)) == (ITEMS, ORDERS)
    assert buffer.tables(at(15)) == ()
    assert buffer.files(ITEMS, at(10)) == ()


def test_the_order_of_reports_does_not_show() -> None:
    for order in permutations([file("a"), file("b"), file("c")]):
        buffer = EpochBuffer(1)
        for message in (*order, Resolved(at(10), 0, 1)):
            buffer.take(message)
        assert [f.path for f in buffer.files(ORDERS, at(10))] == ["a", "b", "c"]


def test_a_replayed_report_is_ignored_even_after_resolved() -> None:
    buffer = EpochBuffer(1)
    assert buffer.take(file("a"))
    assert not buffer.take(file("a"))
    buffer.take(Resolved(at(10), 0, 1))
    assert not buffer.take(file("a"))
    assert len(buffer.files(ORDERS, at(10))) == 1


def test_a_replayed_older_resolved_takes_nothing_back() -> None:
    buffer = EpochBuffer(1)
    buffer.take(Resolved(at(20), 0, 1))
    assert not buffer.take(Resolved(at(10), 0, 1))
    assert buffer.ready(at(20))


def test_other_content_under_a_known_path_stops_the_epoch_and_names_the_path() -> None:
    """H41, H46"""
    buffer = EpochBuffer(1)
    buffer.take(file("lake/data-1.parquet", size=100))
    with pytest.raises(BadInput, match=r"lake/data-1\.parquet") as caught:
        buffer.take(file("lake/data-1.parquet", size=101))
    assert caught.value.facts["path"] == "lake/data-1.parquet"
    assert caught.value.hint


@pytest.mark.parametrize("other", [{"epoch": 20}, {"table": ITEMS}, {"digest": "other"}])
def test_one_path_serves_one_table_epoch_and_content(other: dict[str, Any]) -> None:
    buffer = EpochBuffer(1)
    buffer.take(file("a"))
    with pytest.raises(BadInput, match="a was reported twice"):
        buffer.take(file("a", **other))


def test_a_new_file_of_an_epoch_its_worker_had_resolved_stops_the_epoch() -> None:
    buffer = EpochBuffer(2)
    buffer.take(Resolved(at(10), 0, 2))
    buffer.take(file("other worker", worker=1))
    buffer.take(file("next epoch", epoch=11))
    with pytest.raises(BadInput, match="after it had resolved"):
        buffer.take(file("late"))


def test_reports_of_another_job_are_refused() -> None:
    buffer = EpochBuffer(2)
    with pytest.raises(BadInput, match="counts 3 workers"):
        buffer.take(Resolved(at(10), 0, 3))
    with pytest.raises(BadInput, match="worker 2"):
        buffer.take(Resolved(at(10), 2, 2))
    with pytest.raises(BadInput, match="worker 7"):
        buffer.take(file("a", worker=7))
    with pytest.raises(ValueError, match="at least one worker"):
        EpochBuffer(0)


def test_files_are_not_handed_out_before_the_epoch_is_complete() -> None:
    buffer = EpochBuffer(1)
    buffer.take(file("a"))
    with pytest.raises(AssertionError):
        buffer.files(ORDERS, at(10))
