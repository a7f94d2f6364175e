"""Decides which data files are put together, and whether what came of it may be published. Pure.

    live files --by spec and partition--> small ones, and ones with many deleted rows
        --in order of age, as many as fill a file--> groups: worth it?  enough files, a full file, or many deleted rows
        --cold partitions first, up to a budget----> CompactPlan
    the head to publish on --settle--> Settled: groups as they were, groups with other deletes, groups that are gone

Equality deletes stay as they are. Files of a partition meet only if the same ones reach all of them, and what is
written gets a sequence number at which they reach it too, and no others do; so does every one that comes later (H15).
A stream that adds some with every epoch is nothing to wait for. Between the plan and a later head

    an append                 needs nothing
    an equality delete        needs nothing: it is newer
    a vector, a position      follows its rows into the rewritten file (H16); if that is all there is to it, the group
                              is published
    a rewrite of an input     makes the group useless: it is dropped, and planned anew from what is there then

So that small files of a stream are not written over and over again, a file that outweighs all others of its group
stays out of it: a row is rewritten a logarithmic number of times before it lies in a full file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from frazil.model.columns import VARIANT, ListOf, MapOf, StructOf, Type
from frazil.model.compaction import Carried, Concatenated, Group, Moved, Rewrite, RewrittenTable
from frazil.model.files import Kind
from frazil.model.live import LiveDelete, LiveFile, LiveFiles
from frazil.model.names import maintenance_folder
from frazil.model.write import ParquetSettings

ACTION = "compact"
_PARQUET = "parquet"
_SLACK = 1.25
"""A group that was to fill one file must not leave a crumb in a second one, if its rows compress a little worse."""
_Partition = tuple[int, tuple[Any, ...]]
_DeleteId = tuple[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """A file below `small_ratio` of the target is small; one with more than `delete_ratio` of its rows deleted is
    rewritten even by itself. `budget_bytes` bounds what one plan reads, `commit_bytes` what one snapshot replaces.
    `tiered` leaves a file out that outweighs the rest of its group: better beside a stream, worse for a last time."""

    target_file_bytes: int = 256 << 20
    min_input_files: int = 10
    small_ratio: float = 0.75
    delete_ratio: float = 0.30
    budget_bytes: int = 64 << 30
    commit_bytes: int = 4 << 30
    tiered: bool = True

    def __post_init__(self) -> None:
        if self.target_file_bytes < 1 or self.min_input_files < 2 or self.budget_bytes < 1 or self.commit_bytes < 1:
            raise ValueError("sizes begin at one byte, and min_input_files at 2")
        if not 0 < self.small_ratio <= 1 or not 0 < self.delete_ratio <= 1:
            raise ValueError("small_ratio and delete_ratio lie between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactPlan:
    """Groups in the order in which they are worked off. `waiting` groups are beyond the budget."""

    table: RewrittenTable
    snapshot_id: int
    groups: tuple[Group, ...]
    commit_bytes: int
    waiting: int = 0

    @property
    def reason(self) -> str:
        texts = [f"{len(group.files)} files of {group.size} bytes: {group.reason}" for group in self.groups[:3]]
        if len(self.groups) > len(texts):
            texts.append(f"{len(self.groups) - len(texts)} more groups")
        if self.waiting:
            texts.append(f"{self.waiting} groups wait for the next run")
        return "; ".join(texts)

    @property
    def counts(self) -> dict[str, int]:
        return {
            "groups": len(self.groups),
            "data_files": sum(len(group.files) for group in self.groups),
            "bytes": sum(group.size for group in self.groups),
            "waiting": self.waiting,
        }

    @property
    def batches(self) -> tuple[tuple[Group, ...], ...]:
        """What is published together: so that a long run shows progress, and loses little if it is stopped. All that
        is written in one snapshot gets one sequence number, which must be right for every group of it."""
        batches: list[list[Group]] = []
        for group in self.groups:
            if not batches or not self._fits(batches[-1], group):
                batches.append([])
            batches[-1].append(group)
        return tuple(map(tuple, batches))

    def _fits(self, batch: Sequence[Group], group: Group) -> bool:
        together = (*batch, group)
        size = sum(one.size for one in together)
        return size <= self.commit_bytes and _sequence_until(together) >= max(one.sequence_from for one in together)

    def rewrite(self, groups: Sequence[Group], run: UUID, parquet: ParquetSettings | None = None) -> Rewrite:
        """What Spark is to do for these groups of the plan."""
        return Rewrite(
            table=self.table,
            snapshot_id=self.snapshot_id,
            number=run,
            folder=maintenance_folder(self.table.data_location, ACTION, run),
            sequence_number=_sequence_until(groups),
            groups=tuple(groups),
            parquet=parquet or ParquetSettings(),
        )


def _sequence_until(groups: Iterable[Group]) -> int:
    return min(group.sequence_until for group in groups)


def plan_compaction(
    table: RewrittenTable, live: LiveFiles, settings: CompactSettings | None = None
) -> CompactPlan | None:
    """None if nothing is worth it, or if the table has a type that is not written here."""
    settings = settings or CompactSettings()
    if live.snapshot_id is None or any(_has_variant(field.type) for field in table.schema):
        return None
    dead = _dead_shares(live)
    partitions: dict[_Partition, list[LiveFile]] = {}
    for file in live.files:
        partitions.setdefault((file.spec_id, file.partition), []).append(file)
    found: list[tuple[int, str, Group]] = []
    for place, files in partitions.items():
        newest = max(file.sequence_number for file in files)
        for until, alike in _reached_alike(files, table.sequence_number):
            candidates = [_by_position(file) for file in alike if _is_candidate(file, dead, settings)]
            found += [(newest, repr(place), group) for group in _groups(candidates, until, dead, settings)]
    # Of one partition they stay in the order of age.
    ordered = [group for _, _, group in sorted(found, key=lambda one: one[:2])]
    chosen = _within_budget(ordered, settings.budget_bytes)
    if not chosen:
        return None
    return CompactPlan(
        table=table,
        snapshot_id=live.snapshot_id,
        groups=tuple(chosen),
        commit_bytes=settings.commit_bytes,
        waiting=len(ordered) - len(chosen),
    )


def _has_variant(type_: Type) -> bool:
    match type_:
        case StructOf(fields):
            return any(_has_variant(field.type) for field in fields)
        case ListOf(element):
            return _has_variant(element)
        case MapOf(key, value):
            return _has_variant(key) or _has_variant(value)
        case _:
            return type_ == VARIANT


# which files


def _reached_alike(files: Iterable[LiveFile], newest: int) -> Iterator[tuple[int, list[LiveFile]]]:
    """Files of a partition between two equality deletes, and the highest number at which no other one reaches them."""
    deletes = {one.sequence_number for file in files for one in file.deletes if one.kind is Kind.EQUALITY_DELETE}
    bounds = sorted(deletes)
    spans: dict[int, list[LiveFile]] = {}
    for file in files:
        spans.setdefault(bisect_right(bounds, file.sequence_number), []).append(file)
    for span, between in sorted(spans.items()):
        yield (bounds[span] - 1 if span < len(bounds) else newest), between


def _dead_shares(live: LiveFiles) -> dict[str, float]:
    """How much of each file is deleted by position; a guess where a delete file is for several data files."""
    reached: dict[_DeleteId, int] = {}
    for file in live.files:
        for delete in _shared(file):
            reached[_id(delete)] = reached.get(_id(delete), 0) + file.records
    shares = {}
    for file in live.files:
        own = sum(delete.records for delete in file.deletes if delete.data_file == file.path)
        others = sum(delete.records * file.records / max(reached[_id(delete)], 1) for delete in _shared(file))
        if own or others:
            shares[file.path] = min(1.0, (own + others) / max(file.records, 1))
    return shares


def _shared(file: LiveFile) -> Iterable[LiveDelete]:
    return (one for one in file.deletes if one.kind is Kind.POSITION_DELETE and one.data_file is None)


def _is_candidate(file: LiveFile, dead: Mapping[str, float], settings: CompactSettings) -> bool:
    small = file.size < settings.small_ratio * settings.target_file_bytes
    return file.format == _PARQUET and (small or dead.get(file.path, 0.0) > settings.delete_ratio)


def _groups(files: Iterable[LiveFile], until: int, dead: Mapping[str, float], settings: CompactSettings) -> list[Group]:
    """Neighbours in time stay together, so that bounds of columns that grow with time stay narrow."""
    target, groups = settings.target_file_bytes, list[Group]()
    waiting: list[LiveFile] = []
    filled = 0.0

    def close() -> None:
        found = _worth_it(waiting, dead, settings)
        if found is not None:
            groups.append(_group(*found, until, dead, target))

    for file in sorted(files, key=lambda file: (file.sequence_number, file.path)):
        alive = _alive_bytes(file, dead)
        if waiting and filled + alive > target:
            close()
            waiting, filled = [], 0.0
        waiting.append(file)
        filled += alive
    close()
    return groups


def _worth_it(
    files: Sequence[LiveFile], dead: Mapping[str, float], settings: CompactSettings
) -> tuple[Sequence[LiveFile], str] | None:
    """Which of the files, and why."""
    target = settings.target_file_bytes
    heavy = [file for file in files if dead.get(file.path, 0.0) > settings.delete_ratio]
    filled = sum(_alive_bytes(file, dead) for file in files)
    if len(files) > 1 and filled >= settings.small_ratio * target:
        return files, f"together they fill {filled / target:.0%} of a file"
    chosen = _without_outweighing(files, {file.path for file in heavy}, dead) if settings.tiered else tuple(files)
    if heavy:
        worst = max(dead[file.path] for file in heavy)
        return chosen, f"up to {worst:.0%} of the rows of {len(heavy)} files are deleted"
    if len(chosen) >= settings.min_input_files:
        return chosen, f"{len(chosen)} small files"
    return None


def _without_outweighing(
    files: Sequence[LiveFile], heavy: Collection[str], dead: Mapping[str, float]
) -> tuple[LiveFile, ...]:
    chosen = list(files)
    while len(chosen) > 1:
        largest = max(chosen, key=lambda file: (_alive_bytes(file, dead), file.path))
        rest = sum(_alive_bytes(file, dead) for file in chosen) - _alive_bytes(largest, dead)
        if largest.path in heavy or _alive_bytes(largest, dead) <= rest:
            break
        chosen.remove(largest)
    return tuple(chosen)


def _group(files: Sequence[LiveFile], reason: str, until: int, dead: Mapping[str, float], target: int) -> Group:
    expected = sum(_alive_bytes(file, dead) for file in files)
    count = max(1, round(expected / target))
    return Group(tuple(files), reason, max(1, int(expected / count * _SLACK)), until)


def _alive_bytes(file: LiveFile, dead: Mapping[str, float]) -> float:
    return file.size * (1.0 - dead.get(file.path, 0.0))


def _within_budget(groups: Sequence[Group], budget: int) -> list[Group]:
    """One at least, however large it is."""
    chosen: list[Group] = []
    used = 0
    for group in groups:
        used += group.size
        if chosen and used > budget:
            break
        chosen.append(group)
    return chosen


# what may be published


@dataclass(frozen=True, slots=True)
class Dropped:
    group: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What may be published on a head: `kept` groups, of which `moved` need their deletes re-projected. `removed` are
    the deletes that go with the inputs; those in `carried` go only if they delete rows of inputs, and then their other
    rows are written anew."""

    kept: tuple[Concatenated, ...]
    moved: tuple[Moved, ...]
    inputs: tuple[LiveFile, ...]
    removed: tuple[LiveDelete, ...]
    carried: tuple[Carried, ...]
    dropped: tuple[Dropped, ...]


