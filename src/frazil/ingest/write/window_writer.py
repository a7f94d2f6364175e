"""Writes one window: schemas first, then one Spark job for all tables, then a buffer of what its tasks reported.

    partitions of the window --> source schema of each source table --> its targets created or evolved
                                   ^                            |
                                   | a column nobody knew of    v
                                   +------ learn ------- one Spark job --> files by target and epoch, reports

A target takes what lies beyond its own frontier, so the job reads from the one that is furthest back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from frazil import errors
from frazil.clock import Clock
from frazil.commit.admission import Coordinator
from frazil.commit.buffer import EpochBuffer
from frazil.config.pipeline_config import OnError, PipelineConfig
from frazil.ingest.loop.mode_checks import check_parts
from frazil.ingest.loop.target_tables import KeepsTables, TargetTable
from frazil.ingest.quarantine.held_keys import HeldKeys
from frazil.ingest.write.schema_tracker import SchemaTracker, lesson_of
from frazil.model.change import CaptureReport, PartitionReport, Report
from frazil.model.files import FileClosed, Message
from frazil.model.frontier import Window
from frazil.model.ids import TableName, batch_id, epoch_prefix
from frazil.model.position import Position
from frazil.model.schema import SourceSchema, parts_of
from frazil.model.write import EpochTarget, Role, TableTask, WriteJob
from frazil.sources.base import Cut, Decoder, InputPartition, Reader
from frazil.sources.cutting_reader import cut_of

TASK_BYTES = 256 << 20
"""Of partitions: what one task is to write. The work is long beside the task's start, and many tasks share it."""
LESSONS_MAX = 8

Targets = Sequence[TargetTable]
"""All targets of one source table, the main table last."""


