"""Applies what is in quarantine again.

    rows up to the main table's frontier, in source order, decoded with today's configuration
        a key whose row fails again stays, with all that follows of it
        the net change of every other key --> one snapshot of changelog and main table  (frazil.operation=replay)
                                          --> exactly those rows removed from the quarantine

A replay is no epoch: ledger and frontier stay as they are. It is right beside a running pipeline, because its keys are
captured until their rows are gone from the quarantine: nobody else publishes a change of them meanwhile. Rows beyond
the main table's frontier wait: an older change of their key may still be on its way to the main table.

A crash leaves a replay that is published on some tables and not removed from the quarantine. Each of its snapshots
names it by the rows it is made of and says how far it reached, so the next replay recognises it, and ends it.

A row whose key was not known when it was put away captured nothing: newer changes of its key may be in the main
table. It is never replayed there, only into a changelog.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa

from frazil import errors
from frazil.commit.frontier_check import At, read_frontier
from frazil.commit.machine import misfit_error
from frazil.config.routing import target_of
from frazil.iceberg.tables.column_match import match_columns
from frazil.iceberg.tables.tables import LoadedTable
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.target_tables import SourceState, TargetTable
from frazil.ingest.quarantine.bisect import bad_rows
from frazil.ingest.quarantine.held_keys import Order
from frazil.ingest.quarantine.store import Quarantined, shown
from frazil.ingest.write.change_rows import text_like
from frazil.ingest.write.fold import fold_changes, sort_changes
from frazil.ingest.write.schema_tracker import SchemaTracker, known_by
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.ingest.write.target_writer import TargetsWriter, is_log
from frazil.model import quarantine as q
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import Op
from frazil.model.commit import ReplaceFiles
from frazil.model.files import FileClosed
from frazil.model.ids import TableName, replay_folder
from frazil.model.ledger import SnapshotFacts, TableHead
from frazil.model.ports import Locator, ReplacingCommitter
from frazil.model.position import Position, is_before, parse_position
from frazil.model.results import ReplayReport
from frazil.model.schema import parts_of
from frazil.model.write import DeleteMode, EpochTarget, Role, TableTask
from frazil.retry import Attempt, commit_with_retry
from frazil.sources.base import Decoder, Reader, RereadsLines

OPERATION, REPLAY, THROUGH, JOB = "frazil.operation", "frazil.replay-id", "frazil.replay-through", "frazil.replay-job"
_NOT_THERE_YET = "it lies beyond what the table has published: replay again when the pipeline has caught up"
_NO_KEY = (
    "its key was not known when it was put away, so newer changes of it may be published: mend the row at the source, "
    "then delete this one by its _id"
)


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a quarantine, ready to travel; `refused` says why it cannot."""

    id: str
    key: str
    order: Order
    change_rows: Mapping[str, Any]
    facts: Mapping[str, Any]
    refused: str | None = None


