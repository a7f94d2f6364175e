"""Where each table of a pipeline stands, and which loops follow from it. Pure.

LOAD ----caught up----> STEADY       a first load, beside what the others do
  RESYNC --adopted-------^  |        loaded anew on a branch, since the source lost what lay between
    ^----- source lost -----+
                            +--> STOPPED     a person must act; the others go on

STEADY tables share one loop. One that fails, or lets the others wait, gets a loop of its own (`apart`) until it
has caught up; a run that only drains is DONE with it then. A transient failure is tried again for ever; a terminal one
is confirmed once alone and then stops the table. One that nobody explains, as a worker that was killed, may be any
table's: it is tried a few times, then each table reads alone, and the one that fails there a few times stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from frazil.errors import Fenced, FrazilError, SourceLost, Terminal, Unexplained
from frazil.retry import Backoff

TROUBLE = Backoff(first=1.0, longest=60.0, attempts=1 << 30)
APART_FIRST = 60.0
APART_MAX = 3600.0
APART_AT_ONCE = 8
UNEXPLAINED_MAX = 4
"""So often is tried what fails without a reason: together, then each table by itself."""


class Mode(StrEnum):
    LOAD = "load"
    STEADY = "steady"
    RESYNC = "resync"
    STOPPED = "stopped"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class LoopState:
    """One source table. `loop` is the one that reads it now, `not_before` when the next one may, by the clock's
    monotonic seconds. `apart_until` keeps a table that lagged, or failed among others, on its own for a while, `lags`
    is how often that happened; `anew` clears what a re-sync has begun before. Of the `attempts` that failed in a row,
    `unexplained` ones may be the table's own fault."""

    mode: Mode
    apart: bool = False
    attempts: int = 0
    unexplained: int = 0
    lags: int = 0
    not_before: float = 0.0
    apart_until: float = 0.0
    loop: int | None = None
    anew: bool = False
    error: FrazilError | None = None

    @property
    def is_over(self) -> bool:
        return self.mode in (Mode.STOPPED, Mode.DONE)

    @property
    def is_suspect(self) -> bool:
        """Read apart because of what happened, not because it lets others wait."""
        return self.apart and self.error is not None

    @property
    def is_free(self) -> bool:
        return self.loop is None and not self.is_over


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A reader loop to start; `is_main` if others may join it later."""

    mode: Mode
    tables: tuple[str, ...]
    is_main: bool = False


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What to do now. With `main_yields`, the main loop must end so that it can start again with more tables."""

    starts: tuple[LoopPlan, ...]
    main_yields: bool


def dispatch(loop_states: Mapping[str, LoopState], main: int | None, now: float, max_first_loads: int) -> Dispatch:
    free = {name: one for name, one in loop_states.items() if one.is_free and one.not_before <= now}
    budget = max_first_loads - sum(
        1 for one in loop_states.values() if one.loop is not None and one.mode in (Mode.LOAD, Mode.RESYNC)
    )
    suspects = APART_AT_ONCE - sum(1 for one in loop_states.values() if one.loop is not None and one.is_suspect)
    starts = []
    for name, one in free.items():
        if one.mode is Mode.RESYNC or (one.apart and one.mode is Mode.LOAD):
            if budget > 0:
                starts.append(LoopPlan(one.mode, (name,)))
                budget -= 1
        elif one.apart and (not one.is_suspect or suspects > 0):
            suspects -= one.is_suspect
            starts.append(LoopPlan(one.mode, (name,)))
    together = tuple(name for name, one in free.items() if one.mode is Mode.LOAD and not one.apart)[: max(budget, 0)]
    if together:
        starts.append(LoopPlan(Mode.LOAD, together))
    steady = tuple(name for name, one in free.items() if one.mode is Mode.STEADY and not one.apart)
    if steady and main is None:
        starts.append(LoopPlan(Mode.STEADY, steady, is_main=True))
    return Dispatch(tuple(starts), main_yields=bool(steady) and main is not None)


