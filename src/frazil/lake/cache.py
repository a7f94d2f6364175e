"""Where downloaded and generated things are kept between runs.

    $FRAZIL_HOME, else $XDG_CACHE_HOME/frazil, else ~/.cache/frazil
      jars/   what Maven repositories gave us, checked
      java/   launchers of the Java we start

Everything here can be deleted at any time; it is made again when needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory may not exist yet."""
    if chosen := environment.get("FRAZIL_HOME"):
        return Path(chosen).expanduser().absolute()
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "frazil"
