"""Decides which data files are put together. Pure.

    live files --by spec and partition--> small ones, ones with many deleted rows, ones that do not lie in order
        --in order of age, as many as fill a file or a run of files--> groups: worth it?
        --cold partitions first, up to a budget--> CompactPlan

Equality deletes stay as they are. Files of a partition meet only if the same ones reach all of them, and what is
written gets a sequence number at which they reach it too, and no others do; so does every one that comes later (H15).
A stream that adds some with every epoch is nothing to wait for. What is published is decided in `rebase`.

So that small files of a stream are not written over and over again, a file that outweighs all others of its group
stays out of it: a row is rewritten a logarithmic number of times before it lies in a full file.

A table with an order is sorted on the way, over as much as fills `sorted_files` files: only files that do not reach
into each other let a reader pass over most of them.

    small files --sorted--> a full file that spans all keys --as many as fill a run, sorted--> files of narrow ranges
    full, in no order: sorted once                                                             left alone
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from frazil.maintenance.compact.order import order_of
from frazil.model.compaction import Group, Rewrite, RewrittenTable
from frazil.model.files import DeleteId, FileKind, LiveDelete, LiveFile, LiveFiles, Place
from frazil.model.ids import maintenance_folder
from frazil.model.schema import VARIANT, ListOf, MapOf, StructOf, Type
from frazil.model.sort import Order, SortField, run_of
from frazil.model.write import ParquetSettings

ACTION = "compact"
_PARQUET = "parquet"
_SLACK = 1.25
"""A group that was to fill one file must not leave a crumb in a second one, if its rows compress a little worse."""
_TINY = 0.2
"""Of the target. Sorted rows compress better: what was to be a full file may become a small one, but hardly this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """A file below `small_ratio` of the target is small; one with more than `delete_ratio` of its rows deleted is
    rewritten even by itself. `budget_bytes` bounds what one plan reads, `commit_bytes` what one snapshot replaces.
    `tiered` leaves a file out that outweighs the rest of its group: better beside a stream, worse for a last time.
    `order_by` or `zorder_by` for another order than the table's own; up to `sorted_files` full files are sorted
    together."""

    target_file_bytes: int = 256 << 20
    min_input_files: int = 10
    small_ratio: float = 0.75
    delete_ratio: float = 0.30
    budget_bytes: int = 64 << 30
    commit_bytes: int = 4 << 30
    tiered: bool = True
    order_by: tuple[SortField, ...] = ()
    zorder_by: tuple[str, ...] = ()
    sorted_files: int = 10

    def __post_init__(self) -> None:
        if self.target_file_bytes < 1 or self.min_input_files < 2 or self.budget_bytes < 1 or self.commit_bytes < 1:
            raise ValueError("sizes begin at one byte, and min_input_files at 2")
        if not 0 < self.small_ratio <= 1 or not 0 < self.delete_ratio <= 1:
            raise ValueError("small_ratio and delete_ratio lie between 0 and 1")
        if self.order_by and self.zorder_by:
            raise ValueError("rows lie in one order: order_by or zorder_by")
        if self.sorted_files < 1:
            raise ValueError("sorted_files begins at 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactPlan:
    """Groups in the order in which they are worked off. `waiting` groups are beyond the budget. `order` is that of the
    rows they become, None if they keep theirs."""

    table: RewrittenTable
    snapshot_id: int
    groups: tuple[Group, ...]
    commit_bytes: int
    waiting: int = 0
    order: Order | None = None

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
            order=self.order,
        )


def _sequence_until(groups: Iterable[Group]) -> int:
    return min(group.sequence_until for group in groups)


def plan_compaction(
    table: RewrittenTable, live: LiveFiles, settings: CompactSettings | None = None
) -> CompactPlan | None:
    """None if nothing is worth it, or if the table has a type that is not written here. Raises ConfigError if it cannot
    have the order that the settings ask for."""
    settings = settings or CompactSettings()
    order = order_of(table, settings.order_by, settings.zorder_by)
    if live.snapshot_id is None or any(_has_variant(field.type) for field in table.schema):
        return None
    look = _Look(settings, order, _dead_shares(live))
    written = {field.id for field in table.schema}
    partitions: dict[Place, list[LiveFile]] = {}
    for file in live.files:
        if file.format == _PARQUET and _read_by(file) <= written:
            partitions.setdefault(file.place, []).append(file.by_position())
    deletes = _equality_numbers(live)
    found: list[tuple[int, str, Group]] = []
    for place, files in partitions.items():
        newest = max(file.sequence_number for file in files)
        for until, alike in _reached_alike(files, deletes.get(place, ()), table.sequence_number):
            found += [(newest, repr(place), group) for group in _groups(alike, until, look)]
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
        order=order,
    )


