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
from frazil.retry import Backoff
from frazil.storage.errors import StoreFailed, failure_of

REQUESTS = Backoff(first=0.2, longest=5.0, attempts=7)

Answer = TypeVar("Answer")


def waits(clock: Clock, attempts: int | None = None) -> Iterator[float]:
    """Seconds to wait before the second try, the third, ...: together half a minute at the most."""
    for attempt in range(2, (attempts or REQUESTS.attempts) + 1):
        # Chance keeps a hundred tasks that failed together from coming back together.
        yield REQUESTS.before(attempt, clock.jitter())


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
