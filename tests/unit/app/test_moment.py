"""What a person may write for a moment of the source."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from frazil.app.moment import AskedMoment
from frazil.errors import ConfigError
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.mongodb.position import ClusterTime

NOON = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-03-01 12:00:00.123 Z", "2026-03-01T12:00:00.123Z"])
def test_a_time_as_commands_print_it_means_all_of_its_millisecond_and_is_reached_with_its_begin(text: str) -> None:
    moment = AskedMoment.of(text)
    assert (moment.text, moment.first, moment.last) == (text, NOON, NOON.replace(microsecond=123_999))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-03-01T12:00:00.123000Z", NOON),
        ("2026-03-01T13:00:00.123+01:00", NOON),
        ("1701102296662969433.0000000001", Hlc(1701102296662969433, 1)),
        ("1700000000-3", ClusterTime.of(1700000000, 3)),
    ],
)
def test_any_other_time_or_position_is_exactly_that(text: str, meant: object) -> None:
    moment = AskedMoment.of(text)
    assert (moment.text, moment.first, moment.last) == (text, meant, meant)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("yesterday", "yesterday is neither a position nor a time"),
        ("2026-03-01T12:00:00", "2026-03-01T12:00:00 has no time zone"),
        ("2026-03-01", "2026-03-01 has no time zone"),
    ],
)
def test_a_text_that_could_mean_several_moments_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AskedMoment.of(text)
    assert str(caught.value) == problem
    assert "2026-03-01T12:00:00Z" in caught.value.hint
