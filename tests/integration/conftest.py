"""Sources that tests open and need not close, and a daemon that does not wait long before it tries again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mongo_sources import MakeSource, sources

from frazil.ingest.loop import table_state
from frazil.retry import Backoff


@pytest.fixture(autouse=True)
def _try_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_state, "TROUBLE", Backoff(first=0.05, longest=60.0, attempts=1 << 30))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeSource]:
    with sources(tmp_path / "spool") as made:
        yield made
