"""Puts the live rows of several data files into new ones, and follows rows that are deleted meanwhile.

    task: group --file by file, batch by batch, without deleted rows--> new files, and what was left out of each input
          a rewrite with an order: see `sort_shuffle`
    driver: deletes of a later head --Places, or trails of what was sorted--> vectors (v3) or position deletes (v2) of
                                                                              the new files

A batch of rows, and what waits for one row group, is all that a task holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.errors import BadInput
from frazil.model.compaction import (
    Carried,
    Concatenated,
    Group,
    Moved,
    Reprojected,
    Rewrite,
    RewrittenTable,
)
from frazil.model.files import FileClosed, Kind
from frazil.model.names import position_delete_path, vectors_path
from frazil.model.ports import Split
from frazil.workers.job import run_on_executors, running_task
from frazil.workers.lookup.deleted import DeletedRows
from frazil.workers.lookup.plan import VECTORS_FROM_VERSION
from frazil.workers.lookup.positions import read_positions, write_positions
from frazil.workers.lookup.reading import unreadable
from frazil.workers.lookup.vectors import write_puffin
from frazil.workers.reprojecting import Places
from frazil.workers.rewritten_files import Partition, data_message, facts, message, open_writer
from frazil.workers.rewritten_rows import live_rows
from frazil.workers.sort_rewriting import SortLimits
from frazil.workers.sort_shuffle import sort_groups
from frazil.workers.sort_trails import Question

FOLLOWED_HERE = 4 << 20
"""Rows of trails that the driver reads by itself, rather than start tasks for them."""


class SparkRewriting:
    """Implements `frazil.model.compaction.Rewriting` on one session."""

    def __init__(
        self, spark: SparkSession, clock: Clock, limits: SortLimits | None = None, *, tasks: int | None = None
    ) -> None:
        """`tasks` run at once at most."""
        self._spark = spark
        self._clock = clock
        self._tasks = tasks
        self._limits = limits or SortLimits()

    def concatenate(self, rewrite: Rewrite) -> tuple[Concatenated, ...]:
        """See the port."""
        light = replace(rewrite, groups=tuple(map(_light, rewrite.groups)))
        if rewrite.order is not None:
            return sort_groups(self._spark, light, self._limits, self._tasks)

        def task(split: Split) -> Concatenated:
            number = int(split.name)
            try:
                return concatenate(light, number, running_task()[1])
            except BadInput as error:
                # One damaged file must not keep all others small for ever.
                return Concatenated(number, failure=error.message)

        splits = [Split(0, str(number), "", group.size) for number, group in enumerate(rewrite.groups)]
        return tuple(sorted(run_on_executors(self._spark, task, splits, self._tasks), key=lambda one: one.group))

    def reproject(self, rewrite: Rewrite, moved: Sequence[Moved], carried: Sequence[Carried]) -> Reprojected:
        """See the port."""
        table, deleted = rewrite.table, DeletedRows()
        found: dict[Partition, dict[str, BitMap64]] = {}
        fresh_of: dict[str, BitMap64] = {}
        undone: list[int] = []
        on_trails: list[Moved] = []
        for one in moved:
            left_out = [BitMap64.deserialize(data) for data in one.result.left_out]
            now = [deleted.of(file, table.storage) for file in one.files]
            if any(not before.issubset(after) for before, after in zip(left_out, now, strict=True)):
                undone.append(one.result.group)
                continue
            for file, before, after in zip(one.files, left_out, now, strict=True):
                fresh_of[file.path] = after - before
            if one.result.trails:
                on_trails.append(one)
                continue
            outputs = one.result.files
            places = Places([file.records for file in one.files], left_out, [file.records for file in outputs])
            rows = found.setdefault(_place(one), {})
            rows.update({outputs[number].path: bitmap for number, bitmap in places.follow(now).items()})
        if undone:
            return Reprojected(undone=tuple(undone))
        for one, rows_of in zip(on_trails, self._on_trails(rewrite, on_trails, fresh_of), strict=True):
            found.setdefault(_place(one), {}).update(rows_of)
        count = sum(map(len, fresh_of.values()))
        attempt = self._clock.new_uuid().hex
        if table.format_version >= VECTORS_FROM_VERSION:
            return Reprojected(tuple(_vectors(rewrite, found, attempt)), rows=count)
        replaced = _carry(table, carried, fresh_of, found)
        files = tuple(_positions(rewrite, found, attempt))
        return Reprojected(files, tuple(one.delete for one in replaced), count)

    def _on_trails(
        self, rewrite: Rewrite, moved: Sequence[Moved], fresh_of: Mapping[str, BitMap64]
    ) -> Iterator[dict[str, BitMap64]]:
        """The rows of each output of each sorted group that the fresh ones of its inputs became."""
        asked = [_asked(one, fresh_of) for one in moved]
        storage = rewrite.table.storage

        def answer(split: Split) -> tuple[int, int, dict[int, bytes]]:
            group, place = map(int, split.name.split())
            found = asked[group][place].follow(storage)
            return group, place, {number: bitmap.serialize() for number, bitmap in found.items()}

        splits = [
            Split(0, f"{group} {place}", "", one.trail.rows)
            for group, own in enumerate(asked)
            for place, one in enumerate(own)
            if one.deleted
        ]
        if sum(split.size for split in splits) <= FOLLOWED_HERE:
            answers = list(map(answer, splits))
        else:
            answers = run_on_executors(self._spark, answer, splits, self._tasks)
        by_trail = {(group, place): rows for group, place, rows in answers}
        for group, one in enumerate(moved):
            yield _of_outputs(one, fresh_of, [by_trail.get((group, place), {}) for place in range(len(asked[group]))])


# the task


def concatenate(rewrite: Rewrite, number: int, attempt: str) -> Concatenated:
    """Writes one group; `attempt` is never used twice. Raises what reading and writing raise."""
    table, group = rewrite.table, rewrite.groups[number]
    writer = open_writer(rewrite, group, lambda place: f"{rewrite.folder}/data-{attempt}-{number}-{place}.parquet")
    deleted = DeletedRows()
    left_out: list[bytes] = []
    try:
        for file in group.files:
            gone = deleted.of(file, table.storage)
            for batch, _ in live_rows(table, file, gone, writer.schema):
                writer.write(batch)
            left_out.append(gone.serialize())
        closed = writer.close()
    except BaseException:
        writer.abandon()
        raise
    return Concatenated(number, tuple(data_message(rewrite, group, file) for file in closed), tuple(left_out))


def _light(group: Group) -> Group:
    """Without what only a commit needs."""
    return replace(
        group,
        files=tuple(
            replace(file, bounds={}, deletes=tuple(replace(delete, entry={}) for delete in file.deletes))
            for file in group.files
        ),
    )


# deletes that came meanwhile


def _place(moved: Moved) -> Partition:
    return moved.files[0].spec_id, moved.files[0].partition


def _asked(moved: Moved, fresh_of: Mapping[str, BitMap64]) -> list[Question]:
    """For each trail of a sorted group, where the fresh rows of its inputs went."""
    fresh = {number: fresh_of[file.path].serialize() for number, file in enumerate(moved.files) if fresh_of[file.path]}
    questions, start = [], 0
    for trail in moved.result.trails:
        files = moved.result.files[start : start + trail.files]
        questions.append(Question(trail, tuple(file.records for file in files), fresh))
        start += trail.files
    return questions


def _of_outputs(
    moved: Moved, fresh_of: Mapping[str, BitMap64], by_trail: Sequence[Mapping[int, bytes]]
) -> dict[str, BitMap64]:
    found: dict[str, BitMap64] = {}
    start = 0
    for trail, rows in zip(moved.result.trails, by_trail, strict=True):
        for number, bitmap in rows.items():
            found[moved.result.files[start + number].path] = BitMap64.deserialize(bitmap)
        start += trail.files
    wanted, followed = (sum(map(len, rows)) for rows in ((fresh_of[file.path] for file in moved.files), found.values()))
    if wanted != followed:
        # To go on would bring the others back (H16).
        raise unreadable(moved.result.trails[0].path, f"it and its neighbours tell of {followed} rows of {wanted}")
    return found


def _carry(
    table: RewrittenTable,
    carried: Sequence[Carried],
    fresh_of: Mapping[str, BitMap64],
    found: dict[Partition, dict[str, BitMap64]],
) -> list[Carried]:
    """Those that delete rows of inputs; what they delete elsewhere is added to what is found."""
    replaced = []
    for one in carried:
        rows = read_positions(one.delete.path, table.storage, one.delete.data_file)
        if not any(rows[path].intersect(fresh) for path, fresh in fresh_of.items() if path in rows):
            continue
        replaced.append(one)
        mine = found.setdefault((one.delete.spec_id, one.delete.partition), {})
        for path in one.data_files:
            if path in rows:
                mine[path] = mine.get(path, BitMap64()) | rows[path]
    return replaced


def _vectors(rewrite: Rewrite, found: Mapping[Partition, Mapping[str, BitMap64]], attempt: str) -> list[FileClosed]:
    places = {path: place for place, rows in found.items() for path in rows}
    if not places:
        return []
    bitmaps = {path: found[place][path] for path, place in places.items()}
    path = vectors_path(rewrite.folder, attempt)
    puffin = write_puffin(path, bitmaps, rewrite.table.storage)
    return [
        message(
            rewrite,
            places[blob.data_file],
            kind=Kind.POSITION_DELETE,
            path=path,
            records=len(bitmaps[blob.data_file]),
            size=puffin.size,
            digest=puffin.digest,
            vector=blob,
        )
        for blob in puffin.blobs
    ]


def _positions(rewrite: Rewrite, found: Mapping[Partition, Mapping[str, BitMap64]], attempt: str) -> list[FileClosed]:
    messages = []
    for number, (place, rows) in enumerate(found.items()):
        if rows:
            path = position_delete_path(rewrite.folder, attempt, number)
            closed = write_positions(path, rows, rewrite.parquet, rewrite.table.storage)
            messages.append(message(rewrite, place, kind=Kind.POSITION_DELETE, **facts(closed)))
    return messages
