"""Tables that format 1 of the ledger was published to, as their metadata was then, are read by this version.

tests/fixtures/ledger_v1/unmarked   before entries said their format and their source's time
tests/fixtures/ledger_v1/marked     since they do

They were made by `tests/integration/iceberg/golden_ledgers.py` and stay as they are, whatever format comes next.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from frazil.commit.admission import Coordinator
from frazil.commit.frontier_check import At, Fresh, read_frontier
from frazil.commit.resync_machine import Loading, NotUnderWay, resync_stage
from frazil.iceberg.commits.expire import parse_snapshots
from frazil.iceberg.tables.head import Base, head_of, parse_head
from frazil.maintenance.expire.planner import ExpireSettings, Keep, Period, plan_expiry
from frazil.maintenance.orphans import progress_of
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import BranchedHead, TableHead, as_of, check_formats, published, retained

FIXTURES = Path(__file__).parents[2] / "fixtures" / "ledger_v1"
UNMARKED, MARKED = "unmarked", "marked"


@dataclass(frozen=True)
class Golden:
    """What a table's ledger says: positions from the oldest, the time of the newest, and the source's own name."""

    job: str
    positions: tuple[str, ...]
    time: datetime | None
    source: str = ""
    generation: int = 1


def second(stamp: int) -> datetime:
    return datetime.fromtimestamp(stamp, UTC)


COCKROACH = Golden(
    "shop", ("1700000001000000000.0000000000", "1700000003000000000.0000000000"), second(1_700_000_003), "t", 2
)
BRANCH = Golden("shop", ("10.0000000000",), second(0))
ADOPTED = Golden("shop", ("10.0000000000", "30.0000000000"), second(0), generation=2)
STREAM = Golden("stream", ("batch:0", "batch:1"), None)
GOLDEN = {
    (UNMARKED, "cockroachdb"): COCKROACH,
    (MARKED, "cockroachdb"): COCKROACH,
    (UNMARKED, "mongodb"): Golden(
        "mongo_shop", ("1794983460-14-1", "1794983462-1"), second(1_794_983_462), "db1.orders", 2
    ),
    (MARKED, "mongodb"): Golden(
        "mongo_shop", ("1794984027-19-1", "1794984029-1"), second(1_794_984_029), "db1.orders", 2
    ),
    (UNMARKED, "resync_branch"): BRANCH,
    (MARKED, "resync_branch"): BRANCH,
    (UNMARKED, "resync_adopted"): ADOPTED,
    (MARKED, "resync_adopted"): ADOPTED,
    (UNMARKED, "upsert_stream"): STREAM,
    (MARKED, "upsert_stream"): STREAM,
}
TABLE = TableName(("shop",), "golden")


def document(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / kind / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_every_fixture_is_read() -> None:
    assert {(path.parent.name, path.stem) for path in FIXTURES.glob("*/*.json")} == set(GOLDEN)


@pytest.mark.parametrize(("kind", "name"), GOLDEN)
def test_entries_say_their_format_since_they_do(kind: str, name: str) -> None:
    metadata = document(kind, name)
    check_formats(TABLE, [(s["snapshot-id"], s["summary"]) for s in metadata["snapshots"]], metadata["properties"])
    formats = {s["summary"].get("frazil.format") for s in metadata["snapshots"]}
    assert formats == ({"1"} if kind == MARKED else {None})


@pytest.mark.parametrize(("kind", "name"), GOLDEN)
def test_a_golden_ledger_says_what_it_said(kind: str, name: str) -> None:
    golden, metadata = GOLDEN[kind, name], document(kind, name)
    head, job = parse_head(metadata), JobId(golden.job)
    reading = read_frontier(head, job)
    assert isinstance(reading, At)
    entry = reading.entry
    assert (entry.resolved.text, entry.source_time) == (golden.positions[-1], golden.time)
    assert (entry.source, entry.fence.generation) == (golden.source, golden.generation)
    assert head.in_property(job) == entry, "property and summary"
    assert head.tags[job.tag].snapshot_id == entry.snapshot_id == head.snapshot_id
    epochs = published(head, job)
    assert tuple(epoch.entry.resolved.text for epoch in reversed(epochs)) == golden.positions
    assert retained(head, job) == epochs
    assert as_of(head, job, epochs[-1].entry.resolved) == epochs[-1]
    if golden.time is not None:
        assert as_of(head, job, golden.time) == epochs[0]
        assert as_of(head, job, golden.time - timedelta(days=1)) is None
    progress = progress_of(head, {})[golden.job]
    assert (progress.frontier, progress.fence) == (entry.resolved, entry.fence)


@pytest.mark.parametrize("kind", [UNMARKED, MARKED])
def test_expiry_goes_by_the_time_that_an_entry_tells(kind: str) -> None:
    """Batch numbers have none of their own."""
    metadata = document(kind, "upsert_stream")
    first, second_ = metadata["snapshots"]
    keep = (Keep(Period.DAILY, timedelta(days=7)),)
    settings = ExpireSettings(max_age=timedelta(0), max_snapshots=1, keep=keep)
    now = datetime(2030, 1, 1, tzinfo=UTC)

    def tags() -> dict[str, int]:
        plan = plan_expiry(parse_snapshots(Base(None, None, None, metadata)), settings, now)
        return {} if plan is None else dict(plan.expiry.tags)

    assert tags() == {}
    first["summary"]["frazil.source-time"] = "2026-03-01T23:59:59.999999Z"
    second_["summary"]["frazil.source-time"] = "2026-03-02T00:00:00.000000Z"
    assert tags() == {"frazil_keep_2026-03-01": first["snapshot-id"]}


@pytest.mark.parametrize("kind", [UNMARKED, MARKED])
def test_a_load_on_a_branch_goes_on_where_it_was(kind: str) -> None:
    job = JobId("shop")
    metadata = document(kind, "resync_branch")
    assert head_of(metadata, job.resync_branch) is not None
    main, branch = parse_head(metadata), parse_head(metadata, branch=job.resync_branch)
    branch = TableHead(uuid=branch.uuid, ancestry=branch.ancestry, properties={})
    newest = main.newest(job)
    assert newest is not None
    coordinator = Coordinator(job=job, fence=newest.fence, incarnation=newest.incarnation)
    stage = resync_stage(BranchedHead(main, branch), TABLE, coordinator)
    assert isinstance(stage, Loading)
    assert stage.entry is not None
    assert stage.entry.resolved.text == "30.0000000000"
    assert [s.summary["frazil.operation"] for s in branch.ancestry] == ["append", "resync", "append"]
    begun = TableHead(uuid="u", ancestry=branch.ancestry[1:], properties={})
    assert read_frontier(begun, job) == Fresh(newest.fence), "the clear is a mark without a position"
    adopted = parse_head(document(kind, "resync_adopted"))
    (last, *_) = adopted.entries(job)
    after = Coordinator(job=job, fence=last.fence, incarnation=last.incarnation)
    assert isinstance(resync_stage(BranchedHead(adopted, None), TABLE, after), NotUnderWay)
