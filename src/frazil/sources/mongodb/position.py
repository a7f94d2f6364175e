"""Positions of MongoDB: its cluster time, and steps within it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from frazil.model.position import NotAPosition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLUSTER_TEXT = re.compile(r"(\d{1,10})-(\d{1,10})(?:([.-])(\d{1,10}))?")
_TIME_MAX = 2**63 - 1
_STEP_MAX = 2**31 - 1
WHOLE = 2**30 - 1
"""The step behind all changes of a cluster time; beyond it lie the steps of a first load."""


@dataclass(frozen=True, order=True, slots=True)
class ClusterTime:
    """MongoDB's cluster time: seconds since 1970 in the upper 32 bits, a counter in the lower. Within it come the
    changes of then in their order, then all of them together (`WHOLE`), then the steps of a first load that reads the
    collection as it was then.

        1700000000-3.0   1700000000-3.1   1700000000-3   1700000000-3-1   1700000000-3-2   1700000000-4.0
        changes of one transaction        all of them    steps of a load
    """

    time: int
    step: int = WHOLE

    def __post_init__(self) -> None:
        if not (0 <= self.time <= _TIME_MAX and 0 <= self.step <= _STEP_MAX):
            raise NotAPosition(f"cluster time out of range: {self.time} step {self.step}")

    @classmethod
    def of(cls, seconds: int, increment: int, step: int = WHOLE) -> ClusterTime:
        return cls(seconds << 32 | increment, step)

    @classmethod
    def parse(cls, text: str) -> ClusterTime:
        match = _CLUSTER_TEXT.fullmatch(text)
        if match is None:
            raise NotAPosition(f"{text!r} is not a cluster time like 1700000000-3")
        part = 0 if match[4] is None else int(match[4])
        return cls.of(int(match[1]), int(match[2]), part if match[3] == "." else WHOLE + part)

    @property
    def seconds(self) -> int:
        return self.time >> 32

    @property
    def increment(self) -> int:
        return self.time & 0xFFFFFFFF

    @property
    def text(self) -> str:
        if self.step == WHOLE:
            return f"{self.seconds}-{self.increment}"
        part = f".{self.step}" if self.step < WHOLE else f"-{self.step - WHOLE}"
        return f"{self.seconds}-{self.increment}{part}"

    @property
    def order(self) -> tuple[int, int]:
        return self.time, self.step

    @property
    def source_time(self) -> datetime | None:
        return _EPOCH + timedelta(seconds=self.seconds)

    @staticmethod
    def texts(majors: pa.Array, minors: pa.Array) -> pa.Array:
        seconds = pc.cast(pc.shift_right(majors, 32), pa.string())
        increment = pc.cast(pc.bit_wise_and(majors, 0xFFFFFFFF), pa.string())
        whole = pc.binary_join_element_wise(seconds, increment, "-")
        change = pc.binary_join_element_wise(whole, pc.cast(minors, pa.string()), ".")
        step = pc.binary_join_element_wise(whole, pc.cast(pc.subtract(minors, WHOLE), pa.string()), "-")
        return pc.if_else(pc.equal(minors, WHOLE), whole, pc.if_else(pc.less(minors, WHOLE), change, step))

    def __str__(self) -> str:
        return self.text
