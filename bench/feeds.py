"""Changefeeds of one table, made fast: a first scan of n rows, then epochs of random updates.

    numbers (numpy) --> texts, column by column (pyarrow) --> lines, joined --> one buffer --> a file of the feed

`rows_sql` makes the same kind of rows inside Spark, for tables that begin large without being fed.
"""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.sources.cockroachdb.position import Hlc

COLUMNS = {"id": "INT8", "name": "STRING", "amount": "DECIMAL(12,2)", "city": "STRING", "at": "TIMESTAMPTZ"}
SPARK_ROW = "id:bigint,name:string,amount:decimal(12,2),city:string,at:timestamp"
SPARK_SCHEMA = f"after struct<{SPARK_ROW}>, key array<bigint>, updated string"
ARROW_LINE = pa.schema(
    [
        (
            "after",
            pa.struct(
                [
                    ("amount", pa.decimal128(12, 2)),
                    ("at", pa.string()),
                    ("city", pa.string()),
                    ("id", pa.int64()),
                    ("name", pa.string()),
                ]
            ),
        ),
        ("key", pa.list_(pa.int64())),
        ("updated", pa.string()),
    ]
)
FILE_ROWS = 50_000
"""About 11 MB, a little less than the 16 MB at which CockroachDB closes a file."""
_CENTS = 100_000_000
_ABSENT = -1
_CITIES = ("Berlin", "Lagos", "Lima", "Osaka", "Pune", "Quito", "Tunis", "Turin")


class Feed:
    """One feed below `root`; every epoch is a moment later. The same seed gives the same bytes.

    It remembers what each row holds at the end, so that what was measured can be checked.
    """

    def __init__(self, root: Path, seed: int = 1) -> None:
        self.root = root
        self.now = 1_700_000_000_000_000_000
        self.last_files: list[Path] = []
        self._chance = np.random.default_rng(seed)
        self._files = 0
        self._newest = np.full(0, _ABSENT)
        root.mkdir(parents=True)

    def scan(self, rows: int) -> Hlc:
        return self.epoch(np.arange(rows))

    def updates(self, changes: int, rows: int) -> Hlc:
        return self.epoch(self._chance.integers(0, rows, changes))

    def updates_of(self, changes: int, rows: int) -> Hlc:
        """One change each of so many rows. Of random ones fewer are left the smaller the table is, and epochs into
        tables of different sizes could not be compared."""
        return self.epoch(self._chance.choice(rows, changes, replace=False))

    def epoch(self, ids: np.ndarray[Any, np.dtype[np.int64]]) -> Hlc:
        """Writes the changes and resolves them; `last_files` are the files of it."""
        cents = self._chance.integers(0, _CENTS, len(ids))
        self._remember(ids, cents)
        self.last_files = [
            self._file(ids[start : start + FILE_ROWS], cents[start : start + FILE_ROWS], start)
            for start in range(0, len(ids), FILE_ROWS)
        ]
        self.now += 1_000_000_000
        resolved = Hlc(self.now)
        self._put(f"{resolved.file_stamp}.RESOLVED", f'{{"resolved":"{resolved.text}"}}'.encode())
        self.now += 1
        return resolved

    @property
    def files(self) -> list[Path]:
        """Every data file so far, in the order of the feed."""
        return sorted(self.root.glob("*.ndjson"))

    @property
    def answer(self) -> tuple[int, Decimal]:
        """`count(*), sum(amount)` of a table that follows this feed and nothing else."""
        present = self._newest[self._newest != _ABSENT]
        return len(present), Decimal(int(present.sum())).scaleb(-2)

    def _remember(self, ids: np.ndarray[Any, Any], cents: np.ndarray[Any, Any]) -> None:
        missing = int(ids.max()) + 1 - len(self._newest)
        if missing > 0:
            self._newest = np.concatenate([self._newest, np.full(missing, _ABSENT)])
        self._newest[ids] = cents  # of an id that comes twice the last one stays, as in the feed

    def _file(self, ids: np.ndarray[Any, Any], cents: np.ndarray[Any, Any], start: int) -> Path:
        self._files += 1
        name = f"{Hlc(self.now).file_stamp}-00000000000000aa-1-1-{self._files:08x}-t-1.ndjson"
        return self._put(name, lines(ids, cents, self.now + start))

    def _put(self, name: str, content: Any) -> Path:
        path = self.root / name
        hidden = self.root / f".{name}"
        hidden.write_bytes(content)
        os.replace(hidden, path)
        return path


def lines(ids: np.ndarray[Any, Any], cents: np.ndarray[Any, Any], first_moment: int) -> Any:
    """The bytes of one file: a line for each id, a nanosecond apart."""
    place = np.arange(len(ids))
    number, moment = _text(ids), _text(first_moment + place)
    cities = pa.DictionaryArray.from_arrays(pa.array((cents % len(_CITIES)).astype(np.int32)), pa.array(_CITIES))
    built = pc.binary_join_element_wise(
        '{"after": {"amount": ',
        _text(cents // 100),
        ".",
        _two_digits(cents % 100),
        ', "at": "2026-01-02T03:04:05.',
        pc.utf8_lpad(_text(place % 1_000_000), width=6, padding="0"),
        'Z", "city": "',
        cities.dictionary_decode(),
        '", "id": ',
        number,
        ', "name": "customer ',
        number,
        " ",
        _text(cents),
        '"}, "key": [',
        number,
        '], "updated": "',
        moment,
        '.0000000000"}\n',
        "",
    )
    # A string array without nulls is its lines, one after the other.
    _, offsets, content = built.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)
    return content.slice(int(ends[built.offset]), int(ends[built.offset + len(built)] - ends[built.offset]))


def rows_sql(rows: int) -> str:
    """Rows 0 to `rows` of the same table, as a query."""
    cities = ", ".join(f"'{city}'" for city in _CITIES)
    return (
        f"SELECT id, concat('customer ', id, ' ', pmod(hash(id), {_CENTS})) AS name, "
        f"CAST(pmod(hash(id), {_CENTS}) / 100 AS decimal(12,2)) AS amount, "
        f"element_at(array({cities}), CAST(pmod(id, {len(_CITIES)}) + 1 AS int)) AS city, "
        f"timestamp_micros(1767323045000000 + id) AS at "
        f"FROM range(0, {rows}, 1, {max(2, rows // 1_000_000)})"
    )


def _text(numbers: np.ndarray[Any, Any]) -> pa.StringArray:
    return pa.array(numbers).cast(pa.string())


def _two_digits(numbers: np.ndarray[Any, Any]) -> pa.StringArray:
    return pc.utf8_lpad(_text(numbers), width=2, padding="0")
