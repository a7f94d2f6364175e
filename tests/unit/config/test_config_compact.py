"""`maintenance.compact:`, in which order rows are written."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from frazil.config.maintenance import CompactConfig


def test_columns_are_read_as_people_write_them() -> None:
    assert CompactConfig.model_validate({"order_by": ["a", "b desc nulls first"]}).order_by == (
        "a",
        "b desc nulls first",
    )
    assert CompactConfig.model_validate({"zorder_by": ["a", "b"]}).zorder_by == ("a", "b")
    assert CompactConfig().order_by == CompactConfig().zorder_by == ()


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ({"order_by": ["a up"]}, "'a up'"),
        ({"order_by": ["a", "a desc"]}, "'a'"),
        ({"zorder_by": ["b", "b"]}, "'b'"),
        ({"zorder_by": ["b"]}, r"order_by: \[b\]"),
        ({"order_by": ["a"], "zorder_by": ["b", "c"]}, r"order_by \(a\) or zorder_by \(b, c\)"),
        ({"sorted_files": 0}, "sorted_files"),
    ],
)
def test_what_cannot_be_an_order_is_refused_by_name(block: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        CompactConfig.model_validate(block)
