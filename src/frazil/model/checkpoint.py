"""Where a table of a pipeline stands, as a row that people can query.

A mirror of what the ledgers prove: nothing is ever decided from it, so a row that is old, wrong or lost costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from frazil.model.position import Position
from frazil.model.state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """`sync_id` is the target, `namespace.table`; `source_collection` is the table as its source calls it.

    `resume_token` and `high_water_mark_id` are the source's own words for where its stream goes on and which keys a
    first load has behind it; sources that have none leave them out. `updated_at` is given when it is recorded.
    """

    sync_id: str
    state: TableState
    source_collection: str
    source_database: str | None = None
    resume_token: str | None = None
    high_water_mark_id: str | None = None
    documents_processed: int = 0
    last_snapshot_id: int | None = None
    resolved: Position | None = None
    updated_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.sync_id or not self.source_collection:
            raise ValueError("a checkpoint names its target and its source")
        if self.documents_processed < 0:
            raise ValueError(f"{self.sync_id} cannot have taken {self.documents_processed} documents")
