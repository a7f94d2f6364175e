"""Shuffle blocks on this machine's disk: where all tasks run on one machine, their rows need not go through the JVM.

    reading task   blocks, one after the other --> a file of its own --> WrittenBlocks, to the driver
    driver         what every reader wrote --> by shard, sorted by group
    writing task   those files --> (group, rows), a block at a time

The files lie in one folder of the job, which the driver removes when the job is over.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from frazil.errors import StorageUnavailable
from frazil.ingest.shuffle.blocks import Block, read_body, write_body

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class WrittenBlocks:
    """Where a block is."""

    shard: int
    group: int
    path: str
    start: int
    size: int


@contextmanager
def block_folder(root: str) -> Iterator[str]:
    """The folder of one job, in one of Spark's that goes with the session: a task that was started while the job was
    being given up may still write here, and what it wrote then stays. Raises StorageUnavailable for a full disk."""
    try:
        folder = tempfile.mkdtemp(prefix="blocks-", dir=root)
    except OSError as error:
        raise _failure(error, root) from error
    try:
        yield folder
    except OSError as error:
        # What Spark writes beside it. Any other one is a connection that broke, which is not ours to explain.
        if error.errno not in _FULL:
            raise
        raise _failure(error, folder) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_blocks(blocks: Iterable[Block], path: str) -> Iterator[WrittenBlocks]:
    """Writes the blocks to a file that nobody else writes. Raises StorageUnavailable for a full disk."""
    try:
        file = pa.OSFile(path, "wb")
    except OSError as error:
        raise _failure(error, path) from error
    with file:
        for block in blocks:
            start = file.tell()
            try:
                write_body(block.rows, file)
            except OSError as error:
                raise _failure(error, path) from error
            yield WrittenBlocks(block.shard, block.group, path, start, file.tell() - start)


def fetch(written_blocks: Sequence[WrittenBlocks]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(group, rows) of what one shard gets, sorted by group."""
    for block in sorted(written_blocks, key=lambda block: block.group):
        try:
            with pa.OSFile(block.path, "rb") as file:
                file.seek(block.start)
                body = file.read_buffer(block.size)
        except OSError as error:
            raise _failure(error, block.path) from error
        yield block.group, read_body(body)


def _failure(error: OSError, path: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"changes on their way to the tasks that write them cannot be kept in {path}: {error.strerror or error}",
        hint="Spark's local folder is full or gone: make room, or set spark.local.dir under spark.conf to another one.",
        path=path,
        errno=error.errno,
    )
