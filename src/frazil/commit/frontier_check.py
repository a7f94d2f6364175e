"""Reads from a table's head how far a pipeline has published it.

    newest own mark on main's ancestry     property            says
    none                                   none                Fresh
    none, and history was cut before it    entry               At(property)      expired, the property stands in (H3)
    none, and nothing was cut              entry               RolledBack        the epoch left the ancestry (H4)
    entry                                  newer entry         RolledBack        main was set back behind it (H4)
    entry                                  same, older, none   At(entry)
    unreadable                             or unreadable       Damaged           somebody edited it

Foreign and `replace` snapshots are walked over (H5). The first own mark ends the walk; one without a position
was left by a rewind that found nothing of ours, or begins a load on a branch: the table starts over from there. Pure.

One thing the head cannot tell: main rolled back, written to by somebody else, and then all history before that
write expired, with nobody looking in between. It then looks like plain expiry.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil.model.ids import JobId
from frazil.model.ledger import Fence, LedgerEntry, TableHead


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nothing is published. `forgotten_by` is the fence of the mark that said so, if one did."""

    forgotten_by: Fence | None = None


@dataclass(frozen=True, slots=True)
class At:
    """Published up to this entry."""

    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The property proves `lost` was published, but it is no longer on main's ancestry, where `left` is the newest
    own entry. `starts_over` if it is certain that no own entry lies further back either."""

    lost: LedgerEntry
    left: LedgerEntry | None
    starts_over: bool = False


@dataclass(frozen=True, slots=True)
class Damaged:
    """An own mark that cannot be read."""

    reason: str


Reading = Fresh | At | RolledBack | Damaged


def read_frontier(head: TableHead, job: JobId) -> Reading:
    mark = head.mark(job)
    try:
        entry, in_property = head.newest(job), _property_entry(head, job)
        forgotten_by = None if mark is None or entry is not None else Fence.parse(mark.summary["frazil.fence"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Damaged(f"{type(error).__name__}: {error}")
    if in_property is None:
        return Fresh(forgotten_by) if entry is None else At(entry)
    if mark is None:
        return At(in_property) if _expired(head, in_property) else RolledBack(in_property, None, head.history_is_whole)
    if _sequence(in_property) > mark.sequence_number and in_property.snapshot_id != mark.snapshot_id:
        return RolledBack(in_property, entry, starts_over=entry is None)
    return Fresh(forgotten_by) if entry is None else At(entry)


def _property_entry(head: TableHead, job: JobId) -> LedgerEntry | None:
    in_property = head.in_property(job)
    if in_property is None and job.ledger_property in head.properties:
        raise ValueError(f"the property {job.ledger_property} holds no ledger entry")
    if in_property is not None and (in_property.job != job or not isinstance(in_property.sequence_number, int)):
        raise ValueError(f"the property {job.ledger_property} holds an entry of another pipeline or no sequence number")
    return in_property


def _expired(head: TableHead, in_property: LedgerEntry) -> bool:
    """Whether the entry lies in the part of the history that was cut off."""
    return not head.history_is_whole and _sequence(in_property) < head.ancestry[-1].sequence_number


def _sequence(in_property: LedgerEntry) -> int:
    assert (
        in_property.sequence_number is not None
    )  # the property always carries it: `_property_entry` refuses one without
    return in_property.sequence_number
