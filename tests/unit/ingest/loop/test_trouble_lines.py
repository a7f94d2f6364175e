"""What the log says of a table in trouble, from its first line on."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from unit.ingest.loop.many_tables import ManyTables, write_in_memory

from frazil.errors import BadInput, FrazilError, StorageUnavailable
from frazil.ingest.loop.supervisor import Supervisor


def lines_of(many: ManyTables, caplog: pytest.LogCaptureFixture, error: FrazilError, times: int) -> list[str]:
    """Of the pipeline, while t0001 meets the error so many times."""
    left = [error] * times

    def write(partitions: Any, cuts: Any, reader: Any, decoder: Any, job: Any, epochs: Any, *, small: bool) -> Any:
        if left and any(task.name.name == "t0001" for task in job.tables):
            raise left.pop()
        return write_in_memory(partitions, cuts, reader, decoder, job, epochs, small=small)

    many.epoch()
    with caplog.at_level(logging.WARNING, "frazil.pipeline"), suppress(type(error)):
        Supervisor(many.parts(write=write), lambda _: None, Event()).run(once=True)
    return [record.getMessage() for record in caplog.records if record.name == "frazil.pipeline"]


def test_a_table_that_stops_is_first_said_to_be_tried_once_more_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    error = BadInput("a bad value", hint="mend it", table="t0001")
    first, second = lines_of(ManyTables(tmp_path, 3), caplog, error, times=2)
    assert "tried once more by itself, then it stops" in first
    assert "stopped; other tables go on" in second


def test_a_table_that_is_tried_again_is_not_said_to_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    error = StorageUnavailable("no answer", hint="wait", table="t0001")
    (line,) = lines_of(ManyTables(tmp_path, 3), caplog, error, times=1)
    assert "trying again" in line
    assert "stops" not in line


def test_a_file_with_an_impossible_date_is_the_trouble_of_its_own_table(tmp_path: Path) -> None:
    many = ManyTables(tmp_path, 3)
    many.epoch()
    (path,) = [path for path in many.feed.files if "-t0001-" in path]
    folder, _, name = path.rpartition("/")
    odd = many.feed.root / folder / f"{name[:6]}00{name[8:]}"
    odd.write_bytes((many.feed.root / path).read_bytes())
    with pytest.raises(BadInput, match="carries no changefeed timestamp") as caught:
        Supervisor(many.parts(), lambda _: None, Event()).run(once=True)
    assert caught.value.facts["table"] == "t0001"
    assert [table.name for table in many.committer.commits] == ["t0000", "t0002"]
