"""How often the key index was hit, kept beside it, so that another process can tell.

    locate, locate --add(hits, misses)--> tally.json in the index's folder --read--> `frazil status`

A number for people: losing it, with the folder or in a race, changes nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from frazil.workers.lookup.cache import ENTRY

_FILE = "tally.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTally:
    """The index of one folder: what it takes on disk, and since it was made, how often a file's keys were there
    already (`hits`) or had to be read from the data file (`misses`)."""

    files: int
    bytes: int
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float | None:
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


def add(root: Path, hits: int, misses: int) -> None:
    """Adds to the tally; says nothing if it cannot."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = _counts(file.read())
            file.seek(0)
            file.truncate()
            json.dump({"hits": known[0] + hits, "misses": known[1] + misses}, file)
        except OSError:
            return


def read(root: Path) -> IndexTally:
    """What is there now; a folder that does not exist holds nothing."""
    sizes = []
    try:
        with os.scandir(root) as found:
            sizes = [entry.stat().st_size for entry in found if entry.name.endswith(ENTRY)]
        hits, misses = _counts((root / _FILE).read_text(encoding="utf-8"))
    except OSError:
        hits, misses = 0, 0
    return IndexTally(files=len(sizes), bytes=sum(sizes), hits=hits, misses=misses)


def _counts(text: str) -> tuple[int, int]:
    try:
        known = json.loads(text)
        return int(known["hits"]), int(known["misses"])
    except (ValueError, KeyError, TypeError):
        return 0, 0
