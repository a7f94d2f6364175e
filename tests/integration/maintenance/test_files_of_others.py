"""Files that somebody registered with a table where they lay: their snapshots go, the table goes, they stay."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retention_builders import DAY, GRACE, Stage

pytestmark = pytest.mark.spark


@pytest.fixture
def original(stage: Stage, tmp_path: Path) -> Path:
    """Beside the table's folder, and called almost like it."""
    stage.epoch({1: "a"})
    folder = Path(f"{stage.table.location.removeprefix('file:')}_originals")
    folder.mkdir()
    pq.write_table(pa.table({"id": [7], "name": ["theirs"]}), folder / "theirs.parquet")
    stage.catalog.spark.sql(
        f"CALL {stage.catalog.settings.name}.system.add_files(table => '{stage.name}', "
        f"source_table => '`parquet`.`{folder}`')"
    )
    stage.rows[7] = "theirs"
    stage.diary[stage.head_id] = dict(stage.rows)
    return folder / "theirs.parquet"


def test_an_original_outlives_the_snapshots_that_referred_to_it(stage: Stage, original: Path) -> None:
    stage.rewrite()
    stage.epoch({2: "b"})
    stage.clock.ahead = 2 * DAY
    stage.expire(min_snapshots=1)
    stage.clock.ahead += 2 * GRACE
    done = stage.clean()
    assert original.exists()
    assert done.outside == 1
    assert done.deleted > 0, "the table's own files went"
    stage.read_all()


def test_an_original_outlives_the_table(stage: Stage, original: Path) -> None:
    assert stage.queue.drop(stage.name)
    left = 0
    for _ in range(3):
        stage.clock.ahead += 2 * GRACE
        left += stage.clean().outside
    assert original.exists()
    assert left == 1
    assert stage.on_disk() == set()