def after_failure(
    state: LoopState,
    error: FrazilError,
    *,
    alone: bool,
    can_rescan: bool,
    now: float,
    jitter: float,
    attempts_max: int | None = None,
) -> LoopState:
    """Where a table stands that its loop failed with; `alone` if it was the only one there. Without `attempts_max` a
    transient failure is tried again for ever."""
    freed = replace(state, loop=None, error=error)
    if not alone:
        freed = _for_a_while(freed, now, at_once=False)
    attempts = state.attempts + 1
    if isinstance(error, SourceLost) and can_rescan:
        wait = backoff(attempts, jitter) if state.mode is Mode.RESYNC else 0.0
        return replace(freed, mode=Mode.RESYNC, anew=True, apart=False, attempts=attempts, not_before=now + wait)
    if isinstance(error, Terminal):
        if alone:
            return replace(freed, mode=Mode.STOPPED)
        return replace(freed, apart=True, not_before=now)
    if isinstance(error, Unexplained):
        if is_tried_enough(state):
            mode = Mode.STOPPED if alone else state.mode
            return replace(freed, mode=mode, apart=True, attempts=0, unexplained=0, not_before=now)
        apart = state.apart or not alone
        freed = replace(freed, apart=apart, unexplained=state.unexplained + 1)
        return replace(freed, attempts=attempts, not_before=now + backoff(attempts, jitter))
    if attempts_max is not None and attempts > attempts_max:
        return replace(freed, mode=Mode.STOPPED, attempts=attempts)
    return replace(freed, apart=state.apart or not alone, attempts=attempts, not_before=now + backoff(attempts, jitter))


def is_tried_enough(state: LoopState) -> bool:
    """Whether one more failure that nobody explains is too many."""
    return state.unexplained + 1 >= UNEXPLAINED_MAX


def ends_the_run(error: BaseException) -> bool:
    """A newer coordinator, or an assumption of ours that does not hold: going on could only do harm."""
    return isinstance(error, Fenced | AssertionError) or not isinstance(error, Exception)


def explained(error: BaseException) -> FrazilError:
    """Whatever is no error of ours says nothing about what to do."""
    if isinstance(error, FrazilError):
        return error
    found = Unexplained(f"{type(error).__name__}: {error}", hint="Frazil tries again. If it repeats, report it please.")
    found.__cause__ = error
    return found


def concerns_all(found: Mapping[str, FrazilError], tables: Sequence[str]) -> bool:
    """Whether what happened to some tables is rather about what all of them share, as a catalog that is away: then they
    wait together. A reader loop for each would ask the source for everything so many times."""
    if any(isinstance(error, Terminal) for error in found.values()):
        return False
    return len(found) > 1 and (len(found) == len(tables) or len(found) > APART_AT_ONCE)


def after_lag(state: LoopState, now: float) -> LoopState:
    """A table that let the others wait reads alone for a while, longer each time."""
    return replace(_for_a_while(state, now, at_once=True), loop=None, apart=True, not_before=now)


def _for_a_while(state: LoopState, now: float, *, at_once: bool) -> LoopState:
    """What goes well alone and not among others would join and leave them without end. The first time it may join as
    soon as it can, unless `at_once`; after a quiet time that is forgotten."""
    known = 0 if now - state.apart_until > APART_MAX else state.lags
    wait = min(APART_MAX, APART_FIRST * 2.0**known) if known or at_once else 0.0
    return replace(state, lags=known + 1, apart_until=now + wait)


def asked_for(state: LoopState, now: float) -> LoopState:
    """Somebody wants the table loaded anew."""
    return replace(state, mode=Mode.RESYNC, anew=True, apart=False, attempts=0, loop=None, not_before=now)


def caught_up(state: LoopState) -> LoopState:
    return replace(state, mode=Mode.STEADY, apart=False, attempts=0, unexplained=0, loop=None, error=None)


def backoff(attempts: int, jitter: float) -> float:
    """Seconds to wait after so many failures in a row; `jitter` takes up to half off."""
    return TROUBLE.before(attempts + 1, jitter)


def is_outlived(published: datetime | None, newest: datetime | None, bound: timedelta) -> bool:
    """Whether a stopped table is so far behind the newest epoch of any, by the source's clock, that the source must not
    keep everything for it any longer (H52)."""
    return published is not None and newest is not None and newest - published > bound
