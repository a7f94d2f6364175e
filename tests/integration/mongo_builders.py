"""Pipelines over a real MongoDB, and what their tables must hold."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pymongo.database import Database
from pyspark.sql import Row, SparkSession

from frazil.app.pipeline import Pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.sources.mongodb.decode.document_ids import id_text, json_of

Documents = Database[dict[str, Any]]


def config_of(
    uri: str,
    database: Documents,
    warehouse: Path,
    namespace: str,
    *collections: str | Mapping[str, Any],
    source: Mapping[str, Any] | None = None,
    **more: Any,
) -> PipelineConfig:
    """Collections by name, or as entries of `tables:` without their target."""
    entries = [{"source": one} if isinstance(one, str) else dict(one) for one in collections]
    for entry in entries:
        entry.setdefault("target", f"{namespace}.{{table}}")
        entry["source"] = f"{database.name}.{entry['source']}"
    quick = {"poll_interval": "20ms", "flush_interval": "100ms"}
    return PipelineConfig.model_validate(
        {
            "pipeline": f"mongo_{namespace}",
            "source": {"type": "mongodb", "uri": uri, **quick, **(source or {})},
            "catalog": {"type": "builtin", "warehouse": str(warehouse)},
            "tables": entries,
            **more,
        }
    )


def run_once(config: PipelineConfig, spark: SparkSession) -> Pipeline:
    """Publishes all that had happened when it was started."""
    with Pipeline(config, spark=spark) as pipeline:
        pipeline.run(once=True)
        return pipeline


def run_while(
    config: PipelineConfig, spark: SparkSession, work: Callable[[], None], is_done: Callable[[], bool]
) -> None:
    """Runs the pipeline, works beside it, and stops it when what was waited for has come."""
    stop, troubles = threading.Event(), []

    def beside() -> None:
        try:
            work()
            for _ in range(600):
                if is_done() or stop.wait(0.2):
                    break
        except Exception as error:
            troubles.append(error)
        stop.set()

    with Pipeline(config, spark=spark) as pipeline:
        helper = threading.Thread(target=beside)
        helper.start()
        try:
            pipeline.run(stop=stop)
        finally:
            stop.set()
            helper.join()
    if troubles:
        raise troubles[0]


def rows(spark: SparkSession, namespace: str, table: str) -> dict[Any, Row]:
    """The table's rows by `_id`, each of which it must hold once."""
    spark.catalog.clearCache()
    found = spark.table(f"frazil.{namespace}.{table}").collect()
    by_id = {row["_id"]: row for row in found}
    assert len(by_id) == len(found), "a key is there twice"
    return by_id


def plain(value: Any) -> Any:
    """A row of Spark as a document: without the columns that have no value."""
    if isinstance(value, Row):
        return {name: plain(inner) for name, inner in value.asDict(recursive=False).items() if inner is not None}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return bytes(value) if isinstance(value, bytearray) else value


def mixed_key(value: Any) -> str:
    """An `_id` as a column of several types shows it."""
    return json_of(id_text(value))


def is_json_of(text: str, value: Any) -> bool:
    return bool(json.loads(text) == value)
