"""Which entry takes a source table, and what its target is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from config_builders import with_tables
from pydantic import ValidationError

from frazil.config.routing import matches
from frazil.errors import ConfigError
from frazil.model.ids import TableName


def targets(entries: list[Mapping[str, Any] | str], *names: str) -> dict[str, str]:
    config = with_tables(*entries)
    return {name: taken.target.text for name in names if (taken := config.route_of(name)) is not None}


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("shop.public.orders", "shop.public.orders"),
        ("shop.public.orders", "orders"),
        ("shop.public.orders", "public.orders"),
        ("orders", "shop.public.orders"),
        ("shop.public.*", "shop.public.orders"),
        ("*", "shop.public.orders"),
        ("shop.*.order?", "shop.public.orders"),
        ("shop.public.a[b]", "shop.public.a[b]"),
    ],
)
def test_names_are_compared_from_the_right_as_far_as_both_go(entry: str, name: str) -> None:
    assert matches(entry, name)


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("shop.public.orders", "shop.public.order"),
        ("shop.public.orders", "other.public.orders"),
        ("shop.public.*", "shop.private.orders"),
        ("orders", "Orders"),
        ("a[b]", "ab"),
    ],
)
def test_names_that_differ_in_a_part_do_not_match(entry: str, name: str) -> None:
    assert not matches(entry, name)


def test_the_default_target_is_database_and_table() -> None:
    assert targets(["shop.public.orders"], "shop.public.orders") == {"shop.public.orders": "shop.orders"}


def test_the_pipelines_name_stands_in_for_an_unknown_database() -> None:
    assert targets(["orders"], "orders") == {"orders": "shop.orders"}


def test_the_entry_tells_the_parts_that_the_feed_leaves_out() -> None:
    entry = {"source": "bank.audit.log", "target": "{database}_{schema}.{table}"}
    assert targets([entry], "log") == {"log": "bank_audit.log"}


def test_an_exact_entry_wins_over_a_pattern_before_it_and_the_first_pattern_over_the_second() -> None:
    entries: list[Mapping[str, Any] | str] = [
        {"source": "shop.public.*", "target": "first.{table}"},
        {"source": "shop.*.*", "target": "second.{table}"},
        {"source": "shop.public.orders", "target": "third.orders"},
    ]
    assert targets(entries, "shop.public.items", "shop.public.orders", "shop.audit.log") == {
        "shop.public.items": "first.items", "shop.public.orders": "third.orders", "shop.audit.log": "second.log",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("shop.orders", "shop.public.orders"),
        ("lake.items", "items"),
        ("shop.gone", None),
        ("logs.anything", "log_*"),
        ("logs.deep.anything", None),
    ],
)
def test_a_target_is_claimed_by_the_entry_that_would_make_it_again(target: str, source: str | None) -> None:
    """An entry that names one table claims one target, and not all that its template might give to others."""
    patterned = {"source": "log_*", "target": "logs.{table}"}
    config = with_tables("shop.public.orders", {"source": "items", "target": "lake.items"}, patterned)
    claim = config.entries.claiming(TableName.parse(target))
    assert (None if claim is None else claim.source) == source


def test_a_table_that_no_entry_names_is_left_out() -> None:
    assert targets(["shop.public.orders"], "shop.public.secret") == {}


def test_a_short_name_that_fits_two_entries_is_not_guessed_about() -> None:
    config = with_tables("a.public.orders", "b.public.orders")
    with pytest.raises(ConfigError, match=r"fits two entries: a.public.orders and b.public.orders") as caught:
        config.route_of("orders")
    assert "full_table_name" in caught.value.hint


@pytest.mark.parametrize("name", ["shop.public.order items", "shop.public.a/b", "_frazil.public.t", "shop.public.`"])
def test_a_name_that_no_target_can_have_is_told_with_an_entry_that_helps(name: str) -> None:
    pattern = {"source": "*", "target": "{database}.{table}"}
    with pytest.raises(ConfigError) as caught:
        with_tables(pattern).route_of(name)
    assert caught.value.facts["table"] == name
    match = re.search(r"source: (.+) and a target that can be, like (\S+);", caught.value.hint)
    assert match is not None
    taken = with_tables(pattern, {"source": match[1], "target": match[2]}).route_of(name)
    assert taken is not None
    assert taken.target.text == match[2]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("shop.public.*", "lake.orders", "the pattern shop.public.* may match several tables: write {table}"),
        ("shop.public.orders", "lake.{tabel}", "unknown placeholder {tabel}"),
        ("shop.public.orders", "lake.{table", "unpaired brace"),
        ("shop.public.orders", "lake.{}", "unknown placeholder {}"),
        ("shop.public.orders", "{table}", "must be written namespace.table"),
    ],
)
def test_a_target_that_no_table_could_have_is_refused(source: str, target: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        with_tables({"source": source, "target": target})
    assert message in str(caught.value)


def test_an_entry_is_found_by_its_names_as_if_all_were_compared() -> None:
    """However many there are, a name meets the entries that have its parts, whichever of the two is longer."""
    chance = Random(7)
    for _ in range(300):
        names = [".".join(chance.choice("abc") for _ in range(chance.randint(1, 3))) for _ in range(12)]
        sources = list(dict.fromkeys(chance.choice((name, name.replace("c", "*"))) for name in names[:6]))
        config = with_tables(*({"source": source, "target": f"n{at}.{{table}}"} for at, source in enumerate(sources)))
        for name in names:
            fitting = [entry for entry in config.tables if matches(entry.source, name)]
            exact = [entry for entry in fitting if "*" not in entry.source]
            assert config.entries.wants(name) == bool(fitting)
            if len(exact) > 1:
                with pytest.raises(ConfigError, match=f"fits two entries: {exact[0].source} and {exact[1].source}"):
                    config.entries.taking(name)
            else:
                assert config.entries.taking(name) is next(iter(exact or fitting), None)


def test_entries_that_fit_nothing_are_named() -> None:
    config = with_tables(
        {"source": "shop.public.orders"}, {"source": "shop.public.ordres"}, {"source": "shop.public.o*"},
        {"source": "shop.public.item_*"}, {"source": "items"},
    )  # fmt: skip
    unmet = config.entries.unmet(["orders", "shop.public.items"])
    assert [entry.source for entry in unmet] == ["shop.public.ordres", "shop.public.item_*"]
    assert sorted(entry.source for entry in config.entries.unmet(["users"])) == sorted(
        entry.source for entry in config.tables
    )
