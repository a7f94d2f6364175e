"""Whether another changefeed writes to the same prefix: its files come behind what is resolved already.

    X   x1-...          R1.RESOLVED   x2-...          R2.RESOLVED
    Y            y1-...                        y2-...
                 ` written after R1.RESOLVED was read: nobody looks there any more, its rows at or before R1 are lost

A changefeed writes R.RESOLVED when all its nodes have written all that sorts before it. So a file that comes behind one
is of another run than the one that resolved R. After a restart those are the sessions of the run before, for as
long as it takes them to learn that they were replaced; and each restart makes new sessions. A session that does it at
three looks lives for at least the time between two of them beside whoever resolves: it is another changefeed's.

The order of stamps alone tells nothing. A run that is restarted goes back to the high-water, which one slow node may
have held back for hours, and its stamps then lie among those that the other nodes of the run before have left.

    bounds of the looks   ---|-- look 1 ---|-- look 2 ---|-- look 3: lists from the look before last ---> newest

A file is new if its number is beyond those that its session is known to have written: each sink counts its files. What
comes further behind than the look before last is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from frazil.clock import Clock
from frazil.errors import SourceLost
from frazil.sources.cockroachdb.feed.file_names import number_in, stem_of
from frazil.sources.cockroachdb.feed.location import ANEW

LOOK_SECONDS = 600.0
"""Between two looks. Far longer than a session outlives its run: leases of jobs end after less than a minute."""
_LOOKS_MAX = 3
_SUSPECTS_MAX = 64


@dataclass(slots=True)
class _Seen:
    """Files are settled up to `settled`; `bounds` are those of the last two looks, `numbers` the highest of a file by
    session, `suspects` how often a session came late."""

    settled: str = ""
    bounds: Sequence[str] = ()
    looked_at: float = 0.0
    numbers: dict[str, int] = field(default_factory=dict)
    suspects: dict[str, int] = field(default_factory=dict)


def _remembered(memory: Path | None) -> _Seen:
    if memory is not None:
        with suppress(OSError, ValueError, TypeError):
            return _Seen(**json.loads(memory.read_text(encoding="utf-8")))
    return _Seen()


class Latecomers:
    """`settle` hears of all files as they are settled, `check` looks whether others have come behind them since. What
    was seen is kept in the file `memory`, for the next process: runs that only drain are too short for a second look.
    """

    def __init__(self, clock: Clock, memory: Path | None = None) -> None:
        self._clock = clock
        self._memory = memory
        self._seen = _remembered(memory)

    def begin(self, after: str) -> None:
        """The feed is listed from this resolved file on. Who came late before is remembered."""
        if after > self._seen.settled:  # others have read on, and nobody told of the files between
            self._seen = _Seen(suspects=self._seen.suspects)

    def settle(self, paths: Iterable[str], newest: str) -> None:
        """`newest` is the resolved file they were settled with."""
        if not self._seen.bounds:  # all that sorts before it may be a long history: looks begin behind it
            self._seen.bounds, self._seen.looked_at = (newest, newest), self._now
        else:
            self._seen.numbers = _highest(paths, self._seen.numbers)
        self._seen.settled = max(self._seen.settled, newest)
        self._keep()

    def check(self, newest: str, names_after: Callable[[str], Iterable[str]]) -> None:
        """Raises SourceLost if a session comes late again and again. `newest` is the newest resolved file."""
        seen, now = self._seen, self._now
        if not seen.bounds or newest == seen.bounds[1] or now - seen.looked_at < LOOK_SECONDS:
            return
        found = sorted(path for path in names_after(seen.bounds[0]) if path < stem_of(newest))
        late = {session: path for path in found if (session := self._late(path))}
        seen.numbers = _highest(found, {})
        seen.bounds, seen.looked_at = (seen.bounds[1], newest), now
        for session in late:
            seen.suspects[session] = seen.suspects.pop(session, 0) + 1
        for session in list(seen.suspects)[:-_SUSPECTS_MAX]:
            del seen.suspects[session]
        self._keep()
        for session, path in late.items():
            if seen.suspects.get(session, 0) >= _LOOKS_MAX:
                raise _shared(session, path, [known for known in seen.numbers if known != session])

    @property
    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _keep(self) -> None:
        """What cannot be kept is only forgotten with the process."""
        if self._memory is not None:
            with suppress(OSError):
                self._memory.parent.mkdir(parents=True, exist_ok=True)
                part = self._memory.with_suffix(".part")
                part.write_text(json.dumps(asdict(self._seen)), encoding="utf-8")
                part.replace(self._memory)

    def _late(self, path: str) -> str:
        """The session of a file that was not there when it should have been; else empty."""
        match number_in(path):
            case (_, session, number) if number > self._seen.numbers.get(session, -1):
                return session
        return ""


def _highest(paths: Iterable[str], known: dict[str, int]) -> dict[str, int]:
    """By session, the highest number of a file; the session of the last path is the last."""
    highest = dict(known)
    for found in map(number_in, paths):
        if found is not None:
            _, session, number = found
            highest[session] = max(highest.pop(session, -1), number)
    return highest


def _shared(session: str, path: str, others: list[str]) -> SourceLost:
    beside = f" beside session {others[-1]}" if others else ""
    return SourceLost(
        f"two changefeeds write to one prefix: session {session}{beside} keeps adding files behind resolved "
        f"timestamps that are not its own, now {path}; rows of such files were not read",
        hint="Give every changefeed a prefix of its own: SHOW CHANGEFEED JOBS names their sink_uri. Rows are missing "
        f"already: {ANEW} If these files are copies, copy a .RESOLVED only after all files that sort before "
        "it. To go on without the rows of such files: `late_files: ignore` in `source`.",
        file=path,
        sessions=[session, *others[-1:]],
    )