def settle(
    rewrite: Rewrite,
    results: Sequence[Concatenated],
    now: LiveFiles,
    format_version: int,
    undone: Collection[int] = (),
) -> Settled:
    """What of the results holds at a head that may be later than the one of the plan, or another one altogether:
    data files never change, so it is enough to compare the inputs and their deletes."""
    live = now.by_path
    unmoved = now.snapshot_id == rewrite.snapshot_id
    kept, moved, dropped = list[Concatenated](), list[Moved](), list[Dropped]()
    inputs: list[LiveFile] = []
    for result in results:
        group = rewrite.groups[result.group]
        why = result.failure
        if result.group in undone:
            why = "a row that was left out is alive again"
        if format_version != rewrite.table.format_version:
            why = f"the table has become version {format_version}"
        if rewrite.table.has_lineage and not unmoved and any(file.first_row_id is None for file in group.files):
            # The first commit after an upgrade gives ids to all rows there are, and rows keep the id they got.
            why = "its rows got their ids meanwhile"
        why = why or next(filter(None, (_why_not(file, live, rewrite) for file in group.files)), None)
        if why is not None:
            dropped.append(Dropped(result.group, why))
            continue
        files = tuple(_by_position(live[file.path]) for file in group.files)
        kept.append(result)
        inputs += files
        if any(_ids(one) != _ids(other) for one, other in zip(group.files, files, strict=True)):
            moved.append(Moved(result, files))
    removed, carried = _deletes_of(inputs, now, _fresh(rewrite, moved))
    return Settled(
        kept=tuple(kept),
        moved=tuple(moved),
        inputs=tuple(inputs),
        removed=removed,
        carried=carried,
        dropped=tuple(dropped),
    )


