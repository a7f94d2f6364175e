"""Positions: points in a source, with a text form and an order.

    text in the ledger --parse_position--> what the source calls a position --.text--> the same text

The text tells its own kind, so a ledger can be read without knowing the source that wrote it: each installed source
brings its kind of position. A streaming query is no source, and numbers its batches.

What makes positions comparable, as it may be written down for anybody to read.

A place may be named by a URL with a login. The login is no part of the place: the password may change and the feed is
still the same one, and what stands in a table's ledger can be read by whoever reads the table. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil.plugins import source_kinds

_BATCH_TEXT = re.compile(r"batch:(\d+)")


class NotAPosition(ValueError):
    """The text is no position of any known source."""


class Position(Protocol):
    """Frozen, hashable and picklable; equal to another one of the same text."""

    @property
    def text(self) -> str:
        """What `parse` reads as this position, and no other kind's `parse` reads."""

    @property
    def order(self) -> tuple[int, int]:
        """Orders the positions of one source. Both numbers fit into 63 bits."""

    @property
    def source_time(self) -> datetime | None:
        """When the source says it was; None if its positions do not tell."""

    @staticmethod
    def texts(majors: pa.Array, minors: pa.Array) -> pa.Array:
        """`text` of whole columns of orders."""


class PositionKind(Protocol):
    """A class of positions, as a source brings it."""

    def __call__(self, major: int, minor: int, /) -> Position:
        """The position with this order."""

    def parse(self, text: str) -> Position:
        """Raises NotAPosition."""


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

    @staticmethod
    def texts(majors: pa.Array, minors: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise("batch", pc.cast(majors, pa.string()), ":")

    def __str__(self) -> str:
        return self.text


@cache
def _kinds() -> tuple[PositionKind, ...]:
    return (BatchNumber, *(kind.position for kind in source_kinds()))


def parse_position(text: str) -> Position:
    """Raises NotAPosition for a text that no installed source writes."""
    for kind in _kinds():
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
