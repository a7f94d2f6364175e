"""Which entry takes a source table, and what its target is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from config_builders import with_tables
from pydantic import ValidationError

from frazil.config.routing import claim_on, matches, route
from frazil.errors import ConfigError
from frazil.model.names import TableName


def targets(entries: list[Mapping[str, Any] | str], *names: str) -> dict[str, str]:
    return {r.source: r.target.text for r in route(with_tables(*entries), names)}


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
    claim = claim_on(config, TableName.parse(target))
    assert (None if claim is None else claim.source) == source


def test_a_table_that_no_entry_names_is_left_out() -> None:
    assert targets(["shop.public.orders"], "shop.public.secret") == {}


def test_two_tables_of_a_pattern_cannot_fill_one_target() -> None:
    config = with_tables({"source": "shop.*.*", "target": "lake.{table}"})
    with pytest.raises(ConfigError, match=r"shop.a.t and shop.b.t would both fill lake.t") as caught:
        route(config, ["shop.a.t", "shop.b.t"])
    assert "{schema}" in caught.value.hint


def test_a_short_name_that_fits_two_entries_is_not_guessed_about() -> None:
    config = with_tables("a.public.orders", "b.public.orders")
    with pytest.raises(ConfigError, match=r"fits two entries: a.public.orders and b.public.orders") as caught:
        route(config, ["orders"])
    assert "full_table_name" in caught.value.hint


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
