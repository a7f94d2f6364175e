"""A sinkless feed through the whole pipeline: recorded server, real Spark, real tables. Not a real cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from servers.pgwire import Drop, Fail, Gate, RecordedServer, Row, Step, resolved

from frazil.app.pipeline import Pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import SourceLost
from frazil.model.results import RunProgress
from frazil.model.state import TableState
from frazil.sources.cockroachdb.position import Hlc

pytestmark = [pytest.mark.spark, pytest.mark.servers]
TABLE = "shop.public.orders"
BESIDE = "shop.public.notes"


@pytest.fixture(autouse=True)
def _spool_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.sources.cockroachdb.opening.cache_home", lambda: tmp_path / "home")


def at(second: int) -> Hlc:
    return Hlc(1_700_000_000_000_000_000 + second * 1_000_000_000)


def change(key: int, when: int, name: str | None) -> Row:
    after = "null" if name is None else json.dumps({"id": key, "name": name})
    value = f'{{"after": {after}, "key": [{key}], "updated": "{at(when).text}"}}'
    return Row(TABLE, f"[{key}]".encode(), value.encode())


BAD = Row(BESIDE, b"[7]", b'{"after": {"id": 7, "note": 1}, "key": [7], "updated": "yesterday"}')


def config_of(
    server: RecordedServer, warehouse: Path, namespace: str, *, both: bool = False, source: str = TABLE
) -> PipelineConfig:
    beside = {
        "source": BESIDE,
        "target": f"{namespace}.notes",
        "key": ["id"],
        "columns": {"id": "INT8", "note": "INT8"},
    }
    return PipelineConfig.model_validate(
        {
            "pipeline": "sinkless",
            "source": {"type": "cockroachdb", "feed": server.url(), "poll_interval": "20ms"},
            "catalog": {"type": "builtin", "warehouse": str(warehouse)},
            "tables": [
                {
                    "source": source,
                    "target": f"{namespace}.orders",
                    "key": ["id"],
                    "columns": {"id": "INT8", "name": "STRING"},
                },
                *([beside] if both else []),
            ],
        }
    )


def run_until(pipeline: Pipeline, position: Hlc) -> None:
    stop = threading.Event()

    def watch(progress: RunProgress) -> None:
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


def test_a_table_that_is_named_without_its_database_is_the_one_that_the_feed_tells_of(
    spark: SparkSession, warehouse: Path, namespace: str
) -> None:
    rest = threading.Event()

    def feed(statement: str) -> Iterable[Step]:
        if "cursor" not in statement:
            yield from (change(1, 0, "a"), resolved(at(1).text))
        else:
            yield from (change(3, 6, "c"), resolved(at(7).text))
        yield Gate(rest)

    with RecordedServer(feed) as server:
        config = config_of(server, warehouse, namespace, source="orders")
        for position in (at(1), at(7)):
            with Pipeline(config, spark=spark) as pipeline:
                run_until(pipeline, position)
        rest.set()
    assert rows(spark, namespace) == {1: "a", 3: "c"}


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


def test_a_bad_row_stops_its_table_and_asks_the_cluster_for_few_feeds(
    spark: SparkSession, warehouse: Path, namespace: str
) -> None:
    """One feed of both tables, then one of each; the table that is stopped is not asked for again."""
    rest, more, stop = threading.Event(), threading.Event(), threading.Event()

    def feed(statement: str) -> Iterable[Step]:
        has_orders, has_notes = '"orders"' in statement, '"notes"' in statement
        first = [change(1, 0, "a")] if has_orders and "cursor" not in statement else []
        bad = [BAD] if has_notes else []
        yield from (*first, *bad, resolved(at(1).text))
        if not has_notes:
            yield Gate(more)
            yield from (change(2, 8, "b"), resolved(at(9).text))
        yield Gate(rest)

    states: dict[str, TableState] = {}

    def watch(progress: RunProgress) -> None:
        states.update({table.name: table.state for table in progress.tables})
        if states.get(f"{namespace}.notes") is TableState.STOPPED:
            more.set()
        done = {table.name: table.resolved for table in progress.tables}
        if done.get(f"{namespace}.orders") == at(9).text or len(server.statements) > 60:
            stop.set()

    with RecordedServer(feed, now=at(1).text) as server:
        with Pipeline(config_of(server, warehouse, namespace, both=True), spark=spark) as pipeline:
            pipeline.run(stop=stop, on_progress=watch)
        rest.set()
        feeds = [statement for statement in server.statements if statement.startswith("CREATE CHANGEFEED")]
    assert states[f"{namespace}.notes"] is TableState.STOPPED
    assert rows(spark, namespace) == {1: "a", 2: "b"}
    assert len(feeds) <= 4, feeds


def test_a_run_that_only_drains_publishes_what_the_cluster_has_by_then(
    spark: SparkSession, warehouse: Path, namespace: str
) -> None:
    rest = threading.Event()

    def feed(statement: str) -> Iterable[Step]:
        threading.Event().wait(0.3)  # a server takes its time, and an empty look says nothing
        yield from (change(1, 0, "a"), resolved(at(1).text), change(2, 3, "b"), resolved(at(4).text), Gate(rest))

    with RecordedServer(feed, now=at(4).text) as server:
        with Pipeline(config_of(server, warehouse, namespace), spark=spark) as pipeline:
            summary = pipeline.run(once=True)
        rest.set()
    assert rows(spark, namespace) == {1: "a", 2: "b"}
    assert summary.epochs == 2
