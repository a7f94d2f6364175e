"""Tries a request again while that may help, with growing waits.

action --answer--> done
   |---transient failure--> wait 0.2 s, 0.4 s, ... (at most 5 s, each shortened by chance) --> action
   `---any other failure, or tried often enough--> StoreFailed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from obstore.exceptions import BaseError

from frazil.clock import Clock
from frazil.storage.failures import StoreFailed, failure_of

ATTEMPTS = 7
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 5.0

Answer = TypeVar("Answer")


def waits(clock: Clock, attempts: int | None = None) -> Iterator[float]:
    """Seconds to wait before the second try, the third, ...: together half a minute at the most."""
    for attempt in range((attempts or ATTEMPTS) - 1):
        # Chance keeps a hundred tasks that failed together from coming back together.
        yield min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT) * (0.5 + clock.jitter() / 2)


def tried(action: Callable[[], Answer], clock: Clock) -> Answer:
    """The action's answer. It must be one that may be repeated. Raises StoreFailed."""
    pauses = waits(clock)
    while True:
        try:
            return action()
        except (BaseError, OSError) as error:
            failure = failure_of(error)
            pause = next(pauses, None) if failure.transient else None
            if pause is None:
                raise StoreFailed(failure) from error
            clock.wait(pause)