def _read_by(file: LiveFile) -> set[int]:
    """Columns by which equality deletes find rows of the file. One that was dropped since would not be written any
    more, and they would find nothing (H15): such a file waits until they are converted."""
    return {id_ for delete in file.deletes for id_ in delete.equality_ids}


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


def _equality_numbers(live: LiveFiles) -> dict[Place, list[int]]:
    """Sequence numbers of the equality deletes that reach files of a partition, ascending."""
    found: dict[Place, set[int]] = {}
    for file in live.files:
        numbers = {one.sequence_number for one in file.deletes if one.kind is FileKind.EQUALITY_DELETE}
        if numbers:
            found.setdefault(file.place, set()).update(numbers)
    return {place: sorted(numbers) for place, numbers in found.items()}


def _reached_alike(
    files: Iterable[LiveFile], deletes: Sequence[int], newest: int
) -> Iterator[tuple[int, list[LiveFile]]]:
    """Files of a partition between two equality deletes, and the highest number at which no other one reaches them."""
    spans: dict[int, list[LiveFile]] = {}
    for file in files:
        spans.setdefault(bisect_right(deletes, file.sequence_number), []).append(file)
    for span, between in sorted(spans.items()):
        yield (deletes[span] - 1 if span < len(deletes) else newest), between


def _dead_shares(live: LiveFiles) -> dict[str, float]:
    """How much of each file is deleted by position; a guess where a delete file is for several data files."""
    reached: dict[DeleteId, int] = {}
    for file in live.files:
        for delete in _shared(file):
            reached[delete.id] = reached.get(delete.id, 0) + file.records
    shares = {}
    for file in live.files:
        own = sum(delete.records for delete in file.deletes if delete.data_file == file.path)
        others = sum(delete.records * file.records / max(reached[delete.id], 1) for delete in _shared(file))
        if own or others:
            shares[file.path] = min(1.0, (own + others) / max(file.records, 1))
    return shares


def _shared(file: LiveFile) -> Iterable[LiveDelete]:
    return (one for one in file.position_deletes if one.data_file is None)


