"""Which configured tables are which topics of a feed.

    shop.public.orders   exact    shop.public.orders; or orders, if the feed has no full names
    shop.public.*        pattern  shop.public.users, shop.public.orders+f1, ...
    orders+f1            exact    the family f1 of orders, a table of its own

A topic belongs to one entry: an exact one before any pattern, then the first in the configuration's order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

_WILD = re.compile(r"[*?\[]")


def match_tables(patterns: Sequence[str], topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each configured entry the topics it stands for, sorted; an entry without topics has none."""
    known = sorted(set(topics))
    has_full_names = any(topic.count(".") >= 2 for topic in known)
    found: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    for topic in known:
        owner = next((p for p in patterns if p == topic), None)
        if owner is None and not has_full_names:
            owner = next((p for p in patterns if not is_pattern(p) and _short(p) == topic), None)
        if owner is None:
            owner = next((p for p in patterns if is_pattern(p) and _matches(p, topic, has_full_names)), None)
        if owner is not None:
            found[owner].append(topic)
    return {pattern: tuple(matched) for pattern, matched in found.items()}


def is_pattern(name: str) -> bool:
    return _WILD.search(name) is not None


def _matches(pattern: str, topic: str, has_full_names: bool) -> bool:
    return fnmatchcase(topic, pattern) or (not has_full_names and fnmatchcase(topic, _short(pattern)))


def _short(name: str) -> str:
    """The table of db.schema.table; a table's own name may hold dots too."""
    return name.split(".", 2)[2] if name.count(".") >= 2 else name
