"""What a pipeline's tables say about themselves, and setting one right. All of it is read from the ledger.

status, epochs, as of ...     read heads, change nothing
rewind                        one commit, for a table that was rolled back
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from frazil import errors
from frazil.app.moment import AskedMoment
from frazil.commit.fence import take_fence
from frazil.commit.frontier_check import At, Damaged, Fresh, RolledBack, read_frontier
from frazil.commit.recovery import newest_generation, rewind_plan, source_table
from frazil.config.pipeline_config import PipelineConfig
from frazil.config.routing import is_pattern, matches, target_of
from frazil.config.table_entries import TableEntry
from frazil.ingest.loop.claims import Claims, claimed
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.table_stats import TableStats
from frazil.ingest.quarantine.replay import undone
from frazil.maintenance.commit_rewrite import MADE_BY
from frazil.model.commit import Accepted, CommitPlan
from frazil.model.ids import BadName, TableName
from frazil.model.ledger import PublishedEpoch, TableHead, as_of, published, retained
from frazil.model.position import Position, is_before, parse_position
from frazil.model.results import ConsistentEpoch, EpochRow, SourceSnapshot, TableStatus
from frazil.model.state import TableState
from frazil.model.write import Role, main_table_of, side_table

_PLAIN = re.compile(r"[a-z][a-z0-9_]*")
"""A name that SQL takes without quotes, as long as it is no word of its own."""


def status(parts: Components) -> list[TableStatus]:
    """One line for each table: what is published, and how long ago that was at the source."""
    claims = claims_of(parts)
    refused = [
        TableStatus(table=name, state=TableState.STOPPED, resolved=None, snapshot_id=None, lag_seconds=None)
        for name in claims.refused
    ]
    return [*(_status(parts, target) for target in _targets(parts, claims)), *refused]


def epochs(parts: Components, table: str) -> list[EpochRow]:
    target = _own(parts, table)
    if not parts.tables.exists(target):
        return []
    return [
        EpochRow(
            table=target.text,
            resolved=epoch.entry.resolved.text,
            snapshot_id=epoch.snapshot_id,
            batch_id=str(epoch.entry.batch_id),
            committed_at=epoch.committed_at,
            data_files=epoch.entry.data_files,
            delete_files=epoch.entry.delete_files,
            rows=epoch.entry.rows,
            deletes=epoch.entry.deletes,
            source_time=epoch.entry.source_time,
        )
        for epoch in published(parts.committer.head(target), parts.config.job)
    ]


def snapshot_at(parts: Components, table: str, moment: Position) -> int | None:
    target = _own(parts, table)
    if not parts.tables.exists(target):
        return None
    found = as_of(parts.committer.head(target), parts.config.job, moment)
    return None if found is None else found.snapshot_id


def source_snapshot(parts: Components, table: str, moment: AskedMoment) -> SourceSnapshot:
    """Raises ConfigError if nothing that old can be read."""
    target, job = _own(parts, table), parts.config.job
    epochs = retained(parts.committer.head(target), job) if parts.tables.exists(target) else ()
    found = next((epoch for epoch in epochs if epoch.is_within(moment.last)), None)
    if found is None:
        oldest = (
            f"the oldest epoch that can be read is of {epochs[-1].entry.shown}" if epochs else "nothing is published"
        )
        raise errors.ConfigError(
            f"{target} cannot be read as of {moment.text}: {oldest}",
            hint=f"`frazil epochs CONFIG {target}` lists what there is. Tags keep epochs when snapshots expire.",
            table=target.text,
            asked=moment.text,
        )
    return SourceSnapshot(
        table=target.text,
        asked=moment.text,
        snapshot_id=found.snapshot_id,
        resolved=found.entry.resolved.text,
        source_time=found.entry.source_time,
        reached=epochs[0].reaches(moment.first),
        sql=f"SELECT * FROM {sql_name(parts.config, target)} VERSION AS OF {found.snapshot_id}",
    )


def consistent(parts: Components, recorded: Sequence[ConsistentEpoch], moment: Position | None) -> ConsistentEpoch:
    """All tables at one moment: the one asked for, else the newest. Raises ConfigError if not all of them are published
    up to there, or one of them cannot be read that far back any more."""
    job = parts.config.job
    heads = {target: parts.committer.head(target) for target in main_tables(parts) if parts.tables.exists(target)}
    frontiers = [entry.resolved for head in heads.values() if (entry := head.newest(job)) is not None]
    if not frontiers:
        raise errors.ConfigError(
            f"pipeline {parts.config.pipeline} has published nothing yet", hint="Run it first: frazil run CONFIG"
        )
    proven = min(frontiers, key=lambda position: position.order)
    newest = max((proven, *(parse_position(epoch.resolved) for epoch in recorded[:1])), key=lambda p: p.order)
    if moment is not None and is_before(newest, moment):
        raise errors.ConfigError(
            f"not every table of pipeline {parts.config.pipeline} is known to be complete up to {moment}",
            hint=f"All of them are up to {newest}. A table without changes tells so by a heartbeat, or with "
            "`atomic: pipeline` in _frazil.consistent_epochs.",
            asked=moment.text,
        )
    at = moment or newest
    shown: dict[str, PublishedEpoch | None] = {}
    for target, head in heads.items():
        epoch = shown[target.text] = as_of(head, job, at)
        if epoch is None and not head.history_is_whole:
            raise errors.ConfigError(
                f"{target} cannot be read as of {at} any more: its snapshots of then have expired",
                hint="Ask for a newer moment, or keep snapshots longer; tags keep them too.",
                table=target.text,
            )
    known = next((moment for moment in recorded if moment.resolved == at.text), None)
    times = (epoch.entry.source_time for epoch in shown.values() if epoch is not None and epoch.entry.resolved == at)
    return ConsistentEpoch(
        resolved=at.text,
        snapshots={table: None if epoch is None else epoch.snapshot_id for table, epoch in shown.items()},
        recorded_at=None if known is None else known.recorded_at,
        source_time=next(times, at.source_time if known is None else known.source_time),
    )


def rewind(parts: Components, table: str) -> str:
    target = _own(parts, table)
    job = parts.config.job
    head = parts.committer.head(target)
    nothing = f"{target} was not rolled back: nothing to do"
    # Taking the fence ends a running pipeline, so that it is taken only if there is something to set right.
    if not isinstance(read_frontier(head, job), RolledBack):
        return nothing
    fence = take_fence(job, parts.arbiter, parts.clock, floor=newest_generation(head, job))
    head = parts.committer.head(target)
    match rewind_plan(head, target, job, fence):
        case None:
            return nothing
        case CommitPlan() as plan:
            answer = parts.committer.commit(target, head, plan)
        case error:
            raise error
    if not isinstance(answer, Accepted):
        raise errors.OutcomeUnknown(
            f"{target}: the rewind was not confirmed: {answer.reason}",
            hint="Run the same command again; it first looks at what the table holds.",
            table=target.text,
        )
    if plan.forget:
        return f"{target} holds no epoch of this pipeline any more: the next run loads it from the start of the source"
    told = f"{target} goes on from {plan.entry.resolved}, which it holds now (snapshot {answer.snapshot_id})"
    return told + _undone(parts, target, head, plan.entry.resolved)


def _undone(parts: Components, target: TableName, head: TableHead, resolved: Position) -> str:
    """What there is to say of replays that the rollback took away; empty if there are none."""
    name = side_table(main_table_of(target), Role.QUARANTINE)
    if not parts.tables.exists(name):
        return ""
    found = undone(parts.committer.head(name), head, parts.config.job.text, resolved)
    if not found:
        return ""
    put_away = sql_name(parts.config, name)
    queries = "".join(
        f"\n  SELECT _key, _position FROM {put_away} VERSION AS OF {snapshot.parent_id} MINUS "
        f"SELECT _key, _position FROM {put_away} VERSION AS OF {snapshot.snapshot_id}"
        for snapshot in found
    )
    return (
        "\nChanges that were replayed from quarantine were rolled back too. Those "
        f"up to {resolved} are not read again: change their rows at the source, so that they come once more:{queries}"
    )


def sql_name(config: PipelineConfig, table: TableName) -> str:
    """As Spark SQL knows the table: with its catalog, quoted where a name wants it."""
    catalog = config.catalog_of(config.entries.filling(main_table_of(table)))
    parts = (catalog.name, *table.namespace, table.name)
    return ".".join(part if _PLAIN.fullmatch(part) else f"`{part}`" for part in parts)


def _status(parts: Components, target: TableName) -> TableStatus:
    state, resolved, epoch_id, moment, error, hint = TableState.INITIALIZING, None, None, None, "", ""
    index = None if parts.locators is None else parts.locators.index
    code = errors.TableChanged.exit_code
    head = None
    try:
        head = parts.committer.head(target) if parts.tables.exists(target) else None
    except errors.LedgerTooNew as newer:
        state, error, hint, code = TableState.STOPPED, newer.message, newer.hint, newer.exit_code
    held = None if head is None else TableStats.at(head)
    made = None if head is None else next((one for one in head.ancestry if MADE_BY in one.summary), None)
    if head is not None:
        match read_frontier(head, parts.config.job):
            case At(entry):
                state, resolved, epoch_id = TableState.STEADY_STATE, entry.resolved.text, entry.snapshot_id
                moment = entry.source_time
            case Fresh():
                state = TableState.INITIAL_SYNC
            case RolledBack(lost):
                state, error = TableState.STOPPED, f"it was rolled back behind its last epoch, {lost.resolved}"
                hint = f"Let it go on from what it holds: frazil rewind CONFIG {target}"
            case Damaged(reason):
                state, error = TableState.STOPPED, f"its ledger cannot be read: {reason}"
                hint = f"See what is wrong with it: frazil doctor CONFIG {target}"
    return TableStatus(
        table=target.text,
        state=state,
        resolved=resolved,
        snapshot_id=None if head is None else head.snapshot_id,
        epoch_snapshot_id=epoch_id,
        table_rows=None if held is None else held.rows,
        error=error,
        hint=hint,
        exit_code=code if error else 0,
        lag_seconds=None if moment is None else max(0.0, (parts.clock.now() - moment).total_seconds()),
        source_time=moment,
        quarantined=None if head is None else _quarantined(parts, target, head),
        index_bytes=index.bytes if index is not None and index.entries else None,
        index_hit_rate=None if index is None else index.hit_rate,
        data_files=None if held is None else held.data_files,
        delete_files=None if held is None else held.delete_files,
        snapshots=None if held is None else held.snapshots,
        maintenance=None if made is None else made.summary[MADE_BY],
        maintained_at=None if made is None else datetime.fromtimestamp(made.timestamp_ms / 1000, UTC),
    )


def _quarantined(parts: Components, target: TableName, head: TableHead) -> int | None:
    """How many changes are in the table's quarantine; None if it has none, or if another source table is published
    under that name."""
    name, job = side_table(target, Role.QUARANTINE), parts.config.job
    if parts.quarantined is None or not parts.tables.exists(name):
        return None
    beside = parts.committer.head(name)
    ours, theirs = source_table(head, job), source_table(beside, job)
    if ours and theirs and not matches(ours, theirs):
        return None
    snapshot_id = beside.snapshot_id
    return 0 if snapshot_id is None else parts.quarantined.keys(name, snapshot_id)[1]


def main_tables(parts: Components) -> list[TableName]:
    """The targets of the source's tables, without their side tables."""
    offered = [taken.target for taken in claims_of(parts).routes]
    return list(dict.fromkeys([*(target_named(parts, entry) for entry in exact_entries(parts)), *offered]))


