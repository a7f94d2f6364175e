"""A table that the catalog has under two names: nothing of it is deleted, for neither can tell what the other needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from retention_builders import DAY, GRACE, Stage

from frazil.errors import CatalogRefused, CatalogUnavailable, FrazilError
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.catalogs.table_scan import CatalogTableScan
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import TableName

pytestmark = pytest.mark.spark

COPY = TableName(("archive", "deep"), "copy")


def filled(stage: Stage) -> None:
    stage.epoch({1: "a", 2: "b"})
    stage.delete(1)
    stage.rewrite()
    stage.epoch({3: "c"})


def register(stage: Stage) -> None:
    Tables(stage.catalog).ensure_namespace(COPY.namespace)
    java, name = stage.catalog.java, stage.catalog.identifier(stage.name)
    location = java.loadTable(name).operations().current().metadataFileLocation()
    java.registerTable(stage.catalog.identifier(COPY), location)


class Copy:
    """What is read under the other name, at every snapshot."""

    def __init__(self, stage: Stage) -> None:
        self._spark, self._sql = stage.catalog.spark, f"{stage.catalog.settings.name}.{COPY.sql}"
        self._seen = self._read()

    def append(self) -> None:
        self._spark.sql(f"INSERT INTO {self._sql} VALUES (99, 'of the copy')")
        self._seen = self._read()

    def read_all(self) -> None:
        assert self._read() == self._seen

    def _read(self) -> dict[int, set[tuple[int, str]]]:
        self._spark.catalog.refreshTable(self._sql)
        return {
            row.snapshot_id: {
                (found.id, found.name)
                for found in self._spark.read.option("versionAsOf", str(row.snapshot_id)).table(self._sql).collect()
            }
            for row in self._spark.table(f"{self._sql}.snapshots").collect()
        }


def test_files_that_expire_under_one_name_stay_for_the_other(stage: Stage) -> None:
    filled(stage)
    register(stage)
    copy, before = Copy(stage), stage.left()
    with pytest.raises(CatalogRefused, match=COPY.text) as caught:
        stage.expire(max_snapshots=1)
    assert "drop one of the two names" in caught.value.hint
    assert stage.left() == before
    stage.clock.ahead = 2 * GRACE
    stage.clean()
    copy.read_all()
    assert stage.queue.drop(COPY), "what to do"
    stage.expire(max_snapshots=1)
    stage.clock.ahead += 2 * GRACE
    assert stage.clean().deleted
    stage.read_all()


def test_what_is_committed_under_one_name_is_not_swept_under_the_other(stage: Stage) -> None:
    """It carries the same uuid, and the other one refers to none of it."""
    filled(stage)
    register(stage)
    copy = Copy(stage)
    copy.append()
    stage.clock.ahead = 2 * DAY
    with pytest.raises(CatalogRefused, match=COPY.text):
        stage.sweep()
    stage.clock.ahead += 2 * GRACE
    stage.clean()
    assert stage.queued() == set()
    copy.read_all()


def test_files_that_were_queued_before_it_was_registered_again_wait(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """H46: and go once there is one name again."""
    filled(stage)
    crossed: list[Copy] = []

    class Late:
        """Registered after the look at all names, and before the expiry lands."""

        def __getattr__(self, name: str) -> Any:
            return getattr(stage.snapshots, name)

        def expire(self, *arguments: Any) -> Any:
            register(stage)
            crossed.append(Copy(stage))
            return stage.snapshots.expire(*arguments)

    assert stage.expire(committer=Late(), max_snapshots=1).files_queued
    queued = stage.queued()
    stage.clock.ahead = 2 * GRACE
    done = stage.clean()
    assert (done.deleted, done.failed) == (0, len(queued))
    assert "drop one of the two names" in caplog.text
    crossed[0].read_all()
    assert stage.queue.drop(COPY)
    stage.clock.ahead += 2 * GRACE
    assert stage.clean().deleted == len(queued)
    stage.read_all()


class Closed(CatalogTableScan):
    """A catalog that says no, or nothing, about one of its tables."""

    def __init__(self, catalog: Catalog, error: FrazilError) -> None:
        super().__init__(catalog)
        self._error = error

    def _uuid(self, identifier: Any) -> str | FrazilError | None:
        if identifier.name() != "secret":
            return super()._uuid(identifier)
        if isinstance(self._error, CatalogUnavailable):
            raise self._error
        return self._error


def test_who_must_not_read_some_table_finds_a_second_name_among_the_others(stage: Stage) -> None:
    """A table that nobody may show us must not keep all others from being cleaned; one that does not answer may."""
    filled(stage)
    Stage(stage.catalog, TableName(("a_first",), "secret"))
    refused = Closed(stage.catalog, CatalogRefused("no", hint="ask its owner"))
    assert refused.other_table_with_uuid(stage.name, stage.table.uuid) is None
    with pytest.raises(CatalogRefused):
        refused.holder(stage.table.uuid, beside=stage.name.text)
    register(stage)
    assert refused.other_table_with_uuid(stage.name, stage.table.uuid) == COPY.text
    assert refused.holder(stage.table.uuid, beside=stage.name.text) == COPY.text
    with pytest.raises(CatalogUnavailable):
        Closed(stage.catalog, CatalogUnavailable("away", hint="wait")).other_table_with_uuid(
            stage.name, stage.table.uuid
        )


@pytest.mark.parametrize("content", ['{"format-version": 99}', pytest.param("{", marks=pytest.mark.long)])
def test_a_damaged_table_beside_it_keeps_nobody_from_cleaning(stage: Stage, content: str) -> None:
    """Iceberg-java reads a damaged file twenty times before it gives up, which takes a minute and a half."""
    filled(stage)
    damaged = Stage(stage.catalog, TableName(("a_first",), "damaged"))
    java = stage.catalog.java.loadTable(stage.catalog.identifier(damaged.name))
    file = Path(java.operations().current().metadataFileLocation().removeprefix("file:"))
    file.write_text(content)
    table_scan = CatalogTableScan(stage.catalog)
    assert table_scan.other_table_with_uuid(stage.name, stage.table.uuid) is None
    with pytest.raises(FrazilError):
        table_scan.holder(stage.table.uuid, beside=stage.name.text)
