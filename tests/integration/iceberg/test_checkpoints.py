"""`_frazil.checkpoints`: replaced and never piled up, by several pipelines at once, and of no importance when lost."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from iceberg_builders import NOON, MeddledClock
from pyiceberg.catalog.sql import SqlCatalog
from servers.faulty_proxy import Fault, FaultyProxy

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.system.checkpoints import Checkpoint, Checkpoints
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import JobId, TableName
from frazil.model.state import TableState
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.mongodb.position import ClusterTime

pytestmark = pytest.mark.spark

SHOP, BANK = JobId("shop"), JobId("bank")
TABLE = TableName(("_frazil",), "checkpoints")


def row(sync_id: str = "shop.orders", documents: int = 0, **more: object) -> Checkpoint:
    facts = {"state": TableState.STEADY_STATE, "source_collection": sync_id.rpartition(".")[2], **more}
    return Checkpoint(sync_id=sync_id, documents_processed=documents, **facts)  # type: ignore[arg-type]


def data_files(catalog: Catalog) -> list[str]:
    files = catalog.spark.table(f"{catalog.settings.name}.{TABLE.sql}.files")
    assert files.where("content <> 0").count() == 0, "nothing is deleted by delete files"
    return [file.file_path.removeprefix("file:") for file in files.collect()]


def counts(catalog: Catalog, job: JobId) -> dict[str, int]:
    return {row.sync_id: row.documents_processed for row in Checkpoints(catalog, MeddledClock()).recorded(job)}


def test_a_checkpoint_is_replaced_and_its_old_file_is_no_longer_part_of_the_table(own: Catalog) -> None:
    checkpoints = Checkpoints(own, MeddledClock())
    for documents in range(4):
        assert checkpoints.record(SHOP, [row("shop.orders", documents), row("shop.items", documents * 10)])
        assert len(data_files(own)) == 1
    assert counts(own, SHOP) == {"shop.orders": 3, "shop.items": 30}


def test_a_table_that_left_the_pipeline_leaves_its_checkpoints_too(own: Catalog) -> None:
    checkpoints = Checkpoints(own, MeddledClock())
    assert checkpoints.record(SHOP, [row("shop.orders"), row("shop.items")])
    assert checkpoints.record(SHOP, [row("shop.items", 1)])
    assert counts(own, SHOP) == {"shop.items": 1}
    assert checkpoints.record(SHOP, [])
    assert counts(own, SHOP) == {}
    assert data_files(own) == []


def test_two_pipelines_stand_beside_each_other(own: Catalog) -> None:
    checkpoints = Checkpoints(own, MeddledClock())
    assert checkpoints.record(SHOP, [row("shop.orders", 1)])
    assert checkpoints.record(BANK, [row("bank.accounts", 5)])
    assert checkpoints.record(SHOP, [row("shop.orders", 2)])
    assert (counts(own, SHOP), counts(own, BANK)) == ({"shop.orders": 2}, {"bank.accounts": 5})
    assert len(data_files(own)) == 2


def test_every_column_reads_back_in_spark_and_in_pyiceberg(own: Catalog, tmp_path: Path) -> None:
    whole = row(
        "shop.orders",
        17,
        state=TableState.INITIAL_SYNC,
        source_database="store",
        source_collection="orders",
        resume_token='{"_data": "8263"}',
        high_water_mark_id='{"$oid": "65f0"}',
        last_snapshot_id=2**62,
        resolved=ClusterTime.of(1_700_000_000, 3),
    )
    sparse = row("shop.items", state=TableState.INITIALIZING, source_collection="items", resolved=Hlc(7, 1))
    assert Checkpoints(own, MeddledClock()).record(SHOP, [whole, sparse])
    found = {one.sync_id: one for one in Checkpoints(own, MeddledClock()).recorded(SHOP)}
    for given in (whole, sparse):
        read = found[given.sync_id]
        assert read.updated_at == NOON
        assert {name: getattr(read, name) for name in Checkpoint.__slots__ if name != "updated_at"} == {
            name: getattr(given, name) for name in Checkpoint.__slots__ if name != "updated_at"
        }
    warehouse = tmp_path / "warehouse"
    other = SqlCatalog(own.settings.name, uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    (orders,) = [r for r in other.load_table(TABLE.text).scan().to_arrow().to_pylist() if r["sync_id"] == "shop.orders"]
    assert orders == {
        "pipeline": "shop",
        "sync_id": "shop.orders",
        "state": "INITIAL_SYNC",
        "source_database": "store",
        "source_collection": "orders",
        "resume_token": '{"_data": "8263"}',
        "high_water_mark_id": '{"$oid": "65f0"}',
        "documents_processed": 17,
        "last_snapshot_id": 2**62,
        "resolved": "1700000000-3",
        "updated_at": NOON,
    }


def test_of_two_that_record_at_once_the_second_looks_again_and_neither_is_lost(own: Catalog) -> None:
    """The other pipeline's commit lands between our look at the table and ours."""
    clock = MeddledClock()
    checkpoints, other = Checkpoints(own, clock), Checkpoints(own, MeddledClock())
    assert checkpoints.record(SHOP, [row("shop.orders", 1)])
    clock.before_writing = lambda: assert_recorded(other, BANK, row("bank.accounts", 5))
    assert checkpoints.record(SHOP, [row("shop.orders", 2)])
    assert (counts(own, SHOP), counts(own, BANK)) == ({"shop.orders": 2}, {"bank.accounts": 5})


def assert_recorded(checkpoints: Checkpoints, job: JobId, *rows: Checkpoint) -> None:
    assert checkpoints.record(job, rows)