def main_table(parts: Components, table: str) -> TableName:
    """A target that has, or may have, side tables. Raises ConfigError if it is none."""
    target = _own(parts, table)
    if target not in main_tables(parts):
        raise errors.ConfigError(
            f"{table} stands beside another table",
            hint=f"Name the table it belongs to: {target.text.rpartition('__')[0]}.",
            table=table,
        )
    return target


def source_of(parts: Components, target: TableName) -> str:
    """The source's own name of the table that fills this target. Raises ConfigError if nothing was published yet."""
    source = source_table(parts.committer.head(target), parts.config.job) if parts.tables.exists(target) else ""
    if not source:
        raise errors.ConfigError(
            f"nothing is published to {target} yet", hint="Run the pipeline first.", table=target.text
        )
    return source


def claims_of(parts: Components) -> Claims:
    def keeper(target: TableName) -> str:
        return source_table(parts.committer.head(target), parts.config.job) if parts.tables.exists(target) else ""

    return claimed(parts.config, [table.name for table in parts.source.tables()], keeper)


def _targets(parts: Components, claims: Claims) -> list[TableName]:
    """The targets of the source's tables, and of entries whose table the source does not show yet."""
    offered = [side_table(taken.target, role) for taken in claims.routes for role in _shown_roles(taken.entry)]
    return list(dict.fromkeys([*_all_named(parts), *offered]))


