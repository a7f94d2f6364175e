"""The files of a rewrite: what writes them, and what is told of them.

group --open_writer--> Parquet files --data_file--> WrittenFile, of the spec and partition of the inputs (H22)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from frazil.data.parquet_writer import ClosedFile, RollingWriter
from frazil.data.read.live_rows import LINEAGE, written_fields
from frazil.model.compaction import Group, Rewrite
from frazil.model.files import FileKind, Place, WrittenFile


def open_writer(rewrite: Rewrite, group: Group, path_of: Callable[[int], str]) -> RollingWriter:
    """For rows of the group, or of a part of it; `path_of` names files that nobody has used before."""
    table = rewrite.table
    return RollingWriter(
        written_fields(table),
        path_of,
        replace(rewrite.parquet, target_file_bytes=group.file_bytes),
        table.storage,
        metrics=table.metrics,
        bloom=[field.name for field in table.schema.identifiers] if rewrite.parquet.bloom_filter else (),
    )


def data_file(place: Place, closed: ClosedFile, sort_order_id: int | None = None) -> WrittenFile:
    """What is told of a data file of rewritten rows."""
    # A reader that pruned by the bounds of a row id would have to know that they are those of this file alone.
    hidden = {field.id for field in LINEAGE}
    metrics = tuple(column for column in closed.metrics if column.field_id not in hidden)
    facts = {**closed.facts, "metrics": metrics}
    return WrittenFile(kind=FileKind.DATA, spec_id=place[0], partition=place[1], sort_order_id=sort_order_id, **facts)