def _why_not(file: LiveFile, live: Mapping[str, LiveFile], rewrite: Rewrite) -> str | None:
    found = live.get(file.path)
    if found is None:
        return f"somebody else removed {file.path}"
    if _identity(found) != _identity(file):
        return f"{file.path} is no longer what it was"
    for delete in found.deletes:
        if delete.kind is Kind.EQUALITY_DELETE and delete.sequence_number <= rewrite.sequence_number:
            # It would not reach what was written; only a table that was rolled back shows such a delete again.
            return f"the older equality delete {delete.path} reaches {file.path} again"
    return None


def _fresh(rewrite: Rewrite, moved: Iterable[Moved]) -> frozenset[_DeleteId]:
    """Deletes that the inputs did not have when they were read."""
    return frozenset(
        id_
        for one in moved
        for before, file in zip(rewrite.groups[one.result.group].files, one.files, strict=True)
        for id_ in _ids(file) - _ids(before)
    )


def _deletes_of(
    inputs: Sequence[LiveFile], now: LiveFiles, fresh: Collection[_DeleteId]
) -> tuple[tuple[LiveDelete, ...], tuple[Carried, ...]]:
    """Deletes by position that reach inputs alone go with them. One that others may need as well stays, unless it is
    fresh and does delete rows of inputs: Iceberg takes deletes in a rewrite in exchange for others only."""
    mine = {delete_id: delete for file in inputs for delete in file.deletes if (delete_id := _id(delete))}
    gone = {file.path for file in inputs}
    others: dict[_DeleteId, list[str]] = {}
    for file in now.files:
        if file.path not in gone:
            for delete in file.deletes:
                if _id(delete) in mine:
                    others.setdefault(_id(delete), []).append(file.path)
    removed = tuple(delete for id_, delete in mine.items() if id_ not in others)
    carried = tuple(Carried(mine[id_], tuple(sorted(paths))) for id_, paths in others.items() if id_ in fresh)
    return removed, carried


def _identity(file: LiveFile) -> tuple[Any, ...]:
    return file.size, file.records, file.sequence_number, file.spec_id, file.partition


def _by_position(file: LiveFile) -> LiveFile:
    return replace(file, deletes=tuple(one for one in file.deletes if one.kind is Kind.POSITION_DELETE))


def _ids(file: LiveFile) -> set[_DeleteId]:
    return {_id(delete) for delete in file.deletes}


def _id(delete: LiveDelete) -> _DeleteId:
    return delete.path, delete.offset
