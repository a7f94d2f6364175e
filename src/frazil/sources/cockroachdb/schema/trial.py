"""Tries some rows of a table before one is made for them: a wrong pin is told by `frazil check`, not by a run."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from frazil.errors import BadInput
from frazil.model.change import Op
from frazil.model.ports import Cut, Split
from frazil.sources.cockroachdb.decode.decoder import FeedDecoder
from frazil.sources.cockroachdb.reader import FeedReader

_EVERYTHING = Cut(None, (((1 << 63) - 1, 0),))


def try_rows(reader: FeedReader, decoder: FeedDecoder, splits: Sequence[Split]) -> None:
    """Reads and decodes the first rows of each split. Raises BadInput for one that does not fit."""
    for split in splits:
        rows = next(reader.read(split, _EVERYTHING))
        rows = rows.filter(pc.equal(rows.column("op"), int(Op.UPSERT)))
        try:
            decoder.rows(split.table, rows.column("key"), rows.column("payload"))
        except BadInput as error:
            at = pc.index(rows.column("key"), error.facts.get("key", "")).as_py()
            place = split.name if at < 0 else f"{split.name}:{rows.column('line')[at]}"
            raise type(error)(f"{place}: {error.message}", hint=error.hint, **error.facts) from error
