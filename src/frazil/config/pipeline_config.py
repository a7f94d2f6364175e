"""What a pipeline's configuration may say. The descriptions here are the reference documentation.

    pipeline: shop
    source:    where changes come from       -> the block of an installed kind, see `sources.registry`
    catalog:   where tables live             -> CatalogConfig, in `config.catalogs`, or a sink URL iceberg://...
    catalogs:  several, by name
    volumes:   where their files lie         -> VolumeConfig, in `config.volumes`
    tables:    which tables, as what, how    -> TableEntry, in `config.table_entries`
    ...        pace, files, engine, watching -> the small models below

Frozen, and nothing unknown is accepted: a misspelt key must not silently mean its default. What a later
version will offer is refused by name, so that nobody believes to have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, ValidationInfo, model_validator

from frazil.config import routing
from frazil.config.block import (
    Settings,
    at_least_one,
    engines_text,
    job_name,
    named_once,
    problem,
    problems,
)
from frazil.config.catalogs import CatalogConfig as CatalogConfig
from frazil.config.catalogs import CatalogType as CatalogType
from frazil.config.engines import ReaderEngine, contradiction
from frazil.config.maintenance import MaintenanceConfig
from frazil.config.parse_values import ByteSize, Duration, Shown, TextMap
from frazil.config.sink_url import parse_sink_url
from frazil.config.table_entries import TableEntry
from frazil.config.volumes import VolumeConfig
from frazil.model.ids import BadName, JobId, TableName
from frazil.model.write import ParquetSettings, Role
from frazil.sources.registry import SourceConfig, kind_named, kind_names, parse_source


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

    jvm_memory: str | None = Field(
        default=None,
        pattern=r"^\d+[kmgtKMGT]$",
        description="The most heap that Spark's Java process takes, which in local mode does all work. "
        "Default: `2g` in local mode, else Spark's own.",
    )
    master: str = Field(default="local[*]", min_length=1, description="Spark's master URL.")
    conf: TextMap = Field(
        default_factory=dict,
        description="Further Spark settings, passed on untouched.",
        examples=[{"spark.executor.memory": "4g"}],
    )


def _token(value: str) -> str:
    """It travels in a header, and must not be guessed."""
    if not re.fullmatch(r"[!-~]{16,}", value):
        raise ValueError(
            "must be at least 16 letters, digits or signs without spaces; `openssl rand -hex 16` makes one"
        )
    return value


class HttpConfig(Settings):
    """What the daemon serves over HTTP: `/metrics`, `/healthz`, `/readyz`, `/status`, and a page for people at `/`."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address to listen on. Everybody who reaches it can read; there is no encryption.",
    )
    port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description=(
            "A number: exactly this port. 0: nothing is served. Default: `frazil run` listens on 9464, or on any free "
            "port if that is taken, and logs which; `run --once` does not listen."
        ),
    )
    token: Annotated[str, AfterValidator(_token)] | None = Field(
        default=None,
        description=(
            "A secret of at least 16 letters, digits or signs. Who knows it may reload the configuration and load "
            "tables anew, over HTTP or on the page. Default: nobody may."
        ),
    )


class EpochLimits(Settings):
    """Bounds on work under way."""

    epochs_in_flight: int = Field(
        default=3, ge=1, le=16, description="Epochs that may be read and written while an earlier one commits."
    )
    epochs_per_job: int = Field(
        default=16, ge=1, le=1000, description="When behind: resolved timestamps that one Spark job reads at once."
    )
    small_epoch_bytes: ByteSize = Field(
        default=32 << 20, ge=0, description="An epoch of at most this much input is written by one task."
    )
    max_first_loads: int = Field(
        default=4, ge=1, le=64, description="Tables that are loaded for the first time, or anew, at the same time."
    )
    lag_patience: Duration = Field(
        default=20.0,
        ge=0.1,
        description=(
            "A table whose commits let the others wait for so long is read apart from them until it has caught up."
        ),
    )


class Atomic(StrEnum):
    TABLE = "table"
    PIPELINE = "pipeline"


def _by_its_kind(value: Any, info: ValidationInfo) -> SourceConfig:
    return parse_source(value, info.context)


