"""`frazil.upsert_stream`: a DataFrame of changes, published exactly once from `foreachBatch`.

    batch n --> ledger of the target --another query id?--> SourceLost     nothing is taken over, nothing written
                    |                --n is published?----> already published: a replay, not even evaluated
                    |
                    +--> evaluated once, counted, keys checked --no rows?--> nothing to publish
                    +--> schema first --> one Spark job --> buffer --> the same publisher as every pipeline
                                               ^                          |
                                               +---- cut again -----------+

The position is the batch's number, the incarnation the query's id, and `lower` whatever the ledger says: batches
without rows leave no trace. Spark runs a batch again until its function has returned, so an error here loses
nothing, and a crash between commit and checkpoint is met by the ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frazil import errors
from frazil.clock import Clock, SystemClock
from frazil.commit.admission import Coordinator
from frazil.commit.buffer import EpochBuffer
from frazil.commit.fence import take_fence
from frazil.commit.frontier_check import At, RolledBack, read_frontier
from frazil.commit.machine import AlreadyPublished, Published, Recut, failure, make_epoch_commit
from frazil.commit.publisher import publish
from frazil.commit.recovery import StartPoint, newest_generation, start
from frazil.config.pipeline_config import CatalogConfig
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.system.fence_register import IcebergArbiter
from frazil.iceberg.tables.column_match import match_columns, named
from frazil.iceberg.tables.new_schema import without_changelog
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.ingest.locate.locators import Locators, LocatorSettings
from frazil.ingest.loop.observer import PublishObserver
from frazil.ingest.upsert_stream.errors import for_streams, gone, kept_filling, null_key, other_query, without_order
from frazil.ingest.upsert_stream.request import DELETE_VALUES, UpsertOptions, UpsertRequest, make_request, query_id_of
from frazil.ingest.write.write_job import run_columns_job
from frazil.model.frontier import Frontier
from frazil.model.ids import batch_id as batch_uuid
from frazil.model.ids import epoch_prefix
from frazil.model.ledger import LedgerEntry, TableHead
from frazil.model.position import is_before
from frazil.model.schema import KnownTable, remembered
from frazil.model.write import DeleteMode, EpochTarget, TableTask, WriteJob
from frazil.observability.logs import Log
from frazil.observability.metrics import Metrics
from frazil.paths import cache_home

ROWS_PER_SHARD = 100_000
"""A batch of fewer rows is one file: many small files cost every reader more than one task costs this batch."""
CUTS_MAX = 4
INDEX_BYTES = 4 << 30
QUERY_ID_PROPERTY = "sql.streaming.queryId"
RUN_ID_PROPERTY = "spark.jobGroup.id"
_log = Log("frazil.upsert")


class BatchResult(StrEnum):
    PUBLISHED = "published"
    ALREADY_PUBLISHED = "already published"
    NOTHING_TO_PUBLISH = "nothing to publish"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """What became of one batch. `snapshot_id` shows the table with it; it is None if there was nothing to publish,
    and for a replay if later batches were published since. `rows` are those of its data files, `deletes` the keys whose
    older rows it removed; both as the ledger knows them."""

    result: BatchResult
    table: str
    batch_id: int
    snapshot_id: int | None = None
    rows: int = 0
    deletes: int = 0


def upsert_stream(
    batch: DataFrame,
    batch_id: int,
    *,
    pipeline: str,
    target: str | None = None,
    key: str | Sequence[str] | None = None,
    warehouse: str | Path | None = None,
    catalog: CatalogConfig | Mapping[str, Any] | str | None = None,
    order_by: str | Sequence[str] = (),
    op: str | None = None,
    delete_values: str | Sequence[str] = DELETE_VALUES,
    deletes: str = "vectors",
    format_version: int = 3,
    query_id: str | None = None,
) -> BatchOutcome:
    """Publishes the batch as one snapshot of `target`, exactly once however often it is called with it.

    `key` names a row, `order_by` orders the versions of a row within the batch, `op` tells by `delete_values` which
    rows are deletes. A sink URL as `catalog` may name target and key too. Inside `foreachBatch` the query's id is
    found; elsewhere `query_id` says what the batch numbers count.

    Raises ConfigError, BadInput (a null key), SourceLost (a query with another checkpoint), Fenced (another process
    publishes this pipeline), TableChanged, Transient and OutcomeUnknown; whatever it is, the batch may be tried again.
    """
    options = UpsertOptions(
        pipeline=pipeline,
        target=target,
        key=key,
        warehouse=warehouse,
        catalog=catalog,
        order_by=order_by,
        op=op,
        delete_values=delete_values,
        deletes=deletes,
        format_version=format_version,
    )
    return _this_process.publish(batch, batch_id, options, query_id)


@dataclass(frozen=True, slots=True)
class _Place:
    """The catalog of one call."""

    spark: SparkSession
    tables: Tables
    committer: IcebergCommitter
    catalog: Catalog


@dataclass(slots=True)
class _Stream:
    """One table of one run of a query: who publishes it, where, and which table it was so far. The place is kept,
    because its lake remembers what the table held after the last batch."""

    coordinator: Coordinator
    place: _Place
    locators: Locators
    table_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the ledger said at the last look; `head` is None while there is no table."""

    head: TableHead | None
    entry: LedgerEntry | None


