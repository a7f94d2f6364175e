"""What names a moment of the source: positions, times, and times as commands show them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from frazil.app.pipeline import parse_moment
from frazil.cli.output import position_text
from frazil.errors import ConfigError
from frazil.model.position import Hlc


def test_the_time_that_is_shown_of_a_position_reaches_that_position() -> None:
    position = Hlc(1_794_979_760_693_046_352)
    shown = position_text(position.text)
    assert shown == "2026-11-18 05:29:20.693 Z"
    moment = parse_moment(shown)
    assert isinstance(moment, datetime)
    assert position.source_time is not None
    assert position.source_time <= moment < datetime(2026, 11, 18, 5, 29, 20, 694_000, UTC)


def test_any_other_time_is_taken_as_it_is() -> None:
    exact = datetime(2026, 11, 18, 5, 29, 20, 693_000, UTC)
    assert parse_moment("2026-11-18T05:29:20.693Z") == parse_moment("2026-11-18 05:29:20.693+00:00") == exact


@pytest.mark.parametrize("text", ["yesterday", "2026-11-18 25:00:00.000 Z", "2026-11-18T05:29:20"])
def test_what_is_no_moment_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_moment(text)
    assert "'2026-03-01 12:00:00.123 Z'" in refused.value.hint
