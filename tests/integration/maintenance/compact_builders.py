"""A table that is written by vectors, compacted while others write it.

epoch(upserts, deletes)   a real epoch in `vectors` mode: its older rows are looked up, by the key index
compact(between)          plan and perform, as the daemon does it; `between` happens after the files are written
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from convert_builders import JOB, ME, Ground, Quiet
from pyiceberg.catalog.sql import SqlCatalog

from frazil.clock import SystemClock
from frazil.commit.machine import Outcome, Published, make_epoch_commit
from frazil.commit.publisher import publish
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.keys.index_cache import IndexCache
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.ingest.locate.locator import TableLocator
from frazil.ingest.locate.searched_table import SearchedTable
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.maintenance.compact.planner import CompactPlan, CompactSettings
from frazil.maintenance.compact.runner import Compact, Compacted
from frazil.maintenance.compact.sort.in_memory import SortLimits
from frazil.maintenance.compact.tasks import SparkRewriting
from frazil.model.commit import CommitAnswer, ReplaceFiles
from frazil.model.compaction import Carried, Moved, Reprojected, Rewrite, RewriteResult
from frazil.model.frontier import Frontier
from frazil.model.ids import TableName, batch_id, epoch_prefix
from frazil.model.ledger import TableHead
from frazil.model.write import DeleteMode, EpochTarget, ParquetSettings, TableTask
from frazil.sources.cockroachdb.position import Hlc

EAGER = CompactSettings(min_input_files=2, delete_ratio=0.1, tiered=False)
Act = Callable[[], object]


class Yard(Ground):
    """Keeps a model of its rows: name by key."""

    def __init__(self, catalog: Catalog, name: TableName, folder: Path, **options: Any) -> None:
        super().__init__(catalog, name, **options)
        self.rows: dict[int, str] = {}
        self._cache = IndexCache(folder / "index", 1 << 30)
        self._epochs = itertools.count(1)
        self._upper: Hlc | None = None
        self.limits = SortLimits()

    def epoch(self, upserts: Mapping[int, str], deletes: Iterable[int] = ()) -> Outcome:
        loaded = self.tables.load(self.name)
        epoch = Hlc(next(self._epochs) * 10)
        prefix = epoch_prefix(loaded.data_location, JOB, epoch, ME.fence.label)
        target = EpochTarget(epoch, batch_id(JOB, self.name, epoch), prefix)
        task = TableTask.of(loaded, index=0, key=("id",), mode=DeleteMode.VECTORS, epochs=(target,))
        writer = TableEpochWriter(task, target, TaskOutput(shard=0, attempt="1", parquet=ParquetSettings()))
        gone = list(deletes)
        if upserts:
            writer.upserts(self._batch([(n, text, part_of(text)) for n, text in upserts.items()]))
        if gone:
            writer.deletes(pa.record_batch({"id": pa.array(gone, pa.int64())}))
        searched = SearchedTable.of(loaded, key=loaded.schema.select(("id",)))
        locator = TableLocator(searched, self.committer, self._cache, DeletedRows(), SystemClock())
        epoch_commit = make_epoch_commit(
            ME, self.name, loaded.uuid, self._upper, Frontier(epoch), writer.close(), vectors=True
        )
        outcome = publish(epoch_commit, self.committer, self.clock, Quiet(), locator)
        assert isinstance(outcome, Published), outcome
        self._upper = epoch
        self.rows = {n: text for n, text in self.rows.items() if n not in gone} | dict(upserts)
        return outcome

    def compaction(self, settings: CompactSettings = EAGER) -> CompactPlan | None:
        head = self.committer.head(self.name)
        action = Compact(self.committer, SparkRewriting(self.spark, self.clock, self.limits), self.clock)
        return action.plan(self.name, head, self.committer.live(self.name, head), settings)

    def compact(
        self,
        between: Act | None = None,
        settings: CompactSettings = EAGER,
        *,
        committer: IcebergCommitter | None = None,
    ) -> Compacted:
        plan = self.compaction(settings)
        assert plan is not None, "nothing to compact"
        self.rewriting = Between(SparkRewriting(self.spark, self.clock, self.limits), [between] if between else [])
        return Compact(committer or self.committer, self.rewriting, self.clock).perform(plan)

    def check(self) -> None:
        """Everybody sees the rows of the model; what a lookup is told is what the manifests have (H22, H23)."""
        expected = Counter((n, text, part_of(text)) for n, text in self.rows.items())
        assert self.seen_by_spark() == expected
        if not self.equality:
            assert self.seen_by_pyiceberg() == expected
        known = self.committer.live(self.name, self.committer.head(self.name))
        assert {file.path: set(file.deletes) for file in known.files} == {
            file.path: set(file.deletes) for file in self.live.files
        }
        for file in self.live.files:
            assert sum(delete.is_vector for delete in file.deletes) <= 1, f"H23: {file.path}"
            for delete in file.deletes:
                if delete.data_file == file.path:
                    assert (delete.spec_id, delete.partition) == (file.spec_id, file.partition), "H22"

    def rows_of_pyiceberg(self) -> list[str]:
        """Whatever their columns are."""
        settings = self.catalog.settings
        catalog = SqlCatalog("frazil", uri=f"sqlite:///{settings.database}", warehouse=str(settings.warehouse))
        return sorted(map(repr, catalog.load_table(self.name.text).scan().to_arrow().to_pylist()))

    def lineage(self) -> dict[int, tuple[int, int]]:
        rows = self.spark.sql(f"SELECT id, _row_id, _last_updated_sequence_number FROM {self.sql}").collect()
        return {row[0]: (row[1], row[2]) for row in rows}


@dataclass
class Between:
    """Spark's part, after which others get a chance."""

    inner: SparkRewriting
    acts: list[Act]
    rewrites: list[Rewrite] = field(default_factory=list)
    reprojections: list[Reprojected] = field(default_factory=list)

    def concatenate(self, rewrite: Rewrite) -> tuple[RewriteResult, ...]:
        results = self.inner.concatenate(rewrite)
        self.rewrites.append(rewrite)
        if self.acts:
            self.acts.pop(0)()
        return results

    def reproject(self, rewrite: Rewrite, moved: Sequence[Moved], carried: Sequence[Carried]) -> Reprojected:
        found = self.inner.reproject(rewrite, moved, carried)
        self.reprojections.append(found)
        return found


