"""A daemon that maintains its table while it publishes: the soak of `make soak`, small, and without a stopwatch."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.maintenance import triggers as due

pytestmark = pytest.mark.spark

EPOCHS = 40
REST_EVERY = 10
MAX_SNAPSHOTS, AFTER_SNAPSHOTS = 10, 5
MOST_SNAPSHOTS = MAX_SNAPSHOTS + 3 * AFTER_SNAPSHOTS
"""At rest: too few more than stay to expire them, and what was rewritten after the last expiry. Without any there is
one for each epoch, and one more for each maintenance."""
SNAPSHOT_BYTES = 2_000
"""Of metadata, with its entry in the log."""
SETTINGS = {
    "naptime": "300ms",
    "after_commits": 4,
    "after_snapshots": AFTER_SNAPSHOTS,
    "convert": {"after_commits": 2},
    "compact": {"min_input_files": 4},
    "expire": {"max_snapshots": MAX_SNAPSHOTS},
    "orphans": {"older_than": "1h"},
    "queue": {"grace": "2s"},
}


@pytest.fixture
def soaking(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return import_module("bench.soaking")


@pytest.mark.parametrize(("mode", "version"), [("vectors", 3), ("vectors", 2), ("equality", 3), ("equality", 2)])
def test_forty_epochs_leave_one_file_few_snapshots_and_every_reader_content(
    spark: SparkSession,
    warehouse: Path,
    namespace: str,
    tmp_path: Path,
    soaking: Any,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    version: int,
) -> None:
    """H15, H16, H31, H46: the stream and maintenance commit to one table; each snapshot holds what its epoch held,
    whoever made it, and no reader ever misses a file. Nothing grows with the number of epochs."""
    # Forty epochs take no longer than a pause between two looks: nothing would be seen of what maintenance does.
    monkeypatch.setattr(due, "PAUSE", 0.0)
    soak = soaking.Soak(
        name=f"{namespace}_{mode}_{version}",
        mode=mode,
        format_version=version,
        epochs=EPOCHS,
        rows=200,
        changes=40,
        delete_share=0.2,
        rest_every=REST_EVERY,
        rested=lambda seen: (seen.data_files, seen.delete_files) == (1, 0),
        observations=10,
        maintenance=SETTINGS,
    )
    run = soaking.Soaking(spark, tmp_path, warehouse, soak)
    done = run.run()  # raises if the table is not the model, row by row

    assert not done.failures, done.failures[:3]
    assert not done.problems, done.problems[:3]
    assert done.reads > 0
    assert done.finished
    assert set(done.maintenance) >= {"compact", "expire"} | ({"convert"} if mode == "equality" else set())

    rest = done.at_rest
    assert (rest.data_files, rest.delete_files, rest.manifests) == (1, 0, 1), rest
    assert rest.snapshots <= MOST_SNAPSHOTS
    assert rest.metadata_bytes <= SNAPSHOT_BYTES * MOST_SNAPSHOTS + 8_000
    # Without maintenance each epoch leaves a data file, deletes, and a manifest of each.
    assert done.most(lambda seen: seen.data_files) <= 2 * REST_EVERY
    assert done.most(lambda seen: seen.delete_files) <= 2 * REST_EVERY
    assert done.most(lambda seen: seen.manifests) <= 4 * REST_EVERY

    listed = run.snapshots()
    assert len([row for row in listed.values() if "frazil.maintenance" in row.summary]) >= 1
    for snapshot_id in list(listed)[::4]:
        expected = run.expected(listed, snapshot_id)
        assert expected is None or run.read(snapshot_id) == expected
