"""Sources that tests open and need not close."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mongo_sources import MakeSource, sources


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeSource]:
    with sources(tmp_path / "spool") as made:
        yield made
