"""What a feed's storage holds, learned by listing forward.

    start                     R1.RESOLVED          R2-...  R2.RESOLVED
      |--- settled: final ------|--- settled ---------------|--- open: may still grow ---
                                                    ^        ^ is there a new R? the next listing starts here
                                                    ` and if there is, the one that settles it here

A listing of many pages is not atomic: a file may appear behind its cursor before the R.RESOLVED ahead of it is met.
So a new R.RESOLVED is first seen, then the names are listed again, and only then are the files that sort before R
settled. That listing begins at the stem of the R before: what has the very name of a high-water may be written
after it was resolved (see `notes`), and is known by the time the next one is. What appears further behind comes from a
session that lives no more, holds nothing new, and is never read; or from another changefeed, see `latecomers`.

A feed may have a million names: of each that is settled its path and size are kept, until its R is published.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import obstore

from frazil.errors import SourceUnavailable
from frazil.sources.cockroachdb.beginning import PrefixSummary, table_scan
from frazil.sources.cockroachdb.feed.file_names import ResolvedFile, number_in, parse_name, stem_of, topic_in
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.latecomers import Latecomers
from frazil.sources.cockroachdb.position import Hlc

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_HOUR = re.compile(r"\d{2}")
_NOTHING_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_BEHIND_ALL = "~"  # the feed's names begin with digits


@dataclass(slots=True)
class Counters:
    """What listing has cost so far."""

    listings: int = 0
    names: int = 0
    directories: int = 0
    foreign: int = 0


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
        with FeedLocation(str(self.root)).reaching(""):
            yield from self._walk("", start, (_DAY, _HOUR), counters)

    def _walk(
        self, below: str, start: str, deeper: tuple[re.Pattern[str], ...], counters: Counters
    ) -> Iterator[tuple[str, int]]:
        counters.directories += 1
        folders = []
        try:
            scan = os.scandir(self.root / below)
        except FileNotFoundError:  # a day removed while we looked
            return
        with scan as entries:  # one at a time: each keeps what it was asked, several times the size of its name
            for entry in entries:
                path = below + entry.name
                if deeper and deeper[0].fullmatch(entry.name) and _is_folder(entry):
                    if path + "/" >= start[: len(path) + 1]:
                        folders.append(path + "/")
                elif path > start and (size := _size(entry)) is not None:
                    yield path, size
        for folder in sorted(folders):
            yield from self._walk(folder, start, deeper[1:], counters)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return (status := _status(entry)) is not None and stat.S_ISDIR(status.st_mode)


def _size(entry: os.DirEntry[str]) -> int | None:
    """None for what is no file: changefeeds write nothing else."""
    status = _status(entry)
    return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for a name with nothing behind it: it was deleted since it was listed, or is a link that leads nowhere."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return None
        raise


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


class Names:
    """Paths in order, with their sizes."""

    __slots__ = ("paths", "sizes")

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.sizes = array("q")

    def add(self, path: str, size: int) -> None:
        self.paths.append(path)
        self.sizes.append(size)

    def put_in_order(self) -> None:
        order = sorted(range(len(self.paths)), key=self.paths.__getitem__)
        self.paths = [self.paths[i] for i in order]
        self.sizes = array("q", (self.sizes[i] for i in order))

    def between(self, after: str, before: str) -> Names:
        found, begin, end = Names(), bisect_right(self.paths, after), bisect_left(self.paths, before)
        found.paths, found.sizes = self.paths[begin:end], self.sizes[begin:end]
        return found

    def replace_after(self, start: str, names: Names) -> None:
        """Takes over what another listing found behind `start`."""
        begin = bisect_right(self.paths, start)
        self.paths[begin:] = names.paths
        self.sizes[begin:] = names.sizes

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return zip(self.paths, self.sizes, strict=True)

    def __len__(self) -> int:
        return len(self.paths)


class FeedListing:
    """The settled names and resolved positions after a start, and the topics ever met."""

    def __init__(self, lister: Lister, latecomers: Latecomers | None = None) -> None:
        self._lister = lister
        self._latecomers = latecomers
        self._oldest = self._newest = ""
        self._files: dict[str, Names] = {}
        self._resolved: dict[Hlc, str] = {}
        self.topics: set[str] = set()
        self.counters = Counters()

    def begin(self, after: str) -> None:
        """Forgets what is known and goes on after this resolved file; "" is the beginning of the feed."""
        self._oldest = self._newest = after
        self._files = {}
        self._resolved = {}
        if self._latecomers is not None:
            self._latecomers.begin(after)

    def advance(self) -> tuple[Hlc, ...]:
        """Lists what is new, and again if a resolved position is among it. Returns all that are settled. Raises
        SourceLost if another changefeed writes to the same prefix."""
        resolved = [found for found, _, _ in self._listed(self._newest) if isinstance(found, ResolvedFile)]
        if resolved:
            newest, stem = max(name.path for name in resolved), stem_of(self._newest)
            found = self._by_topic(stem, newest)
            for topic in {*self._files, *found}:
                self._files.setdefault(topic, Names()).replace_after(stem, found.get(topic, Names()))
            self._resolved.update((name.stamp, name.path) for name in resolved)
            self._newest = newest
            first = [min(name.path for name in resolved), *(names.paths[0] for names in found.values())]
            self._oldest = self._oldest or min(first)
            if self._latecomers is not None:
                self._latecomers.settle((path for names in found.values() for path in names.paths), newest)
        if self._latecomers is not None:
            self._latecomers.check(self._newest, lambda start: (path for _, path, _ in self._listed(start)))
        return self.resolved

    def reach(self) -> None:
        """Asks for nothing. Raises SourceUnavailable if the feed cannot be listed at all."""
        for _ in self._lister.names_after(_BEHIND_ALL, self.counters):
            pass

    def look(self) -> None:
        """Meets the topics of all names after the start."""
        for _ in self._listed(stem_of(self._newest)):
            pass

    def survey(self) -> dict[str, Names]:
        """By topic, every data file after the start, settled or not."""
        return self._by_topic(stem_of(self._newest), _BEHIND_ALL)

    def table_scan(self) -> PrefixSummary:
        """Of the whole prefix, as it is now."""
        names = self._lister.names_after("", self.counters)
        return table_scan(found for path, _ in names if (found := number_in(path)) is not None)

    @property
    def resolved(self) -> tuple[Hlc, ...]:
        return tuple(sorted(self._resolved))

    def path_of(self, position: Hlc) -> str | None:
        return self._resolved.get(position)

    def begins_before(self, resolved_path: str) -> bool:
        """Whether anything of the feed sorts before the stem of this one."""
        return self._oldest < stem_of(resolved_path)

    def between(self, topic: str, after: str, before: str) -> Names:
        """Settled files of a topic that sort between two paths."""
        return self._files.get(topic, Names()).between(after, before)

    def forget(self, before: str) -> None:
        """Drops what sorts before this resolved file, but for its stem: late names are told from those there."""
        self._files = {
            topic: kept
            for topic, names in self._files.items()
            if len(kept := names.between(stem_of(before), _BEHIND_ALL))
        }
        self._resolved = {stamp: path for stamp, path in self._resolved.items() if path >= before}

    def __len__(self) -> int:
        """How many settled files are remembered."""
        return sum(len(names) for names in self._files.values())

    def _by_topic(self, start: str, before: str) -> dict[str, Names]:
        found: dict[str, Names] = {}
        for topic, path, size in self._listed(start):
            if isinstance(topic, str) and path < before:
                found.setdefault(topic, Names()).add(path, size)
        for names in found.values():
            names.put_in_order()
        return found

    def _listed(self, start: str) -> Iterator[tuple[str | ResolvedFile, str, int]]:
        """The feed's own names after the start, each with its topic. Raises BadInput for a resolved file without a
        timestamp."""
        self.counters.listings += 1
        for path, size in self._lister.names_after(start, self.counters):
            self.counters.names += 1
            if (topic := topic_in(path)) is not None:
                self.topics.add(topic)
                yield topic, path, size
            elif isinstance(resolved := parse_name(path), ResolvedFile):
                yield resolved, path, size
            else:
                self.counters.foreign += 1
