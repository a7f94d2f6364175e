"""Which manifests are put together."""

from __future__ import annotations

import pytest

from frazil.maintenance.rewrite_manifests import ManifestSettings, plan_manifests
from frazil.model.files import LiveManifest
from frazil.model.ids import TableName

TABLE = TableName.parse("shop.orders")
SETTINGS = ManifestSettings(min_manifests=3, target_bytes=1000)


def manifest(path: str, size: int = 10, *, spec: int = 0, files: int = 1, deletes: bool = False) -> LiveManifest:
    return LiveManifest(path, size, spec, files, deletes)


def chosen(*manifests: LiveManifest) -> list[str]:
    plan = plan_manifests(TABLE, manifests, SETTINGS)
    return [] if plan is None else [one.path for one in plan.manifests]


def test_enough_small_ones_of_one_kind_and_spec_are_put_together() -> None:
    assert chosen(*map(manifest, "abc")) == ["a", "b", "c"]
    assert chosen(*map(manifest, "ab")) == []
    assert chosen(manifest("a"), manifest("b"), manifest("c", spec=1)) == []
    assert chosen(manifest("a"), manifest("b"), manifest("c", deletes=True)) == []
    deletes = [manifest(path, deletes=True) for path in "xyz"]
    assert chosen(manifest("a"), *deletes) == ["x", "y", "z"]
    assert chosen(*deletes, *map(manifest, "abc")) == ["a", "b", "c", "x", "y", "z"]


def test_large_ones_and_ones_without_a_live_file_are_left_alone() -> None:
    assert chosen(manifest("a"), manifest("b"), manifest("c", 500)) == []
    assert chosen(manifest("a"), manifest("b"), manifest("c", files=0)) == []


def test_a_plan_says_how_many() -> None:
    plan = plan_manifests(TABLE, [manifest(path, files=4) for path in "abc"], SETTINGS)
    assert plan is not None
    assert plan.counts == {"manifests": 3, "entries": 12}
    assert "3 manifests of 30 bytes" in plan.reason


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="min_manifests"):
        ManifestSettings(min_manifests=1)
