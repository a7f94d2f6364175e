"""Positions of CockroachDB: its hybrid logical clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from frazil.model.ledger import LedgerEntry
from frazil.model.position import NotAPosition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HLC_TEXT = re.compile(r"(\d{1,19})\.(\d{10})")
_FILE_STAMP = re.compile(r"(\d{14})(\d{9})(\d{10})")
_WALL_MAX = 2**63 - 1
LOGICAL_MAX = 2**31 - 1


@dataclass(frozen=True, order=True, slots=True)
class Hlc:
    """CockroachDB's hybrid logical clock: nanoseconds since 1970, then a logical counter."""

    wall: int
    logical: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.wall <= _WALL_MAX and 0 <= self.logical <= LOGICAL_MAX):
            raise NotAPosition(f"HLC out of range: wall={self.wall} logical={self.logical}")

    @classmethod
    def parse(cls, text: str) -> Hlc:
        match = _HLC_TEXT.fullmatch(text)
        if match is None:
            raise NotAPosition(f"{text!r} is not an HLC like 1701102296662969433.0000000001")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def from_file_stamp(cls, stamp: str) -> Hlc:
        """Reads the 33 digits of a changefeed file name: UTC seconds, nanoseconds, logical."""
        match = _FILE_STAMP.fullmatch(stamp)
        if match is None:
            raise NotAPosition(f"{stamp!r} is not a 33-digit changefeed timestamp")
        try:
            moment = datetime.strptime(match[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        except ValueError as error:
            raise NotAPosition(f"{stamp!r} does not name a moment: {error}") from error
        seconds = (moment - _EPOCH) // timedelta(seconds=1)
        return cls(seconds * 1_000_000_000 + int(match[2]), int(match[3]))

    def next(self) -> Hlc:
        return Hlc(self.wall, self.logical + 1) if self.logical < LOGICAL_MAX else Hlc(self.wall + 1, 0)

    def previous(self) -> Hlc:
        return Hlc(self.wall, self.logical - 1) if self.logical else Hlc(max(self.wall - 1, 0), LOGICAL_MAX)

    @property
    def text(self) -> str:
        return f"{self.wall}.{self.logical:010d}"

    @property
    def file_stamp(self) -> str:
        seconds, nanos = divmod(self.wall, 1_000_000_000)
        moment = _EPOCH + timedelta(seconds=seconds)
        return f"{moment:%Y%m%d%H%M%S}{nanos:09d}{self.logical:010d}"

    @property
    def order(self) -> tuple[int, int]:
        return self.wall, self.logical

    @property
    def source_time(self) -> datetime | None:
        """When the source says it was, to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.wall // 1000)

    def summary(self, entry: LedgerEntry) -> Mapping[str, str]:
        """Keys that other tools of CockroachDB's feeds look for."""
        return {
            "crdb.batch_id": str(entry.batch_id),
            "crdb.job_id": entry.job.text,
            "crdb.resolved_hlc": self.text,
            "crdb.data_file_count": str(entry.data_files),
            "crdb.delete_file_count": str(entry.delete_files),
        }

    @staticmethod
    def texts(majors: pa.Array, minors: pa.Array) -> pa.Array:
        logical = pc.utf8_lpad(pc.cast(minors, pa.string()), width=10, padding="0")
        return pc.binary_join_element_wise(pc.cast(majors, pa.string()), logical, ".")

    def __str__(self) -> str:
        return self.text
