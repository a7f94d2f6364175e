"""From where a source table is read for all of its targets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from frazil.config.routing import Route
from frazil.config.table_entries import TableEntry
from frazil.ingest.loop.target_tables import SourceState, TargetTable
from frazil.ingest.write.window_writer import furthest_back
from frazil.model.frontier import Frontier
from frazil.model.ids import TableName
from frazil.model.write import Role
from frazil.sources.cockroachdb.position import Hlc


@pytest.mark.parametrize(
    ("side", "main", "begins"),
    [
        (7, 5, 5),  # killed between the two commits of an epoch
        (5, 5, 5),
        (3, 5, 5),  # switched off for a while
        (None, 5, 5),
        (7, None, None),
        (None, None, None),
    ],
)
def test_a_job_reads_from_the_main_table_on_however_far_its_side_table_is(
    side: int | None, main: int | None, begins: int | None
) -> None:
    """What the side table has already it takes no more; what the main table lacks would be lost."""
    route = Route("orders", TableEntry.model_validate({"source": "orders"}), TableName(("shop",), "orders"))
    origin = SourceState(route, 0)
    targets = [TargetTable(origin, Role.CHANGELOG), TargetTable(origin)]
    for table, position in zip(targets, (side, main), strict=True):
        frontier = None if position is None else Frontier(Hlc(position))
        table.start_at(frontier, None, datetime(2026, 1, 1, tzinfo=UTC))
    targets[0].begin_behind(targets[1].progress.tip_position)
    assert furthest_back(targets) == (None if begins is None else Hlc(begins))
