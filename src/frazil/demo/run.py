"""The demo: a shop at work, its changefeed, a pipeline on it while it is being written, and the proof.

thread   Shop.work -> Changefeed ----files---->+
main     Pipeline.run  <-----------------------+--> Iceberg tables
then     Spark SQL, and two moments of the past compared with the shop's own log
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from frazil.app.pipeline import Pipeline
from frazil.demo.changefeed import Changefeed
from frazil.demo.proof import differences
from frazil.demo.shop import COLUMNS, KEYS, Shop
from frazil.errors import ConfigError
from frazil.model.ids import TableName
from frazil.model.results import RunProgress
from frazil.sources.cockroachdb.position import Hlc

_CONFIG, _FEED, _WAREHOUSE = "shop.yaml", "feed", "warehouse"
_SHOWN = 200
SEED = 20_260_101
ROUNDS = 14
ROUND_SECONDS = 0.9


@dataclass(frozen=True, slots=True)
class Moment:
    """One resolved timestamp of the past, and what the proof found there."""

    resolved: Hlc
    rows: Mapping[str, int]
    differences: Sequence[str]


def config_text() -> str:
    """The configuration of the demo, a real one to copy from."""
    tables = [
        {
            "source": name,
            "target": f"shop.{name}",
            "key": list(KEYS[name]),
            "columns": dict(columns),
        }
        for name, columns in COLUMNS.items()
    ]
    config = {
        "pipeline": "demo",
        "source": {"type": "cockroachdb", "feed": "./feed", "poll_interval": "200ms"},
        "catalog": {"type": "builtin", "warehouse": "./warehouse"},
        "tables": tables,
    }
    return str(yaml.safe_dump(config, sort_keys=False))


def prepare(directory: Path) -> tuple[Path, Shop]:
    """A directory with nothing but a configuration, and a shop that has not opened yet. Raises ConfigError if the
    directory holds anything else than an earlier demo."""
    config, feed_files = directory / _CONFIG, directory / _FEED
    if directory.is_dir() and (found := sorted(entry.name for entry in directory.iterdir())):
        if not {*found} <= {_CONFIG, _FEED, _WAREHOUSE} or not _is_demos(config):
            raise ConfigError(
                f"{directory} holds something else than an earlier demo ({', '.join(found)[:_SHOWN]}), which the demo "
                "would delete",
                hint="Name a directory that is empty or not there yet: frazil demo --dir ./my-demo",
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config.write_text(config_text(), encoding="utf-8")
    feed_files.mkdir()
    chance = random.Random(SEED)
    return config, Shop(Changefeed(feed_files, chance=chance, start=Hlc(time.time_ns())), chance, time.time_ns)


def _is_demos(config: Path) -> bool:
    return config.is_file() and config.read_text(encoding="utf-8", errors="replace") == config_text()


def trade(shop: Shop, rounds: int = ROUNDS, pause: Callable[[], object] = lambda: None) -> None:
    """A day in the shop, with everything an at-least-once feed does on a bad one."""
    shop.open_for_business(customers=500, products=200)
    shop.resolve()
    for number in range(rounds):
        shop.work(transactions=60)
        if number == rounds // 3:
            shop.feed.restart()
        if number == rounds // 2:
            shop.add_discount()
        shop.work(transactions=60)
        # Every third resolved timestamp lags: its files hold rows beyond it.
        shop.resolve(behind=50_000_000 if number % 3 == 2 else 0)
        pause()
    shop.resolve()


def run_while_trading(pipeline: Pipeline, shop: Shop, on_progress: Callable[[RunProgress], None]) -> None:
    """Runs the pipeline until all that the shop resolved is published."""
    stop, failed = threading.Event(), []

    def work() -> None:
        try:
            trade(shop, pause=lambda: time.sleep(ROUND_SECONDS))
        except BaseException as error:
            failed.append(error)
            stop.set()
        finally:
            closed.set()

    def watch(progress: RunProgress) -> None:
        on_progress(progress)
        if closed.is_set() and progress.resolved is not None and Hlc.parse(progress.resolved) >= shop.resolved[-1]:
            stop.set()

    closed = threading.Event()
    thread = threading.Thread(target=work, name="shop", daemon=True)
    thread.start()
    pipeline.run(stop=stop, on_progress=watch)
    thread.join()
    if failed:
        raise failed[0]


def prove(pipeline: Pipeline, shop: Shop, moments: int = 2) -> list[Moment]:
    """Compares some earlier resolved timestamps and the newest one with the shop's log."""
    step = len(shop.resolved) // (moments + 1)
    chosen = [shop.resolved[step * (n + 1) - 1] for n in range(moments)] + [shop.resolved[-1]]
    return [_prove_at(pipeline, shop, resolved) for resolved in chosen]


def _prove_at(pipeline: Pipeline, shop: Shop, resolved: Hlc) -> Moment:
    state, found = shop.state_at(resolved), []
    for name, expected in state.items():
        table = TableName(("shop",), name)
        snapshot_id = pipeline.snapshot_at(table.text, resolved)
        found += differences(pipeline.spark, pipeline.catalog_name, table, snapshot_id, expected)
    return Moment(resolved, {name: len(rows) for name, rows in state.items()}, found)
