"""A table and the branch on which it is loaded anew."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from iceberg_builders import SHOP, plan, source_schema

from frazil.clock import SystemClock
from frazil.commit.admission import Coordinator
from frazil.commit.resync_machine import Loading, resync_stage
from frazil.commit.resync_runner import adopt_resync, begin_resync
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.branches import BranchCommitter
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.model.commit import Accepted
from frazil.model.ids import TableName
from frazil.model.ledger import BranchedHead, Fence, LedgerEntry
from frazil.model.write import DeleteMode, TableOptions

BRANCH = "frazil_shop_resync"
CLOCK = SystemClock()


def me(generation: int = 1, owner: int = 1) -> Coordinator:
    return Coordinator(
        job=SHOP, fence=Fence(generation, UUID(int=owner)), incarnation="cluster-1", config_hash="c0ffee"
    )


class Place:
    """One table, with the lake of main and the lake of its branch."""

    def __init__(self, home: Catalog, name: TableName, format_version: int = 3) -> None:
        self.home, self.name = home, name
        self.committer = IcebergCommitter(home)
        self.branch = BranchCommitter(self.committer, SHOP)
        options = TableOptions(mode=DeleteMode.EQUALITY, format_version=format_version)
        self.loaded = Tables(home).create(name, source_schema(), options)

    def publish(self, *arguments: Any, **options: Any) -> None:
        """An epoch on main."""
        made = plan(self.loaded, *arguments, **options)
        assert isinstance(self.committer.commit(self.name, self.committer.head(self.name), made), Accepted)

    def load(self, *arguments: Any, **options: Any) -> LedgerEntry:
        """An epoch on the branch."""
        made = plan(self.loaded, *arguments, **options)
        assert isinstance(self.branch.commit(self.name, self.branch.head(self.name), made), Accepted)
        return self.entry

    def begin(self, coordinator: Coordinator | None = None, **options: Any) -> Loading:
        return begin_resync(self.name, self.branch, coordinator or me(), CLOCK, **options)

    def adopt(self, coordinator: Coordinator | None = None) -> object:
        return adopt_resync(self.name, self.branch, coordinator or me(), CLOCK, self.entry)

    @property
    def heads(self) -> BranchedHead:
        return self.branch.heads(self.name)

    @property
    def entry(self) -> LedgerEntry:
        entry = self.branch.head(self.name).newest(SHOP)
        assert entry is not None
        return entry

    @property
    def stage(self) -> object:
        return resync_stage(self.heads, self.name, me())

    @property
    def refs(self) -> dict[str, int]:
        refs = self.committer.head(self.name).base.metadata.refs()  # type: ignore[attr-defined]
        return {name: refs[name].snapshotId() for name in refs}

    def read(self, what: str = "") -> dict[int, str]:
        rows = self.home.spark.sql(f"SELECT id, name FROM {self.home.settings.name}.{self.name.sql}{what}").collect()
        assert len({row.id for row in rows}) == len(rows), f"a key lives twice: {rows}"
        return {row.id: row.name for row in rows}

    def on_branch(self) -> dict[int, str]:
        return self.read(f".branch_{BRANCH}")

    def insert(self, key: int, name: str = "foreign") -> None:
        self.home.spark.sql(f"INSERT INTO {self.home.settings.name}.{self.name.sql} VALUES ({key}, '{name}')")

    @property
    def java(self) -> Any:
        return self.home.java.loadTable(self.home.identifier(self.name))
