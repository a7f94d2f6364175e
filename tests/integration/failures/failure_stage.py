"""A small shop, its changefeed, and a pipeline that can be broken in every way; what must hold afterwards.

Stage.trade(rounds)   --> feed            the oracle remembers every change
Stage.drain(spark)    --> tables          in this process, on the suite's session
Stage.start(...)      --> tables          in a process of its own, with all its local state in one folder
assert_whole(...)         every epoch once, in one chain without gaps; contents at several moments like the oracle
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import yaml
from pyspark.sql import SparkSession

from frazil.app.assemble import assemble
from frazil.app.pipeline import Pipeline
from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.demo.changefeed import Changefeed
from frazil.demo.proof import differences
from frazil.demo.shop import COLUMNS, KEYS, Shop
from frazil.iceberg.catalogs.open_catalog import Catalog, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.tables.tables import Tables
from frazil.ingest.catalog_handles import catalog_settings
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.supervisor import Supervisor
from frazil.model.ids import JobId, TableName, batch_id
from frazil.model.ledger import LedgerEntry, TableHead
from frazil.model.results import RunSummary
from frazil.model.write import DeleteMode
from frazil.observability.metrics import Metrics
from frazil.paths import cache_home
from frazil.sources.cockroachdb.position import Hlc

JOB = JobId("shop")
NAMESPACE = "shop"
START = 1_767_225_600_000_000_000
TICK = 1_000_000
BEHIND = 5 * TICK
"""A resolved timestamp that lags by so much leaves rows beyond it in the files before it."""
PATIENCE_SECONDS = 240
_numbers = itertools.count(1)


@dataclass
class Stage:
    directory: Path
    shop: Shop
    catalog: str
    modes: Mapping[str, DeleteMode]
    changelogs: tuple[str, ...] = ()
    """Tables that have a changelog beside them."""
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    # the source

    def open_shop(self) -> None:
        self.shop.open_for_business(customers=20, products=20)
        self.shop.resolve()

    def trade(self, rounds: int = 1, transactions: int = 12) -> None:
        """Each round is an epoch; every other one is resolved late, so that its files hold rows beyond it."""
        for number in range(rounds):
            self.shop.work(transactions)
            self.shop.resolve(behind=BEHIND if number % 2 else 0)

    # the pipeline

    @property
    def config(self) -> Path:
        return self.directory / "shop.yaml"

    @property
    def warehouse(self) -> Path:
        return self.directory / "warehouse"

    @property
    def state(self) -> Path:
        """All that a process of its own may keep on this machine, but for feed, warehouse and configuration."""
        return self.directory / "state"

    @property
    def tables(self) -> tuple[TableName, ...]:
        return tuple(TableName((NAMESPACE,), name) for name in self.modes)

    def write_config(self, **more: Any) -> None:
        """`more` replaces whole sections."""
        tables = [
            {
                "source": name,
                "target": f"{NAMESPACE}.{name}",
                "key": list(KEYS[name]),
                "columns": dict(COLUMNS[name]),
                "deletes": mode.value,
                "changelog": name in self.changelogs,
            }
            for name, mode in self.modes.items()
        ]
        config = {
            "pipeline": JOB.text,
            "source": {"type": "cockroachdb", "feed": "./feed", "poll_interval": "100ms"},
            "catalog": {"type": "builtin", "name": self.catalog, "warehouse": "./warehouse"},
            "tables": tables,
            "spark": {
                "master": "local[2]",
                "jvm_memory": "1g",
                "conf": {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"},
            },
            **more,
        }
        self.config.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")

    def pipeline(self, spark: SparkSession) -> Pipeline:
        return Pipeline(load_config(self.config), spark=spark)

    def drain(
        self, spark: SparkSession, change: Callable[[Components], Components] = lambda parts: parts
    ) -> RunSummary | None:
        """Publishes all that is resolved. `change` may put something between the parts of the pipeline."""
        clock = SystemClock()
        assembly = assemble(load_config(self.config), clock, Metrics(clock), spark)
        parts = change(assembly.parts)
        if parts is assembly.parts:
            with self.pipeline(spark) as pipeline:
                return pipeline.run(once=True)
        Supervisor(parts, lambda run: None, Event()).run(once=True)
        return None

    def start(self, *command: str, under: Sequence[str] = (), **environment: str) -> subprocess.Popen[str]:
        """Starts `python command...`, in a session of its own, so that all it leaves behind can be found.

        Its output goes to files below `state`, never to a pipe that would keep it waiting.
        """
        home, temporary = self.state / "frazil", self.state / "tmp"
        home.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(exist_ok=True)
        if not (home / "jars").exists():
            (home / "jars").symlink_to(cache_home() / "jars")
        number = len(self.processes)
        process = subprocess.Popen(
            [*under, sys.executable, *command],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=(self.directory / f"out-{number}").open("w"),
            stderr=(self.directory / f"err-{number}").open("w"),
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONFAULTHANDLER": "1",
                "FRAZIL_HOME": str(home),
                "HOME": str(self.state),
                "TMPDIR": str(temporary),
                "SPARK_LOCAL_DIRS": str(temporary),
                "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
                **environment,
            },
        )
        self.processes.append(process)
        return process

    def said(self, process: subprocess.Popen[str]) -> str:
        """What the process wrote to stderr."""
        return (self.directory / f"err-{self.processes.index(process)}").read_text(errors="replace")

    def finished(self, process: subprocess.Popen[str]) -> int:
        """Waits for the process and for everything it started to be gone; then its local state is deleted."""
        try:
            code = process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            process.wait(PATIENCE_SECONDS)
            raise AssertionError(f"it did not end; what its threads did:\n{self.said(process)}") from None
        clock = SystemClock()
        for _ in range(600):
            if not alive_in_session(process.pid):
                break
            clock.wait(0.1)
        left = alive_in_session(process.pid)
        assert not left, f"the driver is gone, but it left {left} running"
        shutil.rmtree(self.state)
        return code

    def end_all(self) -> None:
        """Ends what this stage started and a failed test left running."""
        for process in self.processes:
            for pid in alive_in_session(process.pid):
                os.kill(pid, 9)
            process.wait()

    # what the tables say

    def opened(self, spark: SparkSession) -> Catalog:
        settings = catalog_settings(load_config(self.config).catalog)
        open_session("frazil-tests", [settings], active=spark)
        return open_catalog(spark, settings)

    def warehouse_has(self, spark: SparkSession, table: TableName) -> bool:
        return Tables(self.opened(spark)).exists(table)

    def head(self, spark: SparkSession, table: TableName) -> TableHead:
        return IcebergCommitter(self.opened(spark)).head(table)

    def entries(self, spark: SparkSession, table: TableName) -> list[LedgerEntry]:
        """Own entries on main's ancestry, oldest first."""
        return list(reversed(self.head(spark, table).entries(JOB)))

    def sql(self, table: TableName) -> str:
        return f"{self.catalog}.{table.sql}"

    def referenced(self, spark: SparkSession, table: TableName) -> list[Path]:
        """Every data and delete file of the current snapshot."""
        rows = spark.sql(f"SELECT file_path FROM {self.sql(table)}.all_files").collect()
        return [Path(row.file_path.removeprefix("file:")) for row in rows]

    def on_disk(self, table: TableName) -> set[Path]:
        data = self.warehouse / NAMESPACE / table.name / "data"
        return {path for kind in ("*.parquet", "*.puffin") for path in data.rglob(kind)}