def test_one_who_is_always_overtaken_gives_up_without_an_error(own: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    clock, other = MeddledClock(), Checkpoints(own, MeddledClock())

    def overtake() -> None:
        assert_recorded(other, BANK, row("bank.accounts"))
        clock.before_writing = overtake

    clock.before_writing = overtake
    with caplog.at_level(logging.WARNING, "frazil.checkpoints"):
        assert not Checkpoints(own, clock).record(SHOP, [row("shop.orders")])
    assert "pipeline shop were not recorded" in caplog.text
    assert counts(own, SHOP) == {}


def test_many_pipelines_that_record_at_once_keep_one_file_each(own: Catalog) -> None:
    jobs = [JobId(f"job{number}") for number in range(3)]
    assert Checkpoints(own, MeddledClock()).record(JobId("first"), [row("a.b")])

    def keep_recording(job: JobId) -> None:
        checkpoints, done = Checkpoints(own, MeddledClock()), 0
        while done < 5:
            done += checkpoints.record(job, [row(f"{job}.t", done)])

    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(keep_recording, jobs))
    assert [counts(own, job) for job in jobs] == [{f"{job}.t": 4} for job in jobs]
    assert len(data_files(own)) == len(jobs) + 1


def test_a_lost_table_is_made_again(own: Catalog) -> None:
    checkpoints = Checkpoints(own, MeddledClock())
    assert checkpoints.recorded(SHOP) == []
    assert checkpoints.record(SHOP, [row("shop.orders", 1)])
    assert Tables(own).drop(TABLE)
    assert checkpoints.recorded(SHOP) == []
    assert checkpoints.record(SHOP, [row("shop.orders", 2)])
    assert counts(own, SHOP) == {"shop.orders": 2}


@pytest.mark.parametrize("is_run_once", [False, True], ids=["daemon", "cron"])
def test_old_snapshots_go_with_the_files_that_only_they_had(own: Catalog, tmp_path: Path, is_run_once: bool) -> None:
    """One snapshot an epoch, for years; by one process, or by one for each epoch."""
    checkpoints = Checkpoints(own, MeddledClock(), tidy_every=5)
    assert checkpoints.record(SHOP, [row("shop.orders")])
    name = f"{own.settings.name}.{TABLE.sql}"
    bounds = "'history.expire.max-snapshot-age-ms'='1', 'history.expire.min-snapshots-to-keep'='2'"
    own.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({bounds})")
    held = []
    for documents in range(1, 16):
        if is_run_once:
            checkpoints = Checkpoints(own, MeddledClock(), tidy_every=5)
        assert checkpoints.record(SHOP, [row("shop.orders", documents)])
        held.append(own.spark.table(f"{name}.snapshots").count())
    assert held == [2, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 7, 2, 3, 4], "two stay, and five of the others wait for each other"
    on_disk = {str(path) for path in (tmp_path / "warehouse").rglob("data/*.parquet")}
    assert set(data_files(own)) < on_disk
    assert len(on_disk) == 5, "of the four snapshots, and the one that the oldest of them replaced"
    assert counts(own, SHOP) == {"shop.orders": 15}


def test_a_table_twice_in_one_record_is_refused(own: Catalog) -> None:
    with pytest.raises(ValueError, match=r"shop\.orders"):
        Checkpoints(own, MeddledClock()).record(SHOP, [row("shop.orders", 1), row("shop.orders", 2)])


@pytest.mark.servers
@pytest.mark.parametrize("fault", [Fault.DROP, Fault.BROKEN, Fault.CONFLICT])
def test_a_record_whose_answer_is_lost_is_made_again_and_stands_once(
    behind_proxy: Catalog, proxy: FaultyProxy, namespace: str, fault: Fault
) -> None:
    """H6: it had landed, and nobody was told."""
    job, checkpoints = JobId(f"lost_{namespace}"), Checkpoints(behind_proxy, MeddledClock())
    assert checkpoints.record(job, [row("shop.orders", 1)])
    sent = proxy.commits
    proxy.fail_next(fault)
    assert checkpoints.record(job, [row("shop.orders", 2)])
    assert proxy.commits == sent + 2
    assert counts(behind_proxy, job) == {"shop.orders": 2}
    own_files = behind_proxy.spark.table(f"{behind_proxy.settings.name}.{TABLE.sql}.files").where(
        f"partition.pipeline = '{job}'"
    )
    assert own_files.count() == 1


@pytest.mark.servers
def test_a_catalog_that_says_no_is_logged_with_what_to_do(
    behind_proxy: Catalog, proxy: FaultyProxy, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    job, checkpoints = JobId(f"no_{namespace}"), Checkpoints(behind_proxy, MeddledClock())
    assert checkpoints.record(job, [row("shop.orders", 1)])
    proxy.fail_next(Fault.REFUSE)
    with caplog.at_level(logging.WARNING, "frazil.checkpoints"):
        assert not checkpoints.record(job, [row("shop.orders", 2)])
    assert "grant" in caplog.text
    assert counts(behind_proxy, job) == {"shop.orders": 1}


@pytest.mark.servers
def test_a_catalog_that_is_away_costs_a_line_in_the_log_and_nothing_else(
    behind_proxy: Catalog, proxy: FaultyProxy, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    job, checkpoints = JobId(f"away_{namespace}"), Checkpoints(behind_proxy, MeddledClock())
    assert checkpoints.record(job, [row("shop.orders", 1)])
    proxy.away = True
    with caplog.at_level(logging.WARNING, "frazil.checkpoints"):
        assert not checkpoints.record(job, [row("shop.orders", 2)])
    (line,) = [record.getMessage() for record in caplog.records if record.name == "frazil.checkpoints"]
    assert f"pipeline {job} were not recorded" in line
    assert proxy.uri in line
    proxy.away = False
    assert checkpoints.record(job, [row("shop.orders", 3)])
    assert counts(behind_proxy, job) == {"shop.orders": 3}
