"""Cuts a collection into ranges of `_id` for the first load, whatever the types of its ids (H33).

    _id index     MinKey  null  1  2.5  "a"  {a: 1}  UUID  ObjectId  true  date  MaxKey       one order over all types
                  |------ range ------|------ range ------|------ range, open -------------->
                                      `- bounds, sampled  `

A range is walked along the index between two bounds, which unlike a comparison in a query does not stop at the type of
its operand. Steps are runs of ranges in order: what is done is told by the bound behind the last one, so a load that
was interrupted is cut anew from there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo.collection import Collection

from frazil.sources.mongodb.decode.document_ids import bound_of, bound_text
from frazil.sources.mongodb.position import WHOLE, ClusterTime

RANGE_BYTES = 32 << 20
RANGES_PER_STEP = 8
RANGE_DOCUMENTS_MIN = 5_000
RANGES_MIN = 4
SAMPLES_PER_RANGE = 40
RANGES_MAX = 20_000


@dataclass(frozen=True, slots=True)
class IdRange:
    """From `lower` up to but without `upper`, as `ids.bound_text` writes them; None is open. Sizes are estimates."""

    lower: str | None
    upper: str | None
    documents: int
    size: int

    def to_json(self, collection: str, position: ClusterTime) -> str:
        return json.dumps({"ranged": collection, "lower": self.lower, "upper": self.upper, "at": position.text})


NOTHING: tuple[tuple[IdRange, ...], ...] = ((),)
"""The steps of a load that finds no collection: one, so that its end has a position."""


@dataclass(frozen=True, slots=True)
class Load:
    """The first load of a collection, read as of `time`: steps beyond `done`, each a run of ranges."""

    time: int
    done: int
    steps: tuple[tuple[IdRange, ...], ...]
    start: str | None = None

    @property
    def last(self) -> int:
        return self.done + len(self.steps)

    def position(self, step: int) -> ClusterTime:
        return ClusterTime(self.time, WHOLE + step)

    def ranges(self, step: int) -> tuple[IdRange, ...]:
        return self.steps[step - self.done - 1] if self.done < step <= self.last else ()

    def bound_behind(self, position: ClusterTime) -> str | None:
        """Where the load goes on once everything up to the position is published; None if it is done."""
        step = min(position.step - WHOLE, self.last) if position.time == self.time else self.last
        if position.time < self.time or step <= self.done:
            return self.start
        ranges = self.ranges(step)
        return ranges[-1].upper if ranges else None


def plan_ranges(collection: Collection[Any], start: str | None) -> tuple[IdRange, ...]:
    """Ranges of about equal size from `start` on, the last one open. Raises PyMongoError."""
    documents, size = _extent(collection)
    count = min(max(-(-size // RANGE_BYTES), min(RANGES_MIN, documents // RANGE_DOCUMENTS_MIN), 1), RANGES_MAX)
    bounds, share = _bounds(collection, count, start) if count > 1 else ([], 1.0)
    edges = [start, *(bound_text(bound) for bound in bounds), None]
    pieces = len(edges) - 1
    documents, size = int(documents * share), int(size * share)
    return tuple(
        IdRange(edges[at], edges[at + 1], -(-documents // pieces), max(-(-size // pieces), 1)) for at in range(pieces)
    )


def in_steps(ranges: Sequence[IdRange]) -> tuple[tuple[IdRange, ...], ...]:
    return tuple(tuple(ranges[at : at + RANGES_PER_STEP]) for at in range(0, len(ranges), RANGES_PER_STEP))


def _extent(collection: Collection[Any]) -> tuple[int, int]:
    found = list(collection.aggregate([{"$collStats": {"storageStats": {}}}])) if _exists(collection) else []
    stats = [shard["storageStats"] for shard in found]
    return sum(int(s.get("count", 0)) for s in stats), sum(int(s.get("size", 0)) for s in stats)


def _exists(collection: Collection[Any]) -> bool:
    return bool(collection.database.list_collection_names(filter={"name": collection.name}))


def _bounds(collection: Collection[Any], count: int, start: str | None) -> tuple[list[Any], float]:
    """Ids between which about equally many documents lie, and which share of all lies behind `start`."""
    pipeline: list[dict[str, Any]] = [{"$sample": {"size": count * SAMPLES_PER_RANGE}}, {"$project": {"_id": 1}}]
    if start is not None:
        # An expression compares along the order of all types.
        pipeline.append({"$match": {"$expr": {"$gt": ["$_id", {"$literal": bound_of(start)}]}}})
    pipeline += [{"$sort": {"_id": 1}}]
    found = [row["_id"] for row in collection.aggregate(pipeline, allowDiskUse=True)]
    pieces = max(1, min(count, -(-len(found) // SAMPLES_PER_RANGE)))
    chosen = [found[len(found) * piece // pieces] for piece in range(1, pieces)]
    unique: list[Any] = []
    for bound in chosen:
        # Nothing lies beyond the ends of the order, so the index cannot be walked from or to there.
        if isinstance(bound, MinKey | MaxKey):
            continue
        if not unique or bound_text(unique[-1]) != bound_text(bound):
            unique.append(bound)
    return unique, len(found) / (count * SAMPLES_PER_RANGE) if start is not None else 1.0
