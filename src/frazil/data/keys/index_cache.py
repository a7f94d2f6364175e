"""Keeps key indexes on local disk, within a bound; any of them may vanish at any moment.

    get_or_build(file) --> open in this process? ------------------------------------> KeyIndex
                             `--> on disk and whole? --map--> KeyIndex
                                    `--> build from the data file --save--> map --> KeyIndex
                                                                     `--no room, no folder--> as built, in memory
    after saving: beyond the bound? remove those that were not used for longest

An entry is named after its data file's path, size and digest, the key and the version of the index, so a name never
means two things. It is written under a name of its own and renamed, so nobody sees half of it; several processes
may do so at once and write the same. Which entry was used last is the file's time, set by the file system. Removing
a file that somebody has mapped takes nothing from them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from frazil.data.keys.index import VERSION, DamagedIndex, KeyIndex

OPEN_MAX = 256
ENTRY, _UNFINISHED = ".index", ".building"
# Room is looked after each time this part of the bound was written since; that much it may be exceeded.
_SLACK = 16
_BUILD_LOCKS = 64


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A data file, which never changes. `digest` is "" where nobody knows it, as in manifests of other writers."""

    path: str
    size: int
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStats:
    """`entries` and `bytes` are on disk now, whoever wrote them. The others count since this process began: how often a
    file's keys were there already (`hits`) or had to be read from the data file (`misses`)."""

    entries: int
    bytes: int
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float | None:
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


class IndexCache:
    """One folder of indexes, shared by threads and processes."""

    def __init__(self, root: Path, limit_bytes: int, open_max: int = OPEN_MAX) -> None:
        self._root = root
        self._limit = limit_bytes
        self._open_max = open_max
        self._open: OrderedDict[str, KeyIndex] = OrderedDict()
        self._lock = Lock()
        self._building = [Lock() for _ in range(_BUILD_LOCKS)]
        self._written = 0
        self._looked_after = False
        self._hits = self._misses = 0

    def get_or_build(self, file: FileIdentity, key: str, build: Callable[[], KeyIndex]) -> KeyIndex:
        """The index of this file by this key (the codec's signature). What `build` raises is raised; what goes wrong
        with the cache itself is not."""
        name, owner = entry_name(file, key), f"{file.path}:{file.size}:{file.digest}"
        index = self._opened(name)
        if index is not None:
            return index
        # Threads that want the same file wait for one of them; those that share a lock by chance lose little.
        with self._building[int(name[:8], 16) % _BUILD_LOCKS]:
            index = self._opened(name) or self._mapped(name, key, owner)
            if index is not None:
                return index
            with self._lock:
                self._misses += 1
            built = build()
            if built.signature != key:
                raise AssertionError(f"an index by {built.signature} was built where one by {key} is needed")
            if not self._save(name, owner, built):
                return built
            self._make_room(built.nbytes)
            return self._mapped(name, key, owner, is_hit=False) or built

    def stats(self) -> CacheStats:
        entries = self._entries()
        with self._lock:
            return CacheStats(
                entries=len(entries),
                bytes=sum(size for _, size, _ in entries),
                hits=self._hits,
                misses=self._misses,
            )

    def _opened(self, name: str) -> KeyIndex | None:
        with self._lock:
            index = self._open.get(name)
            if index is None:
                return None
            if not index.is_intact:
                del self._open[name]
                return None
            self._open.move_to_end(name)
            self._hits += 1
        self._touch(name)
        return index

    def _mapped(self, name: str, key: str, owner: str, *, is_hit: bool = True) -> KeyIndex | None:
        """Opens the entry and remembers it. None if there is none that can be used."""
        try:
            index = KeyIndex.open(str(self._root / name), key, owner)
        except (FileNotFoundError, DamagedIndex):
            return None
        with self._lock:
            self._hits += is_hit
            self._open[name] = index
            mapped = sum(one.nbytes for one in self._open.values())
            # What was removed from the folder keeps its disk space while it is mapped, so this is bounded as well.
            while len(self._open) > 1 and (len(self._open) > self._open_max or mapped > self._limit):
                mapped -= self._open.popitem(last=False)[1].nbytes
        if is_hit:
            self._touch(name)
        return index

    def _touch(self, name: str) -> None:
        try:
            os.utime(self._root / name)
        except OSError:
            return

    def _save(self, name: str, owner: str, index: KeyIndex) -> bool:
        if index.nbytes > self._limit:
            return False
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            descriptor, unfinished = tempfile.mkstemp(_UNFINISHED, dir=self._root)
        except OSError:
            return False
        try:
            # The lock tells others that somebody is at work here; it ends with the process, however that ends.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            index.save(unfinished, owner)
            os.replace(unfinished, self._root / name)
            return True
        except OSError:
            _remove(unfinished)
            return False
        finally:
            os.close(descriptor)

    def _make_room(self, written: int) -> None:
        with self._lock:
            self._written += written
            if self._looked_after and self._written <= self._limit // _SLACK:
                return
            self._written, self._looked_after = 0, True
        self._sweep()
        entries = sorted(self._entries())
        excess = sum(size for _, size, _ in entries) - self._limit
        for _, size, name in entries:
            if excess <= 0:
                return
            _remove(str(self._root / name))
            excess -= size
            with self._lock:
                self._open.pop(name, None)

    def _entries(self) -> list[tuple[int, int, str]]:
        """Time of last use, size and name of each."""
        found = []
        for name in self._names(ENTRY):
            try:
                status = os.stat(self._root / name)
            except OSError:
                continue
            found.append((status.st_mtime_ns, status.st_size, name))
        return found

    def _names(self, ending: str) -> list[str]:
        try:
            return [name for name in os.listdir(self._root) if name.endswith(ending)]
        except OSError:
            return []

    def _sweep(self) -> None:
        """Removes what a process left behind that died while it saved."""
        for name in self._names(_UNFINISHED):
            try:
                descriptor = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(str(self._root / name))
            except OSError:
                continue
            finally:
                os.close(descriptor)


def entry_name(file: FileIdentity, key: str) -> str:
    """The file name of an entry."""
    facts = json.dumps([VERSION, file.path, file.size, file.digest, key])
    return hashlib.sha256(facts.encode()).hexdigest() + ENTRY


_caches: dict[tuple[Path, int], IndexCache] = {}
_caches_lock = Lock()


def process_cache(root: Path, limit_bytes: int) -> IndexCache:
    """The one cache of this process for a folder and bound: tasks that share a Python worker share what is open."""
    with _caches_lock:
        return _caches.setdefault((root, limit_bytes), IndexCache(root, limit_bytes))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
