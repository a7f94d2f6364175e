"""Commits what an action of maintenance has prepared, once, on a head that was looked at.

Every snapshot of maintenance carries the id of its run: a commit whose answer was lost is known by it. Where epochs
come faster than an attempt takes, it would lose every time: after a few losses it asks for a turn, in which none comes
(H16).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from uuid import UUID

from frazil.clock import Clock
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.retry import Attempt, Backoff, Done, commit_with_retry

PATIENT = Backoff(first=0.05, longest=2.0, attempts=12)
LOSSES_BEFORE_A_TURN = 2
MADE_BY, _RUN = "frazil.maintenance", "frazil.maintenance-id"

Turn = Callable[[], AbstractContextManager[object]]
"""A time in which the pipeline commits nothing to the table."""


def summary_of(action: str, run: UUID, **counts: int) -> dict[str, str]:
    """What a snapshot of maintenance says of itself."""
    facts = {f"frazil.{name.replace('_', '-')}": str(count) for name, count in counts.items()}
    return {MADE_BY: action, _RUN: str(run), **facts}


def commit_rewrite(
    table: TableName,
    run: UUID,
    what: str,
    head_of: Callable[[TableName], TableHead],
    attempt: Callable[[TableHead], Attempt[Done]],
    clock: Clock,
    turn: Turn | None = None,
) -> tuple[Done, int | None]:
    """What was done, and the snapshot, if one was made. `attempt` sends at most one commit, on the head it is given.
    `turn` keeps the pipeline waiting; others may still be faster. Raises like `commit_with_retry`."""
    sent: list[Attempt[Done]] = []
    landed: list[int] = []

    def once(lost: int) -> Attempt[Done]:
        with turn_after(lost, turn):
            head = head_of(table)
            if sent and (snapshot_id := _landed(head, run)) is not None:
                landed.append(snapshot_id)
                return Attempt(sent[-1].done)
            sent.append(attempt(head))
            return sent[-1]

    done, snapshot_id = commit_with_retry(
        f"{table}: {what} was not published",
        once,
        clock,
        backoff=PATIENT,
        table=table.text,
        hint="Nothing is lost. Run it again; it first looks at what the table holds.",
    )
    return done, landed[0] if landed else snapshot_id


def turn_after(losses: int, turn: Turn | None) -> AbstractContextManager[object]:
    """A turn for whoever has lost often enough, if there are turns at all."""
    return turn() if turn is not None and losses >= LOSSES_BEFORE_A_TURN else nullcontext()


def _landed(head: TableHead, run: UUID) -> int | None:
    found = (one.snapshot_id for one in head.ancestry if one.summary.get(_RUN) == str(run))
    return next(found, None)
