"""Which of a source's tables are taken, and which are refused."""

from __future__ import annotations

from typing import Any

from frazil.config.pipeline_config import PipelineConfig
from frazil.ingest.loop.claims import Claims, claimed

HOT_AND_COLD = (("a", "hot"), ("b", "cold"))


def a_config(**more: Any) -> PipelineConfig:
    table = {"source": "*", "target": "lake.{table}", **more.pop("table", {})}
    return PipelineConfig.model_validate(
        {
            "pipeline": "shop",
            "source": {"type": "cockroachdb", "feed": "/nowhere"},
            "catalog": {"type": "builtin", "warehouse": "/nowhere"},
            "tables": [table],
            **more,
        }
    )


def claims(*names: str, kept: dict[str, str] | None = None, **settings: Any) -> Claims:
    return claimed(a_config(**settings), names, lambda target: (kept or {}).get(target.text, ""))


def taken(found: Claims) -> list[str]:
    return [route.source for route in found.routes]


def test_of_two_tables_that_claim_an_empty_target_neither_is_taken() -> None:
    """Which of them was met first is not known at the next start."""
    found = claims("a.t", "b.t", "a.u")
    assert taken(found) == ["a.u"]
    assert set(found.refused) == {"a.t", "b.t"}
    assert "a.t and b.t would both fill lake.t" in str(found.refused["a.t"])
    assert "{schema}" in found.refused["a.t"].hint


def test_the_table_whose_rows_the_target_holds_is_taken() -> None:
    found = claims("a.t", "b.t", kept={"lake.t": "b.t"})
    assert taken(found) == ["b.t"]
    assert set(found.refused) == {"a.t"}


def test_if_the_target_holds_the_rows_of_a_third_one_neither_is_taken() -> None:
    assert taken(claims("a.t", "b.t", kept={"lake.t": "t"})) == []


def test_a_companion_goes_before_a_table_that_is_called_so() -> None:
    found = claims("t", "t__changelog", table={"changelog": True})
    assert taken(found) == ["t"]
    assert set(claims("t", "t__quarantine", on_error="quarantine").refused) == {"t__quarantine"}


def test_a_table_that_was_there_first_keeps_its_target_from_a_companion() -> None:
    found = claims("t", "t__changelog", table={"changelog": True}, kept={"lake.t__changelog": "t__changelog"})
    assert taken(found) == ["t__changelog"]
    assert set(found.refused) == {"t"}


def test_without_a_companion_such_a_name_is_like_any_other() -> None:
    assert taken(claims("t", "t__changelog", "t__quarantine")) == ["t", "t__changelog", "t__quarantine"]


def test_a_table_keeps_its_target_when_the_feed_calls_it_otherwise() -> None:
    """With and without its database: the ledger has one name, the feed tells the other."""
    kept = {"lake.t": "shop.public.t", "lake.t__changelog": "shop.public.t"}
    found = claims("t", "t__changelog", table={"changelog": True}, kept=kept)
    assert taken(found) == ["t"]
    assert taken(claims("a.public.t", "b.public.t", kept={"lake.t": "public.t"})) == [], "either may be meant"


def test_a_table_that_would_be_looked_for_in_another_catalog_is_refused() -> None:
    """Which catalog has a target is told by its name alone."""
    block = {"type": "builtin", "warehouse": "/nowhere"}
    tables = [{"source": f"{name}.*", "target": "lake.{table}", "catalog": where} for name, where in HOT_AND_COLD]
    found = claims("a.t", "b.u", catalogs={"hot": block, "cold": block}, catalog="hot", tables=tables)
    assert taken(found) == ["a.t"]
    assert "b.u would fill lake.u in the catalog cold" in str(found.refused["b.u"])


def test_our_own_tables_are_nobodys_target_in_whatever_case() -> None:
    found = claims("_FRAZIL.public.pipelines", table={"target": "{database}.{table}"})
    assert "reserved" in str(found.refused["_FRAZIL.public.pipelines"])