class WritesWindows(Protocol):
    def __call__(
        self,
        partitions: Sequence[InputPartition],
        cuts: Mapping[int, Cut],
        reader: Reader,
        decoder: Decoder,
        job: WriteJob,
        epochs: tuple[Position, ...],
        *,
        small: bool,
    ) -> tuple[list[Message], list[Report]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """What the stages run on executors, with Spark already inside."""

    write: WritesWindows
    cores: int


@dataclass(frozen=True, slots=True)
class WrittenWindow:
    """The files of a window that wait for their commits, and what the tasks told about the source."""

    window: Window
    buffer: EpochBuffer
    reports: Mapping[int, Sequence[Report]]
    """By source table."""

    @classmethod
    def of(cls, window: Window, buffer: EpochBuffer, reports: Iterable[Report]) -> WrittenWindow:
        by_table: dict[int, list[Report]] = {}
        for report in reports:
            by_table.setdefault(report.table, []).append(report)
        return cls(window, buffer, by_table)

    def files(self, target: TableName) -> dict[Position, tuple[FileClosed, ...]]:
        """By epoch, where there are any."""
        uppers = [upper for upper in self.window.uppers if self.buffer.holds(target, upper)]
        return {upper: self.buffer.files(target, upper) for upper in uppers}

    def found(self, index: int) -> list[PartitionReport]:
        """What the readers found of one source table."""
        return [report for report in self.reports.get(index, ()) if isinstance(report, PartitionReport)]

    def captured(self, index: int) -> list[CaptureReport]:
        """What went to quarantine of one source table."""
        return [report for report in self.reports.get(index, ()) if isinstance(report, CaptureReport)]


class WindowWriter:
    def __init__(
        self,
        config: PipelineConfig,
        tables: KeepsTables,
        schema_tracker: SchemaTracker,
        executors: Executors,
        clock: Clock,
        capturing: HeldKeys | None,
    ) -> None:
        self._config = config
        self._tables = tables
        self._schema_tracker = schema_tracker
        self._executors = executors
        self._clock = clock
        self._capturing = capturing

    def epochs_of_a_job(self, window: Window, partitions: Sequence[InputPartition]) -> int:
        """How many of the window's epochs one job should write: few enough that most commits of a catch-up go on beside
        the next job, and that starting it costs little beside its work. A single epoch is never divided."""
        size = sum(partition.size for partition in partitions)
        epochs = len(window.uppers)
        return max(1, min(epochs, epochs * self._executors.cores * TASK_BYTES // max(size, 1)))

    def write(
        self,
        coordinator: Coordinator,
        window: Window,
        concerned: Sequence[Targets],
        partitions: Sequence[InputPartition],
    ) -> WrittenWindow:
        """One Spark job for all tables. A change that the known source schema has no place for is a lesson: the
        table's schema evolves, and the window is written again under new paths."""
        for targets in concerned:
            for table in targets:
                table.begin_reading()
        by_table: dict[int, list[InputPartition]] = {}
        for partition in partitions:
            by_table.setdefault(partition.table, []).append(partition)
        concerned = [targets for targets in concerned if targets[-1].index in by_table]
        for targets in concerned:
            self._take_schema(targets, self._schema_tracker.schema_of(targets[-1], by_table[targets[-1].index]))
        for _ in range(LESSONS_MAX + len(concerned)):
            readable = [targets for targets in concerned if targets[-1].source_schema is not None]
            chosen = [partition for targets in readable for partition in by_table[targets[-1].index]]
            try:
                written = self._write_once(coordinator, window, readable, chosen)
            except errors.BadInput as error:
                pupil = lesson_of(error, readable)
                if pupil is None or not self._learn(pupil, by_table[pupil[-1].index]):
                    raise
                continue
            learned = [self._learn_from(targets, written, by_table[targets[-1].index]) for targets in readable]
            if not any(learned):
                return written
        raise errors.BadInput(
            f"the columns of {[targets[-1].name for targets in concerned]} kept changing while one window was read",
            hint="Pin the columns of these tables in the configuration (frazil check prints them).",
        )

    def _learn(self, targets: Targets, partitions: Sequence[InputPartition]) -> bool:
        """Whether the source schema is another one now."""
        known = targets[-1].source_schema
        self._take_schema(targets, self._schema_tracker.learn(targets[-1], partitions))
        return targets[-1].source_schema != known

    def _learn_from(self, targets: Targets, written: WrittenWindow, partitions: Sequence[InputPartition]) -> bool:
        """A value that does not fit may tell of a column that was changed at the source. It is looked at once."""
        named = {column for report in written.captured(targets[-1].index) for column in report.columns}
        tried = targets[-1].origin.tried
        if named <= tried:
            return False
        tried |= named
        return self._learn(targets, partitions)

    def _write_once(
        self,
        coordinator: Coordinator,
        window: Window,
        concerned: Sequence[Targets],
        partitions: Sequence[InputPartition],
    ) -> WrittenWindow:
        if not partitions:
            return WrittenWindow.of(window, EpochBuffer(1), ())
        size = sum(partition.size for partition in partitions)
        small = size <= self._config.limits.small_epoch_bytes
        job = WriteJob(
            tables=tuple(self._task(coordinator, window, table) for targets in concerned for table in targets),
            attempt=self._clock.new_uuid().hex[:8],
            shards=1 if small else max(self._executors.cores, -(-size // TASK_BYTES)),
            parquet=self._config.parquet.settings,
            quarantined=self._quarantined(concerned),
            puts_away=self._config.on_error is OnError.QUARANTINE,
        )
        cuts = {targets[-1].index: cut_of(window, furthest_back(targets)) for targets in concerned}
        reader, decoder = self._schema_tracker.roads([targets[-1] for targets in concerned])
        messages, reports = self._executors.write(partitions, cuts, reader, decoder, job, window.uppers, small=small)
        buffer = EpochBuffer(job.shards)
        for message in messages:
            buffer.take(message)
        return WrittenWindow.of(window, buffer, reports)

    def _quarantined(self, concerned: Sequence[Targets]) -> dict[int, Mapping[str, tuple[int, int]]]:
        quarantines = [table for targets in concerned for table in targets if table.role is Role.QUARANTINE]
        if not quarantines:
            return {}
        if self._capturing is None:
            raise AssertionError("a quarantine must be read, or its keys would not capture what follows (H49)")
        return {table.index: self._capturing.keys(table) for table in quarantines}

    def _take_schema(self, targets: Targets, source_schema: SourceSchema | None) -> None:
        """Schema first: a table is created or evolved in a commit of its own, before files are written for it.

        A table whose rows have not told its source schema yet (only deletes so far) waits: it has nothing to lose."""
        origin = targets[-1].origin
        if source_schema is None or source_schema == origin.source_schema:
            return
        check_parts(targets[-1].source, targets[-1].route.entry, source_schema)
        for table in targets:
            if table.role is not Role.QUARANTINE:
                table.loaded = self._tables.ensure(table.target, source_schema, table.options)
            elif table.loaded is None and table.columns is not None:
                table.loaded = self._tables.ensure(table.target, table.columns, table.options)
        origin.source_schema = source_schema

    def _task(self, coordinator: Coordinator, window: Window, table: TargetTable) -> TableTask:
        loaded, source_schema, job, options = table.loaded, table.columns, self._config.job, table.options
        if loaded is None or source_schema is None:
            raise AssertionError(f"{table.name} is written before it has a source schema")
        lower = table.progress.takes_after
        deletes = table.role is not Role.QUARANTINE
        return TableTask.of(
            loaded,
            index=table.index,
            key=source_schema.key,
            mode=options.mode,
            role=table.role,
            lower=None if lower is None else lower.order,
            epochs=tuple(
                EpochTarget(
                    upper,
                    batch_id(job, table.target, upper),
                    epoch_prefix(loaded.data_location, job, upper, coordinator.fence.label),
                    deletes=deletes and not (table.starts_empty and place == 0),
                )
                for place, upper in enumerate(window.uppers)
            ),
            parts=parts_of(source_schema) if table.is_main else (),
        )


def furthest_back(targets: Targets) -> Position | None:
    """What every target has already; None if one of them has nothing."""
    known = [target.progress.takes_after for target in targets]
    if None in known:
        return None
    return min((position for position in known if position is not None), key=lambda position: position.order)