class Replay:
    """One `frazil quarantine replay` of one target."""

    def __init__(self, parts: Components, quarantined: Quarantined, committer: ReplacingCommitter, source: str) -> None:
        """`source` is the source's own name of the table."""
        config = parts.config
        entry = config.entries.taking(source)
        if entry is None:
            raise AssertionError(f"{source} is not a table of the pipeline")
        target = target_of(entry.target, entry.source, source, config.pipeline)
        taken = config.routed(source, entry, target)
        self._parts = parts
        self._quarantined = quarantined
        self._committer = committer
        self._origin = SourceState(taken, index=0)
        names = [role for role in config.roles(taken) if role is not Role.QUARANTINE]
        self._targets = [TargetTable(self._origin, role) for role in names]
        self._main_table = self._targets[-1]
        self._quarantine = TargetTable(self._origin, Role.QUARANTINE)
        self._own: set[str] = set()

    def run(self) -> ReplayReport:
        """Raises ConfigError if the table is not there yet, Transient or OutcomeUnknown to be run again."""
        name = self._quarantine.target
        # The main table's head before the quarantine's rows: a replay that is published in between is noticed.
        heads = {target.target: self._head(target.target) for target in self._targets}
        rows = self._rows(name)
        if not rows:
            return ReplayReport(table=self._main_table.name, replayed=0, left=())
        reader, decoder = self._roads()
        frontier = self._frontier(heads[self._main_table.target])
        tasks = [self._task(target, frontier) for target in self._targets]
        refused = self._refused(rows, reader, decoder, tasks, frontier)
        taken = 0
        for through, known in [*_begun(heads.values(), self._parts.config.job.text), (frontier, None)]:
            chosen = [row for row in refused.good if row.order <= through.order]
            number = q.replay_id([row.id for row in chosen])
            if not chosen or known not in (None, str(number)):
                continue
            self._own.add(str(number))
            for task in tasks:
                self._publish(task, heads[task.name], chosen, number, through, decoder)
            self._remove(chosen, number, through)
            taken += len(chosen)
            done = {row.id for row in chosen}
            refused = _Judged([row for row in refused.good if row.id not in done], refused.bad)
        left = tuple(shown(self._main_table.target, row.facts, row.refused or "") for row in refused.bad)
        return ReplayReport(table=self._main_table.name, replayed=taken, left=left)

    # what can be replayed

    def _rows(self, name: TableName) -> list[Mapping[str, Any]]:
        if not self._parts.tables.exists(name):
            return []
        snapshot_id = self._committer.head(name).snapshot_id
        return [] if snapshot_id is None else self._quarantined.rows(name, snapshot_id).to_pylist()

    def _roads(self) -> tuple[Reader, Decoder]:
        """Today's source schema, and the tables evolved to it, as the pipeline would do before its next window."""
        parts, loaded = self._parts, self._parts.tables.load(self._main_table.target)
        source_schema = SchemaTracker(parts.source).preview(self._origin.route, loaded)
        if source_schema is None:
            raise errors.ConfigError(
                f"{self._main_table.name}: nothing tells its columns and key",
                hint=f"Pin them with `columns:` and `key:` in the entry of {self._main_table.source}.",
                table=self._main_table.name,
            )
        known = known_by(loaded, self._main_table.options.mode)
        if known is not None:
            source_schema = match_columns(self._main_table.target, source_schema, known, self._main_table.options)
        self._origin.source_schema = source_schema
        for target in self._targets:
            target.loaded = parts.tables.ensure(target.target, source_schema, target.options)
        self._quarantine.loaded = parts.tables.load(self._quarantine.target)
        return SchemaTracker(parts.source).roads([self._main_table])

    def _refused(
        self,
        rows: Sequence[Mapping[str, Any]],
        reader: Reader,
        decoder: Decoder,
        tasks: Sequence[TableTask],
        frontier: Position,
    ) -> _Judged:
        """Which rows can be taken now. A row waits behind any earlier one of its key that cannot."""
        ready = [self._read(row, reader, frontier) for row in rows]
        ready.sort(key=lambda row: (row.key, row.order, row.change_rows["part"]))
        clear = [row for row in ready if row.refused is None]
        batch = pa.RecordBatch.from_pylist([dict(row.change_rows) for row in clear], schema=CHANGE_SCHEMA)
        trial = TargetsWriter(tasks, 0, self._place("trial"), decoder, text_like(frontier), None)
        failed = {clear[at].id: error.message for at, error in bad_rows(batch, partial(self._try, trial))}
        own = {row.id: reason for row in ready if (reason := row.refused or failed.get(row.id))}
        # Also behind one at the same position: that is another part of the same change.
        since = {row.key: row.order for row in reversed(ready) if row.id in own}
        good: list[_Row] = []
        bad: list[_Row] = []
        for row in ready:
            waits = row.key in since and row.order >= since[row.key]
            if waits:
                bad.append(replace(row, refused=own.get(row.id, q.WAITS)))
            else:
                good.append(row)
        return _Judged(good, bad)

    def _try(self, trial: TargetsWriter, rows: pa.RecordBatch) -> None:
        """A column that nobody knows is here what is wrong with a row: a captured change was put away without a look at
        its columns, and there is no window to learn them from."""
        try:
            trial.tried(rows)
        except errors.UnknownColumn as error:
            raise errors.BadInput(f"{error.message}: pin them under `columns:` of {self._main_table.source}") from error

    def _read(self, row: Mapping[str, Any], reader: Reader, frontier: Position) -> _Row:
        """A raw line is read again; anything else travels as it did."""
        order = row[q.MAJOR], row[q.MINOR]
        key, deleted, payload, before = row[q.KEY], row[q.OP] == "delete", row[q.PAYLOAD], row[q.BEFORE]
        refused = None if order <= frontier.order else _NOT_THERE_YET
        if row[q.OP] is None and refused is None:
            if key is None and self._main_table.options.mode is not DeleteMode.APPEND_ONLY:
                refused = _NO_KEY
            elif not isinstance(reader, RereadsLines):
                refused = row[q.REASON]
            else:
                try:
                    line = reader.reread(0, bytes(payload))
                    key, deleted, payload, before = line.key or key, line.deleted, line.payload, line.before
                    order = order if row[q.POSITION] is not None else (line.major, line.minor)
                except errors.BadInput as error:
                    refused = error.message
        key = key or q.line_key(row[q.FILE] or "", row[q.LINE] or 0)
        change_rows = {
            "table": 0,
            "epoch": 0,
            "key": key,
            "part": row[q.PART],
            "major": order[0],
            "minor": order[1],
            "op": int(Op.DELETE if deleted else Op.UPSERT),
            "payload": payload,
            "before": before,
        }
        return _Row(row[q.ID], key, (row[q.MAJOR], row[q.MINOR]), change_rows, row, refused)

    # publishing

    def _publish(
        self,
        task: TableTask,
        first: TableHead,
        rows: Sequence[_Row],
        number: UUID,
        through: Position,
        decoder: Decoder,
    ) -> None:
        if _replayed(self._committer.head(task.name), number):
            return
        task = replace(task, epochs=(self._epoch(task.name, number, through),))
        batch = pa.RecordBatch.from_pylist([dict(row.change_rows) for row in rows], schema=CHANGE_SCHEMA)
        writer = TargetsWriter([task], 0, self._place(), decoder, text_like(through), None)
        sorted_rows = sort_changes(pa.Table.from_batches([batch]))
        for _, _, some in fold_changes([sorted_rows], [0] if is_log(task) else []):
            writer.take(some)
        locator = self._locator(task.name)
        self._commit(task.name, writer.close(), number, through, first, locator)

    def _remove(self, rows: Sequence[_Row], number: UUID, through: Position) -> None:
        task = self._task(self._quarantine, through)
        writer = TableEpochWriter(task, self._epoch(task.name, number, through), self._place())
        writer.deletes(pa.record_batch({q.ID: pa.array(sorted(row.id for row in rows), pa.string())}))
        self._commit(task.name, writer.close(), number, through, None, None)

    def _commit(
        self,
        table: TableName,
        files: tuple[FileClosed, ...],
        number: UUID,
        through: Position,
        first: TableHead | None,
        locator: Locator | None,
    ) -> None:
        """Lands once, on a head that no other replay has touched since `first`."""

        def once(_lost: int) -> Attempt[None]:
            head = self._committer.head(table)
            if _replayed(head, number):
                return Attempt(None)
            if first is not None:
                _must_be_alone(table, first, head, self._own)
            if (written := self._loaded(table).form) is not None and head.form is not None:
                why = written.misfit(head.form, {file.spec_id for file in files})
                if why is not None:
                    raise misfit_error(table, why, "what is replayed", "Run the same command again.")
            summary = {
                OPERATION: "replay",
                REPLAY: str(number),
                THROUGH: through.text,
                JOB: self._parts.config.job.text,
                "frazil.rows": str(sum(file.records for file in files if not file.equality_ids)),
            }
            plan = ReplaceFiles(files=files, summary=summary)
            if locator is not None:
                located = locator.locate(files, head, by_equality=False)
                plan = replace(
                    plan,
                    files=located.files,
                    removed_deletes=located.removed_deletes,
                    must_exist=located.must_exist,
                )
            return Attempt(None, self._committer.repair(table, head, plan))

        commit_with_retry(
            f"{table}: the replay was not published",
            once,
            self._parts.clock,
            table=table.text,
            hint="Run the same command again; it first looks at what the tables hold.",
        )

    # what it is made with

    def _head(self, name: TableName) -> TableHead:
        if not self._parts.tables.exists(name):
            raise errors.ConfigError(
                f"{name} does not exist yet", hint="Run the pipeline first: it makes its tables.", table=name.text
            )
        return self._committer.head(name)

    def _frontier(self, head: TableHead) -> Position:
        match read_frontier(head, self._parts.config.job):
            case At(entry):
                return entry.resolved
            case _:
                raise errors.TableChanged(
                    f"{self._main_table.name} holds no epoch of this pipeline, or was rolled back",
                    hint=f"Run the pipeline first; `frazil status` shows the state of {self._main_table.name}.",
                    table=self._main_table.name,
                )

    def _locator(self, table: TableName) -> Locator | None:
        locators = self._parts.locators
        finds = self._main_table.options.mode is DeleteMode.VECTORS and table == self._main_table.target
        return locators.of(table) if finds and locators is not None else None

    def _task(self, target: TargetTable, through: Position) -> TableTask:
        loaded, source_schema = target.loaded, target.columns
        if loaded is None or source_schema is None:
            raise AssertionError(f"{target.name} is written before it has a source schema")
        mode = target.options.mode
        if mode is DeleteMode.VECTORS and self._locator(target.target) is None:
            mode = DeleteMode.EQUALITY
        epoch = EpochTarget(through, UUID(int=0), loaded.data_location)
        parts = parts_of(source_schema) if target.is_main else ()
        return TableTask.of(
            loaded, index=0, key=source_schema.key, mode=mode, epochs=(epoch,), role=target.role, parts=parts
        )

    def _epoch(self, table: TableName, number: UUID, through: Position) -> EpochTarget:
        loaded = self._loaded(table)
        return EpochTarget(through, number, replay_folder(loaded.data_location, self._parts.config.job, number))

    def _loaded(self, table: TableName) -> LoadedTable:
        tables = (*self._targets, self._quarantine)
        return next(t.loaded for t in tables if t.target == table and t.loaded is not None)

    def _place(self, attempt: str | None = None) -> TaskOutput:
        attempt = attempt or self._parts.clock.new_uuid().hex[:8]
        return TaskOutput(shard=0, attempt=attempt, parquet=self._parts.config.parquet.settings)


