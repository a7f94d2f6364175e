"""Manifests that tell only of what went: the next commit drops them, and where none may come soon, maintenance does."""

from __future__ import annotations

from frazil.maintenance.rewrite_manifests import ManifestSettings, plan_manifests
from frazil.model.files import LiveManifest
from frazil.model.ids import TableName

ORDERS = TableName(("shop",), "orders")
LIVE = LiveManifest("live.avro", 5000, 0, 3)
EMPTY = (LiveManifest("dead.avro", 4000, 0, 0), LiveManifest("dead-deletes.avro", 4000, 0, 0, deletes=True))


def test_a_table_at_rest_drops_them_and_keeps_the_one_that_is_of_use() -> None:
    plan = plan_manifests(ORDERS, (LIVE, *EMPTY), ManifestSettings(min_manifests=2, drops_empty=True))
    assert plan is not None
    assert plan.manifests == EMPTY
    assert plan.counts == {"manifests": 2, "entries": 0}


def test_beside_a_stream_they_are_left_to_the_next_commit() -> None:
    assert plan_manifests(ORDERS, (LIVE, *EMPTY), ManifestSettings(min_manifests=2)) is None


def test_without_any_there_is_nothing_to_do() -> None:
    assert plan_manifests(ORDERS, (LIVE,), ManifestSettings(min_manifests=2, drops_empty=True)) is None
