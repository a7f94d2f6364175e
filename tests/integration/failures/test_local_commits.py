"""Everything of a commit is written, and the catalog never hears of it.

    files, manifests, metadata file --written--> the catalog's own step --does not come--> look again, commit once more

What lies in a table's folder is no part of it until the catalog says so, however whole it is (H37).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from failure_stage import Stage, a_stage, assert_whole
from feed_builders import make_old
from pyspark.sql import SparkSession
from test_maintenance_kills import MAINTENANCE, Diary, needed, on_disk

from frazil.iceberg.commits import transaction as publish
from frazil.model.write import DeleteMode

pytestmark = pytest.mark.spark


class LocalCommits:
    """Every other commit to the tables of a stage ends with its metadata file; `strays` are those."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.strays: list[Path] = []
        self._tables = {table.text for table in stage.tables}
        self._real, self._sent = publish.send, 0
        monkeypatch.setattr(publish, "send", self.send)

    def send(self, catalog: Any, staged: Any) -> None:
        if str(staged.identifier) in self._tables:
            self._sent += 1
            if self._sent % 2:
                self._write(catalog, staged)
                raise ConnectionError("the catalog is not there")
        self._real(catalog, staged)

    def _write(self, catalog: Any, staged: Any) -> None:
        folder = f"{staged.metadata.location()}/metadata"
        path = f"{folder}/{99000 + self._sent}-{uuid4()}.metadata.json"
        output = staged.operations.io().newOutputFile(path)
        catalog.iceberg.TableMetadataParser.overwrite(staged.metadata, output)
        self.strays.append(Path(path.removeprefix("file:")))


def test_h37_a_commit_that_only_the_folder_knows_is_no_commit(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the stream and of maintenance: made once more, it is there once; and what was written in vain goes."""
    stage = a_stage(tmp_path, {"products": DeleteMode.EQUALITY})
    stage.write_config(limits={"epochs_per_job": 1}, maintenance=MAINTENANCE)
    local, diary = LocalCommits(stage, monkeypatch), Diary(stage, spark)
    (table,) = stage.tables
    stage.trade(4)
    stage.drain(spark)
    of_stream = len(local.strays)
    assert of_stream, "no commit was only local"
    assert_whole(stage, spark)
    assert needed(stage, spark, table).isdisjoint(map(str, local.strays))
    diary.read_all()
    for _ in range(4):
        make_old(stage.warehouse)
        with stage.pipeline(spark) as pipeline:
            assert not [step.error for step in pipeline.maintain() if step.error]
        diary.read_all()
    assert len(local.strays) > of_stream, "no commit of maintenance was only local"
    assert not any(path.exists() for path in local.strays)
    assert on_disk(stage, table) == needed(stage, spark, table)
