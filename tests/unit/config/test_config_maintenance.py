"""`maintenance:`: what may be written there."""

from __future__ import annotations

from datetime import time

import pytest
from pydantic import ValidationError

from frazil.config.maintenance import ExpireConfig, MaintenanceConfig, parse_hours, parse_keep


def test_rules_are_read_as_people_write_them() -> None:
    expire = ExpireConfig.model_validate({"keep": ["daily  for 30d", "monthly for 8760h"]})
    assert expire.keep == ("daily for 30d", "monthly for 365d")
    assert expire.rules == (("daily", 30 * 86400.0), ("monthly", 365 * 86400.0))


@pytest.mark.parametrize("text", ["daily", "yearly for 3d", "daily for 30", "daily for 0s", "for 3d", ""])
def test_a_rule_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_keep(text)


def test_a_period_is_named_once() -> None:
    with pytest.raises(ValidationError, match="daily"):
        ExpireConfig.model_validate({"keep": ["daily for 3d", "daily for 4d"]})


def test_the_least_is_not_more_than_the_most() -> None:
    with pytest.raises(ValidationError, match="max_snapshots"):
        ExpireConfig.model_validate({"max_snapshots": 3, "min_snapshots": 4})


def test_quiet_hours_are_two_times_of_the_day_in_utc() -> None:
    assert parse_hours("07:30-19:00") == (time(7, 30), time(19))
    assert MaintenanceConfig.model_validate({"quiet_hours": ["22:00 - 06:00"]}).quiet == ((time(22), time(6)),)


@pytest.mark.parametrize(
    "text", ["07:30Z-19:00Z", "07:30+02:00-19:00+02:00", "07:30-05:00-19:00-05:00", "07:30-19:00Z", "07:30", "7-19", ""]
)
def test_quiet_hours_with_a_time_zone_are_refused(text: str) -> None:
    """They could never be compared with the clock: every look would fail, and nothing would be maintained."""
    with pytest.raises(ValidationError, match="in UTC, without a time zone"):
        MaintenanceConfig.model_validate({"quiet_hours": [text]})


def test_quiet_hours_that_end_when_they_begin_are_refused() -> None:
    with pytest.raises(ValidationError, match="could be no time or all day; `enabled: false`"):
        MaintenanceConfig.model_validate({"quiet_hours": ["00:00-00:00"]})


def test_everything_has_a_default() -> None:
    block = MaintenanceConfig()
    assert block.expire.max_age == 5 * 86400
    assert block.orphans.older_than == 3 * 86400
    assert block.queue.grace == 86400


def test_files_of_others_are_deleted_only_if_that_is_said() -> None:
    assert not MaintenanceConfig().queue.delete_outside
    assert MaintenanceConfig.model_validate({"queue": {"delete_outside": True}}).queue.delete_outside
