"""A table and the branch on which it is loaded anew."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from lake_builders import SHOP, plan, shape

from frazil.clock import SystemClock
from frazil.coordinator.admission import Coordinator
from frazil.coordinator.resync import Loading, resync_stage
from frazil.coordinator.resyncer import adopt_resync, begin_resync
from frazil.lake.branches import BranchLake
from frazil.lake.catalogs import Catalog
from frazil.lake.commits import IcebergLake
from frazil.lake.tables import Tables
from frazil.model.commit import Accepted
from frazil.model.ledger import BranchedHead, Fence, LedgerEntry
from frazil.model.names import TableName
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
        self.lake = IcebergLake(home)
        self.branch = BranchLake(self.lake, SHOP)
        options = TableOptions(mode=DeleteMode.EQUALITY, format_version=format_version)
        self.loaded = Tables(home).create(name, shape(), options)

    def publish(self, *arguments: Any, **options: Any) -> None:
        """An epoch on main."""
        made = plan(self.loaded, *arguments, **options)
        assert isinstance(self.lake.commit(self.name, self.lake.head(self.name), made), Accepted)

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
        refs = self.lake.head(self.name).base.metadata.refs()  # type: ignore[attr-defined]
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
