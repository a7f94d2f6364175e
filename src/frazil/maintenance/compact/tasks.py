"""Puts the live rows of several data files into new ones, and follows rows that are deleted meanwhile.

    task: group --file by file, batch by batch, without deleted rows--> new files, and what was left out of each input
          a rewrite with an order: see `sort.spark_sort`
    driver: deletes of a later head --PositionMap, or row maps of what was sorted--> vectors (v3) or position deletes
                                                                                     (v2) of the new files

A batch of rows, and what waits for one row group, is all that a task holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.data.deletes.delete_files import VECTORS_FROM_VERSION, write_position_deletes, write_vectors
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.deletes.positions import read_positions
from frazil.data.read.live_rows import live_rows
from frazil.data.read.parquet import unreadable
from frazil.errors import BadInput
from frazil.ingest.write.write_job import run_on_executors, running_task
from frazil.maintenance.compact.position_map import PositionMap
from frazil.maintenance.compact.rewritten_files import data_file, open_writer
from frazil.maintenance.compact.sort.in_memory import SortLimits
from frazil.maintenance.compact.sort.row_map import Question
from frazil.maintenance.compact.sort.spark_sort import sort_groups
from frazil.model.compaction import (
    Carried,
    Group,
    Moved,
    Reprojected,
    Rewrite,
    RewriteResult,
    RewrittenTable,
)
from frazil.model.files import Place, WrittenFile
from frazil.model.ids import position_delete_path, vectors_path
from frazil.spark.bins import Piece, pieces

FOLLOWED_HERE = 4 << 20
"""Rows of row maps that the driver reads by itself, rather than start tasks for them."""


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

    def concatenate(self, rewrite: Rewrite) -> tuple[RewriteResult, ...]:
        """See the port."""
        light = replace(rewrite, groups=tuple(group.light() for group in rewrite.groups))
        if rewrite.order is not None:
            return sort_groups(self._spark, light, self._limits, self._tasks)
        bare = replace(rewrite, groups=())

        def task(piece: Piece[Group]) -> RewriteResult:
            try:
                return concatenate(bare, piece.number, piece.what, running_task()[1])
            except BadInput as error:
                # One damaged file must not keep all others small for ever.
                return RewriteResult(piece.number, failure=error.message)

        groups = pieces(light.groups, lambda group: group.size)
        return tuple(sorted(run_on_executors(self._spark, task, groups, self._tasks), key=lambda one: one.group))

    def reproject(self, rewrite: Rewrite, moved: Sequence[Moved], carried: Sequence[Carried]) -> Reprojected:
        """See the port."""
        table, deleted = rewrite.table, DeletedRows()
        found: dict[Place, dict[str, BitMap64]] = {}
        fresh_of: dict[str, BitMap64] = {}
        undone: list[int] = []
        on_row_maps: list[Moved] = []
        for one in moved:
            left_out = [BitMap64.deserialize(data) for data in one.result.left_out]
            now = [deleted.of(file, table.storage) for file in one.files]
            if any(not before.issubset(after) for before, after in zip(left_out, now, strict=True)):
                undone.append(one.result.group)
                continue
            for file, before, after in zip(one.files, left_out, now, strict=True):
                fresh_of[file.path] = after - before
            if one.result.row_maps:
                on_row_maps.append(one)
                continue
            outputs = one.result.files
            places = PositionMap([file.records for file in one.files], left_out, [file.records for file in outputs])
            rows = found.setdefault(one.files[0].place, {})
            rows.update({outputs[number].path: bitmap for number, bitmap in places.follow(now).items()})
        if undone:
            return Reprojected(undone=tuple(undone))
        for one, rows_of in zip(on_row_maps, self._on_row_maps(rewrite, on_row_maps, fresh_of), strict=True):
            found.setdefault(one.files[0].place, {}).update(rows_of)
        count = sum(map(len, fresh_of.values()))
        attempt = self._clock.new_uuid().hex
        if table.format_version >= VECTORS_FROM_VERSION:
            return Reprojected(tuple(_vectors(rewrite, found, attempt)), rows=count)
        replaced = _carry(table, carried, fresh_of, found)
        files = tuple(_positions(rewrite, found, attempt))
        return Reprojected(files, tuple(one.delete for one in replaced), count)

    def _on_row_maps(
        self, rewrite: Rewrite, moved: Sequence[Moved], fresh_of: Mapping[str, BitMap64]
    ) -> Iterator[dict[str, BitMap64]]:
        """The rows of each output of each sorted group that the fresh ones of its inputs became."""
        asked = [_asked(one, fresh_of) for one in moved]
        storage = rewrite.table.storage

        def answer(piece: Piece[Question]) -> tuple[int, dict[int, bytes]]:
            found = piece.what.follow(storage)
            return piece.number, {number: bitmap.serialize() for number, bitmap in found.items()}

        questions = pieces((one for own in asked for one in own), lambda one: one.row_map.rows)
        open_ones = [one for one in questions if one.what.deleted]
        if sum(one.size for one in open_ones) <= FOLLOWED_HERE:
            answers = list(map(answer, open_ones))
        else:
            answers = run_on_executors(self._spark, answer, open_ones, self._tasks)
        by_row_map, numbers = dict(answers), iter(questions)
        for one, own in zip(moved, asked, strict=True):
            yield _of_outputs(one, fresh_of, [by_row_map.get(next(numbers).number, {}) for _ in own])


# the task


def concatenate(rewrite: Rewrite, number: int, group: Group, attempt: str) -> RewriteResult:
    """Writes one group; `attempt` is never used twice. Raises what reading and writing raise."""
    table = rewrite.table
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
    place = group.files[0].place
    return RewriteResult(number, tuple(data_file(place, file) for file in closed), tuple(left_out))


# deletes that came meanwhile


def _asked(moved: Moved, fresh_of: Mapping[str, BitMap64]) -> list[Question]:
    """For each row map of a sorted group, where the fresh rows of its inputs went."""
    fresh = {number: fresh_of[file.path].serialize() for number, file in enumerate(moved.files) if fresh_of[file.path]}
    questions, start = [], 0
    for row_map in moved.result.row_maps:
        files = moved.result.files[start : start + row_map.files]
        questions.append(Question(row_map, tuple(file.records for file in files), fresh))
        start += row_map.files
    return questions


def _of_outputs(
    moved: Moved, fresh_of: Mapping[str, BitMap64], by_row_map: Sequence[Mapping[int, bytes]]
) -> dict[str, BitMap64]:
    found: dict[str, BitMap64] = {}
    start = 0
    for row_map, rows in zip(moved.result.row_maps, by_row_map, strict=True):
        for number, bitmap in rows.items():
            found[moved.result.files[start + number].path] = BitMap64.deserialize(bitmap)
        start += row_map.files
    wanted, followed = (sum(map(len, rows)) for rows in ((fresh_of[file.path] for file in moved.files), found.values()))
    if wanted != followed:
        # To go on would bring the others back (H16).
        raise unreadable(moved.result.row_maps[0].path, f"it and its neighbours tell of {followed} rows of {wanted}")
    return found


def _carry(
    table: RewrittenTable,
    carried: Sequence[Carried],
    fresh_of: Mapping[str, BitMap64],
    found: dict[Place, dict[str, BitMap64]],
) -> list[Carried]:
    """Those that delete rows of inputs; what they delete elsewhere is added to what is found."""
    replaced = []
    for one in carried:
        rows = read_positions(one.delete.path, table.storage, one.delete.data_file)
        if not any(rows[path].intersect(fresh) for path, fresh in fresh_of.items() if path in rows):
            continue
        replaced.append(one)
        mine = found.setdefault(one.delete.place, {})
        for path in one.data_files:
            if path in rows:
                mine[path] = mine.get(path, BitMap64()) | rows[path]
    return replaced


def _vectors(rewrite: Rewrite, found: Mapping[Place, Mapping[str, BitMap64]], attempt: str) -> list[WrittenFile]:
    places = {path: place for place, rows in found.items() for path in rows}
    bitmaps = {path: found[place][path] for path, place in places.items()}
    path = vectors_path(rewrite.folder, attempt)
    return write_vectors(path, bitmaps, places, rewrite.table.storage) if bitmaps else []


def _positions(rewrite: Rewrite, found: Mapping[Place, Mapping[str, BitMap64]], attempt: str) -> list[WrittenFile]:
    paths = (position_delete_path(rewrite.folder, attempt, number) for number in count())
    return [
        write_position_deletes(next(paths), rows, place, rewrite.parquet, rewrite.table.storage)
        for place, rows in found.items()
        if rows
    ]
