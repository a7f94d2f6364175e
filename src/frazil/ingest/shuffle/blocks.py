"""Change rows in blocks: some large binaries move from task to task, not millions of small rows.

    reading task   rows --hash of the key--> (shard, group) --packed--> blocks
                                                               |  one machine: `local_files`, else Spark's shuffle:
                                                               |  Arrow, LZ4, to the shard's task, sorted; spills
    writing task   blocks of one group --unpacked, sorted--> rows in the order of SORT_COLUMNS, group after group
                                `-- more than expected: folded; still too many: sorted runs on disk, merged

    group   0            1          2          3            one table's rows never lie behind those of a later one,
    holds   tables 0, 1  table 2,   table 2,   table 2,     and an epoch's rows are in one group, or in groups of
            all epochs   epoch 0    epoch 1    epoch 1      their own that share its keys by hash
                                    keys a, c  keys b, d

A group is meant to fit into memory, by what the partitions weigh. They may mislead (compressed files, one epoch with
nearly all changes, one key that changes all the time), so what a task holds is bounded whatever comes: of a key that a
main tables only the newest version stays, and what a changelog keeps goes to disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.data.murmur3 import murmur3
from frazil.data.pieces import contents
from frazil.ingest.write.fold import CHUNK_ROWS, fold_changes, sort_changes
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import SORT_COLUMNS
from frazil.storage.files.spill import SpillFile

BLOCK = pa.schema([("shard", pa.int32()), ("group", pa.int32()), ("body", pa.binary())])
BLOCK_DDL = "shard int, group int, body binary"
# What the partitions of a group may weigh in one shard.
GROUP_BYTES = 16 << 20
# Arrow bytes of rows that a reading task collects before it packs them, and that a writing task holds of a group.
PACKED_TOGETHER = 16 << 20
HELD_BYTES_MAX = 64 << 20
# Arrow bytes of a run that are looked at together when runs are merged.
_MERGED_BYTES = 4 << 20
# One in so many keys is looked at to see how often keys repeat; fewer are worth no look.
_SAMPLED, _SAMPLE_MIN = 16, 64
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """change rows that go to one shard, all of one group."""

    shard: int
    group: int
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Share:
    """The groups of one table: `spans` of its epochs, each in `buckets` groups by hash, from `first` on."""

    first: int
    spans: int = 1
    buckets: int = 1


@dataclass(frozen=True, slots=True)
class Groups:
    """Where rows go, by their table, epoch and key. `shares` are by table index. Picklable."""

    shards: int
    epochs: int
    shares: Mapping[int, Share]

    def __post_init__(self) -> None:
        for table, share in self.shares.items():
            if share.spans > self.epochs or (share.buckets > 1 and share.spans < self.epochs):
                raise ValueError(f"table {table}: epochs that share a group would come back in the next one: {share}")

    @classmethod
    def by_weight(cls, weights: Mapping[int, int], epochs: int, shards: int) -> Groups:
        """`weights` are the bytes of each table's partitions. Small tables share a group, large ones have several."""
        shares: dict[int, Share] = {}
        group, filled = 0, 0
        for table, weight in sorted(weights.items()):
            own = -(-weight // shards)
            if filled and filled + own > GROUP_BYTES:
                group, filled = group + 1, 0
            needed = -(-own // GROUP_BYTES)
            if needed <= 1:
                shares[table] = Share(group)
                filled += own
                continue
            spans = min(epochs, needed)
            shares[table] = Share(group, spans, -(-needed // spans))
            group += shares[table].spans * shares[table].buckets
        return cls(shards, epochs, shares)

    def places(self, rows: pa.RecordBatch, hashes: Numbers) -> Numbers:
        """For each row, whose key has this hash, the group and the shard: group * shards + shard."""
        tables = rows.column("table").to_numpy()
        epochs = rows.column("epoch").to_numpy().astype(np.int64)
        found = np.unique(tables)
        groups = np.empty(rows.num_rows, np.int64)
        for table in found.tolist():
            share = self.shares[table]
            mine = slice(None) if len(found) == 1 else tables == table
            span = epochs[mine] * share.spans // self.epochs
            groups[mine] = share.first + span * share.buckets + hashes[mine] // self.shards % share.buckets
            # Reports come before the rows of their table.
            groups[mine] = np.where(epochs[mine] < 0, share.first, groups[mine])
        return groups * self.shards + hashes % self.shards


def key_hashes(rows: pa.RecordBatch) -> Numbers:
    """Equal keys have equal ones. A row without a key has some, too: the fold refuses it where it arrives."""
    text, ends = contents(rows.column("key"))
    return murmur3(text, ends[:-1], np.diff(ends)).astype(np.int64)


def pack(batches: Iterable[pa.RecordBatch], groups: Groups, changelogs: Collection[int] = ()) -> Iterator[Block]:
    """change rows in any order, as blocks. Where keys repeat a lot, versions that the fold would drop stay here;
    tables in `changelogs` keep every (key, position)."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        if size >= PACKED_TOGETHER:
            yield from _packed(_joined(waiting), groups, changelogs)
            size = 0
    if waiting:
        yield from _packed(_joined(waiting), groups, changelogs)


def unpack(blocks: Iterable[tuple[int, pa.RecordBatch]], changelogs: Collection[int] = ()) -> Iterator[pa.RecordBatch]:
    """TRAVEL batches in the order of SORT_COLUMNS within each group, of a shard's (group, rows) sorted by group."""
    for _, parts in groupby(blocks, key=lambda block: block[0]):
        yield from _sorted((rows for _, rows in parts), changelogs)


def to_spark(blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    """PARCEL rows, which Spark moves."""
    for block in blocks:
        sink = pa.BufferOutputStream()
        write_body(block.rows, sink, _COMPRESSED)
        body = sink.getvalue()
        ends = pa.py_buffer(np.array([0, body.size], np.int32).tobytes())
        columns = [pa.array([block.shard], pa.int32()), pa.array([block.group], pa.int32())]
        yield pa.RecordBatch.from_arrays(
            [*columns, pa.BinaryArray.from_buffers(pa.binary(), 1, [None, ends, body])], schema=BLOCK
        )


def from_spark(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(group, rows) of a shard's PARCEL rows."""
    for batch in batches:
        for group, body in zip(batch.column("group").to_pylist(), batch.column("body"), strict=True):
            yield group, read_body(body.as_buffer())


def write_body(rows: pa.RecordBatch, sink: Any, options: pa.ipc.IpcWriteOptions | None = None) -> None:
    """A block's bytes."""
    with pa.ipc.new_stream(sink, CHANGE_SCHEMA, options=options) as out:
        out.write_batch(rows)


def read_body(body: pa.Buffer) -> pa.RecordBatch:
    """The rows lie in the buffer, unless it is compressed."""
    return pa.ipc.open_stream(body).read_next_batch()


def _packed(rows: pa.RecordBatch, groups: Groups, changelogs: Collection[int]) -> Iterator[Block]:
    hashes = key_hashes(rows)
    if _repeats(hashes):
        rows = _folded(rows, changelogs)
        hashes = key_hashes(rows)
    places = groups.places(rows, hashes)
    order = np.argsort(places, kind="stable")
    places = places[order]
    borders = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
    if len(borders) > 2:
        rows = rows.take(pa.array(order))
    for start, end in pairwise(borders):
        group, shard = divmod(int(places[start]), groups.shards)
        yield Block(shard, group, rows.slice(start, end - start))


def _joined(waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All of them as one; the list is empty then, so that nobody holds them any longer."""
    rows = pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]
    waiting.clear()
    return rows


def _repeats(hashes: Numbers) -> bool:
    """Whether at least every second row seems to be another version of a key that is here already."""
    sample = hashes[hashes % _SAMPLED == 0]
    return bool(len(sample) >= _SAMPLE_MIN and 2 * len(np.unique(sample)) <= len(sample))


def _folded(rows: pa.RecordBatch, changelogs: Collection[int]) -> pa.RecordBatch:
    """The rows in order, without versions that another one here outranks."""
    return pa.concat_batches([run for _, _, run in fold_changes([_in_order([rows], changelogs)], changelogs)])


def _sorted(parts: Iterable[pa.RecordBatch], changelogs: Collection[int]) -> Iterator[pa.RecordBatch]:
    """The rows of one group, in memory as long as they fit."""
    held: list[pa.RecordBatch] = []
    size = 0
    runs: _Runs | None = None
    try:
        for part in parts:
            held.append(part)
            size += part.nbytes
            del part
            if size < HELD_BYTES_MAX:
                continue
            rows = _folded(_joined(held), changelogs)
            # Folding again and again pays only while it makes room.
            if 2 * rows.nbytes > HELD_BYTES_MAX:
                runs = runs or _Runs()
                runs.add(rows)
                size = 0
            else:
                held, size = [rows], rows.nbytes
            del rows
        if runs is None:
            yield from _sliced(_in_order(held, changelogs))
        else:
            if held:
                runs.add(_in_order(held, changelogs))
            yield from runs.merged()
    finally:
        if runs is not None:
            runs.release()


def _in_order(held: list[pa.RecordBatch], changelogs: Collection[int]) -> pa.RecordBatch:
    return sort_changes(pa.Table.from_batches([_joined(held)]), newest=not changelogs)


def _sliced(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Pieces that are decoded and written together; all that is held meanwhile is the rows themselves."""
    for start in range(0, rows.num_rows, CHUNK_ROWS):
        yield rows.slice(start, CHUNK_ROWS)


class _Runs:
    """Sorted rows on local disk, which come back as one sorted stream."""

    def __init__(self) -> None:
        self._spool = SpillFile(CHANGE_SCHEMA)
        self._count = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """One more run."""
        step = max(1, rows.num_rows * _MERGED_BYTES // max(1, rows.nbytes))
        for start in range(0, rows.num_rows, step):
            part = rows.slice(start, step)
            self._spool.add(part, np.full(part.num_rows, self._count, np.int64))
        self._count += 1

    def merged(self) -> Iterator[pa.RecordBatch]:
        """All rows in order; of each run one part is looked at. What is not beyond the end of any part comes out."""
        self._spool.seal()
        streams = [_parts(self._spool.read(run)) for run in range(self._count)]
        heads = [(stream, part) for stream in streams if (part := next(stream, None)) is not None]
        while heads:
            bound = min(_order(part, part.num_rows - 1) for _, part in heads)
            ready: list[pa.RecordBatch] = []
            left = []
            for stream, part in heads:
                count = bisect_right(range(part.num_rows), bound, key=partial(_order, part))
                ready.append(part.slice(0, count))
                rest = part.slice(count) if count < part.num_rows else next(stream, None)
                if rest is not None:
                    left.append((stream, rest))
            heads = left
            yield sort_changes(pa.Table.from_batches(ready, CHANGE_SCHEMA))

    def release(self) -> None:
        self._spool.release()


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces small enough to merge many of them."""
    for batch in batches:
        step = max(1, batch.num_rows * _MERGED_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def _order(rows: pa.RecordBatch, at: int) -> tuple[tuple[bool, Any], ...]:
    """The place of a row in the order of `sort_changes`, which puts nulls last."""
    values = (rows.column(name)[at].as_py() for name in SORT_COLUMNS)
    return tuple((value is None, 0 if value is None else value) for value in values)
