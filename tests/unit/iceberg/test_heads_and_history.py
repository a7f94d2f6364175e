from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from frazil.errors import CatalogRefused, ConfigError
from frazil.iceberg.tables.head import head_of, parse_head
from frazil.iceberg.tables.tables import parse_table
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, LedgerEntry, as_of, pipelines, published, retained
from frazil.sources.cockroachdb.position import Hlc

SHOP = JobId("shop")


def entry(resolved: int, job: JobId = SHOP, lower: int | None = None) -> LedgerEntry:
    return LedgerEntry(
        job=job,
        batch_id=UUID(int=resolved),
        lower=None if lower is None else Hlc(lower),
        resolved=Hlc(resolved),
        notes="",
        fence=Fence(1, UUID(int=1)),
        incarnation="c",
        config_hash="h",
        operation="append",
        data_files=1,
        delete_files=0,
        rows=1,
        deletes=0,
    )


def snapshot(number: int, parent: int | None, summary: dict[str, str] | None = None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": number * 1000,
        "summary": summary or {"operation": "append"},
    }
    return facts if parent is None else {**facts, "parent-snapshot-id": parent}


def metadata(*snapshots: dict[str, Any], main: int | None = None, **more: Any) -> dict[str, Any]:
    refs = {} if main is None else {"main": {"snapshot-id": main, "type": "branch"}}
    return {"table-uuid": "u", "snapshots": list(snapshots), "refs": refs, "properties": {}, **more}


def test_the_ancestry_runs_from_main_and_leaves_side_branches_out() -> None:
    """H5"""
    head = parse_head(metadata(snapshot(1, None), snapshot(2, 1), snapshot(3, 1), snapshot(4, 2), main=4))
    assert [s.snapshot_id for s in head.ancestry] == [4, 2, 1]
    assert head.history_is_whole


def test_expiry_cuts_the_ancestry_and_it_shows() -> None:
    head = parse_head(metadata(snapshot(3, 2), snapshot(4, 3), main=4))
    assert [s.snapshot_id for s in head.ancestry] == [4, 3]
    assert not head.history_is_whole


def test_a_table_without_snapshots_has_no_ancestry() -> None:
    assert parse_head(metadata()).ancestry == ()
    assert parse_head(metadata(**{"current-snapshot-id": -1})).snapshot_id is None


def test_metadata_without_references_goes_by_the_current_snapshot() -> None:
    assert parse_head(metadata(snapshot(7, None), **{"current-snapshot-id": 7})).snapshot_id == 7


def test_a_history_that_runs_in_a_circle_is_refused() -> None:
    with pytest.raises(CatalogRefused, match="circle"):
        parse_head(metadata(snapshot(1, 2), snapshot(2, 1), main=2))


def test_properties_carry_the_ledger() -> None:
    text = entry(5).to_property(9, 3)
    head = parse_head(metadata(properties={"frazil.shop.ledger": text}))
    assert head.in_property(SHOP).resolved == Hlc(5)  # type: ignore[union-attr]


def test_history_lists_own_epochs_newest_first_with_their_time() -> None:
    other = JobId("other")
    head = parse_head(
        metadata(
            snapshot(1, None, entry(10).to_summary()),
            snapshot(2, 1),
            snapshot(3, 2, entry(99, other).to_summary()),
            snapshot(4, 3, entry(20).to_summary()),
            main=4,
        )
    )
    epochs = published(head, SHOP)
    assert [(e.entry.resolved, e.snapshot_id) for e in epochs] == [(Hlc(20), 4), (Hlc(10), 1)]
    assert epochs[0].committed_at == datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC)
    assert pipelines(head) == (SHOP, other)


def test_a_table_with_a_type_we_do_not_know_is_named() -> None:
    nested = {"id": 1, "name": "m", "required": False, "type": "geometry"}
    facts = {
        "table-uuid": "u",
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "type": "struct", "fields": [nested]}],
    }
    with pytest.raises(ConfigError, match=r"shop\.orders"):
        parse_table(TableName(("shop",), "orders"), facts)


