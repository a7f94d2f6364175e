"""`_frazil.pipelines`: the newest fence stands, however often somebody starts."""

from __future__ import annotations

from uuid import UUID

import pytest
from lake_builders import MeddledClock

from frazil.lake import arbiter as arbiters
from frazil.lake.arbiter import PIPELINES, IcebergArbiter
from frazil.lake.catalogs import Catalog
from frazil.model.commit import Accepted
from frazil.model.ledger import Fence
from frazil.model.names import JobId

pytestmark = pytest.mark.spark

SHOP = JobId("shop")


def start(catalog: Catalog, generation: int) -> Fence:
    """As a process does that lives for one start."""
    arbiter, fence = IcebergArbiter(catalog, MeddledClock()), Fence(generation, UUID(int=generation))
    newest, read = arbiter.newest(SHOP)
    assert newest == (Fence(generation - 1, UUID(int=generation - 1)) if generation > 1 else None)
    assert isinstance(arbiter.take(SHOP, fence, read), Accepted)
    return fence


def test_a_pipeline_that_starts_every_minute_leaves_few_snapshots(
    own: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbiters, "MOST_OLD", 3)
    start(own, 1)
    name = f"{own.settings.name}.{PIPELINES.sql}"
    own.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms'='1')")
    for generation in range(2, 10):
        last = start(own, generation)
        assert own.spark.table(f"{name}.snapshots").count() <= 4
    assert IcebergArbiter(own, MeddledClock()).newest(SHOP)[0] == last
    assert own.spark.table(name).count() == 9, "the rows are for people"
