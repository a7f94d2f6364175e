"""What is in quarantine: read from <target>__quarantine at its head, with Spark, which applies the deletes of replays.

keys     which keys capture what follows, for the running pipeline
lines    which lines without a key a run will meet again that begins behind a crash
rows     all of it, for a replay
listed   all of it, for people
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from frazil.ingest.loop.components import Components
from frazil.ingest.quarantine.held_keys import Order, ReadsKeys
from frazil.model import quarantine as q
from frazil.model.ids import TableName
from frazil.model.results import QuarantinedChange
from frazil.model.write import Role, side_table


class Quarantined(ReadsKeys, Protocol):
    def rows(self, table: TableName, snapshot_id: int) -> pa.Table:
        """All rows of a quarantine table at this snapshot."""


class SparkQuarantined:
    """Reads quarantine tables with Spark, which applies the deletes of earlier replays."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark = spark
        self._catalog = catalog

    def keys(self, table: TableName, snapshot_id: int) -> tuple[Mapping[str, Order], int]:
        found = self._spark.sql(
            f"SELECT {q.KEY} AS key, min(struct({q.MAJOR}, {q.MINOR})) AS oldest, count(*) AS number "
            f"FROM {self._at(table, snapshot_id)} GROUP BY {q.KEY}"
        ).collect()
        keys = {row["key"]: (row["oldest"][0], row["oldest"][1]) for row in found if row["key"] is not None}
        return keys, sum(row["number"] for row in found)

    def lines(self, table: TableName, snapshot_id: int, after: Order | None) -> Mapping[str, Order]:
        beyond = "true"
        if after is not None:
            beyond = f"({q.MAJOR} > {after[0]} OR {q.MAJOR} = {after[0]} AND {q.MINOR} > {after[1]})"
        found = self._spark.sql(
            f"SELECT {q.FILE}, {q.LINE}, {q.MAJOR}, {q.MINOR} FROM {self._at(table, snapshot_id)} "
            f"WHERE {q.KEY} IS NULL AND {beyond}"
        ).collect()
        return {q.line_key(row[q.FILE], row[q.LINE]): (row[q.MAJOR], row[q.MINOR]) for row in found}

    def rows(self, table: TableName, snapshot_id: int) -> pa.Table:
        return self._spark.sql(f"SELECT * FROM {self._at(table, snapshot_id)}").toArrow()

    def _at(self, table: TableName, snapshot_id: int) -> str:
        return f"`{self._catalog}`.{table.sql} VERSION AS OF {snapshot_id}"


def listed(parts: Components, quarantined: Quarantined, target: TableName) -> list[QuarantinedChange]:
    """What is in quarantine of one target, in source order."""
    name = side_table(target, Role.QUARANTINE)
    if not parts.tables.exists(name):
        return []
    head = parts.committer.head(name)
    if head.snapshot_id is None:
        return []
    rows = quarantined.rows(name, head.snapshot_id).to_pylist()
    rows.sort(key=lambda row: (row[q.MAJOR], row[q.MINOR], row[q.KEY] or "", row[q.ID]))
    return [shown(target, row, row[q.REASON]) for row in rows]


def shown(target: TableName, row: Mapping[str, Any], reason: str) -> QuarantinedChange:
    """A row of a quarantine table, for people; `reason` is why it is in there now."""
    payload = row[q.PAYLOAD]
    return QuarantinedChange(
        table=target.text,
        id=row[q.ID],
        reason=reason,
        column=row[q.COLUMN],
        key=row[q.KEY],
        op=row[q.OP],
        position=row[q.POSITION],
        captured=bool(row[q.CAPTURED]),
        file=row[q.FILE],
        line=row[q.LINE],
        payload=None if payload is None else bytes(payload).decode("utf-8", "replace"),
    )
