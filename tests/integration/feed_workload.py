"""A large changefeed of many tables with its own oracle, written fast and as untidy as the real one.

changes in commit order --> state at each chosen R          (the oracle: what every table must hold at R)
                        `-> shuffled files per window; the last changes of a window lie beyond its R;
                            some are written again, in the same window and in the next
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from unit.sources.cockroach_feed import Feed, at

from frazil.sources.cockroachdb.position import Hlc

COLUMNS = {
    "amount": "DECIMAL(12,2)",
    "doc": "JSONB",
    "flag": "BOOL",
    "id": "INT8",
    "made": "TIMESTAMPTZ",
    "note": "STRING",
}
_EPOCH = datetime(2024, 1, 1)  # noqa: DTZ001 - the wall clock in UTC, as tables are read back
_WINDOW_SECONDS = 1000
_MICRO = 1_000


@dataclass
class Workload:
    """`changes` over `tables` tables in `windows` resolved timestamps; `kept` are the windows the oracle remembers."""

    root: Path
    changes: int
    tables: int
    windows: int
    kept: tuple[int, ...]
    keys: int = 4_000
    files_per_window: int = 3
    seed: int = 7
    resolved: list[Hlc] = field(default_factory=list)
    oracle: dict[int, dict[str, dict[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._feed = Feed(self.root)
        self.names = [f"table-{number}" for number in range(self.tables)]

    def write(self) -> None:
        """Writes all files; afterwards `oracle[window][table]` maps each key to the version of its row."""
        per_window = self.changes // self.tables // self.windows
        state: dict[str, dict[int, int]] = {name: {} for name in self.names}
        beyond: dict[str, list[tuple[int, int, bool]]] = {name: [] for name in self.names}
        before: dict[str, list[str]] = {name: [] for name in self.names}
        for window in range(self.windows):
            start = window * _WINDOW_SECONDS
            cut = per_window - per_window // 20
            for name in self.names:
                changes = [self._change(window, place, per_window) for place in range(per_window)]
                for version, key, deleted in [*beyond[name], *changes[:cut]]:
                    if deleted:
                        state[name].pop(key, None)
                    else:
                        state[name][key] = version
                beyond[name] = changes[cut:]
                lines = [_line(*change) for change in changes]
                again = self._chance.sample(before[name], len(before[name]) // 20)
                self._files(name, start, lines + self._chance.sample(lines, len(lines) // 20), again)
                before[name] = lines[:cut]
            moment = _moment(changes[cut - 1][0])
            self._feed.resolved(moment)
            self.resolved.append(moment)
            if window in self.kept:
                self.oracle[window] = {name: dict(rows) for name, rows in state.items()}

    def _change(self, window: int, place: int, per_window: int) -> tuple[int, int, bool]:
        """(version, key, is a delete). Versions are unique within a table and rise with commit time."""
        version = window * per_window + place + 1
        return version, self._chance.randrange(self.keys), self._chance.random() < 0.1

    def _files(self, name: str, start: int, lines: list[str], again: list[str]) -> None:
        self._chance.shuffle(lines)
        stamp = self.resolved[-1].next() if self.resolved else at(start)
        count = self.files_per_window
        for number in range(count):
            part = lines[number::count]
            self._feed.data(stamp, part, topic=name, session=f"{number:016x}", number=start, extension="ndjson")
        if again:
            self._feed.data(stamp, again, topic=name, session="f" * 16, number=start)

    def rows(self, window: int, name: str, pinned: bool) -> dict[int, dict[str, Any]]:
        return {key: _row(version, key, pinned) for key, version in self.oracle[window][name].items()}


def _moment(version: int) -> Hlc:
    return Hlc(at(10).wall + version * _MICRO)


def _line(version: int, key: int, deleted: bool) -> str:
    updated = _moment(version).text
    if deleted:
        return f'{{"after": null, "key": [{key}], "updated": "{updated}"}}'
    return (
        f'{{"after": {{"amount": {_amount(version)}, "doc": {{"k": [{version}, null]}}, "flag": {_flag(version)}, '
        f'"id": {key}, "made": "{_made(version)}", "note": {_note(version)}}}, "key": [{key}], "updated": "{updated}"}}'
    )


def _amount(version: int) -> str:
    return f"{version - 1000}.{version % 100:02d}"


def _flag(version: int) -> str:
    return ("true", "false", "null")[version % 3]


def _made(version: int) -> str:
    moment = _EPOCH + timedelta(seconds=version, microseconds=version % 7)
    text = moment.isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def _note(version: int) -> str:
    return "null" if version % 11 == 0 else f'"note \\"{version}\\" Zoë"'


def _row(version: int, key: int, pinned: bool) -> dict[str, Any]:
    made = _EPOCH + timedelta(seconds=version, microseconds=version % 7)
    return {
        "amount": Decimal(_amount(version)),
        "doc": f'{{"k": [{version}, null]}}',
        "flag": (True, False, None)[version % 3],
        "id": key,
        "made": made if pinned else _made(version),
        "note": None if version % 11 == 0 else f'note "{version}" Zoë',
    }


def found_rows(spark: SparkSession, table: str, snapshot: int, pinned: bool) -> dict[int, dict[str, Any]]:
    """The table at a snapshot, by key. Raises AssertionError if a key is there twice."""
    made = "CAST(made AS timestamp_ntz) AS made" if pinned else "made"
    query = f"SELECT amount, doc, flag, id, {made}, note FROM {table} VERSION AS OF {snapshot}"
    rows = spark.sql(query).toArrow().to_pylist()
    by_key = {row["id"]: row for row in rows}
    assert len(by_key) == len(rows), f"{table}: {len(rows) - len(by_key)} keys appear twice"
    return by_key
