"""Looks at every document of a partition, in a task: which kinds of values it has, which types of ids.

partitions --look_at, in tasks--> Sample, Sample, ... --joined--> Sample
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.model.change import Op
from frazil.sources.base import InputPartition
from frazil.sources.mongodb.client.deployment import Sample
from frazil.sources.mongodb.decode.decoder import readable
from frazil.sources.mongodb.decode.document_ids import id_type
from frazil.sources.mongodb.reader import rows_of
from frazil.sources.mongodb.schema.bson_types import DocumentOf, kind_of_documents, union

_ROWS = 4096


def look_at(uri: str, partition: InputPartition) -> Sample:
    """Documents that cannot be decoded tell nothing: whoever writes them says what is wrong."""
    found = Sample(DocumentOf(), None)
    for rows in rows_of(uri, partition):
        rows = rows.filter(pc.equal(rows.column("op"), int(Op.UPSERT)))
        for start in range(0, rows.num_rows, _ROWS):
            found = joined([found, _of(_decoded(rows.slice(start, _ROWS)))])
    return found


def joined(samples: Iterable[Sample]) -> Sample:
    seen, key = DocumentOf(), None
    for sample in samples:
        merged = union(seen, sample.seen)
        assert isinstance(merged, DocumentOf)
        seen = merged
        if key is not None and sample.id_type is not None and key != sample.id_type:
            key = id_type(None, None, ())
        else:
            key = key or sample.id_type
    return Sample(seen, key)


def _of(documents: list[dict[str, Any]]) -> Sample:
    if not documents:
        return Sample(DocumentOf(), None)
    kinds = {type(document["_id"]): document["_id"] for document in documents}
    few = list(kinds.values())
    key = id_type(few[0], few[-1], few) if len(kinds) <= 2 else id_type(None, None, ())
    return Sample(kind_of_documents(documents), key)


def _decoded(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    return readable(b"".join(rows.column("payload").to_pylist()))
