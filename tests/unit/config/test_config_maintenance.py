"""`maintenance:`: what may be written there."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from frazil.config.maintenance import ExpireConfig, MaintenanceConfig, parse_keep


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


def test_everything_has_a_default() -> None:
    block = MaintenanceConfig()
    assert block.expire.max_age == 5 * 86400
    assert block.orphans.older_than == 3 * 86400
    assert block.queue.grace == 86400