# which files


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known of files while a plan is made. `dead` is how much of a file is deleted."""

    settings: CompactSettings
    order: Order | None
    dead: Mapping[str, float]

    @property
    def capacity(self) -> int:
        """How much a group holds."""
        return self.settings.target_file_bytes * (1 if self.order is None else self.settings.sorted_files)

    def alive(self, file: LiveFile) -> float:
        return file.size * (1.0 - self.dead.get(file.path, 0.0))

    def is_small(self, file: LiveFile) -> bool:
        return file.size < self.settings.small_ratio * self.settings.target_file_bytes

    def is_heavy(self, file: LiveFile) -> bool:
        return self.dead.get(file.path, 0.0) > self.settings.delete_ratio

    def run_files(self, file: LiveFile) -> int:
        """Over how many files its rows were sorted; 0 if it does not lie in order."""
        if self.order is None:
            return 0
        told = run_of(file.path)
        if told is not None and told.mark == self.order.mark:
            return told.files
        return int(self.order.order_id is not None and file.sort_order_id == self.order.order_id)

    def is_unsorted(self, file: LiveFile) -> bool:
        """Of full files; small ones are rewritten anyway."""
        return self.order is not None and not self.run_files(file) and not self.is_small(file)

    def is_due(self, file: LiveFile) -> bool:
        """By itself."""
        return self.is_heavy(file) or self.is_unsorted(file)

    def is_candidate(self, file: LiveFile) -> bool:
        """A small file of several that were sorted together is as small as its range is, unless it is tiny."""
        is_of_a_run = self.run_files(file) > 1 and file.size >= _TINY * self.settings.target_file_bytes
        return self.is_due(file) or (self.is_small(file) and not is_of_a_run)

    def is_short_run(self, file: LiveFile) -> bool:
        """Sorted, but over so little that more of its kind, sorted together, would be read better."""
        return 1 <= self.run_files(file) <= self.settings.sorted_files // 2 and not self.is_candidate(file)


def _groups(files: Sequence[LiveFile], until: int, look: _Look) -> list[Group]:
    """Neighbours in time stay together, so that bounds of columns that grow with time stay narrow."""
    singles = [(file,) for file in files if look.is_candidate(file)]
    groups = [
        _group(*found, until, look) for units in _filled(singles, look) if (found := _worth_it(units, look)) is not None
    ]
    runs: dict[str, list[LiveFile]] = {}
    for file in files:
        if look.is_short_run(file):
            told = run_of(file.path)
            runs.setdefault(file.path if told is None else told.folder, []).append(file)
    for units in _filled([tuple(run) for run in runs.values()], look):
        if (found := _worth_a_run(units, look)) is not None:
            groups.append(_group(*found, until, look))
    return groups


_Unit = tuple[LiveFile, ...]


def _filled(units: Iterable[_Unit], look: _Look) -> Iterator[list[_Unit]]:
    """As many at a time as a group holds, the oldest first."""
    waiting: list[_Unit] = []
    filled = 0.0
    for unit in sorted(units, key=lambda unit: min((file.sequence_number, file.path) for file in unit)):
        alive = _weight(unit, look)
        if waiting and filled + alive > look.capacity:
            yield waiting
            waiting, filled = [], 0.0
        waiting.append(unit)
        filled += alive
    if waiting:
        yield waiting


def _worth_it(units: Sequence[_Unit], look: _Look) -> tuple[Sequence[LiveFile], str] | None:
    """Which of the files, and why."""
    settings, target = look.settings, look.settings.target_file_bytes
    files = _flat(units)
    due = [file for file in files if look.is_due(file)]
    filled = _weight(files, look)
    if len(files) > 1 and filled >= settings.small_ratio * target:
        return files, f"together they fill {filled / target:.0%} of a file"
    chosen = _flat(_without_outweighing(units, {file.path for file in due}, look)) if settings.tiered else files
    if heavy := [file for file in due if look.is_heavy(file)]:
        worst = max(look.dead[file.path] for file in heavy)
        return chosen, f"up to {worst:.0%} of the rows of {len(heavy)} files are deleted"
    if due:
        return chosen, f"{len(due)} files do not lie in order"
    if len(chosen) >= settings.min_input_files:
        return chosen, f"{len(chosen)} small files"
    return None


def _worth_a_run(runs: Sequence[_Unit], look: _Look) -> tuple[Sequence[LiveFile], str] | None:
    """Once they fill a long one; every row of theirs is rewritten but this one time, whoever is in a hurry."""
    files = _flat(runs)
    if len(runs) < 2 or _weight(files, look) < look.settings.small_ratio * look.capacity:
        return None
    return files, f"{len(runs)} sorted runs reach into each other"


def _without_outweighing(units: Sequence[_Unit], due: Collection[str], look: _Look) -> Sequence[_Unit]:
    chosen = list(units)
    while len(chosen) > 1:
        largest = max(chosen, key=lambda unit: (_weight(unit, look), unit[0].path))
        rest = _weight(_flat(chosen), look) - _weight(largest, look)
        if any(file.path in due for file in largest) or _weight(largest, look) <= rest:
            break
        chosen.remove(largest)
    return chosen


def _group(files: Sequence[LiveFile], reason: str, until: int, look: _Look) -> Group:
    expected, target = _weight(files, look), look.settings.target_file_bytes
    count = max(1, round(expected / target))
    # What is dead may be a guess, and of small files much is not rows: one that has room for all is not cut.
    each = max(expected, target) if count == 1 else expected / count
    in_order = tuple(sorted(files, key=lambda file: (file.sequence_number, file.path)))
    return Group(in_order, reason, int(each * _SLACK), until, count)


def _weight(files: Iterable[LiveFile], look: _Look) -> float:
    return sum(look.alive(file) for file in files)


def _flat(units: Iterable[_Unit]) -> list[LiveFile]:
    return [file for unit in units for file in unit]


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
