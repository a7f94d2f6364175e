"""upsert_stream inside streaming queries with foreachBatch, with checkpoints that are kept, lost and exchanged."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from upsert_builders import ALREADY, PUBLISHED, Change, Feed, World

import frazil
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.ingest.upsert_stream.api import Upserts
from frazil.model.ids import JobId, TableName

pytestmark = pytest.mark.spark


@pytest.fixture
def world(spark: SparkSession, warehouse: Path, namespace: str, committer: IcebergCommitter, tables: Tables) -> World:
    return World(spark, warehouse, TableName((namespace,), "orders"), committer, tables)


@pytest.fixture
def feed(world: World, tmp_path: Path) -> Feed:
    return Feed(world, tmp_path / "changes")


def random_batches(seed: int, count: int) -> Iterator[tuple[list[Change], dict[int, tuple[int, str]]]]:
    """Batches of inserts, updates, deletes and stale duplicates in any order, each with the state after it."""
    chance = random.Random(seed)
    state: dict[int, tuple[int, str]] = {}
    version = 0
    for number in range(count):
        changes: list[Change] = []
        for _ in range(40):
            version += 1
            key = chance.randrange(25)
            if chance.random() < 0.3:
                state.pop(key, None)
                changes.append((key, version, None, chance.choice(["d", "delete"])))
            else:
                state[key] = (version, f"{number}/{version}")
                changes.append((key, version, state[key][1], chance.choice(["c", "u", None])))
        changes += chance.sample(changes, 5)
        chance.shuffle(changes)
        yield changes, dict(state)


def as_rows(state: dict[int, tuple[int, str]]) -> list[tuple[Any, ...]]:
    return sorted(((key, *values) for key, values in state.items()), key=json.dumps)


def test_a_stream_of_updates_and_deletes_becomes_the_state_of_its_source(world: World, feed: Feed) -> None:
    """H2, H34: one snapshot a batch, each showing the state after it."""
    states = []
    for changes, state in random_batches(seed=7, count=4):
        feed.add(changes)
        states.append(state)

    def publish(batch: DataFrame, batch_id: int) -> None:
        frazil.upsert_stream(batch, batch_id, **world.with_options())

    query = feed.run(publish)
    assert world.batches() == ["batch:0", "batch:1", "batch:2", "batch:3"]
    assert world.rows() == as_rows(states[-1])
    entries = world.committer.head(world.table).entries(JobId("stream"))
    assert {entry.incarnation for entry in entries} == {query}
    for entry, state in zip(reversed(entries), states, strict=True):
        found = world.spark.sql(f"SELECT id, version, name FROM {world.name} VERSION AS OF {entry.snapshot_id}")
        assert sorted(map(tuple, found.collect()), key=json.dumps) == as_rows(state)
    assert world.spark.table(world.name).columns == ["id", "version", "name"]


def test_a_crash_between_commit_and_checkpoint_publishes_the_batch_once(world: World, feed: Feed) -> None:
    """H6, H7: Spark runs the batch again in a new process, and the ledger knows it."""
    feed.add([(1, 1, "a", "c")])
    feed.add([(1, 2, "b", "u")])
    first = feed.publisher()

    def crash_after_batch_1(batch: DataFrame, batch_id: int) -> None:
        first(batch, batch_id)
        if batch_id == 1:
            raise RuntimeError("power cut")

    with pytest.raises(StreamingQueryException, match="power cut"):
        feed.run(crash_after_batch_1)
    feed.add([(2, 1, "c", "c")])
    second = feed.publisher(Upserts())
    feed.run(second)
    results = [(o.batch_id, o.result) for o in second.outcomes]  # type: ignore[attr-defined]
    assert results == [(1, ALREADY), (2, PUBLISHED)]
    assert world.batches() == ["batch:0", "batch:1", "batch:2"]
    assert world.rows() == [(1, 2, "b"), (2, 1, "c")]


def test_a_new_checkpoint_stops_loudly_instead_of_skipping_every_batch(world: World, feed: Feed) -> None:
    """H53. The refused query tells the way out, and takes nothing over from the one that publishes."""
    running = Upserts()
    feed.add([(1, 1, "a", "c")])
    query = feed.run(feed.publisher(running))
    feed.add([(1, 2, "b", "u")])
    with pytest.raises(StreamingQueryException) as caught:
        feed.run(feed.publisher(Upserts()), checkpoint="another")
    told = str(caught.value)
    assert f"published by streaming query {query} up to batch:0" in told
    assert "hint: A query's id lives in its checkpoint directory" in told
    assert world.rows() == [(1, 1, "a")]
    assert world.publish(1, [(1, 2, "b", "u")], running, query).result is PUBLISHED


def test_a_query_that_is_started_again_takes_over_from_another_process(world: World, feed: Feed) -> None:
    """A fence is of one run of a query: a notebook that lost its pipeline to another process can take it back."""
    notebook = Upserts()
    feed.add([(1, 1, "a", "c")])
    query = feed.run(feed.publisher(notebook))
    world.publish(1, [(1, 2, "b", "u")], Upserts(), query)
    feed.add([(9, 9, "lost: batch 1 is published already", "c")])
    feed.add([(1, 3, "c", "u")])
    feed.run(feed.publisher(notebook))
    assert world.batches() == ["batch:0", "batch:1", "batch:2"]
    assert world.rows() == [(1, 3, "c")]
