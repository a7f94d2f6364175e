"""What a ledger entry remembers of a feed's files, to go on behind its position R.

    carried   files that sort before R.RESOLVED and hold rows beyond R: read again
    seen      what was read of the files under R's stem, those that are named `R-...`
    since     the stamp of the oldest file that the feed held once, see `beginning`
    sessions  who wrote the table's last files, by the first digits of a session
    scanned   rows of the scan that a table began with at R, in the midst of a feed: more of them would be lost

A name under the stem may come after R.RESOLVED was settled: `ALTER CHANGEFEED ... ADD t WITH initial_scan` resumes at
the high-water R, and until its first flush all files are named after it. They hold the scan of `t`, and changes of
other tables beyond R (cockroach#84102). Where the names are not those that were seen, all of them are read again: what
lies at or below R is dropped by the cut.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from frazil.errors import SourceLost
from frazil.model.change import PartitionReport
from frazil.model.frontier import Frontier
from frazil.model.position import Position, is_before
from frazil.sources.cockroachdb.feed.file_names import is_under, session_in

_SESSION_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Notes:
    carried: tuple[str, ...] = ()
    seen: str = ""
    since: str = ""
    sessions: tuple[str, ...] = ()
    scanned: int = 0

    @classmethod
    def parse(cls, text: str) -> Notes:
        """Entries of earlier versions are a list of the carried files, or nothing."""
        match json.loads(text) if text else []:
            case dict() as facts:
                carried, sessions = (tuple(facts.get(name, ())) for name in ("carried", "sessions"))
                return cls(carried, facts.get("seen", ""), facts.get("since", ""), sessions, facts.get("scanned", 0))
            case carried:
                return cls(tuple(carried))

    @classmethod
    def of(cls, frontier: Frontier | None) -> Notes:
        return cls() if frontier is None else cls.parse(frontier.notes)

    @property
    def text(self) -> str:
        facts = {name: fact for name, fact in asdict(self).items() if fact}
        return json.dumps(facts) if facts else ""


def notes_at(
    upper: Position,
    border: str,
    reports: Sequence[PartitionReport],
    since: str = "",
    sessions: Sequence[str] = (),
    *,
    begins: bool = False,
) -> Notes:
    """Of one table at `upper`, whose resolved file is `border`, judging by the reports of the window it lies in. With
    `begins` they are its first, in the midst of a feed."""
    carried = {report.partition for report in reports if report.partition < border and reaches_beyond(report, upper)}
    under = [report for report in reports if is_under(report.partition, border)]
    is_all = begins and len(under) == sum(report.partition < border for report in reports)
    scanned = sum(report.scanned for report in under) if is_all else 0
    return Notes(tuple(sorted(carried)), digest(report.partition for report in under), since, tuple(sessions), scanned)


def sessions_of(reports: Sequence[PartitionReport], before: Notes) -> tuple[str, ...]:
    """Who wrote the last files; who wrote them before if there are none."""
    return tuple(sorted({short(session_in(report.partition)) for report in reports})) or before.sessions


def short(session: str) -> str:
    """Enough to tell it from those before."""
    return session[:_SESSION_DIGITS]


def reaches_beyond(report: PartitionReport, upper: Position) -> bool:
    return report.newest is not None and is_before(upper, report.newest)


def digest(paths: Iterable[str]) -> str:
    """Tells one set of names from another; empty for none."""
    names = "\n".join(sorted(paths))
    return hashlib.sha256(names.encode()).hexdigest()[:16] if names else ""


def inventory(paths: Sequence[str]) -> dict[str, object]:
    """What is remembered of a feed that is complete."""
    return {"files": len(paths), "digest": digest(paths)}


def check_unchanged(table: str, frontier: Frontier, paths: Sequence[str]) -> None:
    """Raises SourceLost if a complete feed has changed since it was read."""
    now = inventory(paths)
    if frontier.notes and json.loads(frontier.notes) != now:
        raise SourceLost(
            f"{table}: the feed was read as complete, but its files have changed since "
            f"({frontier.notes} then, {json.dumps(now)} now)",
            hint="Once the changefeed's job has succeeded: frazil drop CONFIG TABLE --force, and run again.",
            table=table,
        )
