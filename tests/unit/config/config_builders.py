"""A configuration that is right, to be bent by one key at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frazil.config.load import parse_config
from frazil.config.pipeline_config import PipelineConfig

GOOD = """\
pipeline: shop
source:
  type: cockroachdb
  feed: s3://feeds/shop
catalog:
  type: builtin
  warehouse: ./warehouse
tables:
  - source: shop.public.orders
    target: analytics.orders
    key: [id]
"""


def config(*overrides: str, text: str = GOOD, environ: Mapping[str, str] | None = None) -> PipelineConfig:
    return parse_config(text, name="shop.yaml", overrides=overrides, environ=environ or {})


def with_tables(*entries: Mapping[str, Any] | str) -> PipelineConfig:
    tables = [{"source": entry} if isinstance(entry, str) else dict(entry) for entry in entries]
    return PipelineConfig.model_validate(
        {
            "pipeline": "shop",
            "source": {"type": "cockroachdb", "feed": "s3://feeds/shop"},
            "catalog": {"type": "memory"},
            "tables": tables,
        }
    )


def lines(*changed: Sequence[str]) -> str:
    """GOOD with (old, new) pairs replaced."""
    text = GOOD
    for old, new in changed:
        assert old in text
        text = text.replace(old, new)
    return text
