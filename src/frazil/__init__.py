"""Frazil: database changefeeds to Apache Iceberg tables on Spark, exactly once.

    frazil.Pipeline        a configured pipeline, from Python
    frazil.upsert_stream   a DataFrame of changes, published from foreachBatch
    frazil.FrazilError ... what either may raise; see frazil.errors

Pipeline and upsert_stream are loaded when they are first asked for: they bring PySpark, which tasks on executors and
the command line's help do not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frazil.errors import (
    BadInput,
    CatalogRefused,
    ConfigError,
    Fenced,
    FrazilError,
    OutcomeUnknown,
    SourceLost,
    TableChanged,
    Terminal,
    Transient,
)

if TYPE_CHECKING:
    from frazil.app.pipeline import Pipeline
    from frazil.config.pipeline_config import CatalogConfig
    from frazil.ingest.upsert_stream.api import BatchOutcome, BatchResult, upsert_stream

_LOADED_WHEN_ASKED_FOR = {
    "BatchOutcome": "frazil.ingest.upsert_stream.api",
    "BatchResult": "frazil.ingest.upsert_stream.api",
    "CatalogConfig": "frazil.config.pipeline_config",
    "Pipeline": "frazil.app.pipeline",
    "upsert_stream": "frazil.ingest.upsert_stream.api",
}

__all__ = [
    "BadInput",
    "BatchOutcome",
    "BatchResult",
    "CatalogConfig",
    "CatalogRefused",
    "ConfigError",
    "Fenced",
    "FrazilError",
    "OutcomeUnknown",
    "Pipeline",
    "SourceLost",
    "TableChanged",
    "Terminal",
    "Transient",
    "upsert_stream",
]


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_ASKED_FOR:
        raise AttributeError(f"module 'frazil' has no attribute {name!r}")
    value = getattr(import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
