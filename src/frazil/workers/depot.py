"""Parcels on this machine's disk: where all tasks run on one machine, their rows need not go through the JVM.

    reading task   parcels, one after the other --> a file of its own --> Stowed, to the driver
    driver         what every reader stowed --> by shard, sorted by group
    writing task   those files --> (group, rows), a parcel at a time

The files lie in one folder of the job, which the driver removes when the job is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from frazil.workers.parcels import Parcel, read_body, write_body
from frazil.workers.storage import storage_error


@dataclass(frozen=True, slots=True)
class Stowed:
    """Where a parcel is."""

    shard: int
    group: int
    path: str
    start: int
    size: int


def stow(parcels: Iterable[Parcel], path: str) -> Iterator[Stowed]:
    """Writes the parcels to a file that nobody else writes. Raises StorageUnavailable for a full disk."""
    try:
        file = pa.OSFile(path, "wb")
    except OSError as error:
        raise storage_error(error, path) from error
    with file:
        for parcel in parcels:
            start = file.tell()
            try:
                write_body(parcel.rows, file)
            except OSError as error:
                raise storage_error(error, path) from error
            yield Stowed(parcel.shard, parcel.group, path, start, file.tell() - start)


def fetch(stowed: Sequence[Stowed]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(group, rows) of what one shard gets, sorted by group."""
    for parcel in sorted(stowed, key=lambda parcel: parcel.group):
        try:
            with pa.OSFile(parcel.path, "rb") as file:
                file.seek(parcel.start)
                body = file.read_buffer(parcel.size)
        except OSError as error:
            raise storage_error(error, parcel.path) from error
        yield parcel.group, read_body(body)
