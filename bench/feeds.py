"""Changefeeds of one table, made fast: a first scan of n rows, then epochs of random updates."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

from frazil.model.position import Hlc

COLUMNS = {"id": "INT8", "name": "STRING", "amount": "DECIMAL(12,2)", "city": "STRING", "at": "TIMESTAMPTZ"}
SPARK_SCHEMA = (
    "after struct<id:bigint,name:string,amount:decimal(12,2),city:string,at:timestamp>, "
    "key array<bigint>, updated string"
)
FILE_ROWS = 50_000
_CITIES = ("Berlin", "Lagos", "Lima", "Osaka", "Pune", "Quito", "Tunis", "Turin")


class Feed:
    """One feed below `root`; every epoch is a moment later."""

    def __init__(self, root: Path, seed: int = 1) -> None:
        self.root = root
        self.now = 1_700_000_000_000_000_000
        self._chance = random.Random(seed)
        self._files = 0
        root.mkdir(parents=True)

    def scan(self, rows: int) -> Hlc:
        return self.epoch(range(rows))

    def updates(self, changes: int, rows: int) -> Hlc:
        return self.epoch([self._chance.randrange(rows) for _ in range(changes)])

    def epoch(self, ids: Iterable[int]) -> Hlc:
        """Writes the changes and resolves them."""
        ids = list(ids)
        self.last_files = [self._file(ids[start : start + FILE_ROWS]) for start in range(0, len(ids), FILE_ROWS)]
        self.now += 1_000_000_000
        resolved = Hlc(self.now)
        self._put(f"{resolved.file_stamp}.RESOLVED", f'{{"resolved":"{resolved.text}"}}')
        self.now += 1
        return resolved

    def _file(self, ids: list[int]) -> Path:
        stamp = Hlc(self.now).file_stamp
        lines = []
        for place, number in enumerate(ids):
            cents = self._chance.randrange(100_000_000)
            lines.append(
                f'{{"after": {{"amount": {cents // 100}.{cents % 100:02d}, '
                f'"at": "2026-01-02T03:04:05.{place % 1000000:06d}Z", '
                f'"city": "{_CITIES[cents % 8]}", "id": {number}, "name": "customer {number} {cents}"}}, '
                f'"key": [{number}], "updated": "{self.now + place}.0000000000"}}\n'
            )
        self._files += 1
        return self._put(f"{stamp}-00000000000000aa-1-1-{self._files:08x}-t-1.ndjson", "".join(lines))

    def _put(self, name: str, text: str) -> Path:
        path = self.root / name
        hidden = self.root / f".{name}"
        hidden.write_text(text)
        os.replace(hidden, path)
        return path
