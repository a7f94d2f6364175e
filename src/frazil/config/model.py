"""What a pipeline's configuration may say. The descriptions here are the reference documentation.

    pipeline: shop
    source:    where changes come from       -> CockroachSource, in `config.source`
    catalog:   where tables live             -> CatalogConfig, or a sink URL iceberg://...
    tables:    which tables, as what, how    -> TableEntry, in `config.tables`
    ...        pace, files, engine, watching -> the small models below

Frozen, and nothing unknown is accepted: a misspelt key must not silently mean its default. What a later
version will offer is refused by name, so that nobody believes to have it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from frazil.config import routing
from frazil.config.settings import (
    LocalOrCloud,
    Settings,
    at_least_one,
    engines_text,
    is_cloud,
    job_name,
    named_once,
    not_yet,
    problem,
)
from frazil.config.sink_url import parse_sink_url
from frazil.config.source import CockroachSource
from frazil.config.tables import TableEntry
from frazil.config.values import ByteSize, Duration, Shown, TextMap
from frazil.model.names import JobId
from frazil.model.write import ParquetSettings


class CatalogType(StrEnum):
    BUILTIN = "builtin"
    REST = "rest"
    HADOOP = "hadoop"
    MEMORY = "memory"


class CatalogConfig(Settings):
    """The Iceberg catalog. In place of this block a sink URL may stand:
    `iceberg://<rest-endpoint>/<namespace>/<table>?warehouse=...&equality_delete_by=...`."""

    type: Annotated[CatalogType, not_yet("hive", "glue", "s3tables", "nessie", instead="builtin, rest or hadoop")] = (
        Field(
            default=CatalogType.BUILTIN,
            description=(
                "builtin: one SQLite file, catalog.db, in the warehouse. rest: an Iceberg REST server. hadoop: files "
                "alone, one writer process. memory: a builtin catalog in a temporary directory, gone at exit."
            ),
        )
    )
    name: str = Field(
        default="frazil", pattern=r"^[A-Za-z][A-Za-z0-9_]*$", description="The catalog's name in Spark and in SQL."
    )
    warehouse: LocalOrCloud | None = Field(
        default=None,
        description="Where tables are stored: a directory or cloud URL. Required for builtin and hadoop.",
        examples=["./warehouse"],
    )
    uri: LocalOrCloud | None = Field(
        default=None,
        description="rest: the server's address. builtin: another place for the SQLite file.",
        examples=["http://localhost:8181"],
    )
    properties: TextMap = Field(
        default_factory=dict,
        description="Passed on untouched to the Iceberg catalog (credential, token, s3.endpoint, io-impl, ...).",
        examples=[{"s3.endpoint": "http://localhost:9000"}],
    )

    @model_validator(mode="after")
    def _fits_together(self) -> CatalogConfig:
        kind = self.type
        if kind in (CatalogType.BUILTIN, CatalogType.HADOOP) and not self.warehouse:
            raise problem(f"is required for a catalog of type {kind}", "warehouse")
        if kind is CatalogType.BUILTIN and is_cloud(self.warehouse or "") and not self.uri:
            raise problem("a builtin catalog over cloud storage needs a local path for its SQLite file", "uri")
        if kind is CatalogType.REST and not self.uri:
            raise problem("is required for a catalog of type rest", "uri")
        if kind is CatalogType.MEMORY and (self.warehouse or self.uri):
            unused = "warehouse" if self.warehouse else "uri"
            raise problem("a memory catalog lives in a temporary directory and takes no place", unused)
        if kind is CatalogType.HADOOP and self.uri:
            raise problem("a hadoop catalog is its warehouse and has no address of its own", "uri")
        return self


class SnapshotMode(StrEnum):
    EVERY_RESOLVED = "every-resolved"
    LATEST = "latest"


class ParquetConfig(Settings):
    """How data files are written."""

    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = Field(
        default="zstd", description="The codec of data and delete files."
    )
    row_group_rows: int = Field(default=1_000_000, ge=1, description="The most rows of one row group.")
    page_bytes: ByteSize = Field(default=1 << 20, ge=1024, description="The target size of a data page.")
    dictionary: bool = Field(default=True, description="Whether columns may be dictionary-encoded.")
    target_file_size: ByteSize = Field(
        default=256 << 20, ge=1 << 20, description="A file that has grown to about this size is closed."
    )
    bloom_filter: bool = Field(default=False, description="Whether key columns get a bloom filter.")

    @property
    def settings(self) -> ParquetSettings:
        return ParquetSettings(
            compression=self.compression,
            row_group_rows=self.row_group_rows,
            page_bytes=self.page_bytes,
            dictionary=self.dictionary,
            target_file_bytes=self.target_file_size,
            bloom_filter=self.bloom_filter,
        )


class OnError(StrEnum):
    STOP = "stop"
    QUARANTINE = "quarantine"


class Reader(StrEnum):
    """Engines whose abilities are known."""

    SPARK = "spark"
    PYICEBERG = "pyiceberg"
    DUCKDB = "duckdb"
    POLARS = "polars"
    TRINO = "trino"
    FLINK = "flink"
    SNOWFLAKE = "snowflake"


class IndexConfig(Settings):
    """The key index: for each data file its keys and their positions, kept on local disk. It can be deleted at any
    time and is then built again from the data files."""

    directory: str | None = Field(
        default=None, description="Where it is kept. Default: `index/<pipeline>` in Frazil's cache directory."
    )
    size: ByteSize = Field(
        default=4 << 30, ge=1 << 20, description="The most disk it takes; what was not used longest goes first."
    )


class SparkConfig(Settings):
    """The Spark session that does the work."""

    master: str = Field(default="local[*]", min_length=1, description="Spark's master URL.")
    driver_memory: str = Field(
        default="2g", pattern=r"^\d+[kmgtKMGT]$", description="Heap of the driver, which in local mode does all work."
    )
    conf: TextMap = Field(
        default_factory=dict,
        description="Further Spark settings, passed on untouched.",
        examples=[{"spark.executor.memory": "4g"}],
    )


class MetricsConfig(Settings):
    """The Prometheus endpoint."""

    port: int = Field(default=0, ge=0, le=65535, description="Port of the endpoint /metrics; 0 turns it off.")
    host: str = Field(default="127.0.0.1", min_length=1, description="The address the endpoint listens on.")


class Limits(Settings):
    """Bounds on work under way."""

    epochs_in_flight: int = Field(
        default=3, ge=1, le=16, description="Epochs that may be read and written while an earlier one commits."
    )
    epochs_per_job: int = Field(
        default=16, ge=1, le=1000, description="When behind: resolved timestamps that one Spark job reads at once."
    )
    small_epoch_bytes: ByteSize = Field(
        default=32 << 20, ge=0, description="An epoch of at most this much input is written without a shuffle."
    )


class PipelineConfig(Settings):
    """One source feeding many tables."""

    pipeline: Annotated[str, AfterValidator(job_name)] = Field(
        description=(
            "The pipeline's name: its identity in every table's ledger. Renaming it makes it another pipeline. "
            "A letter, then up to 62 letters, digits, `_` or `-`."
        ),
        examples=["shop"],
    )
    source: CockroachSource = Field(description="Where changes come from.")
    catalog: CatalogConfig = Field(description="Where tables live.")
    tables: Annotated[tuple[TableEntry, ...], AfterValidator(at_least_one), Shown("list")] = Field(
        description="Which tables, as what, and how."
    )
    snapshot: SnapshotMode = Field(
        default=SnapshotMode.EVERY_RESOLVED,
        description=(
            "every-resolved: one snapshot for each resolved timestamp that changed the table. latest: when behind, "
            "everything up to the newest resolved timestamp becomes one snapshot."
        ),
    )
    epoch_interval: Duration = Field(default=0.0, ge=0, description="The least time between two rounds of publishing.")
    heartbeat: Duration = Field(
        default=600.0,
        ge=1,
        description="A table without changes publishes an empty snapshot this often, to keep its position visible.",
    )
    parquet: ParquetConfig = Field(default_factory=ParquetConfig, description="How data files are written.")
    on_error: OnError = Field(
        default=OnError.STOP,
        description=(
            "What a row that cannot be taken does. stop: nothing more is published. quarantine: it goes to "
            "`<target>__quarantine` with the reason, and so do later changes of its key, until it is replayed."
        ),
    )
    readers: Annotated[tuple[Reader, ...], AfterValidator(named_once), Shown("list of engines", engines_text)] = Field(
        default=(Reader.SPARK,),
        description=(
            "The engines that read the tables. Without spark, TIME columns become Iceberg's `time`, which Spark "
            "refuses; delete kinds that one of them cannot read are refused."
        ),
        examples=[["spark", "pyiceberg"]],
    )
    index: IndexConfig = Field(default_factory=IndexConfig, description="The key index of `deletes: vectors`.")
    spark: SparkConfig = Field(default_factory=SparkConfig, description="The Spark session that does the work.")
    metrics: MetricsConfig = Field(default_factory=MetricsConfig, description="The Prometheus endpoint.")
    limits: Limits = Field(default_factory=Limits, description="Bounds on work under way.")

    @property
    def job(self) -> JobId:
        return JobId(self.pipeline)

    @model_validator(mode="before")
    @classmethod
    def _sink_url_in_place_of_a_catalog(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("catalog"), str):
            return data
        try:
            sink = parse_sink_url(data["catalog"])
        except ValueError as error:
            raise problem(str(error), "catalog") from error
        catalog = {"type": "rest", "uri": sink.uri, "warehouse": sink.warehouse, "properties": sink.properties}
        return {**data, "catalog": catalog, "tables": _with_defaults(data.get("tables"), sink.target, sink.key)}

    @model_validator(mode="after")
    def _no_two_entries_claim_one_thing(self) -> PipelineConfig:
        for index, entry in enumerate(self.tables):
            for earlier, other in enumerate(self.tables[:index]):
                if other.source == entry.source:
                    raise problem(f"tables[{earlier}] already names {entry.source}", "tables", index, "source")
        claimed: dict[str, int] = {}
        for index, entry in enumerate(self.tables):
            if not routing.is_pattern(entry.source):
                target = routing.target_of(entry.target, entry.source, entry.source, self.pipeline).text
                if target in claimed:
                    text = f"two entries claim one target: tables[{claimed[target]}] already fills {target}"
                    raise problem(text, "tables", index, "target")
                claimed[target] = index
        return self


def _with_defaults(tables: Any, target: str, key: tuple[str, ...]) -> Any:
    if not isinstance(tables, list):
        return tables
    defaults: dict[str, Any] = {"target": target, "key": key} if key else {"target": target}
    return [{**defaults, **entry} if isinstance(entry, dict) else entry for entry in tables]
