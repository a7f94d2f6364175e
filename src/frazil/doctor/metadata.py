"""Decides whether a table's metadata nears a limit, and whether its ledger tells one story. Pure.

    MetadataFacts --thresholds--> metadata of 4,400,000 bytes, 1,300 snapshots, ...
    LedgerView: what the pipeline would read when it starts
        summary of the newest epoch on main    property frazil.<job>.ledger    tag frazil_<job>    register
        `------------------------ the same entry, the same snapshot ------------------------'

No repair of a doctor writes the ledger: what can be set right without a person, the pipeline's next epoch writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from frazil.doctor.examination import Finding, MetadataFacts, Severity, Trouble
from frazil.doctor.findings import FIX
from frazil.model.ledger import LedgerEntry

METADATA_BYTES_WARN = 4 << 20
METADATA_BYTES_MAX = 5 << 20
"""Known managed catalogs refuse a metadata.json beyond this."""
SNAPSHOTS_WARN = 1_000
REFERENCES_WARN = 500
SCHEMAS_WARN = 200
METADATA_LOG_WARN = 500
PROPERTY_BYTES_WARN = 32 << 10
"""Hive's metastore keeps a property in a column of about this size."""
PROPERTIES_BYTES_WARN = 256 << 10


def metadata_limits(facts: MetadataFacts) -> list[Finding]:
    total = sum(facts.properties.values())
    large = sorted(
        (name for name, size in facts.properties.items() if size >= PROPERTY_BYTES_WARN),
        key=lambda name: -facts.properties[name],
    )
    expire = "Its snapshots go by `maintenance.expire`; " + (
        f"{facts.expirable:,} of them are due. " + FIX if facts.expirable else "none is due: let fewer stay."
    )
    old = "Nothing removes old schemas but making the table anew."
    limits = [
        (facts.bytes, METADATA_BYTES_WARN, f"metadata of {facts.bytes:,} bytes", expire, bool(facts.expirable)),
        (facts.snapshots, SNAPSHOTS_WARN, f"{facts.snapshots:,} snapshots", expire, bool(facts.expirable)),
        (facts.references, REFERENCES_WARN, f"{facts.references:,} branches and tags",
         "Drop those that nobody needs: ALTER TABLE ... DROP TAG, or let `maintenance.expire.keep` keep fewer.", False),
        (facts.schemas, SCHEMAS_WARN, f"{facts.schemas:,} schemas", f"Pin `columns:` if the source changes its "
         f"columns all the time. {old}", False),
        (facts.log, METADATA_LOG_WARN, f"{facts.log:,} earlier metadata files",
         "Set the table property write.metadata.previous-versions-max to 100.", False),
        (total, PROPERTIES_BYTES_WARN, f"table properties of {total:,} bytes", "Unset those that nobody needs.", False),
    ]  # fmt: skip
    findings = [
        _metadata(what, next_, fixable, severe=size >= METADATA_BYTES_MAX and limit == METADATA_BYTES_WARN)
        for size, limit, what, next_, fixable in limits
        if size >= limit
    ]
    findings += [
        _metadata(
            f"table property {name} of {facts.properties[name]:,} bytes",
            "If it is a ledger (frazil.*.ledger), the source remembers very much with each position: report it. "
            "Otherwise unset it.",
            fixable=False,
            severe=False,
        )
        for name in large
    ]
    return findings


def _metadata(what: str, next_: str, fixable: bool, severe: bool) -> Finding:
    return Finding(
        trouble=Trouble.METADATA,
        severity=Severity.ERROR if severe else Severity.WARNING,
        what=what,
        means="Every reader loads it before each query, every commit writes all of it again; managed catalogs refuse "
        f"a metadata.json of more than {METADATA_BYTES_MAX >> 20} MB, and a Hive metastore a long property.",
        next=next_,
        fixable=fixable,
    )


# the ledger