def tagged(*snapshots: dict[str, Any], main: int, **tags: int) -> dict[str, Any]:
    found = metadata(*snapshots, main=main)
    found["refs"] |= {name: {"snapshot-id": number, "type": "tag"} for name, number in tags.items()}
    return found


def epoch(number: int, parent: int | None, resolved: int, lower: int | None) -> dict[str, Any]:
    return snapshot(number, parent, entry(resolved, lower=lower).to_summary())


def test_a_moment_of_the_source_is_shown_by_the_newest_epoch_up_to_it() -> None:
    head = parse_head(metadata(epoch(1, None, 10, None), snapshot(2, 1), epoch(3, 2, 20, 10), main=3))
    shown = [as_of(head, SHOP, Hlc(moment)) for moment in (9, 10, 19, 20, 99)]
    assert [None if found is None else found.snapshot_id for found in shown] == [None, 1, 1, 3, 3]


def test_a_time_is_a_moment_of_the_source_too() -> None:
    head = parse_head(metadata(epoch(1, None, 10**9, None), epoch(2, 1, 20 * 10**9, 10**9), main=2))
    found = as_of(head, SHOP, datetime(1970, 1, 1, 0, 0, 19, 999999, tzinfo=UTC))
    assert found is not None
    assert found.snapshot_id == 1
    assert as_of(head, SHOP, datetime(1970, 1, 1, tzinfo=UTC)) is None


def test_an_epoch_that_only_a_tag_has_kept_can_be_read() -> None:
    """Expiry has cut the ancestry off behind snapshot 8; the tag `daily` keeps snapshot 4."""
    head = parse_head(tagged(epoch(4, 3, 40, 30), epoch(8, 7, 80, 70), epoch(9, 8, 90, 80), main=9, daily=4, last=9))
    assert [found.snapshot_id for found in retained(head, SHOP)] == [9, 8, 4]
    shown = as_of(head, SHOP, Hlc(79))
    assert shown is not None
    assert shown.snapshot_id == 4
    assert as_of(head, SHOP, Hlc(39)) is None


def test_a_tag_on_what_was_rolled_back_is_no_history() -> None:
    """H5, H44: snapshot 3 was rolled back and its epoch published again as 4; the whole ancestry is there to tell."""
    head = parse_head(tagged(epoch(2, None, 20, None), epoch(3, 2, 30, 20), epoch(4, 2, 30, 20), main=4, wrong=3))
    assert [found.snapshot_id for found in retained(head, SHOP)] == [4, 2]
    cut = parse_head(tagged(epoch(3, 2, 30, 20), epoch(4, 2, 30, 20), main=4, wrong=3))
    assert [found.snapshot_id for found in retained(cut, SHOP)] == [4]


def test_a_branch_has_a_head_and_a_history_of_its_own() -> None:
    refs = {"main": {"snapshot-id": 2, "type": "branch"}, "side": {"snapshot-id": 4, "type": "branch"}}
    document = metadata(snapshot(1, None), snapshot(2, 1), snapshot(3, 1), snapshot(4, 3), refs=refs)
    assert [s.snapshot_id for s in parse_head(document, branch="side").ancestry] == [4, 3, 1]
    assert [s.snapshot_id for s in parse_head(document).ancestry] == [2, 1]
    assert parse_head(document, branch="none").ancestry == ()
    assert [head_of(document, name) for name in ("main", "side", "none")] == [2, 4, None]


def test_what_was_only_on_a_branch_was_never_published() -> None:
    """H27: the steps of a load are on main's ancestry once it is adopted, and main showed none of them."""
    steps = [epoch(2, 1, 20, None), epoch(3, 2, 30, 20)]
    for step in steps:
        step["summary"]["frazil.branch"] = "frazil_shop_resync"
    head = parse_head(metadata(epoch(1, None, 10, None), *steps, epoch(4, 3, 30, 20), main=4))
    assert [one.snapshot_id for one in published(head, SHOP)] == [4, 1]
    shown = as_of(head, SHOP, Hlc(25))
    assert shown is not None
    assert shown.snapshot_id == 1
