"""One loop for every commit that is no epoch."""

from __future__ import annotations

from threading import Event

import pytest
from unit.commit.commit_builders import StillClock

from frazil.clock import SystemClock
from frazil.errors import CatalogRefused, CatalogUnavailable, FrazilError, OutcomeUnknown
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, Refused, Unknown
from frazil.retry import Attempt, Backoff, commit_with_retry

THREE = Backoff(first=1.0, longest=3.0, attempts=3)


class Catalog:
    def __init__(self, *answers: CommitAnswer | None) -> None:
        self.answers = list(answers)
        self.lost: list[int] = []

    def attempt(self, lost: int) -> Attempt[int]:
        self.lost.append(lost)
        return Attempt(lost, self.answers[lost])


def test_it_waits_longer_after_each_loss_and_tells_what_the_last_attempt_did() -> None:
    catalog, clock = Catalog(Conflicted("409"), Unknown("504"), Accepted(7)), StillClock()
    assert commit_with_retry("cannot write", catalog.attempt, clock, backoff=THREE) == (2, 7)
    assert catalog.lost == [0, 1, 2]
    assert clock.waits == [THREE.before(attempt, clock.jitter()) for attempt in (1, 2, 3)]


def test_an_attempt_that_finds_nothing_left_to_do_ends_it() -> None:
    assert commit_with_retry("cannot write", Catalog(Unknown("504"), None).attempt, StillClock()) == (1, None)


@pytest.mark.parametrize(
    ("last", "error"),
    [(Conflicted("409"), CatalogUnavailable), (Unknown("504"), OutcomeUnknown), (Refused("403", ""), CatalogRefused)],
)
def test_what_is_raised_says_whether_it_may_have_landed(last: CommitAnswer, error: type[FrazilError]) -> None:
    catalog = Catalog(Unknown("500"), Conflicted("409"), last)
    with pytest.raises(error, match="cannot write: ") as raised:
        commit_with_retry("cannot write", catalog.attempt, StillClock(), backoff=THREE, table="shop.orders")
    assert raised.value.hint
    assert raised.value.facts["table"] == "shop.orders"
    assert catalog.lost == [0, 1, 2]


def test_a_stop_ends_the_waiting_and_never_an_attempt() -> None:
    stop, catalog = Event(), Catalog(Unknown("504"))

    def attempt(lost: int) -> Attempt[int]:
        stop.set()
        return catalog.attempt(lost)

    with pytest.raises(OutcomeUnknown, match="asked to stop"):
        commit_with_retry("cannot write", attempt, SystemClock(), backoff=THREE, stop=stop)
    assert catalog.lost == [0]


def test_waits_grow_to_a_bound_and_chance_takes_up_to_half_off() -> None:
    assert [THREE.before(attempt, 0.0) for attempt in (1, 2, 3, 4, 500)] == [0.0, 1.0, 2.0, 3.0, 3.0]
    assert THREE.before(3, 0.999) > 1.0
