"""The first loads of a cursor: which steps are ahead, how far each is, what a ledger must note of it.

    begin(name, Load) --> steps ahead --> ranges in a window --> read: rows counted --> bound to note, LoadProgress
                                                                          `-- all read: rows beside the server's count

A step is offered once the stream has passed the load's position, so that every table's epochs ascend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from frazil.model.change import PartitionReport
from frazil.model.frontier import Frontier, LoadProgress
from frazil.model.position import is_before
from frazil.sources.base import InputPartition
from frazil.sources.mongodb.load.ranges import Load
from frazil.sources.mongodb.position import WHOLE, ClusterTime

STEPS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a load begins: as of `time`, behind the bound `start`, with `done` steps and their `rows` published."""

    time: int
    done: int = 0
    start: str | None = None
    rows: int = 0


def resumed(position: ClusterTime, noted: Mapping[str, object]) -> Beginning | None:
    """Where a load goes on of which the ledger has noted this with the position; None if none was under way."""
    if noted.get("load") is None:
        return None
    rows = int(str(noted.get("rows", 0)))
    return Beginning(position.time, position.step - WHOLE, str(noted["load"]), rows)


@dataclass(slots=True)
class _Under:
    """A load under way: `rows` are read of about `total`; partitions in `counted` are among them."""

    load: Load
    total: int
    rows: int
    counted: set[str]
    is_read: bool = False


class Loads:
    def __init__(self) -> None:
        self._under: dict[str, _Under] = {}

    def begin(self, name: str, load: Load, *, rows: int, total: int) -> None:
        """`rows` were read before, by an earlier cursor."""
        self._under[name] = _Under(load, total, rows, set())

    def end(self, name: str) -> None:
        """Nobody needs the rest any more."""
        self._under.pop(name, None)

    @property
    def times(self) -> list[int]:
        return sorted({under.load.time for under in self._under.values()})

    def holds(self, name: str) -> bool:
        return name in self._under

    def are_ahead(self, is_ahead: Callable[[ClusterTime], bool]) -> bool:
        return any(is_ahead(under.load.position(under.load.last)) for under in self._under.values())

    def steps(self, time: int, is_ahead: Callable[[ClusterTime], bool]) -> list[ClusterTime]:
        """The next steps of the loads as of this time."""
        loads = [under.load for under in self._under.values() if under.load.time == time]
        first, last = min(load.done for load in loads) + 1, max(load.last for load in loads)
        steps = [position for n in range(first, last + 1) if is_ahead(position := loads[0].position(n))]
        return steps[:STEPS_AT_ONCE]

    def partitions(
        self, name: str, number: int, frontier: Frontier | None, upper: ClusterTime
    ) -> Iterator[InputPartition]:
        """Ranges of the steps behind the frontier and not beyond `upper`."""
        under = self._under.get(name)
        if under is None:
            return
        load, tip = under.load, None if frontier is None else frontier.position
        for step in range(load.done + 1, load.last + 1):
            position = load.position(step)
            if is_before(tip, position) and not is_before(upper, position):
                for at, piece in enumerate(load.ranges(step)):
                    own = f"{name}@{position}#{at}"
                    yield InputPartition(number, own, piece.to_json(name, position), piece.size, apart=True)

    def noted(self, name: str, position: ClusterTime, reports: Sequence[PartitionReport]) -> dict[str, object]:
        """What the ledger remembers with this position: the rows that were read, and while there is more to read, the
        bound behind which that lies."""
        under = self._under.get(name)
        if under is None or position.time != under.load.time:
            return {}
        self._count(name, under, position, reports)
        bound = under.load.bound_behind(position)
        under.is_read = bound is None
        return {"rows": under.rows} | ({} if bound is None else {"load": bound})

    def read(self, name: str) -> tuple[int, bool]:
        """How many rows, and whether that is all."""
        under = self._under[name]
        return under.rows, under.is_read

    def progress(self, name: str) -> LoadProgress | None:
        under = self._under.get(name)
        if under is None or under.is_read:
            return None
        return LoadProgress(under.rows, max(under.total, under.rows))

    def _count(self, name: str, under: _Under, position: ClusterTime, reports: Sequence[PartitionReport]) -> None:
        """Each range is counted once, however often its report comes."""
        for report in reports:
            named, _, place = report.partition.rpartition("@")
            if named != name or report.partition in under.counted:
                continue
            if not is_before(position, ClusterTime.parse(place.partition("#")[0])):
                under.counted.add(report.partition)
                under.rows += report.rows


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A first load has read another number of documents than were `there` at that cluster time."""

    name: str
    read: int
    there: int
    at: int

    @property
    def warning(self) -> str:
        return (
            "the first load has read another number of documents than the collection holds, and nothing changed "
            "meanwhile; `frazil resync` loads it anew"
        )
