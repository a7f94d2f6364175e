"""`_frazil.pipelines`: the newest fence stands, and the table does not grow, however often somebody starts."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from iceberg_builders import NOON, MeddledClock

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.system import fence_register as arbiters
from frazil.iceberg.system.fence_register import PIPELINES, IcebergArbiter, SourceMemory
from frazil.model.commit import Accepted, Conflicted
from frazil.model.ids import JobId
from frazil.model.ledger import Fence

pytestmark = pytest.mark.spark

SHOP, BANK = JobId("shop"), JobId("bank")
AGE, LEAST = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"


def start(catalog: Catalog, generation: int, job: JobId = SHOP) -> Fence:
    """As a process does that lives for one start."""
    arbiter, fence = IcebergArbiter(catalog, MeddledClock(), host="here"), Fence(generation, UUID(int=generation))
    newest, read = arbiter.newest(job)
    assert newest == (Fence(generation - 1, UUID(int=generation - 1)) if generation > 1 else None)
    assert isinstance(arbiter.take(job, fence, read), Accepted)
    return fence


def name(catalog: Catalog) -> str:
    return f"{catalog.settings.name}.{PIPELINES.sql}"


def rows(catalog: Catalog) -> list[tuple[str, int, str | None]]:
    found = catalog.spark.table(name(catalog)).orderBy("pipeline", "generation").collect()
    return [(row.pipeline, row.generation, row.host) for row in found]


def test_a_pipeline_that_starts_every_minute_leaves_one_row_and_few_files(
    own: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbiters, "MOST_OLD", 3)
    start(own, 1)
    start(own, 1, BANK)
    bounds = f"'{AGE}'='1', '{LEAST}'='1', 'write.metadata.previous-versions-max'='2'"
    own.spark.sql(f"ALTER TABLE {name(own)} SET TBLPROPERTIES ({bounds})")
    on_disk = []
    for generation in range(2, 18):
        last = start(own, generation)
        assert rows(own) == [("bank", 1, "here"), ("shop", generation, "here")]
        assert own.spark.table(f"{name(own)}.files").count() == 1
        assert own.spark.table(f"{name(own)}.snapshots").count() <= 4
        on_disk.append(sum(path.is_file() for path in (tmp_path / "warehouse" / "_frazil" / "pipelines").rglob("*")))
    assert max(on_disk[8:]) <= max(on_disk[:8]), on_disk
    assert IcebergArbiter(own, MeddledClock()).newest(SHOP)[0] == last
    assert IcebergArbiter(own, MeddledClock()).newest(BANK)[0] == Fence(1, UUID(int=1))


def test_a_new_register_keeps_a_short_history(own: Catalog) -> None:
    start(own, 1)
    found = {row.key: row.value for row in own.spark.sql(f"SHOW TBLPROPERTIES {name(own)}").collect()}
    assert (found[AGE], found[LEAST]) == ("600000", "10")


def test_a_register_of_an_earlier_version_shrinks_to_its_newest_fences(own: Catalog) -> None:
    """It has a row for each start, and no bounds of its own."""
    start(own, 1)
    start(own, 1, BANK)
    for generation in range(2, 5):
        own.spark.sql(f"INSERT INTO {name(own)} VALUES ('shop', {generation}, 'o', 'there', current_timestamp())")
    own.spark.sql(f"ALTER TABLE {name(own)} UNSET TBLPROPERTIES ('{AGE}', '{LEAST}', '{BANK.taken_property}')")
    fence = Fence(4, UUID(int=4)).text
    own.spark.sql(f"ALTER TABLE {name(own)} SET TBLPROPERTIES ('{SHOP.fence_property}'='{fence}')")
    start(own, 5)
    assert rows(own) == [("bank", 1, None), ("shop", 5, "here")]
    found = {row.key: row.value for row in own.spark.sql(f"SHOW TBLPROPERTIES {name(own)}").collect()}
    assert (found[AGE], found[LEAST]) == ("600000", "10")
    (taken,) = own.spark.sql(f"SELECT unix_micros(taken_at) AS at FROM {name(own)} WHERE pipeline = 'shop'").collect()
    assert taken.at == int(NOON.timestamp() * 1_000_000)


def test_what_somebody_wrote_into_another_pipelines_fence_keeps_nobody_from_starting(own: Catalog) -> None:
    start(own, 1)
    own.spark.sql(f"ALTER TABLE {name(own)} SET TBLPROPERTIES ('{BANK.fence_property}'='me')")
    start(own, 2)
    assert rows(own) == [("shop", 2, "here")]


def test_of_two_pipelines_that_start_at_once_the_second_looks_again(own: Catalog) -> None:
    """H45: rows of all pipelines are written by either of them, so neither may forget the other's."""
    arbiter = IcebergArbiter(own, MeddledClock(), host="here")
    _, read = arbiter.newest(SHOP)
    start(own, 1, BANK)
    assert isinstance(arbiter.take(SHOP, Fence(1, UUID(int=1)), read), Conflicted)
    start(own, 1)
    assert rows(own) == [("bank", 1, "here"), ("shop", 1, "here")]


def test_what_a_source_asks_to_be_kept_stays_through_starts_and_is_the_pipelines_own(own: Catalog) -> None:
    shop, bank = (SourceMemory(own, job, MeddledClock()) for job in (SHOP, BANK))
    assert shop.recall() == ""
    shop.keep("since 1")
    fence = start(own, 1)
    assert (shop.recall(), bank.recall()) == ("since 1", "")
    bank.keep("since 2")
    shop.keep("since 3")
    shop.keep("since 3")
    assert (shop.recall(), bank.recall()) == ("since 3", "since 2")
    assert IcebergArbiter(own, MeddledClock()).newest(SHOP)[0] == fence
    assert rows(own) == [("shop", 1, "here")]
    assert own.spark.table(f"{name(own)}.snapshots").count() == 4
