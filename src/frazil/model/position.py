"""Positions: points in a source, with a text form and an order.

    text in the ledger --parse_position--> Hlc | ClusterTime | BatchNumber --.text--> the same text

The text tells its own kind, so a ledger can be read without knowing the source that wrote it.

What makes positions comparable, as it may be written down for anybody to read.

A place may be named by a URL with a login. The login is no part of the place: the password may change and the feed is
still the same one, and what stands in a table's ledger can be read by whoever reads the table. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HLC_TEXT = re.compile(r"(\d{1,19})\.(\d{10})")
_FILE_STAMP = re.compile(r"(\d{14})(\d{9})(\d{10})")
_CLUSTER_TEXT = re.compile(r"(\d{1,10})-(\d{1,10})(?:([.-])(\d{1,10}))?")
_BATCH_TEXT = re.compile(r"batch:(\d+)")
_WALL_MAX = 2**63 - 1
LOGICAL_MAX = 2**31 - 1
WHOLE = 2**30 - 1
"""The step behind all changes of a cluster time; beyond it lie the steps of a first load."""
_STEP_MAX = 2**31 - 1


class NotAPosition(ValueError):
    """The text is no position of any known source."""


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

    def __str__(self) -> str:
        return self.text


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
        if not (0 <= self.time <= _WALL_MAX and 0 <= self.step <= _STEP_MAX):
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

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, order=True, slots=True)
class BatchNumber:
    """The batch id of a Structured Streaming query."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise NotAPosition(f"batch numbers start at 0, not {self.number}")

    @classmethod
    def parse(cls, text: str) -> BatchNumber:
        match = _BATCH_TEXT.fullmatch(text)
        if match is None:
            raise NotAPosition(f"{text!r} is not a batch number like batch:7")
        return cls(int(match[1]))

    @property
    def text(self) -> str:
        return f"batch:{self.number}"

    @property
    def order(self) -> tuple[int, int]:
        return self.number, 0

    @property
    def source_time(self) -> datetime | None:
        return None

    def __str__(self) -> str:
        return self.text


Position = Hlc | ClusterTime | BatchNumber


def parse_position(text: str) -> Position:
    """Raises NotAPosition for a text no source writes."""
    for kind in (Hlc, ClusterTime, BatchNumber):
        try:
            return kind.parse(text)
        except NotAPosition:
            continue
    raise NotAPosition(f"{text!r} is not a position of any known source")


def is_before(left: Position | None, right: Position | None) -> bool:
    """Orders positions with None standing for "before everything"."""
    if right is None:
        return False
    return left is None or left.order < right.order


# Of a web server all of it, since a token often stands there alone; elsewhere the name says where: abfss://container@...
_LOGINS = (
    (re.compile(r"(https?://)[^/?#\s]*@", re.IGNORECASE), r"\1"),
    (re.compile(r"(://[^:/?#\s@]*):[^/?#\s]*@"), r"\1@"),
)


def without_login(text: str) -> str:
    """The text without what logs in: passwords in URLs, and before a web server's name the user too."""
    for login, place in _LOGINS:
        text = login.sub(place, text)
    return text


def time_text(moment: datetime) -> str:
    """For people, cut off after the millisecond: `2026-11-17 12:35:05.353 Z`."""
    return f"{moment.astimezone(UTC).isoformat(sep=' ', timespec='milliseconds').removesuffix('+00:00')} Z"
