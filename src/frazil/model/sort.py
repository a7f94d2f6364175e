"""In which order rows lie in files, as a table wants it, and when files are rewritten.

    sort      by a, then by b                                  a reader that asks for some of a opens few files
    z-order   by the bits of a and b in turn                   ... for some of a, or of b, or of both: a few more

The order leaves its mark in the path of what was written in it, with the number of files that the rows were spread
over: who plans the next rewrite sees by the path alone what need not be sorted again.

    .../frazil_maintenance/compact=<run>/order=<mark>/run=<group>-<files>/...
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from frazil.model.partition import Transform

_SORT = re.compile(r"\s*(\S+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", re.IGNORECASE)
_TOLD = re.compile(r"(?P<run>.*/frazil_maintenance/[^/=]+=[^/]+/order=(?P<mark>[0-9a-f]+)/run=\d+-(?P<files>\d+))/.+")
IDENTITY = Transform("identity")


@dataclass(frozen=True, slots=True)
class OrderField:
    """A column, by its field id, as its transform makes it. Rows where that is null come first or last, whichever way
    the others go."""

    source_id: int
    transform: Transform = IDENTITY
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Order:
    """By one field after the other, or by all of them at once if `interleaved`. `order_id` is that of the table's sort
    order, if this is it."""

    fields: tuple[OrderField, ...]
    interleaved: bool = False
    order_id: int | None = None

    def __post_init__(self) -> None:
        if not self.fields:
            raise ValueError("an order is by something")
        if self.interleaved and self.order_id is not None:
            raise ValueError("no sort order of a table is interleaved")

    @property
    def mark(self) -> str:
        """The same for the same order of the same columns, whatever they are called."""
        parts = [(f.source_id, f.transform.text, f.descending, f.nulls_first) for f in self.fields]
        return hashlib.sha256(repr((self.interleaved, parts)).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Run:
    """Files that were written together in one order: no key lies in two of them. `folder` is theirs alone."""

    folder: str
    mark: str
    files: int


def run_folder(folder: str, order: Order, group: int, files: int) -> str:
    """Where the files go that a group of a rewrite becomes."""
    return f"{folder}/order={order.mark}/run={group}-{files}"


def run_of(path: str) -> Run | None:
    """What a file's path tells; None of a file that was not rewritten in any order."""
    told = _TOLD.fullmatch(path)
    return None if told is None else Run(told["run"], told["mark"], int(told["files"]))


@dataclass(frozen=True, slots=True)
class SortField:
    """One column of the order in which rows lie in a file."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    @property
    def text(self) -> str:
        """What `parse_sort` reads as this."""
        nulls = "" if self.nulls_first != self.descending else f" nulls {'first' if self.nulls_first else 'last'}"
        return f"{self.column}{' desc' if self.descending else ''}{nulls}"


def parse_sort(text: str) -> SortField:
    """`created_at desc nulls last`. As in Iceberg, nulls come first unless the order descends. Raises ValueError."""
    match = _SORT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no sort field: write a column, then `desc` or `nulls last` if wanted")
    descending = (match[2] or "").lower() == "desc"
    nulls = (match[3] or ("last" if descending else "first")).lower()
    return SortField(match[1], descending, nulls == "first")