class InTheWay(IcebergCommitter):
    """A lake in which something happens right before a repair is sent, or which loses its answers."""

    def __init__(self, catalog: Catalog, acts: list[Act], answers: list[CommitAnswer] | None = None) -> None:
        super().__init__(catalog)
        self._acts, self._answers = acts, answers or []
        self.given: list[CommitAnswer] = []

    def repair(self, table: TableName, head: TableHead, plan: ReplaceFiles) -> CommitAnswer:
        if self._acts:
            self._acts.pop(0)()
        answer = super().repair(table, head, plan)
        self.given.append(answer)
        return self._answers.pop(0) if self._answers else answer


def part_of(text: str) -> int:
    return sum(text.encode()) % 3


def check_lineage(yard: Yard, settings: CompactSettings = EAGER) -> None:
    """Rows of several epochs keep their ids, and the numbers of their last changes, through two compactions."""
    before = yard.lineage()
    assert len({row_id for row_id, _ in before.values()}) == len(before)
    assert len({number for _, number in before.values()}) > 1
    yard.compact(settings=settings)
    assert yard.lineage() == before
    yard.epoch({1: "1@9", 50: "new"})
    yard.run("UPDATE {table} SET name = 'x', part = 0 WHERE id = 5")
    before = yard.lineage()
    yard.compact()
    assert yard.lineage() == before, "and keeps it when it is moved again"


def evolve(catalog: Catalog, yard: Yard, version: int) -> str:
    """Gives the table columns of many kinds and two rows, then changes nearly all of them. Returns the SQL of a value
    for `place`, one of them."""
    yard.run(
        "ALTER TABLE {table} ADD COLUMNS (n int, at struct<x: int, y: string>, "
        "tags array<struct<k: string, v: int>>, m map<string, struct<a: int>>, price decimal(9, 2))"
    )
    values = "(1, 'a', 1, 7, struct(1, 'y'), array(struct('k', 1), null), map('q', struct(2)), 1.50)"
    yard.run(f"INSERT INTO {{table}} VALUES {values}, (2, null, null, null, null, null, null, null)")
    yard.run("ALTER TABLE {table} ALTER COLUMN n TYPE bigint")
    yard.run("ALTER TABLE {table} ALTER COLUMN price TYPE decimal(12, 2)")
    yard.run("ALTER TABLE {table} RENAME COLUMN at TO place")
    yard.run("ALTER TABLE {table} ADD COLUMNS (place.z double, tags.element.w int, m.value.b string)")
    yard.run("ALTER TABLE {table} DROP COLUMN place.x")
    yard.run("ALTER TABLE {table} DROP COLUMN name")
    yard.run("ALTER TABLE {table} ADD COLUMN name string")
    if version == 3:
        _add_columns_with_defaults(catalog, yard)
    return "struct('yy', 2.5D, 8)" if version == 3 else "struct('yy', 2.5D)"


def _add_columns_with_defaults(catalog: Catalog, yard: Yard) -> None:
    five, whole = catalog.iceberg.expressions.Expressions.lit(5), catalog.iceberg.types.Types.IntegerType.get()
    update = catalog.java.loadTable(catalog.identifier(yard.name)).updateSchema()
    update.addColumn("extra", whole, None, five).addColumn("place", "d", whole, None, five).commit()
    yard.run("REFRESH TABLE {table}")
