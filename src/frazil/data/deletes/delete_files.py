"""Writes which rows of data files are deleted, and tells of what was written as a manifest needs it.

rows by data file --version 3--> one Puffin file, in it a vector for each ----+
                  --version 2--> one file of positions, of one partition's ---+--> spec and partition of the data
                                                                                   files (H22)
"""

from __future__ import annotations

from collections.abc import Mapping

from pyroaring import BitMap64

from frazil.data.deletes.positions import write_positions
from frazil.data.deletes.vectors import write_puffin
from frazil.model.files import FileKind, Place, WrittenFile
from frazil.model.write import ParquetSettings

VECTORS_FROM_VERSION = 3


def write_vectors(
    path: str, rows: Mapping[str, BitMap64], places: Mapping[str, Place], storage: Mapping[str, str]
) -> list[WrittenFile]:
    """Raises like `write_puffin`."""
    puffin = write_puffin(path, rows, storage)
    return [
        WrittenFile(
            kind=FileKind.POSITION_DELETE,
            path=path,
            records=len(rows[blob.data_file]),
            size=puffin.size,
            digest=puffin.digest,
            spec_id=places[blob.data_file][0],
            partition=places[blob.data_file][1],
            vector=blob,
        )
        for blob in puffin.blobs
    ]


def write_position_deletes(
    path: str, rows: Mapping[str, BitMap64], place: Place, parquet: ParquetSettings, storage: Mapping[str, str]
) -> WrittenFile:
    """Raises like `write_positions`."""
    closed = write_positions(path, rows, parquet, storage)
    return WrittenFile(kind=FileKind.POSITION_DELETE, spec_id=place[0], partition=place[1], **closed.facts)
