"""An error crosses from an executor to the driver as text and comes home as itself; partitions fill bins evenly."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil import errors
from frazil.errors import BadInput, FrazilError, StorageUnavailable, Unexplained
from frazil.sources.base import InputPartition
from frazil.spark.bins import fill_bins
from frazil.spark.errors import brought_home, carried, collected

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FrazilError)]


def as_spark_shows_it(error: Exception) -> str:
    try:
        raise error
    except Exception:
        lines = traceback.format_exc().replace("\n", "\n  ")
    return f"An exception was thrown from the Python worker:\n{lines}\n\n JVM stacktrace: at org.apache.spark ..."


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_comes_home_with_its_class_hint_and_facts(kind: type[FrazilError]) -> None:
    sent = kind('line 3\nof "f.ndjson" ]', hint="look ü there", file="f.ndjson", line=3)
    home = brought_home(as_spark_shows_it(carried(sent)))
    assert type(home) is kind
    assert home is not None
    assert (home.message, home.hint, home.facts) == (sent.message, sent.hint, {"file": "f.ndjson", "line": 3})


def test_a_fact_that_cannot_travel_does_not_hide_the_error() -> None:
    home = brought_home(str(carried(BadInput("bad", hint="h", fact=lambda: 0))))
    assert isinstance(home, BadInput)
    assert "lambda" in home.facts["fact"]


def test_the_text_names_the_error_for_a_person_too() -> None:
    assert "StorageUnavailable: disk full" in str(carried(StorageUnavailable("disk full")))


@pytest.mark.parametrize("text", ["", "ValueError: x", "frazil-error[AAAA]", "frazil-error[gASVBQ==]"])
def test_a_text_without_a_whole_error_brings_none_home(text: str) -> None:
    assert brought_home(text) is None


def raises(error: Exception) -> list[object]:
    raise error


def test_an_exception_of_a_library_comes_home_as_what_nobody_explains() -> None:
    shown = RuntimeError(as_spark_shows_it(KeyError("b")))
    with pytest.raises(Unexplained, match=r"^a Spark job failed: KeyError: 'b'$") as caught:
        collected(lambda: raises(shown))
    assert caught.value.__cause__ is shown


def test_a_worker_that_was_killed_comes_home_as_what_nobody_explains() -> None:
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most "
        "recent failure: Lost task 0.0 in stage 1.0 (TID 1) (host executor driver): org.apache.spark.SparkException: "
        "Python worker exited unexpectedly (crashed)\n\tat org.apache.spark.api.python.BasePythonRunner\n"
        "Caused by: java.io.EOFException\n\tat java.base/java.io.DataInputStream.readInt\n"
    )
    with pytest.raises(Unexplained, match=r"^a Spark job failed: Python worker exited unexpectedly \(crashed\)$"):
        collected(lambda: raises(RuntimeError(text)))


def test_an_assertion_stays_one() -> None:
    shown = RuntimeError(as_spark_shows_it(AssertionError("a partition report of nothing")))
    with pytest.raises(AssertionError, match="a partition report of nothing"):
        collected(lambda: raises(shown))


@given(sizes=st.lists(st.integers(0, 1_000), min_size=1, max_size=40), count=st.integers(1, 8))
def test_bins_hold_every_split_once_and_weigh_about_the_same(sizes: list[int], count: int) -> None:
    partitions = [InputPartition(0, f"s{i}", "{}", size) for i, size in enumerate(sizes)]
    bins = fill_bins(partitions, count)
    assert sorted(s.name for b in bins for s in b) == sorted(s.name for s in partitions)
    weights = [sum(max(s.size, 1) for s in b) for b in bins]
    assert max(weights) - min(weights) <= max(max(size, 1) for size in sizes)


def test_empty_splits_spread_over_all_bins() -> None:
    bins = fill_bins([InputPartition(0, f"s{i}", "{}", 0) for i in range(8)], 4)
    assert [len(b) for b in bins] == [2, 2, 2, 2]
