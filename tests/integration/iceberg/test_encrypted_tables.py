"""A table that Iceberg is told to encrypt: every writer refuses it by name, and not one file comes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from branch_builders import CLOCK, me
from click.testing import CliRunner, Result
from feed_builders import Lab, at, table, upsert
from pyspark.sql import SparkSession
from upsert_builders import World

from frazil.app.pipeline import Pipeline
from frazil.cli.main import cli
from frazil.cli.seam import Session
from frazil.commit.resync_runner import begin_resync
from frazil.errors import CatalogRefused, ConfigError
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.branches import BranchCommitter
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.system.system_table import SystemTable, system_schema
from frazil.iceberg.tables.manifests import ManifestCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.model.commit import Refused
from frazil.model.ids import JobId, TableName
from frazil.model.schema import STRING

pytestmark = pytest.mark.spark

KEY = "encryption.key-id"
REFUSED = rf"is encrypted \(table property {KEY}\)"


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    """Two epochs, a row in quarantine, and another epoch to come."""
    lab = Lab(
        spark,
        warehouse,
        namespace,
        tmp_path,
        tables=[table(columns={"a": "INT8", "n": "INT4"})],
        settings={"on_error": "quarantine"},
    )
    for second in (1, 3):
        lab.feed.data(at(second), [upsert([1], at(second), a=1, n=second), upsert([2], at(second), a=2, n=2**40)])
        lab.feed.resolved(at(second + 1))
        lab.run()
    lab.feed.data(at(5), [upsert([1], at(5), a=1, n=5)])
    lab.feed.resolved(at(6))
    return lab


def encrypt(spark: SparkSession, table: str) -> None:
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{KEY}' = 'master')")


def replayed(lab: Lab, name: str) -> Result:
    session = Session(open_pipeline=lambda loaded, reread=None: Pipeline(loaded, spark=lab.spark, reread=reread))
    return CliRunner().invoke(cli, ["quarantine", "replay", str(lab.config), name], obj=session)


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_no_command_writes_to_an_encrypted_table(lab: Lab, warehouse: Path) -> None:
    encrypt(lab.spark, lab.sql_name("t"))
    before, name = files(warehouse / lab.namespace / "t"), f"{lab.namespace}.t"
    run = lab.cli("run", "--once")
    assert run.exit_code == ConfigError.exit_code, run.output
    assert f"table {name} is encrypted (table property {KEY})" in run.output
    replay = replayed(lab, name)
    assert replay.exit_code == ConfigError.exit_code, replay.output
    assert f"table {name} is encrypted" in replay.output
    maintained = lab.cli("maintain", "--json")
    assert maintained.exit_code != 0
    failed = [step for step in json.loads(maintained.stdout) if step["table"] == name]
    assert {step["action"] for step in failed if "is encrypted" in step["error"]} >= {"convert", "compact"}
    assert not any(step["done"] for step in failed)
    check = lab.cli("check")
    assert f"problem: table {name} is encrypted" in check.output
    status = lab.cli("status", "--json")
    assert json.loads(status.stdout)[0]["resolved"] == at(4).text, "it can still be looked at"
    assert files(warehouse / lab.namespace / "t") == before, "not even metadata"


def test_an_encrypted_table_beside_a_mirror_is_told_by_check(lab: Lab) -> None:
    encrypt(lab.spark, lab.sql_name("t__quarantine"))
    assert f"problem: table {lab.namespace}.t__quarantine is encrypted" in lab.cli("check").output


def test_upsert_stream_refuses_an_encrypted_table(
    spark: SparkSession, warehouse: Path, namespace: str, committer: IcebergCommitter, tables: Tables
) -> None:
    world = World(spark, warehouse, TableName((namespace,), "orders"), committer, tables)
    world.publish(0, [(1, 1, "a", "c")])
    encrypt(spark, world.name)
    before = files(warehouse / namespace)
    with pytest.raises(ConfigError, match=REFUSED):
        world.publish(1, [(1, 2, "b", "u")])
    assert files(warehouse / namespace) == before


def test_what_needs_no_rows_is_refused_too(
    catalog: Catalog, spark: SparkSession, warehouse: Path, namespace: str, committer: IcebergCommitter, tables: Tables
) -> None:
    """A load anew begins with a delete, a merge of manifests writes manifests."""
    world = World(spark, warehouse, TableName((namespace,), "orders"), committer, tables)
    world.publish(0, [(1, 1, "a", "c")])
    encrypt(spark, world.name)
    before = files(warehouse / namespace)
    with pytest.raises(CatalogRefused, match=REFUSED):
        begin_resync(world.table, BranchCommitter(committer, JobId("shop")), me(), CLOCK)
    answer = ManifestCommitter(catalog).merge_manifests(world.table, committer.head(world.table), [], {})
    assert isinstance(answer, Refused)
    with pytest.raises(ConfigError, match=REFUSED):
        tables.set_property(world.table, "a", "b")
    assert files(warehouse / namespace) == before


def test_a_table_of_our_own_is_refused_before_its_rows_are_written(own: Catalog) -> None:
    mine = SystemTable(own, "notes", system_schema({"name": STRING}, ("name",)), CLOCK)
    mine.head()
    encrypt(own.spark, f"{own.settings.name}.{mine.name.sql}")
    head = mine.head()
    before = files(Path(own.settings.warehouse))
    with pytest.raises(ConfigError, match=REFUSED):
        mine.rewrite(head, [{"name": "a"}], {}, {})
    assert files(Path(own.settings.warehouse)) == before
