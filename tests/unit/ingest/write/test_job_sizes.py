"""How much of what is behind one job takes."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.ingest.write.window_writer import TASK_BYTES, Executors, WindowWriter
from frazil.model.frontier import Window
from frazil.sources.base import InputPartition
from frazil.sources.cockroachdb.position import Hlc


def writer(cores: int) -> WindowWriter:
    unused: Any = None
    return WindowWriter(unused, unused, unused, Executors(write=unused, cores=cores), unused, unused)


@pytest.mark.parametrize(
    ("epochs", "sizes", "cores", "taken"),
    [
        (10, [], 2, 10),
        (10, [0, 0], 2, 10),
        (10, [TASK_BYTES, TASK_BYTES], 2, 10),
        (10, [TASK_BYTES] * 4, 2, 5),
        (10, [TASK_BYTES] * 4, 4, 10),
        (10, [TASK_BYTES] * 1_000, 2, 1),
        (1, [TASK_BYTES] * 1_000, 2, 1),
        (3, [TASK_BYTES] * 4, 2, 1),
    ],
)
def test_a_job_takes_no_more_epochs_than_its_cores_write_in_one_task_each(
    epochs: int, sizes: list[int], cores: int, taken: int
) -> None:
    window = Window(tuple(Hlc(n) for n in range(1, epochs + 1)))
    partitions = [InputPartition(0, f"partition-{n}", "", size) for n, size in enumerate(sizes)]
    assert writer(cores).epochs_of_a_job(window, partitions) == taken


def test_the_first_epochs_of_a_window_are_a_window() -> None:
    assert Window((Hlc(1), Hlc(2), Hlc(3))).first(2) == Window((Hlc(1), Hlc(2)))
