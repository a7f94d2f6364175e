"""What a feed's storage holds, learned by listing forward and never twice.

    start                     R1.RESOLVED          R2.RESOLVED
      |--- settled: final ------|--- settled ---------|--- open: may still grow ---
                                                       ^ the next listing starts here

A listing of many pages is not atomic: a file may appear behind its cursor before the R.RESOLVED ahead of it is met.
So a new R.RESOLVED is first seen, then the names from `start` are listed again, and only then are the files
that sort before R settled. What appears later behind a settled R comes from a session that lives no more, holds
nothing new, and is never looked at.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import obstore

from frazil.errors import SourceUnavailable
from frazil.model.position import Hlc
from frazil.sources.cockroachdb.names import FeedFile, ResolvedFile, parse_name
from frazil.sources.cockroachdb.storage import FeedLocation

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_HOUR = re.compile(r"\d{2}")
_BEHIND_ALL = "~"  # the feed's names begin with digits


@dataclass(slots=True)
class Counters:
    """What listing has cost so far."""

    listings: int = 0
    names: int = 0
    directories: int = 0
    foreign: int = 0
    starts: list[str] = field(default_factory=list)


class Lister(Protocol):
    def names_after(self, start: str, counters: Counters) -> Iterator[tuple[str, int]]:
        """Paths that sort after `start`, in any order, with their sizes."""


@dataclass(frozen=True, slots=True)
class DirectoryLister:
    """Local disk: opens no day or hour that lies before the start."""

    root: Path

    def names_after(self, start: str, counters: Counters) -> Iterator[tuple[str, int]]:
        if not self.root.is_dir():
            raise SourceUnavailable(
                f"the feed directory {self.root} does not exist",
                hint="Check `feed:`; a changefeed creates its directory with the first file.",
            )
        yield from self._walk("", start, (_DAY, _HOUR), counters)

    def _walk(
        self, below: str, start: str, deeper: tuple[re.Pattern[str], ...], counters: Counters
    ) -> Iterator[tuple[str, int]]:
        counters.directories += 1
        folders = []
        try:
            entries = list(os.scandir(self.root / below))
        except FileNotFoundError:  # a day removed while we looked
            return
        for entry in entries:
            path = below + entry.name
            if deeper and deeper[0].fullmatch(entry.name) and entry.is_dir():
                if path + "/" >= start[: len(path) + 1]:
                    folders.append(path + "/")
            elif path > start and parse_name(path) is not None:
                # Only what has no name of a feed's file is renamed or removed while a feed is alive.
                yield path, entry.stat().st_size
            elif path > start:
                counters.foreign += 1
        for folder in sorted(folders):
            yield from self._walk(folder, start, deeper[1:], counters)


@dataclass(frozen=True, slots=True)
class ObjectLister:
    """An object store: asks for the keys after the start."""

    location: FeedLocation

    def names_after(self, start: str, counters: Counters) -> Iterator[tuple[str, int]]:
        with self.location.reaching(""):
            # Asked for each time: the credentials of an hour ago may have ended.
            for chunk in obstore.list(self.location.store(), offset=start or None):
                counters.directories += 1
                for meta in chunk:
                    yield meta["path"], meta["size"]


def lister_of(location: FeedLocation) -> Lister:
    root = location.local_root
    return DirectoryLister(root) if root is not None else ObjectLister(location)


class FeedListing:
    """The settled files and resolved positions after a start, and the topics ever met."""

    def __init__(self, lister: Lister) -> None:
        self._lister = lister
        self._start = ""
        self._files: dict[str, dict[str, FeedFile]] = {}
        self._resolved: dict[Hlc, str] = {}
        self.topics: set[str] = set()
        self.counters = Counters()

    def begin(self, start: str) -> None:
        """Forgets what is known and goes on after this path; "" is the beginning of the feed."""
        self._start = start
        self._files = {}
        self._resolved = {}

    def advance(self) -> tuple[Hlc, ...]:
        """Lists forward once, and again if a new resolved position was met. Returns all that are settled."""
        _, resolved = self._listed()
        if resolved:
            newest = max(resolved, key=lambda name: name.path)
            files, _ = self._listed()
            for file in files:
                if file.path < newest.path:
                    self._files.setdefault(file.topic, {})[file.path] = file
            self._resolved.update((name.stamp, name.path) for name in resolved)
            self._start = newest.path
        return self.resolved

    def reach(self) -> None:
        """Asks for nothing. Raises SourceUnavailable if the feed cannot be listed at all."""
        for _ in self._lister.names_after(_BEHIND_ALL, self.counters):
            pass

    def survey(self) -> tuple[FeedFile, ...]:
        """Every data file after the start, settled or not, in order."""
        return tuple(sorted(self._listed()[0], key=lambda file: file.path))

    @property
    def resolved(self) -> tuple[Hlc, ...]:
        return tuple(sorted(self._resolved))

    def path_of(self, position: Hlc) -> str | None:
        return self._resolved.get(position)

    def between(self, topic: str, after: str, before: str) -> list[FeedFile]:
        """Settled files of a topic that sort between two paths."""
        files = self._files.get(topic, {})
        paths = sorted(files)
        return [files[path] for path in paths[bisect.bisect_right(paths, after) : bisect.bisect_left(paths, before)]]

    def forget(self, before: str) -> None:
        """Drops what sorts before this path."""
        for topic, files in list(self._files.items()):
            kept = {path: file for path, file in files.items() if path > before}
            if kept:
                self._files[topic] = kept
            else:
                del self._files[topic]
        self._resolved = {stamp: path for stamp, path in self._resolved.items() if path >= before}

    def __len__(self) -> int:
        """How many settled files are remembered."""
        return sum(len(files) for files in self._files.values())

    def _listed(self) -> tuple[list[FeedFile], list[ResolvedFile]]:
        self.counters.listings += 1
        self.counters.starts.append(self._start)
        files: list[FeedFile] = []
        resolved: list[ResolvedFile] = []
        for path, size in self._lister.names_after(self._start, self.counters):
            self.counters.names += 1
            match parse_name(path, size):
                case FeedFile() as file:
                    files.append(file)
                    self.topics.add(file.topic)
                case ResolvedFile() as name:
                    resolved.append(name)
                case None:
                    self.counters.foreign += 1
        return files, resolved
