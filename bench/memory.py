"""Peak memory of the driver, its JVM and the Python workers, for an epoch and for one ten times as large.

    bench --starts--> python -m bench.memory --changes n    a process tree of its own, one epoch, then it ends
                          `-- sampled while it runs: memory of the driver, of Java, of the Python workers

Pages that forked workers share are counted once (PSS). Each size has a fresh process: a heap that has grown once does
not shrink, and would hide what the larger one needs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from bench.feeds import Feed
from bench.report import Measured, measured
from bench.sizes import TINY, Sizes
from bench.stage import Bench, catalog_of, say
from frazil.iceberg.jvm.session import open_session

AT_MOST = 1.5
TIMES = 10
JVM_MEMORY = "1g"
_EVERY_SECONDS = 0.05
_MB = 1 << 20
_PARTS = ("driver", "java", "workers")


def memory(work: Path, sizes: Sizes, mode: str) -> list[Measured]:
    """Needs no session, and none may run beside it: it would count too."""
    found = []
    once, tenfold = (_peaks(work, mode, factor * sizes.memory_changes) for factor in (1, TIMES))
    label = f"peak memory of an epoch, Frazil {mode}"
    for peaks, changes in ((once, sizes.memory_changes), (tenfold, TIMES * sizes.memory_changes)):
        found += [measured(f"{label}: {changes:,} changes, {part}", peaks[part], "MB") for part in ("all", *_PARTS)]
    found.append(measured(f"{label}: {TIMES}x the epoch / 1x", tenfold["all"] / once["all"], "x", at_most=AT_MOST))
    return found


def _peaks(work: Path, mode: str, changes: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.memory", "--mode", mode, "--changes", str(changes)]
    place = work / f"memory_{mode}_{changes}"
    done = subprocess.run(
        [*command, "--work", str(place)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1], check=True
    )
    peaks: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    say(f"  {mode}, {changes:,} changes: " + ", ".join(f"{part} {size:.0f} MB" for part, size in peaks.items()))
    return peaks


class Sampler:
    """Remembers the most that this process and its descendants held, by part and all together."""

    def __init__(self) -> None:
        self.peaks = dict.fromkeys((*_PARTS, "all"), 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(_EVERY_SECONDS):
            held = dict.fromkeys(_PARTS, 0)
            for pid, name in _tree(os.getpid()).items():
                part = "driver" if pid == os.getpid() else "java" if name == "java" else "workers"
                held[part] += _held_by(pid)
            held["all"] = sum(held.values())
            self.peaks = {part: max(self.peaks[part], size) for part, size in held.items()}


def _tree(root: int) -> dict[int, str]:
    """The names of the process and its descendants, as /proc shows them now."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue  # it has ended meanwhile
            parents[int(entry.name)], names[int(entry.name)] = int(tail.split()[1]), head.partition("(")[2]

    def descends(pid: int) -> bool:
        while pid != root and pid in parents:
            pid = parents[pid]
        return pid == root

    return {pid: name for pid, name in names.items() if descends(pid)}


def _held_by(pid: int) -> int:
    """Its private pages and its share of the others, in bytes; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description="One epoch, and what it took of memory.")
    parser.add_argument("--mode", required=True)
    parser.add_argument("--changes", type=int, required=True)
    parser.add_argument("--work", type=Path, required=True)
    arguments = parser.parse_args()
    feed = Feed(arguments.work / "feed")
    feed.scan(1_000)
    feed.updates(arguments.changes, arguments.changes)
    spark = open_session("bench memory", [catalog_of(arguments.work)], jvm_memory=JVM_MEMORY)
    try:
        with Sampler() as sampler, Bench(spark, arguments.work, TINY).running(feed, "memory", arguments.mode) as run:
            resolved = feed.updates(1_000, 1_000)
            run.seconds(lambda: resolved)
    finally:
        spark.stop()
    print(json.dumps({part: size / _MB for part, size in sampler.peaks.items()}))


if __name__ == "__main__":
    main()
