"""What installed packages bring of themselves: the kinds of source, each an object that an entry point names.

    [project.entry-points."frazil.sources"]
    toy = "toy_source.kind:KIND"             --> `sources.registry.SourceKind`, imported when it is first asked for

Frazil's own sources are told in its pyproject.toml, the same way. A tree or an archive that was never installed has no
such entries: there every folder of `frazil.sources` is a kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

SOURCES = "frazil.sources"


@cache
def installed() -> Mapping[str, EntryPoint]:
    """The kinds of source by name, in the order of their names."""
    found = entry_points(group=SOURCES) or _of_the_tree()
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}


def source_kinds() -> list[Any]:
    """All of them. Raises what importing one of them raises."""
    return [one.load() for one in installed().values()]


def _of_the_tree() -> list[EntryPoint]:
    folders = [path.parent.name for path in (Path(__file__).parent / "sources").glob("*/kind.py")]
    return [EntryPoint(name, f"{SOURCES}.{name}.kind:KIND", SOURCES) for name in folders]
