"""When the old snapshots of Frazil's own tables are many."""

from __future__ import annotations

import pytest

from frazil.iceberg.system.system_table import may_go
from frazil.model.ledger import SnapshotFacts, TableHead

AGE, LEAST = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
DAY = 86_400_000


def head(*milliseconds: int, **properties: str) -> TableHead:
    """Of snapshots that were made then, newest first."""
    made = tuple(SnapshotFacts(9 - place, 8 - place, 9 - place, at, {}) for place, at in enumerate(milliseconds))
    return TableHead(uuid="u", ancestry=made, properties=properties)


def test_those_go_that_are_old_beside_the_newest_and_not_among_the_last_few() -> None:
    bounds = {AGE: "10", LEAST: "2"}
    assert may_go(head(100, 95, 90, 89, 1, **bounds)) == 2
    assert may_go(head(100, 1, 1, 1, 1, **bounds)) == 3
    assert may_go(head(100, 1, **bounds)) == 0
    assert may_go(head(**bounds)) == 0


def test_without_bounds_of_its_own_those_of_iceberg_hold() -> None:
    assert may_go(head(9 * DAY, 4 * DAY, 4 * DAY - 1)) == 1


def test_a_bound_that_is_no_number_is_told() -> None:
    with pytest.raises(ValueError, match="soon"):
        may_go(head(1, **{AGE: "soon"}))
