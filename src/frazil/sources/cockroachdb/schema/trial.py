"""Tries some rows of a table before one is made for them: a wrong pin is told by `frazil check`, not by a run."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from frazil.errors import BadInput
from frazil.model.change import Op
from frazil.sources.base import Cut, InputPartition
from frazil.sources.cockroachdb.decode.decoder import FeedDecoder
from frazil.sources.cockroachdb.reader import FeedReader

_EVERYTHING = Cut(None, (((1 << 63) - 1, 0),))


def try_rows(reader: FeedReader, decoder: FeedDecoder, partitions: Sequence[InputPartition]) -> None:
    """Reads and decodes the first rows of each partition. Raises BadInput for one that does not fit."""
    for partition in partitions:
        rows = next(reader.read(partition, _EVERYTHING))
        rows = rows.filter(pc.equal(rows.column("op"), int(Op.UPSERT)))
        try:
            decoder.rows(partition.table, rows.column("key"), rows.column("payload"))
        except BadInput as error:
            at = pc.index(rows.column("key"), error.facts.get("key", "")).as_py()
            place = partition.name if at < 0 else f"{partition.name}:{rows.column('line')[at]}"
            raise type(error)(f"{place}: {error.message}", hint=error.hint, **error.facts) from error
