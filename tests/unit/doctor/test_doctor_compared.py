"""What may be called repaired after the second look."""

from __future__ import annotations

from dataclasses import replace

from frazil.doctor.doctor import compared
from frazil.doctor.examination import Finding, Severity, Trouble

EQUAL = Finding(
    trouble=Trouble.DUPLICATE_KEYS, severity=Severity.ERROR, what="2 keys are equal", means="", next="", fixable=True
)
DIFFERENT = replace(EQUAL, what="1 keys differ", fixable=False)
METADATA = replace(EQUAL, trouble=Trouble.METADATA, what="900 snapshots")


def test_what_the_second_look_does_not_find_any_more_was_repaired() -> None:
    assert compared([EQUAL, METADATA], [], {}) == (replace(EQUAL, fixed=True), replace(METADATA, fixed=True))


def test_what_was_left_to_a_person_before_keeps_nothing_else_from_being_repaired() -> None:
    assert compared([EQUAL, DIFFERENT], [DIFFERENT], {}) == (replace(EQUAL, fixed=True), DIFFERENT)


def test_what_cannot_be_repaired_any_more_was_not_repaired() -> None:
    """Expiry removed what it may, and it was not enough."""
    left = replace(METADATA, what="800 snapshots", fixable=False)
    assert compared([METADATA], [left], {}) == (left,)
    assert compared([METADATA], [replace(METADATA, fixable=False)], {}) == (replace(METADATA, fixable=False),)
    more = replace(DIFFERENT, what="3 keys differ")
    assert compared([EQUAL, DIFFERENT], [more], {}) == (more,)


def test_a_repair_that_failed_says_why() -> None:
    failed = {Trouble.METADATA: "others were faster"}
    assert compared([METADATA], [METADATA], failed) == (replace(METADATA, error="others were faster"),)
