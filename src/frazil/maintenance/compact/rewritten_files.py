"""The files of a rewrite: what writes them, and what is told of them.

group --open_writer--> Parquet files --data_message--> FileClosed, of the spec and partition of the inputs (H22)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from frazil.data.parquet_writer import ClosedFile, RollingWriter
from frazil.data.read.live_rows import LINEAGE, written_fields
from frazil.model.compaction import Group, Rewrite
from frazil.model.files import FileClosed, FileKind
from frazil.model.position import BatchNumber

_NO_EPOCH = BatchNumber(0)
Partition = tuple[int, tuple[Any, ...]]


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


def data_message(rewrite: Rewrite, group: Group, closed: ClosedFile) -> FileClosed:
    """A data file of the group. It says that it lies in the table's sort order if that is the order of the rewrite."""
    # A reader that pruned by the bounds of a row id would have to know that they are those of this file alone.
    hidden = {field.id for field in LINEAGE}
    metrics = tuple(column for column in closed.metrics if column.field_id not in hidden)
    like = group.files[0]
    return message(
        rewrite,
        (like.spec_id, like.partition),
        **{**facts(closed), "metrics": metrics},
        kind=FileKind.DATA,
        sort_order_id=None if rewrite.order is None else rewrite.order.order_id,
    )


def facts(closed: ClosedFile) -> dict[str, Any]:
    names = ("path", "records", "size", "digest", "metrics", "split_offsets")
    return {name: getattr(closed, name) for name in names}


def message(rewrite: Rewrite, place: Partition, **told: Any) -> FileClosed:
    spec_id, partition = place
    return FileClosed(
        table=rewrite.table.name,
        epoch=_NO_EPOCH,
        batch_id=rewrite.number,
        worker=0,
        schema_id=rewrite.table.schema.schema_id,
        spec_id=spec_id,
        partition=partition,
        **told,
    )
