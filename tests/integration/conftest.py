"""Sources that tests open and need not close, and a daemon that does not wait long before it tries again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mongo_sources import MakeSource, sources

from frazil.daemon import standing


@pytest.fixture(autouse=True)
def _try_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "BACKOFF_FIRST", 0.05)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeSource]:
    with sources(tmp_path / "spool") as made:
        yield made
