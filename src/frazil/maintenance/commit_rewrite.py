"""Publishes what an action has prepared, once, on a head that was looked at.

    head --attempt--> nothing left to send -----------------------------> the outcome
     ^        |
     |        +------> sent --Accepted--> the outcome    --Refused--> CatalogRefused
     |                    |
     +-- is it there already? -- conflict, no answer      (attempts are bounded)

Every snapshot of maintenance carries the id of its run: a commit whose answer was lost is known by it. Where epochs
come faster than an attempt takes, it would lose every time: after a few losses it asks for a turn, in which none comes
(H16).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from frazil.clock import Clock
from frazil.errors import CatalogRefused, OutcomeUnknown, Transient
from frazil.model.commit import Accepted, CommitAnswer, Refused, Unknown
from frazil.model.ledger import TableHead
from frazil.model.names import TableName

ATTEMPTS_MAX = 12
LOSSES_BEFORE_A_TURN = 2
MADE_BY, _RUN = "frazil.maintenance", "frazil.maintenance-id"
_WAIT_FIRST, _WAIT_MAX = 0.05, 2.0

Done = TypeVar("Done")
Turn = Callable[[], AbstractContextManager[object]]
"""A time in which the pipeline commits nothing to the table."""


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Done]):
    """What came of one head: `done` holds if the commit lands, or, without an answer, as it is."""

    done: Done
    answer: CommitAnswer | None = None


def summary_of(action: str, run: UUID, **counts: int) -> dict[str, str]:
    """What a snapshot of maintenance says of itself."""
    facts = {f"frazil.{name.replace('_', '-')}": str(count) for name, count in counts.items()}
    return {MADE_BY: action, _RUN: str(run), **facts}


def land(
    table: TableName,
    run: UUID,
    what: str,
    head_of: Callable[[TableName], TableHead],
    attempt: Callable[[TableHead], Attempt[Done]],
    clock: Clock,
    turn: Turn | None = None,
) -> tuple[Done, int | None]:
    """What was done, and the snapshot, if one was made. `attempt` sends at most one commit, on the head it is given.
    `turn` keeps the pipeline waiting; others may still be faster.

    Raises Transient if others were faster every time, OutcomeUnknown if a commit was never confirmed, CatalogRefused,
    and what `attempt` raises.
    """
    sent: Attempt[Done] | None = None
    for number in range(ATTEMPTS_MAX):
        clock.wait(_wait_before(number, clock.jitter()))
        with turn_after(number, turn):
            head = head_of(table)
            if sent is not None and (landed := _landed(head, run)) is not None:
                return sent.done, landed
            sent = attempt(head)
        match sent.answer:
            case None:
                return sent.done, None
            case Accepted(snapshot_id):
                return sent.done, snapshot_id
            case Refused(said, hint):
                raise CatalogRefused(f"{table}: {what} was refused: {said}", hint=hint, table=table.text)
            case answer:
                reason, is_unknown = answer.reason, isinstance(answer, Unknown)
    error = OutcomeUnknown if is_unknown else Transient
    raise error(
        f"{table}: {what} was not published after {ATTEMPTS_MAX} attempts: {reason}",
        hint="Nothing is lost. Run it again; it first looks at what the table holds.",
        table=table.text,
    )


def turn_after(losses: int, turn: Turn | None) -> AbstractContextManager[object]:
    """A turn for whoever has lost often enough, if there are turns at all."""
    return turn() if turn is not None and losses >= LOSSES_BEFORE_A_TURN else nullcontext()


def _landed(head: TableHead, run: UUID) -> int | None:
    found = (one.snapshot_id for one in head.ancestry if one.summary.get(_RUN) == str(run))
    return next(found, None)


def _wait_before(attempt: int, jitter: float) -> float:
    return 0.0 if attempt == 0 else min(_WAIT_MAX, _WAIT_FIRST * 2.0 ** (attempt - 1)) * (1.0 - jitter / 2)
