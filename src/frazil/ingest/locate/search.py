"""Decides where an epoch's keys are searched, and what is deleted of what was found. Pure.

    live files --bounds, partitions--> may hold a key --searched for an earlier head?--> to search
                                                              |  yes: a data file never changes, so the answer holds
                                                              v
    positions that match  minus what is deleted already  =  fresh      none left: the file is not touched
                          plus  what is deleted already  =  its one new vector, in place of the old one (H23, H24)

Pruning must never leave a file out that holds a key: it needs an order of bytes that every writer agrees on, so never
uuids, whose order iceberg-java has wrong, and partition values whose JSON form has one spelling only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from frazil.data.keys.codec import Keys
from frazil.model.files import LiveDelete, LiveFile, Place
from frazil.model.partition import PartitionSpec, result_type
from frazil.model.schema import DATE, INT, LONG, STRING, Decimal, Field, Primitive

HERE_MAX = 200_000_000
BROADCAST_MAX = 5_000_000
_SPELLED_ONE_WAY = (INT, LONG, STRING, DATE)
_INTEGERS = {"int": (4,), "long": (4, 8), "date": (4,), "time": (8,), "timestamp": (8,), "timestamptz": (8,)}
_SIGN = 1 << 63
_ONE_BY_ONE_MAX = 500_000


class SearchMode(StrEnum):
    """Where the search happens: in this process, in tasks by data file, or as a join of the table with the keys."""

    HERE = "here"
    TASKS = "tasks"
    JOIN = "join"


def choose_search(keys: int, files: int, *, local: bool, readable: bool = True) -> SearchMode:
    """`local` if executors and driver share a machine; `readable` unless a file's format is read by Spark alone."""
    if not readable or keys > BROADCAST_MAX:
        return SearchMode.JOIN
    return SearchMode.HERE if local and keys * files <= HERE_MAX else SearchMode.TASKS


@dataclass(frozen=True, slots=True, eq=False)
class WantedKeys:
    """The keys of an epoch, as far as files can be told apart by them.

    `sorted_values` are the keys in the order of bounds, if there is one column and its bounds can be trusted;
    `partitions` are, by spec, all that rows of these keys can lie in.
    """

    field_id: int | None = None
    widths: tuple[int, ...] = ()
    text: bool = False
    sorted_values: Sequence[Any] | NDArray[Any] = ()
    partitions: Mapping[int, frozenset[tuple[Any, ...]]] = field(default_factory=dict)


def wanted(
    fields: Sequence[Field], keys: Keys, partitions: Mapping[int, frozenset[tuple[Any, ...]]] | None = None
) -> WantedKeys:
    """What pruning needs to know of these keys, which are sorted by hash."""
    known = dict(partitions or {})
    if len(fields) != 1 or not len(keys):
        return WantedKeys(partitions=known)
    (only,) = fields
    match only.type:
        case Primitive(name) if name in _INTEGERS and keys.exact is None:
            return WantedKeys(only.id, _INTEGERS[name], sorted_values=keys.hashes, partitions=known)
        case Primitive("string" | "binary") if keys.exact is not None and len(keys) <= _ONE_BY_ONE_MAX:
            return WantedKeys(only.id, text=True, sorted_values=sorted(keys.exact.to_pylist()), partitions=known)
        case Decimal() if keys.exact is not None and len(keys) <= _ONE_BY_ONE_MAX:
            numbers = sorted(int.from_bytes(value, "little", signed=True) for value in keys.exact.to_pylist())
            return WantedKeys(only.id, sorted_values=numbers, partitions=known)
        case _:
            return WantedKeys(partitions=known)


def prunable_by(spec: PartitionSpec, key: Sequence[Field]) -> bool:
    """Whether a key alone decides in which partition of the spec its rows lie, told in one spelling."""
    types = {one.id: one.type for one in key}
    return spec.partitions and all(
        one.source_id in types and result_type(one.transform, types[one.source_id]) in _SPELLED_ONE_WAY
        for one in spec.fields
    )


def candidates(files: Iterable[LiveFile], keys: WantedKeys) -> tuple[LiveFile, ...]:
    """The files that may hold a row of one of the keys."""
    return tuple(file for file in files if _in_partitions(file, keys) and _in_bounds(file, keys))


def unsearched(files: Iterable[LiveFile], known: Collection[str]) -> tuple[LiveFile, ...]:
    """Those that no earlier head of this epoch's lookup had."""
    return tuple(file for file in files if file.path not in known)


@dataclass(frozen=True, slots=True, eq=False)
class DeletedPositions:
    """What becomes of one data file: `fresh` rows are deleted now; `all` are deleted afterwards. `replaced` deletes
    are contained in `all` and have no other data file."""

    file: LiveFile
    fresh: BitMap64
    all: BitMap64
    replaced: tuple[LiveDelete, ...]


def deletion(file: LiveFile, matched: BitMap64, deleted: BitMap64) -> DeletedPositions | None:
    """None if every matched row is deleted already. `deleted` is the union of the file's vectors and position
    deletes; equality deletes need not be known: to delete a deleted row changes nothing."""
    fresh = matched - deleted
    if not fresh:
        return None
    own = tuple(one for one in file.position_deletes if one.data_file == file.path)
    return DeletedPositions(file, fresh, matched | deleted, own)


def by_partition(deletions: Iterable[DeletedPositions]) -> dict[Place, list[DeletedPositions]]:
    """A position delete file belongs to one partition of one spec, those of its data files (H22)."""
    grouped: dict[Place, list[DeletedPositions]] = {}
    for one in sorted(deletions, key=lambda one: one.file.path):
        grouped.setdefault(one.file.place, []).append(one)
    return grouped


def _in_partitions(file: LiveFile, keys: WantedKeys) -> bool:
    possible = keys.partitions.get(file.spec_id)
    return possible is None or file.partition in possible


def _in_bounds(file: LiveFile, keys: WantedKeys) -> bool:
    if keys.field_id is None or keys.field_id not in file.bounds:
        return True
    lower, upper = (_value(bound, keys) for bound in file.bounds[keys.field_id])
    values = keys.sorted_values
    # The smallest key that is not below the lower bound: is it beyond the upper one?
    first = 0 if lower is None else _first_from(values, lower)
    if first >= len(values):
        return False
    return upper is None or bool(values[first] <= upper)


def _first_from(values: Sequence[Any] | NDArray[Any], lower: Any) -> int:
    if isinstance(values, np.ndarray):
        return int(np.searchsorted(values, lower))
    return bisect_left(values, lower)


def _value(bound: bytes | None, keys: WantedKeys) -> Any:
    """The bound in the form of `sorted_values`; None if it says nothing: of another width after a promotion, say."""
    if bound is None or keys.text:
        return bound
    if not keys.widths:
        return int.from_bytes(bound, "big", signed=True)
    if len(bound) not in keys.widths:
        return None
    return np.uint64(int.from_bytes(bound, "little", signed=True) + _SIGN)