def a_stage(directory: Path, modes: Mapping[str, DeleteMode] | None = None, seed: int = 7) -> Stage:
    """A shop whose clock and chance are the test's own."""
    (directory / "feed").mkdir()
    chance = random.Random(seed)
    ticks = itertools.count(START, TICK)
    feed = Changefeed(directory / "feed", chance=chance, start=Hlc(START))
    shop = Shop(feed, chance, lambda: next(ticks))
    stage = Stage(
        directory,
        shop,
        catalog=f"broken{next(_numbers)}",
        modes=modes or {"orders": DeleteMode.VECTORS, "products": DeleteMode.EQUALITY},
    )
    stage.write_config()
    stage.open_shop()
    return stage


def alive_in_session(session: int) -> list[int]:
    """Processes of this session id that are neither gone nor waiting to be collected."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(folder.name))
    return found


# what must hold


def assert_whole(stage: Stage, spark: SparkSession, moments: int = 2) -> None:
    """Every epoch is there once, in order, without a gap; and the contents are right at several moments."""
    for table in stage.tables:
        assert_every_epoch_once(stage, spark, table)
        assert_files_registered_once(stage, spark, table)
    assert_like_the_oracle(stage, spark, chosen(stage.shop.resolved, moments))


def assert_every_epoch_once(stage: Stage, spark: SparkSession, table: TableName) -> None:
    entries = stage.entries(spark, table)
    uppers = [entry.resolved for entry in entries]
    assert uppers == expected_epochs(stage.shop, table.name), f"{table}: other epochs than the source had"
    assert_one_chain(table, entries)


def assert_one_chain(table: TableName, entries: Sequence[LedgerEntry]) -> None:
    assert len({entry.batch_id for entry in entries}) == len(entries), f"{table}: an epoch was published twice"
    assert [e.batch_id for e in entries] == [batch_id(JOB, table, e.resolved) for e in entries]
    assert entries[0].lower is None
    for older, newer in pairwise(entries):
        assert newer.lower == older.resolved, f"{table}: a gap or an overlap before {newer.resolved}"
        assert newer.resolved.order > older.resolved.order
        assert newer.fence.generation >= older.fence.generation, f"{table}: an older coordinator published"


def assert_files_registered_once(stage: Stage, spark: SparkSession, table: TableName) -> None:
    # One Puffin file holds the vectors of many data files, each at a place of its own.
    rows = spark.sql(f"SELECT file_path, content_offset FROM {stage.sql(table)}.files").collect()
    places = [(row.file_path, row.content_offset) for row in rows]
    assert len(set(places)) == len(places), f"{table}: a file is registered twice"


def assert_like_the_oracle(stage: Stage, spark: SparkSession, moments: Iterable[Hlc]) -> None:
    with stage.pipeline(spark) as pipeline:
        for moment in moments:
            state = stage.shop.state_at(moment)
            for table in stage.tables:
                snapshot_id = pipeline.snapshot_at(table.text, moment)
                if stage.modes[table.name] is DeleteMode.APPEND_ONLY:
                    found = log_differences(stage, spark, table.name, stage.sql(table), snapshot_id, moment)
                else:
                    found = differences(spark, stage.catalog, table, snapshot_id, state[table.name])
                assert not found, f"at {moment}: {found[:5]} and {len(found) - 5} more"


def assert_changelogs_whole(stage: Stage, spark: SparkSession) -> None:
    for name in stage.changelogs:
        log = TableName((NAMESPACE,), f"{name}__changelog")
        assert_one_chain(log, stage.entries(spark, log))
        newest = stage.head(spark, log).snapshot_id
        assert not log_differences(stage, spark, name, stage.sql(log), newest, stage.shop.resolved[-1])


def log_differences(
    stage: Stage, spark: SparkSession, table: str, log: str, snapshot_id: int | None, moment: Hlc
) -> list[str]:
    """A changelog holds every change of its table once, with its position."""
    keys = KEYS[table]
    rows = spark.sql(f"SELECT * FROM {log} VERSION AS OF {snapshot_id}").collect()
    found = sorted((*(str(row[name]) for name in keys), row["_op"], row["_position"]) for row in rows)
    wanted = sorted(
        (*(str(part) for part in change.key), "delete" if change.after is None else "upsert", change.updated.text)
        for change in stage.shop.log
        if change.topic == table and change.updated <= moment
    )
    return [] if found == wanted else [f"{table}: {len(found)} changes, expected {len(wanted)}"]


def expected_epochs(shop: Shop, table: str) -> list[Hlc]:
    """The resolved timestamps that changed the table."""
    changed = sorted(change.updated for change in shop.log if change.topic == table)
    bounds = [Hlc(0), *shop.resolved]
    return [upper for lower, upper in pairwise(bounds) if any(lower < at <= upper for at in changed)]


def chosen(resolved: Sequence[Hlc], moments: int) -> list[Hlc]:
    """So many moments, evenly spread, the newest among them."""
    return [resolved[len(resolved) * (n + 1) // moments - 1] for n in range(moments)]
