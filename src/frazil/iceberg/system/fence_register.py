"""Which coordinator of a pipeline is the newest: one register with compare-and-set.

    newest(job) --> property frazil.<job>.fence of _frazil.pipelines, and the head it was read from
    take(job, fence, head) --> the property and the rows (pipeline, generation, owner, host, taken_at), in one commit
                               on exactly that head: of two that read one head, one is Accepted, one Conflicted
    SourceMemory               property frazil.<job>.source: what the source asks to be kept, whatever becomes of tables

The properties decide; the rows are for people, and follow from them: one for each pipeline, all of them in one file,
which every start writes anew in place of the one before. Old snapshots go once there are many. So the table does not
grow, however often somebody starts.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from datetime import datetime

from frazil.clock import Clock
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.system.system_table import SystemTable, system_schema
from frazil.model.commit import Accepted, CommitAnswer
from frazil.model.ids import SYSTEM_NAMESPACE, BadName, JobId, TableName
from frazil.model.ledger import Fence, TableHead
from frazil.model.schema import LONG, STRING, TIMESTAMPTZ
from frazil.retry import Attempt, commit_with_retry

MOST_OLD = 50
PIPELINES = TableName((SYSTEM_NAMESPACE,), "pipelines")
_SCHEMA = system_schema(
    {"pipeline": STRING, "generation": LONG, "owner": STRING, "host": STRING, "taken_at": TIMESTAMPTZ},
    key=("pipeline", "generation", "owner"),
)
_FENCE = re.compile(r"frazil\.(.+)\.fence")


class IcebergArbiter:
    """Implements `frazil.model.ports.Arbiter` on one catalog."""

    def __init__(self, catalog: Catalog, clock: Clock, host: str | None = None) -> None:
        self._table = SystemTable(catalog, PIPELINES.name, _SCHEMA, clock, short_history=True)
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
        taken = json.dumps({"host": self._host, "at": self._clock.now().isoformat()})
        properties = {job.fence_property: fence.text, job.taken_property: taken}
        summary = {"frazil.operation": "fence", "frazil.fence": fence.text, "frazil.pipeline": job.text}
        answer = self._table.rewrite(read, _rows({**read.properties, **properties}), summary, properties)
        if isinstance(answer, Accepted):
            self._table.tidy(MOST_OLD)
        return answer


class SourceMemory:
    """Implements `frazil.sources.base.Memory` in the register of pipelines."""

    def __init__(self, catalog: Catalog, job: JobId, clock: Clock) -> None:
        self._table = SystemTable(catalog, PIPELINES.name, _SCHEMA, clock, short_history=True)
        self._job = job
        self._clock = clock

    def recall(self) -> str:
        """Raises CatalogUnavailable or CatalogRefused."""
        return self._table.head().properties.get(self._job.source_property, "")

    def keep(self, text: str) -> None:
        """Raises like `recall`, StorageUnavailable, or OutcomeUnknown."""

        def once(_lost: int) -> Attempt[None]:
            head = self._table.head()
            if head.properties.get(self._job.source_property) == text:
                return Attempt(None)
            summary = {"frazil.operation": "source", "frazil.pipeline": self._job.text}
            return Attempt(
                None, self._table.rewrite(head, _rows(head.properties), summary, {self._job.source_property: text})
            )

        commit_with_retry(f"cannot write to {self._table.name}", once, self._clock)


def _rows(properties: Mapping[str, str]) -> list[dict[str, object]]:
    """What the properties say, by pipeline. One that somebody has edited must keep no other pipeline from starting, so
    it has no row."""
    found = []
    for name in sorted(properties):
        if (match := _FENCE.fullmatch(name)) is None:
            continue
        try:
            job, fence = JobId(match[1]), Fence.parse(properties[name])
            # An earlier version told neither.
            taken = json.loads(properties.get(job.taken_property, "{}"))
            at = datetime.fromisoformat(taken["at"]) if "at" in taken else None
            host = taken.get("host")
        except (BadName, ValueError, TypeError, AttributeError):
            continue
        owner = str(fence.owner)
        found.append(
            {"pipeline": job.text, "generation": fence.generation, "owner": owner, "host": host, "taken_at": at}
        )
    return found