class LedgerState(StrEnum):
    """What the pipeline itself would read from the table when it starts."""

    FRESH = "fresh"
    AT = "at"
    ROLLED_BACK = "rolled back"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """One pipeline's ledger in one table: the newest `entry` on main, the one in the property (`in_property`), and the
    snapshot that the tag names. `reason` is why it is damaged; `starts_over` if nothing of it is left on main.
    `generation` is what the register of pipelines knows; None if it does not know this one."""

    job: str
    state: LedgerState
    entry: LedgerEntry | None = None
    in_property: LedgerEntry | None = None
    tagged: int | None = None
    reason: str = ""
    starts_over: bool = False
    generation: int | None = None


def ledger(view: LedgerView) -> list[Finding]:
    match view.state:
        case LedgerState.DAMAGED:
            return [_damaged(view)]
        case LedgerState.ROLLED_BACK:
            return [_rolled_back(view)]
        case LedgerState.FRESH:
            return []
        case LedgerState.AT:
            return [*_disagreements(view), *_behind_register(view)]


def _damaged(view: LedgerView) -> Finding:
    return Finding(
        trouble=Trouble.LEDGER,
        severity=Severity.ERROR,
        what=f"the ledger of pipeline {view.job} cannot be read: {view.reason}",
        means="Rows are as they were. The pipeline does not start: it cannot know what it has published.",
        next=f"Somebody edited the property frazil.{view.job}.ledger or a snapshot's summary: put the property back as "
        "an older metadata.json has it.",
    )


def _rolled_back(view: LedgerView) -> Finding:
    lost, left = view.in_property, view.entry
    at = "" if lost is None else f" {lost.resolved} (snapshot {lost.snapshot_id})"
    now = f"goes on from {left.resolved}" if left else "starts over" if view.starts_over else "cannot tell what it has"
    return Finding(
        trouble=Trouble.LEDGER,
        severity=Severity.ERROR,
        what=f"pipeline {view.job} has published{at}, which is no longer on main",
        means="The table was rolled back or edited; readers see an older moment of the source. The pipeline stops "
        "here, for publishing on top would leave a gap.",
        next="If the rollback was meant: `frazil rewind CONFIG TABLE`, after which the pipeline "
        f"{now}. If not: set main forward to the snapshot that the tag frazil_{view.job} keeps.",
    )


def _disagreements(view: LedgerView) -> list[Finding]:
    entry, in_property = view.entry, view.in_property
    told = entry or in_property
    if told is None:
        return []
    found = []
    if in_property is None:
        found.append(f"the property frazil.{view.job}.ledger is gone")
    elif entry is not None and in_property.snapshot_id == entry.snapshot_id and _facts(in_property) != _facts(entry):
        found.append(f"property and summary of snapshot {entry.snapshot_id} tell different things")
    elif entry is not None and in_property.snapshot_id != entry.snapshot_id:
        found.append(f"the property names snapshot {in_property.snapshot_id}, the newest epoch is {entry.snapshot_id}")
    if view.tagged is None:
        found.append(f"the tag frazil_{view.job} is gone")
    elif view.tagged != told.snapshot_id:
        found.append(f"the tag frazil_{view.job} names snapshot {view.tagged}, the newest epoch is {told.snapshot_id}")
    if not found:
        return []
    return [
        Finding(
            trouble=Trouble.LEDGER,
            severity=Severity.WARNING,
            what=f"the ledger of pipeline {view.job} disagrees with itself: {'; '.join(found)}",
            means="Rows are right, and the pipeline goes on from the newest epoch on main. Until its next epoch, "
            "expiry by somebody else could remove the last proof of what was published.",
            next="Nothing: the next epoch, or heartbeat, of the pipeline writes property and tag again.",
        )
    ]


def _behind_register(view: LedgerView) -> list[Finding]:
    newest = max((one.fence.generation for one in (view.entry, view.in_property) if one is not None), default=0)
    if view.generation is None or view.generation >= newest:
        return []
    return [
        Finding(
            trouble=Trouble.LEDGER,
            severity=Severity.WARNING,
            what=f"the table was published by generation {newest} of pipeline {view.job}, the register knows "
            f"{view.generation}",
            means="Rows are right. The register of pipelines was lost or set back.",
            next="Nothing: the next start takes a generation beyond both.",
        )
    ]


def _facts(entry: LedgerEntry) -> tuple[Any, ...]:
    return entry.resolved.text, entry.fence.text, str(entry.batch_id), entry.incarnation, entry.notes