@dataclass(frozen=True, slots=True)
class _Judged:
    good: list[_Row]
    bad: list[_Row]


def _begun(heads: Iterable[TableHead], job: str) -> list[tuple[Position, str | None]]:
    """Earlier replays, the oldest first: how far each reached, and its id."""
    found: dict[str, Position] = {}
    for head in heads:
        for snapshot in head.ancestry:
            summary = snapshot.summary
            if summary.get(OPERATION) == "replay" and summary.get(JOB) == job and REPLAY in summary:
                found[summary[REPLAY]] = parse_position(summary[THROUGH])
    return sorted(((through, number) for number, through in found.items()), key=lambda pair: pair[0].order)


def undone(quarantine: TableHead, table: TableHead, job: str, resolved: Position) -> list[SnapshotFacts]:
    """Replays of which the quarantine tells and the table does not, now that it goes on from `resolved`: the snapshots
    that took their rows out of the quarantine. What they had published up to there is not read again."""
    held = {snapshot.summary.get(REPLAY) for snapshot in table.ancestry}
    return [
        snapshot
        for snapshot in quarantine.ancestry
        if snapshot.summary.get(OPERATION) == "replay"
        and snapshot.summary.get(JOB) == job
        and snapshot.summary[REPLAY] not in held
        and not is_before(parse_position(snapshot.summary[THROUGH]), resolved)
    ]


def _replayed(head: TableHead, number: UUID) -> bool:
    return any(snapshot.summary.get(REPLAY) == str(number) for snapshot in head.ancestry)


def _must_be_alone(table: TableName, first: TableHead, now: TableHead, own: Collection[str]) -> None:
    """Another replay may have released a key of this one since its rows were read."""
    if first.uuid != now.uuid:
        raise errors.TableChanged(f"{table} was dropped and created again", hint="Run it again.", table=table.text)
    for snapshot in now.ancestry:
        if snapshot.snapshot_id == first.snapshot_id:
            return
        if snapshot.summary.get(OPERATION) == "replay" and snapshot.summary.get(REPLAY) not in own:
            raise errors.Transient(
                f"{table}: another replay was published meanwhile", hint="Run the same command again.", table=table.text
            )
