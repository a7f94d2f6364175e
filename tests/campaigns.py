"""What has two sizes: the short one is a test of every run, the long one waits for `make test-long`.

    @campaign("kills", short=1, long=8)      many seeds, kills at every moment
    thin(items)                              products of parameters, on Spark or a server: some of them say enough

Of a product of two parameters, every value of each is met in the short form; of a larger one, every pair of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, groupby
from typing import Any

import pytest

SLOW = {"spark", "servers"}


def campaign(name: str, *, short: Any, long: Any) -> pytest.MarkDecorator:
    """The test takes `name`, which is `short` or `long`."""
    sizes = [pytest.param(short, id="short"), pytest.param(long, id="long", marks=pytest.mark.long)]
    return pytest.mark.parametrize(name, sizes)


def thin(items: Iterable[pytest.Item]) -> None:
    """Marks as `long` what the short form of a product leaves out."""
    slow = [item for item in items if SLOW & {marker.name for marker in item.iter_markers()}]
    for _, group in groupby(sorted(slow, key=_test_of), key=_test_of):
        cases = {item: item.callspec.params for item in group if hasattr(item, "callspec")}
        for item in cases.keys() - covering(cases) if cases else ():
            item.add_marker(pytest.mark.long)


def covering(cases: Mapping[Any, Mapping[str, Any]]) -> set[Any]:
    """Few of the cases of a test that cover what all of them cover, always the same ones. Each tells which value it has
    of which parameter."""
    names = next(iter(cases.values()), {})
    # Parameters that are given together change together.
    axes = [*dict.fromkeys(_numbered(repr(values[name]) for values in cases.values()) for name in sorted(names))]
    facts = {
        case: set(combinations(enumerate(met), 2 if len(axes) > 2 else 1))
        for case, met in zip(cases, zip(*axes, strict=True), strict=True)
    }
    left = set().union(*facts.values())
    chosen = set()
    while left:
        best = max(facts, key=lambda case: len(facts[case] & left))
        chosen.add(best)
        left -= facts[best]
    return chosen


def _numbered(values: Iterable[str]) -> tuple[int, ...]:
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(value, len(numbers)) for value in values)


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
