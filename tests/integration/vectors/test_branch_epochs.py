"""A table of vectors is loaded anew on a branch: older rows are looked for there, and nothing of main is left (H27)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from vector_builders import JOB, ME, Quiet, Stage, comparable

from frazil.clock import SystemClock
from frazil.commit.machine import Published, make_epoch_commit
from frazil.commit.publisher import publish
from frazil.commit.resync_machine import Adopted, Loading
from frazil.commit.resync_runner import adopt_resync, begin_resync
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.branches import BranchCommitter
from frazil.iceberg.tables.file_index import LiveReader
from frazil.model.frontier import Frontier
from frazil.model.ids import TableName

pytestmark = pytest.mark.spark


class Rehearsal:
    """Lets a stage publish on the branch for a while."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.main = stage, stage.committer
        self.branch = BranchCommitter(stage.committer, JOB)

    def begin(self) -> None:
        assert begin_resync(self.stage.name, self.branch, ME, SystemClock()) == Loading(None, None)
        self.stage.committer = self.branch  # type: ignore[assignment]
        self.stage.reload()
        self.stage._lower = None
        self.stage.rows = Counter()

    def adopt(self) -> None:
        loaded = self.branch.head(self.stage.name).newest(JOB)
        assert loaded is not None
        self.stage.committer = self.main
        self.stage.reload()
        assert adopt_resync(self.stage.name, self.branch, ME, SystemClock(), loaded) == Adopted(loaded)

    def check_live(self) -> None:
        """What is derived from commits on the branch is what its manifests say."""
        head = self.branch.head(self.stage.name)
        derived = self.branch.live(self.stage.name, head, (1,))
        assert comparable(derived) == comparable(LiveReader(self.stage.catalog).live(self.stage.name, head, (1,)))


@pytest.mark.parametrize(("version", "partition"), [(3, ()), (3, ("bucket(2, id)", "part")), (2, ("part",))], ids=str)
def test_older_rows_are_found_on_the_branch_and_nothing_of_main_is_left(
    catalog: Catalog, namespace: str, tmp_path: Path, version: int, partition: tuple[str, ...]
) -> None:
    stage = Stage(catalog, TableName((namespace,), "anew"), tmp_path, format_version=version, partition=partition)
    stage.epoch({n: f"{n}@0" for n in range(12)})
    stage.epoch({1: "1@1", 2: "2@1"}, [3])
    stage.append({2: "2@f", 30: "30@f"})
    stage.check()
    shown = stage.seen_by_spark()
    rehearsal = Rehearsal(stage)
    rehearsal.begin()
    stage.epoch({n: f"{n}@2" for n in range(1, 6)})
    rehearsal.check_live()
    stage.epoch({2: "2@3", 7: "7@3"}, [4])
    stage.epoch({2: "2@4"}, [5])
    rehearsal.check_live()
    assert stage.seen_by_spark() == shown, "readers of main see nothing of it"
    rehearsal.adopt()
    stage.check()
    stage.epoch({2: "2@5", 1: "1@5"}, [7])
    stage.append({40: "40@f"})
    stage.rewrite()
    stage.epoch({40: "40@6"})
    stage.check()


def test_row_ids_stay_unique_and_are_never_given_twice(catalog: Catalog, namespace: str, tmp_path: Path) -> None:
    """Format 3: a row on the branch is a new row, also while rows are added to main beside it."""
    stage = Stage(catalog, TableName((namespace,), "lineage"), tmp_path)
    stage.epoch({n: f"{n}@0" for n in range(4)})
    rehearsal = Rehearsal(stage)
    rehearsal.begin()
    stage.epoch({n: f"{n}@1" for n in range(3)})
    kept = Counter(stage.rows)
    stage.append({50: "50@f"})
    stage.rows = kept
    stage.epoch({1: "1@2", 6: "6@2"})
    rehearsal.adopt()
    stage.check()
    rows = catalog.spark.sql(f"SELECT _row_id FROM {stage.sql}").collect()
    assert sorted(row["_row_id"] for row in rows) == [4, 6, 8, 9], "0 to 3 were main's, 7 somebody else's"


def test_a_first_load_without_deletes_lands_on_the_clear_alone(
    catalog: Catalog, namespace: str, tmp_path: Path
) -> None:
    stage = Stage(catalog, TableName((namespace,), "bare"), tmp_path)
    stage.epoch({n: f"{n}@0" for n in range(4)})
    rehearsal = Rehearsal(stage)
    rehearsal.begin()
    epoch, files = stage.write({1: "1@1"})
    bare = make_epoch_commit(ME, stage.name, stage.loaded.uuid, None, Frontier(epoch), files, requires_empty=True)

    assert isinstance(publish(bare, rehearsal.branch, SystemClock(), Quiet()), Published)
    assert not rehearsal.branch.head(stage.name).is_empty
    again = publish(bare, rehearsal.branch, SystemClock(), Quiet())
    assert not isinstance(again, Published)
    rehearsal.adopt()
    stage.rows = Counter({(stage.kind.key(1), "1@1"): 1})
    stage.check()
