"""A daemon over MongoDB, killed at random moments while the collections change, are dropped and made anew."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from mongo_builders import Documents, mixed_key, plain, rows, run_once
from pymongo.collection import Collection
from pyspark.sql import SparkSession
from servers.mongod import Mongod

from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.paths import cache_home

pytestmark = [pytest.mark.spark, pytest.mark.servers]

ROUNDS = 4


def churn(collection: Collection[dict[str, Any]], chance: random.Random, changes: int) -> None:
    for _ in range(changes):
        key: Any = chance.choice([chance.randrange(200), f"s{chance.randrange(50)}", {"a": chance.randrange(20)}])
        document = {"n": chance.randrange(10**6), "deep": {"list": [chance.random(), {"x": chance.randrange(9)}]}}
        if chance.random() < 0.25:
            collection.delete_one({"_id": key})
        elif chance.random() < 0.1:
            collection.update_one({"_id": key}, {"$set": {f"drift{chance.randrange(3)}": chance.choice([1, "text"])}})
        else:
            collection.replace_one({"_id": key}, document, upsert=True)


class Daemon:
    """`frazil run` in a process of its own."""

    def __init__(self, directory: Path, config: Path) -> None:
        home = directory / "home"
        home.mkdir(exist_ok=True)
        if not (home / "jars").exists():
            (home / "jars").symlink_to(cache_home() / "jars")
        self._log = directory / "log"
        self._clock = SystemClock()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "frazil.cli.main", "run", str(config)],
                cwd=directory,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "FRAZIL_HOME": str(home)},
                start_new_session=True,
            )

    def wait_for_life(self) -> None:
        for _ in range(1800):
            if "took over" in self._log.read_text():
                return
            assert self._process.poll() is None, self._log.read_text()
            self._clock.wait(0.1)
        raise AssertionError(self._log.read_text())

    def kill(self) -> None:
        """The driver first, as a machine would; what it leaves behind goes too."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def test_kills_at_random_moments_lose_nothing_and_double_nothing(
    tmp_path: Path, spark: SparkSession, warehouse: Path, namespace: str, mongodb: Mongod, database: Documents
) -> None:
    """H26, H27, H48: during the first load, the stream and a load anew."""
    chance, clock = random.Random(11), SystemClock()
    for name in ("orders", "people"):
        churn(database[name], chance, 400)
    path = tmp_path / "mongo.yaml"
    document = {
        "pipeline": namespace,
        "source": {"type": "mongodb", "uri": mongodb.uri, "poll_interval": "20ms", "flush_interval": "100ms"},
        "catalog": {"type": "builtin", "warehouse": str(warehouse)},
        "tables": [
            {"source": f"{database.name}.{name}", "target": f"{namespace}.{name}"} for name in ("orders", "people")
        ],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    for number in range(ROUNDS):
        daemon = Daemon(tmp_path, path)
        daemon.wait_for_life()
        for _ in range(chance.randrange(1, 5)):
            churn(database["orders"], chance, 60)
            churn(database["people"], chance, 60)
            clock.wait(chance.random())
        if number == 1:
            database["people"].drop()
            churn(database["people"], chance, 100)
            clock.wait(2 * chance.random())
        daemon.kill()
    run_once(load_config(path), spark)
    for name in ("orders", "people"):
        documents = {mixed_key(document["_id"]): document for document in database[name].find()}
        found = rows(spark, namespace, name)
        assert set(found) == set(documents)
        assert {key: plain(row)["n"] for key, row in found.items() if row["n"] is not None} == {
            key: document["n"] for key, document in documents.items() if "n" in document
        }
