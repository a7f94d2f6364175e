"""Collections that can no longer be followed: what happened, and from which cluster time on.

    drop, rename, dropDatabase at T     changes before T are still told, then the collection is lost
    another uuid, or none, at the start lost at once
    the oplog begins behind T           lost at once, if the collection is not further than that

The stream goes on for all other collections.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from frazil.errors import SourceLost
from frazil.sources.mongodb.position import ClusterTime

AT_ONCE = 0
_DID = {"rename": "renamed, or another one renamed to it,", "dropDatabase": "dropped with its database"}


@dataclass(frozen=True, slots=True)
class Loss:
    """Of what happened before `time` the collection's changes are still handed out."""

    time: int
    error: SourceLost


def gone(name: str, op: str, time: int) -> Loss:
    """An event of the stream took the collection away."""
    did = _DID.get(op, "dropped")
    return Loss(time, _lost(name, f"{name}: the collection was {did} at {ClusterTime(time)}"))


def replaced(name: str, is_there: bool) -> Loss:
    """What the server has under this name now is not what was mirrored."""
    what = "another collection than the one that was mirrored: it was dropped and made again"
    absent = "not there any more: it was dropped or renamed"
    return Loss(AT_ONCE, _lost(name, f"{name} is {what if is_there else absent}"))


def outlived(name: str, after: int, said: str) -> Loss:
    """The server no longer tells what follows `after`."""
    return Loss(
        AT_ONCE,
        _lost(
            name,
            f"{name}: the oplog no longer holds what follows the published position {ClusterTime(after)}: {said}",
            " To spare it the next time, enlarge the oplog (replSetResizeOplog) so that it covers a longer stop.",
        ),
    )


def concerned(names: Iterable[str], where: Any, to: Any) -> list[str]:
    """Those among the names that an event is about; one without a collection is about its whole database."""
    places = [(place["db"], place.get("coll")) for place in (where, to) if place is not None]
    found = []
    for name in names:
        database, _, collection = name.partition(".")
        if any(db == database and coll in (None, collection) for db, coll in places):
            found.append(name)
    return found


def _lost(name: str, message: str, advice: str = "") -> SourceLost:
    return SourceLost(
        f"{message}; its table stays as it is until it is synced again",
        hint="It is synced again by itself: loaded anew on a branch, which replaces the table at once when it is "
        f"whole. `frazil resync` does the same by hand.{advice}",
        table=name,
        tables=[name],
    )
