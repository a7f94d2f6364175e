"""Where downloaded and generated things are kept between runs.

    $FRAZIL_HOME, else $XDG_CACHE_HOME/frazil, else ~/.cache/frazil
      jars/   what Maven repositories gave us, checked
      java/   launchers of the Java we start
      feeds/  what was seen of changefeeds in cloud storage, so that a second one in the same prefix is noticed

Everything here can be deleted at any time; it is made again when needed.

The folder for temporary files of this process, and of the JVM that it starts: it goes with the process.

    scratch("local") --first time--> <TMPDIR>/frazil-scratch-XXXX/.lock, held while the process lives
                     `-------------> other such folders whose lock nobody holds: their process is gone, so they go too

A process that ends removes its folder; one that is killed cannot, and the next one does. A lock ends with its process,
however that ends, and a number of a process that is used again cannot be taken for it. A folder without a lock, or of
another user, is somebody else's.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path


def cache_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory may not exist yet."""
    if chosen := environment.get("FRAZIL_HOME"):
        return Path(chosen).expanduser().absolute()
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "frazil"


PREFIX = "frazil-scratch-"
_LOCK = ".lock"


def scratch(name: str) -> Path:
    """A folder in that of this process, made if it is not there."""
    folder = _own(os.getpid()) / name
    folder.mkdir(exist_ok=True)
    return folder


@cache
def _own(process: int) -> Path:
    """By process, since a fork is another one."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    # Locked before it has its name: whoever finds a lock that nobody holds may rely on it. Open while we live.
    descriptor, unnamed = tempfile.mkstemp(dir=folder)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    Path(unnamed).rename(folder / _LOCK)
    atexit.register(_remove_own, folder, process)
    _remove_left_ones(folder.parent)
    return folder


def _remove_own(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_ones(root: Path) -> None:
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):
            _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    """Raises OSError if somebody holds its lock, it has none, or others were faster."""
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for entry in folder.iterdir():
            # The lock last: what is left if this process is killed meanwhile, too, is still known for what it is.
            if entry.name != _LOCK:
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
