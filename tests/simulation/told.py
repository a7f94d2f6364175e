"""What the production code logs is a part of a seed's story."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Told(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        fields: Mapping[str, object] = getattr(record, "frazil_fields", {})
        facts = " ".join(f"{name}={value}" for name, value in fields.items() if name not in ("hint", "batch_id"))
        self._tell(f"       {record.levelname.lower()}: {record.getMessage()} {facts}")


@contextmanager
def logged(tell: Callable[[str], None] | None) -> Iterator[None]:
    """Nowhere else: what thousands of seeds log would be alarming in a run."""
    log = logging.getLogger("frazil")
    level, propagate = log.level, log.propagate
    told = logging.NullHandler() if tell is None else Told(tell)
    log.setLevel(logging.CRITICAL + 1 if tell is None else logging.DEBUG)
    log.propagate = False
    log.addHandler(told)
    try:
        yield
    finally:
        log.setLevel(level)
        log.propagate = propagate
        log.removeHandler(told)