class PipelineConfig(Settings):
    """One source feeding many tables."""

    pipeline: Annotated[str, AfterValidator(job_name)] = Field(
        description=(
            "The pipeline's name: its identity in every table's ledger. Renaming it makes it another pipeline. "
            "A letter, then up to 62 letters, digits, `_` or `-`."
        ),
        examples=["shop"],
    )
    source: Annotated[SerializeAsAny[SourceConfig], BeforeValidator(_by_its_kind)] = Field(
        description="Where changes come from."
    )
    catalog: CatalogConfig = Field(
        description="Where tables live. With `catalogs`: the name of the one that is taken by default, or nothing."
    )
    catalogs: Annotated[dict[str, CatalogConfig], Shown("map of blocks")] = Field(
        default_factory=dict,
        description="Several catalogs, by the name that tables call them; the default one keeps Frazil's own tables.",
    )
    volumes: Annotated[dict[str, VolumeConfig], Shown("map of blocks")] = Field(
        default_factory=dict,
        description="Where the files of tables lie, by the name that catalogs and tables call them.",
    )
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
    atomic: Atomic = Field(
        default=Atomic.TABLE,
        description=(
            "table: each table publishes an epoch by itself. pipeline: all tables of an epoch in one commit, where the "
            "catalog offers that (`frazil check` tells); elsewhere one by one. Either way `_frazil.consistent_epochs` "
            "then tells the moments at which all tables agree."
        ),
    )
    epoch_interval: Duration = Field(
        default=0.0,
        ge=0,
        description="The least time between two rounds of publishing, once all that is resolved is published.",
    )
    heartbeat: Duration = Field(
        default=600.0,
        ge=1,
        description="A table without changes publishes an empty snapshot this often, to keep its position visible.",
    )
    checkpoints: bool = Field(
        default=True,
        description=(
            "Whether `_frazil.checkpoints` shows where every table stands, for people: nothing is decided from it."
        ),
    )
    resync_after: Duration = Field(
        default=86400.0,
        ge=1,
        description=(
            "A table that stopped, and is further behind the others than this, needs a re-sync: the source is no "
            "longer kept for it."
        ),
    )
    shutdown: Duration = Field(
        default=25.0,
        ge=0,
        description="How long a stop waits for what is under way. What is not done by then is written again later.",
    )
    parquet: ParquetConfig = Field(default_factory=ParquetConfig, description="How data files are written.")
    on_error: OnError = Field(
        default=OnError.STOP,
        description=(
            "What a row that cannot be taken does. stop: nothing more is published. quarantine: it goes to "
            "`<target>__quarantine` with the reason, and so do later changes of its key, until it is replayed, also "
            "under stop."
        ),
    )
    readers: Annotated[tuple[ReaderEngine, ...], AfterValidator(named_once), Shown("list of engines", engines_text)] = (
        Field(
            default=(ReaderEngine.SPARK,),
            description=(
                "The engines that read the tables; docs/reading.md says what each of them can. If one is not known to "
                "read format 3, new tables get format 2; if one is not known to read equality deletes, rows are "
                "deleted by position only. `format_version` and `deletes: equality` are refused where one cannot read "
                "them. Without spark, TIME columns become Iceberg's `time`, which Spark refuses."
            ),
            examples=[["spark", "pyiceberg"]],
        )
    )
    index: IndexConfig = Field(default_factory=IndexConfig, description="The key index of `deletes: vectors`.")
    spark: SparkConfig = Field(default_factory=SparkConfig, description="The Spark session that does the work.")
    http: HttpConfig = Field(
        default_factory=HttpConfig, description="Metrics, health, status and a page, served by the daemon."
    )
    limits: EpochLimits = Field(default_factory=EpochLimits, description="Bounds on work under way.")
    maintenance: MaintenanceConfig = Field(
        default_factory=MaintenanceConfig, description="How tables are kept small and fast while they are written."
    )

    @property
    def job(self) -> JobId:
        return JobId(self.pipeline)

    def roles(self, taken: routing.Route) -> tuple[Role, ...]:
        """The targets of a source table, the main table last. A quarantine that is there is one of them whatever the
        configuration says, see `ingest.loop.table_registry`."""
        changelog = (Role.CHANGELOG,) if taken.entry.changelog else ()
        quarantine = (Role.QUARANTINE,) if self.on_error is OnError.QUARANTINE else ()
        return (*quarantine, *changelog, Role.MAIN)

    @cached_property
    def entries(self) -> routing.Entries:
        """The tables' entries, by their names."""
        return routing.Entries(self.tables, self.pipeline)

    def route_of(self, name: str) -> routing.Route | None:
        """Where a source table goes; None if no entry names it.

        Raises ConfigError if it fits two exact entries, or if no target can be called as it would be.
        """
        entry = self.entries.taking(name)
        if entry is None:
            return None
        return self.routed(name, entry, routing.target_for(entry, name, self.pipeline))

    def routed(self, source: str, entry: TableEntry, target: TableName) -> routing.Route:
        return routing.Route(source, entry, target, self.volume_of(entry), self.readers)

    def volume_of(self, entry: TableEntry) -> VolumeConfig | None:
        """Where the files of an entry's tables lie; None if its catalog decides."""
        name = entry.volume or self.catalog_of(entry).volume
        return None if name is None else self.volumes[name]

    def catalog_of(self, entry: TableEntry | None) -> CatalogConfig:
        """The catalog that has an entry's tables."""
        return self.catalog if entry is None or entry.catalog is None else self.catalogs[entry.catalog]

    @model_validator(mode="before")
    @classmethod
    def _sink_url_in_place_of_a_catalog(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("catalog"), str) or data.get("catalogs"):
            return data
        try:
            sink = parse_sink_url(data["catalog"])
        except ValueError as error:
            raise problem(str(error), "catalog") from error
        catalog = {"type": "rest", "uri": sink.uri, "warehouse": sink.warehouse, "properties": sink.properties}
        return {**data, "catalog": catalog, "tables": _with_defaults(data.get("tables"), sink.target, sink.key)}

    @model_validator(mode="before")
    @classmethod
    def _tables_follow_from_the_source(cls, data: Any) -> Any:
        source = data.get("source") if isinstance(data, dict) else None
        kind = source.get("type") if isinstance(source, dict) else None
        return kind_named(kind).config.fitted(data) if kind in kind_names() else data

    @model_validator(mode="before")
    @classmethod
    def _one_of_several_catalogs_is_the_first(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("catalogs"), dict) or not data["catalogs"]:
            return data
        chosen = data.get("catalog", next(iter(data["catalogs"])))
        if not isinstance(chosen, str):
            raise problem("name one of `catalogs` here, or leave it out", "catalog")
        named = {name: {"name": name, **block} for name, block in data["catalogs"].items() if isinstance(block, dict)}
        if chosen not in named:
            raise problem(f"{chosen!r} is none of `catalogs`: {', '.join(data['catalogs'])}", "catalog")
        return {**data, "catalogs": {**data["catalogs"], **named}, "catalog": named[chosen]}

    @model_validator(mode="after")
    def _what_is_named_is_there(self) -> PipelineConfig:
        for name, catalog in {"": self.catalog, **self.catalogs}.items():
            if catalog.volume is not None and catalog.volume not in self.volumes:
                place = ("catalogs", name) if name else ("catalog",)
                raise problem(_unknown(catalog.volume, "volumes", self.volumes), *place, "volume")
        for index, entry in enumerate(self.tables):
            if entry.catalog is not None and entry.catalog not in self.catalogs:
                raise problem(_unknown(entry.catalog, "catalogs", self.catalogs), "tables", index, "catalog")
            if entry.volume is not None and entry.volume not in self.volumes:
                raise problem(_unknown(entry.volume, "volumes", self.volumes), "tables", index, "volume")
        names = [catalog.name for catalog in self.catalogs.values()]
        for name in self.catalogs:
            if names.count(self.catalogs[name].name) > 1:
                raise problem("two catalogs have one name", "catalogs", name, "name")
        return self

    @model_validator(mode="after")
    def _entries_fit_the_source(self) -> PipelineConfig:
        found: list[tuple[str, tuple[str | int, ...]]] = []
        for index, entry in enumerate(self.tables):
            if entry.mapping is not None and not self.source.has_documents:
                found.append((f"{self.source.type} has no documents to map", ("tables", index, "mapping")))
            if (told := contradiction(entry.options, self.readers)) is not None:
                found.append((told[0], ("tables", index, told[1])))
            judged = self.source.judge(entry, spark_reads=ReaderEngine.SPARK in self.readers)
            found += [(text, ("tables", index, *path)) for text, path in judged]
        if found:
            raise problems(found)
        return self

    @model_validator(mode="after")
    def _no_two_entries_claim_one_thing(self) -> PipelineConfig:
        named: dict[str, int] = {}
        for index, entry in enumerate(self.tables):
            if (earlier := named.setdefault(entry.source, index)) != index:
                raise problem(f"tables[{earlier}] already names {entry.source}", "tables", index, "source")
        claimed: dict[str, int] = {}
        for index, entry in enumerate(self.tables):
            if not routing.is_pattern(entry.source):
                try:
                    target = routing.target_of(entry.target, entry.source, entry.source, self.pipeline).text
                except BadName as error:
                    raise problem(str(error), "tables", index, "target") from error
                if target in claimed:
                    text = f"two entries claim one target: tables[{claimed[target]}] already fills {target}"
                    raise problem(text, "tables", index, "target")
                claimed[target] = index
        return self


def _unknown(name: str, block: str, known: Mapping[str, object]) -> str:
    listed = ", ".join(known) or "none are configured"
    return f"{name!r} is none of `{block}`: {listed}"


def _with_defaults(tables: Any, target: str, key: tuple[str, ...]) -> Any:
    if not isinstance(tables, list):
        return tables
    defaults: dict[str, Any] = {"target": target, "key": key} if key else {"target": target}
    return [{**defaults, **entry} if isinstance(entry, dict) else entry for entry in tables]
