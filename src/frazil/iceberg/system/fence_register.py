"""Which coordinator of a pipeline is the newest: one register with compare-and-set.

    newest(job) --> property frazil.<job>.fence of _frazil.pipelines, and the head it was read from
    take(job, fence, head) --> one row (pipeline, generation, owner, host, taken_at) and the property, in one commit
                               on exactly that head: of two that read one head, one is Accepted, one Conflicted

The property decides; the rows are for people. Old snapshots go once there are many: somebody may start every minute.
"""

from __future__ import annotations

import socket

from frazil.clock import Clock
from frazil.lake.catalogs import Catalog
from frazil.lake.system_tables import SystemTable, system_shape
from frazil.model.columns import LONG, STRING, TIMESTAMPTZ
from frazil.model.commit import Accepted, CommitAnswer
from frazil.model.ledger import Fence, TableHead
from frazil.model.names import SYSTEM_NAMESPACE, JobId, TableName

MOST_OLD = 50
PIPELINES = TableName((SYSTEM_NAMESPACE,), "pipelines")
_SHAPE = system_shape(
    {"pipeline": STRING, "generation": LONG, "owner": STRING, "host": STRING, "taken_at": TIMESTAMPTZ},
    key=("pipeline", "generation", "owner"),
)


class IcebergArbiter:
    """Implements `frazil.model.ports.Arbiter` on one catalog."""

    def __init__(self, catalog: Catalog, clock: Clock, host: str | None = None) -> None:
        self._table = SystemTable(catalog, PIPELINES.name, _SHAPE, clock)
        self._clock = clock
        self._host = host or socket.gethostname()

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        """The newest fence and the head it was read from. Raises CatalogUnavailable or CatalogRefused."""
        head = self._table.head()
        text = head.properties.get(job.fence_property)
        return None if text is None else Fence.parse(text), head

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        """Writes the fence if nothing has changed since `read`. Raises StorageUnavailable if its row cannot be
        written, before anything is sent."""
        if not isinstance(read, TableHead):
            raise TypeError("`read` must be what newest() gave")
        row = {
            "pipeline": job.text,
            "generation": fence.generation,
            "owner": str(fence.owner),
            "host": self._host,
            "taken_at": self._clock.now(),
        }
        summary = {"frazil.operation": "fence", "frazil.fence": fence.text, "frazil.pipeline": job.text}
        answer = self._table.append(read, [row], summary, {job.fence_property: fence.text})
        if isinstance(answer, Accepted):
            self._table.tidy(MOST_OLD)
        return answer