class Upserts:
    """The streams that one process publishes. It remembers who it is for each; what is published, the ledger says."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._observer = PublishObserver(Metrics(self._clock))
        self._streams: dict[tuple[str, ...], _Stream] = {}
        self._lock = Lock()

    def publish(
        self, batch: DataFrame, batch_id: int, options: UpsertOptions, query_id: str | None = None
    ) -> BatchOutcome:
        """See `upsert_stream`."""
        try:
            if batch.isStreaming:
                raise errors.ConfigError(
                    "upsert_stream takes the batches of a streaming DataFrame, not the streaming DataFrame itself",
                    hint="Call it in a function that is given to changes.writeStream.foreachBatch(...).",
                )
            context = batch.sparkSession.sparkContext
            running = context.getLocalProperty(QUERY_ID_PROPERTY)
            request = make_request(options, batch.schema, batch_id, query_id_of(query_id, running))
            run = _run_id(context.getLocalProperty(RUN_ID_PROPERTY)) if running else ""
            return self._publish(batch, request, run)
        except errors.FrazilError as error:
            # Spark shows an operator the traceback of foreachBatch, and of an exception only its text and its notes.
            if error.hint and not getattr(error, "__notes__", None):
                error.add_note(f"hint: {error.hint}")
            raise

    def _publish(self, batch: DataFrame, request: UpsertRequest, run: str) -> BatchOutcome:
        stream = self._stream(_open(batch.sparkSession, request), request, run)
        place = stream.place
        seen = _look(place, request, stream)
        if _is_published(seen.entry, request):
            return _already(seen.entry, request)
        with _evaluated_once(batch) as rows:
            count = _checked_count(rows, request)
            if not count:
                return _outcome(request, BatchResult.NOTHING_TO_PUBLISH)
            for _ in range(CUTS_MAX):
                done = self._write_and_commit(rows, count, place, request, stream, seen)
                if done is not None:
                    return done
                seen = _look(place, request, stream)
        raise kept_filling(request)

    def _stream(self, place: _Place, request: UpsertRequest, run: str) -> _Stream:
        """Takes the fence once for each table and run of a query, so that starting a query again is a takeover and
        going on is not."""
        settings = place.catalog.settings
        identity = (place.spark.sparkContext.applicationId, run, settings.name, settings.endpoint)
        of = (*identity, str(settings.warehouse), request.job.text, request.target.text, request.incarnation)
        with self._lock:
            if of not in self._streams:
                coordinator = self._take_over(place, request)
                self._streams[of] = _Stream(coordinator, place, self._locators(place, request))
            return self._streams[of]

    def _locators(self, place: _Place, request: UpsertRequest) -> Locators:
        index = LocatorSettings(directory=cache_home() / "index" / request.job.text, size=INDEX_BYTES)
        name = _private_catalog(place.spark, place.catalog.settings)
        return Locators(
            place.committer, place.spark, name, self._clock, index, key_of=lambda _: request.source_schema.key
        )

    def _take_over(self, place: _Place, request: UpsertRequest) -> Coordinator:
        """A query that must not publish here must not fence the one that does either, so that is looked at first."""
        floor = 0
        if place.tables.exists(request.target):
            head = place.committer.head(request.target)
            _must_be_the_query_of(head, request)
            floor = newest_generation(head, request.job)
        fence = take_fence(request.job, IcebergArbiter(place.catalog, self._clock), self._clock, floor=floor)
        _log.info("took over", pipeline=request.job.text, table=request.target.text, fence=fence.label)
        return Coordinator(
            job=request.job, fence=fence, incarnation=request.incarnation, config_hash=request.config_hash
        )

    def _write_and_commit(
        self, rows: DataFrame, count: int, place: _Place, request: UpsertRequest, stream: _Stream, seen: _Seen
    ) -> BatchOutcome | None:
        """None if the table was filled by somebody meanwhile: the files written for an empty one do not fit."""
        loaded, names = _schema_first(place, request, seen.head is not None)
        stream.table_uuid = loaded.uuid
        changes = request.changes.renamed(names)
        if any(name != own for name, own in names.items()):
            rows = rows.toDF(*(names.get(name, name) for name in rows.columns))
        bare = request.folds and (seen.head is None or seen.head.snapshot_id is None)
        position, target, coordinator = request.position, request.target, stream.coordinator
        job = WriteJob(
            tables=(_task(request, loaded, names, coordinator, bare),),
            attempt=self._clock.new_uuid().hex[:8],
            shards=shards_for(count, int(place.spark.sparkContext.defaultParallelism)),
        )
        buffer = EpochBuffer(job.shards)
        for message in run_columns_job(rows, changes, job, (position,)):
            buffer.take(message)
        files = buffer.files(target, position)
        if not files:
            return _outcome(request, BatchResult.NOTHING_TO_PUBLISH)
        lower = None if seen.entry is None else seen.entry.resolved
        epoch_commit = make_epoch_commit(
            coordinator,
            target,
            loaded.uuid,
            lower,
            Frontier(position),
            files,
            bare,
            vectors=request.mode is DeleteMode.VECTORS,
            written=loaded.form,
        )
        locator = stream.locators.of(target)
        outcome = publish(epoch_commit, place.committer, self._clock, self._observer, locator=locator)
        match outcome:
            case Published(snapshot_id, plan):
                return _outcome(request, BatchResult.PUBLISHED, snapshot_id, plan.entry)
            case AlreadyPublished(found):
                return _already(found, request)
            case Recut():
                return None
        error = failure(outcome, epoch_commit)
        assert error is not None, f"{outcome} is neither published nor to be cut again"
        raise for_streams(error)


def _private_catalog(spark: SparkSession, settings: CatalogSettings) -> str:
    """Spark SQL reads the table when a batch has more keys than can be handed to tasks. The session is the user's: the
    catalog gets a name there that nobody else would choose."""
    place = f"{settings.type}:{settings.endpoint}:{settings.warehouse}"
    own = replace(settings, name=f"frazil_{hashlib.sha256(place.encode()).hexdigest()[:12]}")
    open_session("frazil", [own], active=spark)
    return own.name


def shards_for(rows: int, cores: int) -> int:
    """How many tasks write a batch, and so how many files it becomes."""
    return max(1, min(cores, -(-rows // ROWS_PER_SHARD)))


def _run_id(job_group: str | None) -> str:
    """Spark runs the jobs of a streaming query in a group named by the query's run id; a name that somebody else
    gave says nothing about runs."""
    try:
        return str(UUID(job_group or ""))
    except ValueError:
        return ""


def _open(spark: SparkSession, request: UpsertRequest) -> _Place:
    # No catalog is added to the session: it is the user's, and may know another one by the same name.
    session = open_session("frazil", active=spark)
    catalog = open_catalog(session, request.catalog)
    return _Place(session, Tables(catalog), IcebergCommitter(catalog), catalog)


def _look(place: _Place, request: UpsertRequest, stream: _Stream) -> _Seen:
    """Reads the ledger. Raises what stops this stream: fenced, another source, another table (H10)."""
    if not place.tables.exists(request.target):
        if stream.table_uuid is not None:
            raise gone(request, "dropped")
        if request.position.number:
            _log.warning("no table yet: its first batch is not batch 0", table=request.target.text)
        return _Seen(None, None)
    head = place.committer.head(request.target)
    if stream.table_uuid not in (None, head.uuid):
        raise gone(request, "dropped and created again")
    match start(head, request.target, stream.coordinator):
        case StartPoint(_, entry):
            stream.table_uuid = head.uuid
            return _Seen(head, entry)
        case error:
            raise for_streams(error)


def _is_published(entry: LedgerEntry | None, request: UpsertRequest) -> bool:
    return entry is not None and not is_before(entry.resolved, request.position)


def _already(entry: LedgerEntry | None, request: UpsertRequest) -> BatchOutcome:
    _log.info("already published", table=request.target.text, epoch=request.position.text)
    same = entry if entry is not None and entry.resolved == request.position else None
    return _outcome(request, BatchResult.ALREADY_PUBLISHED, None if same is None else same.snapshot_id, same)


def _outcome(
    request: UpsertRequest, result: BatchResult, snapshot_id: int | None = None, entry: LedgerEntry | None = None
) -> BatchOutcome:
    return BatchOutcome(
        result=result,
        table=request.target.text,
        batch_id=request.position.number,
        snapshot_id=snapshot_id,
        rows=0 if entry is None else entry.rows,
        deletes=0 if entry is None else entry.deletes,
    )


@contextmanager
def _evaluated_once(batch: DataFrame) -> Iterator[DataFrame]:
    """The rows that are counted, checked and written are the same ones, and the source is read for them once."""
    level = batch.storageLevel
    if level.useMemory or level.useDisk:
        yield batch
        return
    kept = batch.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _checked_count(rows: DataFrame, request: UpsertRequest) -> int:
    """The number of rows. Raises BadInput for a null key (H20), and for a key that comes twice without an order."""
    key = request.source_schema.key
    counts = rows.agg(F.count(F.lit(1)), *(F.count(_column(name)) for name in key)).collect()[0]
    total = int(counts[0])
    for name, present in zip(key, counts[1:], strict=True):
        if present < total:
            raise null_key(request, name, total - present, total)
    if request.folds and not request.changes.order and total:
        distinct = rows.select(*(_column(name) for name in key)).distinct().count()
        if distinct < total:
            raise without_order(request, distinct, total)
    return total


def _schema_first(place: _Place, request: UpsertRequest, exists: bool) -> tuple[LoadedTable, Mapping[str, str]]:
    """The table, made or evolved in a commit of its own before files are written for it, and what it calls the
    columns of the batch."""
    target, tables, options = request.target, place.tables, request.table_options
    loaded = (
        tables.load(target) if exists else tables.create(target, named(target, request.source_schema, options), options)
    )
    stored = [field.name for field in loaded.schema] if request.op is not None else []
    known = KnownTable(without_changelog(loaded.schema, request.mode), remembered(loaded.properties))
    try:
        given = request.schema_in(stored)
        source_schema = (
            named(target, given, options) if loaded.is_unused else match_columns(target, given, known, options)
        )
        names = {column.name: own.name for column, own in zip(given.columns, source_schema.columns, strict=True)}
        return tables.ensure(target, source_schema, options), names
    except (errors.BadInput, errors.TableChanged) as error:
        raise for_streams(error) from error


def _task(
    request: UpsertRequest, loaded: LoadedTable, names: Mapping[str, str], coordinator: Coordinator, bare: bool
) -> TableTask:
    job, position = request.job, request.position
    epoch = EpochTarget(
        position,
        batch_uuid(job, request.target, position),
        epoch_prefix(loaded.data_location, job, position, coordinator.fence.label),
        deletes=not bare,
    )
    key = tuple(names[name] for name in request.source_schema.key)
    return TableTask.of(loaded, index=0, key=key, mode=request.mode, epochs=(epoch,))


def _must_be_the_query_of(head: TableHead, request: UpsertRequest) -> None:
    match read_frontier(head, request.job):
        case At(entry) | RolledBack(entry, _, _) if entry.incarnation != request.incarnation:
            raise other_query(entry, request)


def _column(name: str) -> Any:
    return F.col("`" + name.replace("`", "``") + "`")


_this_process = Upserts()