def _all_named(parts: Components) -> list[TableName]:
    named = [(target_named(parts, entry), entry) for entry in exact_entries(parts)]
    return [side_table(target, role) for target, entry in named for role in _shown_roles(entry)]


def exact_entries(parts: Components) -> list[TableEntry]:
    """Entries that name one table."""
    return [entry for entry in parts.config.tables if not is_pattern(entry.source)]


def _shown_roles(entry: TableEntry) -> tuple[Role, ...]:
    """A quarantine is shown as a number beside its main table."""
    return (Role.MAIN, Role.CHANGELOG) if entry.changelog else (Role.MAIN,)


def target_named(parts: Components, entry: TableEntry) -> TableName:
    """The target of an entry that names one table."""
    return target_of(entry.target, entry.source, entry.source, parts.config.pipeline)


def _own(parts: Components, table: str) -> TableName:
    """A table that the configuration names and the catalog has is ours without a look at the source."""
    try:
        wanted = TableName.parse(table)
    except BadName:
        wanted = None
    if wanted is not None and wanted in _all_named(parts) and parts.tables.exists(wanted):
        return wanted
    targets = _targets(parts, claims_of(parts))
    if wanted not in targets:
        raise errors.ConfigError(
            f"{table} is not a table of pipeline {parts.config.pipeline}",
            hint=f"Its tables are: {', '.join(target.text for target in targets) or 'none yet'}.",
            table=table,
        )
    return wanted
