"""The spool of a sinkless feed: its rows as the files that the cloud storage sink would have written.

    <spool>/run-<session>/
        open/   files being written                          feed/   whole files only, in the sink's own names

    row --> open/... --full, or resolved--> fsync, rename --> feed/<stamp>-<session>-1-1-<file>-<topic>-<layout>.ndjson
    resolved R ------all open files first, then------------> feed/<R>.RESOLVED

So the cloud storage source reads a sinkless feed by the same rules as any other: every row at or before R lies
in a file that sorts before `R.RESOLVED`.

The spool is a cache, the ledger is the truth. Each run has a directory of its own and the older ones are removed:
the feed resumes after the published frontier, and the server sends again whatever lay beyond it. For the same
reason notes about files of an older run mean nothing; `seen_from_spool` takes them out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from frazil.errors import BadInput
from frazil.model.frontier import Frontier
from frazil.model.position import NotAPosition
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.sinkless.sql import FeedStart

ROLL_BYTES = 16 * 1024 * 1024
OPEN_FILES_MAX = 256
_TOPIC_BYTES_MAX = 170
_RUN = re.compile(r"run-[0-9a-f]{16}")
_SESSION = re.compile(r"[0-9a-f]{16}")
# Only names are looked at. Numbers stay text: a decimal of five thousand digits is no reason to fail here.
_JSON = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)


@dataclass(slots=True)
class _OpenFile:
    name: str
    handle: BinaryIO
    size: int = 0


class FeedSpool:
    """Writes one run. Not thread-safe but for `forget`, which touches finished files alone."""

    def __init__(self, root: Path, *, session: str, start: FeedStart, roll_bytes: int = ROLL_BYTES) -> None:
        if not _SESSION.fullmatch(session):
            raise ValueError(f"a session is 16 lowercase hex digits, not {session!r}")
        self.run = root / f"run-{session}"
        self.feed = self.run / "feed"
        self.resolved: Hlc | None = None
        self._root = root
        self._parts = self.run / "open"
        self._session = session
        self._start = start
        self._roll_bytes = roll_bytes
        # File names sort by it: a lower bound of the rows before the first promise. A scan at a cursor gives rows at
        # the cursor itself; without one the server's clock is not known yet, so it is the beginning of time.
        self._stamp = (start.cursor or Hlc(0)).file_stamp
        self._files: dict[tuple[str, int], _OpenFile] = {}
        self._file_number = 0
        self._layouts: dict[str, dict[frozenset[str], int]] = {}
        self._newest_layout: dict[str, int] = {}

    def prepare(self) -> None:
        """Makes this run's directory and removes those of earlier runs. A resumed feed begins with the RESOLVED
        object of its frontier, for that is where the source takes up its listing."""
        self._root.mkdir(parents=True, exist_ok=True)
        for path in self._root.iterdir():
            if path.is_dir() and _RUN.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)
        self._parts.mkdir(parents=True)
        self.feed.mkdir()
        if self._start.cursor is not None and not self._start.scan:
            self._promise(self._start.cursor)

    def add(self, topic: str, key: bytes | None, value: bytes) -> None:
        """One row. Raises BadInput if it is no change in the wrapped envelope."""
        document = _document(topic, key, value)
        line = value if b"\n" not in value else value.replace(b"\n", b" ")  # between tokens, so it means the same
        if "key" not in document:
            if not key:
                raise BadInput(f"a row of {topic} came without its key", hint=_ROW_HINT, table=topic)
            line = b'{"key": ' + key + b", " + line.lstrip()[1:]
        place = topic, self._layout_of(topic, document["after"])
        file = self._file_at(place)
        file.handle.write(line + b"\n")
        file.size += len(line) + 1
        if file.size >= self._roll_bytes:
            self._close(place)

    def resolve(self, value: bytes) -> None:
        """The row that promises a position. All rows before it are on disk before the promise is."""
        resolved = _resolved_position(value)
        for place in list(self._files):
            self._close(place)
        if self.resolved is not None and resolved <= self.resolved:
            return  # the server restarted its feed inside: it repeats itself, and the promise stands already
        _sync_directory(self.feed)
        self._promise(resolved)

    def abandon(self) -> None:
        """Closes what is open without showing it: it lies beyond the last promise and will be sent again."""
        for file in self._files.values():
            file.handle.close()
        self._files.clear()

    def forget(self, before: Hlc, keep: Collection[str] = ()) -> int:
        """Deletes the files that lie wholly behind `before`, but for `keep`: the names of those that still hold
        rows beyond it. Its own RESOLVED stays, since listing starts there. Returns how many were deleted."""
        end = f"{before.file_stamp}.RESOLVED"
        kept = {name.rsplit("/", 1)[-1] for name in keep}
        behind = [path for path in self.feed.glob("*") if path.name < end and path.name not in kept]
        for path in behind:
            path.unlink(missing_ok=True)
        return len(behind)

    def _layout_of(self, topic: str, after: Mapping[str, Any] | None) -> int:
        """A number for each set of columns, since a file promises one set for all its rows. A delete fits any."""
        if after is None:
            return self._newest_layout.setdefault(topic, 1)
        numbers = self._layouts.setdefault(topic, {})
        number = numbers.setdefault(frozenset(after), len(numbers) + 1)
        self._newest_layout[topic] = number
        return number

    def _file_at(self, place: tuple[str, int]) -> _OpenFile:
        file = self._files.get(place)
        if file is None:
            if len(self._files) >= OPEN_FILES_MAX:
                self._close(next(iter(self._files)))  # the one open for longest
            topic, layout = place
            name = f"{self._stamp}-{self._session}-1-1-{self._file_number:08x}-{topic}-{layout:x}.ndjson"
            self._file_number += 1
            file = self._files[place] = _OpenFile(name, (self._parts / name).open("wb"))
        return file

    def _close(self, place: tuple[str, int]) -> None:
        file = self._files.pop(place)
        file.handle.flush()
        os.fsync(file.handle.fileno())
        file.handle.close()
        os.replace(self._parts / file.name, self.feed / file.name)

    def _promise(self, resolved: Hlc) -> None:
        name = f"{resolved.file_stamp}.RESOLVED"
        part = self._parts / name
        with part.open("wb") as handle:
            handle.write(b'{"resolved":"' + resolved.text.encode() + b'"}')
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(part, self.feed / name)
        _sync_directory(self.feed)
        self.resolved = resolved
        self._stamp = resolved.next().file_stamp


_ROW_HINT = "a sinkless feed sends (table, key, value) with values in JSON's wrapped envelope; is this CockroachDB?"


def topic_of(table: str, known: Collection[str]) -> str:
    """The topic in a file name. A column family comes as `table.family` and is named `table+family` in files.

    Raises BadInput if the name cannot be part of a file name.
    """
    if table not in known:
        owner = max((name for name in known if table.startswith(name + ".")), key=len, default=None)
        if owner is not None:
            table = f"{owner}+{table[len(owner) + 1 :]}"
    if "/" in table or "\0" in table or not 0 < len(table.encode()) <= _TOPIC_BYTES_MAX:
        raise BadInput(
            f"the table name {table!r} does not fit into a file name",
            hint=f"it holds a slash or is longer than {_TOPIC_BYTES_MAX} bytes: rename the table, or let the cluster "
            "write the feed to cloud storage",
            table=table,
        )
    return table


def seen_from_spool(
    frontiers: Mapping[str, Frontier | None], opened: Mapping[str, Frontier | None], start: FeedStart
) -> dict[str, Frontier | None]:
    """Frontiers as the cloud storage source must see them when it reads the spool of a run.

    A frontier the table had when the run was opened belongs to an older spool: its notes name files that are gone,
    and rows beyond it may lie in files that sort before it, since the run starts at the oldest of all tables. So
    it becomes the start of the run, with empty notes; what the table has published already is dropped by its cut.
    A frontier published from this run is true as it is.
    """
    beginning = None if start.cursor is None or start.scan else Frontier(start.cursor)
    seen: dict[str, Frontier | None] = {}
    for table, frontier in frontiers.items():
        older = frontier is not None and frontier == opened.get(table)
        seen[table] = beginning if older else frontier
    return seen


def _document(topic: str, key: bytes | None, value: bytes) -> dict[str, Any]:
    try:
        document = _JSON.decode(value.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        document = error
    match document:
        case {"after": dict() | None, "updated": str()}:
            return dict(document)
        case _:
            shown = (key or b"").decode("utf-8", "replace")
            raise BadInput(
                f"a row of {topic} with key {shown} is no change in the wrapped envelope: {value[:200]!r}",
                hint=_ROW_HINT,
                table=topic,
                key=shown,
            )


def _resolved_position(value: bytes) -> Hlc:
    try:
        document = _JSON.decode(value.decode("utf-8"))
        return Hlc.parse(document["resolved"])
    except (ValueError, RecursionError, KeyError, TypeError, NotAPosition) as error:
        raise BadInput(f"a row without a table is no resolved timestamp: {value[:200]!r}", hint=_ROW_HINT) from error


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
