"""Starts Spark's Python workers warm: `python -m frazil.iceberg.jvm.warm_start` in place of `python -m pyspark.daemon`.

    daemon --imports once--> pyspark from its folder, Arrow, our task
       `--fork--> worker: a task begins at once

Before each task Spark's worker invalidates Python's import caches. Where pyspark was imported out of `pyspark.zip`,
that reads the archive's directory once for each of its packages: about 0.2 s a task, more than a small epoch's work.
The same version of pyspark as a plain folder, which a pip installation has, costs nothing. And what every task of
ours imports is imported once, before the fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from frazil.plugins import source_kinds

_VERSION = "pyspark/version.py"
# Spark puts these on the path beside pyspark's archive: Py4J's sources, and a jar that has held no Python for long.
_BESIDE = ("py4j-", "spark-core_")
_PRELOADED = (
    "pyspark.worker",
    "frazil.ingest.write.write_task",
    "frazil.ingest.write.write_job",
)


def without_archives(path: Sequence[str]) -> list[str]:
    """The search path without the archives Spark adds, if a folder on it holds the very same version."""
    archives = [entry for entry in path if entry.endswith(".zip") and _version_in_archive(entry) is not None]
    folders = [entry for entry in path if (Path(entry) / _VERSION).is_file() and (Path(entry) / "py4j").is_dir()]
    if not archives or not folders:
        return list(path)
    if (Path(folders[0]) / _VERSION).read_bytes() != _version_in_archive(archives[0]):
        return list(path)
    return [entry for entry in path if entry not in archives and not Path(entry).name.startswith(_BESIDE)]


def _version_in_archive(entry: str) -> bytes | None:
    try:
        with zipfile.ZipFile(entry) as archive:
            return archive.read(_VERSION)
    except (OSError, KeyError, zipfile.BadZipFile):
        return None


def main() -> None:
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    for name in _PRELOADED:
        importlib.import_module(name)
    for kind in source_kinds():
        for name in kind.preloaded:
            # A library that a source needs may be missing: then no task uses it.
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(name)
    # What is loaded by now lives as long as the process: the collection after each task need not look at it.
    gc.collect()
    gc.freeze()
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
