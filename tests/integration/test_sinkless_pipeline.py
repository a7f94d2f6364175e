"""A sinkless feed through the whole pipeline: recorded server, real Spark, real tables. Not a real cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from servers.pgwire import Drop, Fail, Gate, RecordedServer, Row, Step, resolved

from frazil.config.model import PipelineConfig
from frazil.daemon.api import Pipeline
from frazil.daemon.results import Progress
from frazil.errors import SourceLost
from frazil.model.position import Hlc

pytestmark = [pytest.mark.spark, pytest.mark.servers]
TABLE = "shop.public.orders"


@pytest.fixture(autouse=True)
def _spool_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.daemon.assemble.cache_home", lambda: tmp_path / "home")


def at(second: int) -> Hlc:
    return Hlc(1_700_000_000_000_000_000 + second * 1_000_000_000)


def change(key: int, when: int, name: str | None) -> Row:
    after = "null" if name is None else json.dumps({"id": key, "name": name})
    value = f'{{"after": {after}, "key": [{key}], "updated": "{at(when).text}"}}'
    return Row(TABLE, f"[{key}]".encode(), value.encode())


def config_of(server: RecordedServer, warehouse: Path, namespace: str) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "pipeline": "sinkless",
            "source": {"type": "cockroachdb", "feed": server.url(), "poll_interval": "20ms"},
            "catalog": {"type": "builtin", "warehouse": str(warehouse)},
            "tables": [
                {
                    "source": TABLE,
                    "target": f"{namespace}.orders",
                    "key": ["id"],
                    "columns": {"id": "INT8", "name": "STRING"},
                }
            ],
        }
    )


def run_until(pipeline: Pipeline, position: Hlc) -> None:
    stop = threading.Event()

    def watch(progress: Progress) -> None:
        if progress.resolved is not None and Hlc.parse(progress.resolved) >= position:
            stop.set()

    pipeline.run(stop=stop, on_progress=watch)


def rows(spark: SparkSession, namespace: str) -> dict[int, str]:
    return {row.id: row.name for row in spark.table(f"frazil.{namespace}.orders").collect()}


def test_a_sinkless_feed_is_published_and_resumed_from_the_frontier(
    spark: SparkSession, warehouse: Path, namespace: str
) -> None:
    """The second run asks the server for what follows the published frontier, and for nothing else."""
    rest = threading.Event()

    def feed(statement: str) -> Iterable[Step]:
        if "cursor" not in statement:
            yield from (change(1, 0, "a"), change(2, 0, "b"), resolved(at(1).text))
            yield from (change(2, 3, "b2"), change(1, 2, None), resolved(at(4).text))
        else:
            yield from (change(3, 6, "c"), resolved(at(7).text))
        yield Gate(rest)

    with RecordedServer(feed) as server:
        config = config_of(server, warehouse, namespace)
        with Pipeline(config, spark=spark) as pipeline:
            run_until(pipeline, at(4))
            assert rows(spark, namespace) == {2: "b2"}
        with Pipeline(config, spark=spark) as pipeline:
            run_until(pipeline, at(7))
            epochs = pipeline.epochs(f"{namespace}.orders")
        rest.set()
        assert f"cursor = '{at(4).text}'" in server.statements[-1].replace("cursor=", "cursor = ")
    assert rows(spark, namespace) == {2: "b2", 3: "c"}
    assert [epoch.resolved for epoch in epochs] == [at(7).text, at(4).text, at(1).text]


def test_a_broken_connection_is_taken_up_again(spark: SparkSession, warehouse: Path, namespace: str) -> None:
    """Rows that had come without their promise are sent again; nothing is lost or doubled."""
    rest = threading.Event()
    sessions = []

    def feed(statement: str) -> Iterable[Step]:
        sessions.append(statement)
        if len(sessions) == 1:
            yield from (change(1, 0, "a"), resolved(at(1).text), change(1, 2, "a2"), Drop())
        yield from (change(1, 2, "a2"), change(2, 3, "b"), resolved(at(4).text), Gate(rest))

    with RecordedServer(feed) as server:
        with Pipeline(config_of(server, warehouse, namespace), spark=spark) as pipeline:
            run_until(pipeline, at(4))
        rest.set()
    assert len(sessions) >= 2
    assert rows(spark, namespace) == {1: "a2", 2: "b"}


def test_a_cursor_that_fell_out_of_the_gc_window_says_what_to_do(
    spark: SparkSession, warehouse: Path, namespace: str
) -> None:
    message = "could not create changefeed: cursor 17.0 is older than the GC threshold 1700000000.0"

    def feed(statement: str) -> Iterable[Step]:
        if "cursor" in statement:
            yield Fail(message)
        yield from (change(1, 0, "a"), resolved(at(1).text))

    with RecordedServer(feed) as server:
        config = config_of(server, warehouse, namespace)
        with Pipeline(config, spark=spark) as pipeline:
            run_until(pipeline, at(1))
        with Pipeline(config, spark=spark) as pipeline, pytest.raises(SourceLost) as lost:
            run_until(pipeline, at(9))
    assert "GC" in str(lost.value) or "gc" in str(lost.value)
    assert lost.value.hint
    assert rows(spark, namespace) == {1: "a"}, "the table stays at its last epoch"
