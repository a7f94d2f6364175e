"""A stage for each test; what a test leaves running is ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from failure_stage import Stage, a_stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """An open shop with one resolved timestamp; orders are mirrored with vectors, products with equality deletes."""
    made = a_stage(tmp_path)
    yield made
    made.end_all()
