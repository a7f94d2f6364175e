"""Compares a table with the oracle, row by row and value by value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import column
from pyspark.sql.types import TimestampType

from frazil.demo.shop import KEYS, Rows
from frazil.model.ids import TableName


def differences(
    spark: SparkSession, catalog: str, table: TableName, snapshot_id: int | None, expected: Rows
) -> list[str]:
    """What the table at this snapshot has otherwise than expected; empty if nothing. `snapshot_id` None means that the
    table had nothing published, and so nothing may be expected either."""
    key_names = KEYS[table.name]
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    doubled: list[str] = []
    if snapshot_id is not None:
        for row in _in_utc(spark.sql(f"SELECT * FROM {catalog}.{table.sql} VERSION AS OF {snapshot_id}")).collect():
            values = row.asDict()
            key = tuple(values[name] for name in key_names)
            if key in found:
                doubled.append(f"{table} {key}: appears twice")
            found[key] = values
    wanted = {
        tuple(_plain(part) for part in key): {n: _plain(v) for n, v in row.items()} for key, row in expected.items()
    }
    missing = [f"{table} {key}: missing" for key in wanted.keys() - found.keys()]
    extra = [f"{table} {key}: should not be there" for key in found.keys() - wanted.keys()]
    changed = [
        f"{table} {key}: {name} is {found[key].get(name)!r}, expected {value!r}"
        for key in wanted.keys() & found.keys()
        for name, value in wanted[key].items()
        if _comparable(found[key].get(name), value) != value
    ]
    return doubled + missing + extra + changed


def _plain(value: Any) -> Any:
    """An oracle's value as Spark returns it; JSON documents stay parsed, since their spacing says nothing."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def _comparable(found: Any, expected: Any) -> Any:
    return json.loads(found) if isinstance(expected, dict) and isinstance(found, str) else found


def _in_utc(frame: DataFrame) -> DataFrame:
    """Python would show timestamps with a zone in the zone of this machine."""
    zoned = {field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)}
    return frame.select([column(n).cast("timestamp_ntz").alias(n) if n in zoned else column(n) for n in frame.columns])
