"""What a pipeline's tables say about themselves, and setting one right. All of it is read from the ledger.

status, epochs, as of ...     read heads, change nothing
check                         the source and the catalog, and what a run would make of them
rewind                        one commit, for a table that was rolled back
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from frazil import errors
from frazil.config.routing import Route, is_pattern, route, target_of
from frazil.config.tables import TableEntry
from frazil.coordinator.fence import take_fence
from frazil.coordinator.frontier import At, Fresh, RolledBack, read_frontier
from frazil.coordinator.recovery import newest_generation, rewind_plan, source_table
from frazil.daemon.holdings import Holdings
from frazil.daemon.modes import check_parts
from frazil.daemon.parts import Parts
from frazil.daemon.replay import undone
from frazil.daemon.results import (
    CheckedCatalog,
    CheckedColumn,
    CheckedTable,
    CheckReport,
    ConsistentEpoch,
    PublishedEpoch,
    SourceSnapshot,
    TableAction,
    TableStatus,
)
from frazil.daemon.shaping import Shaper, known_by
from frazil.daemon.tables import companion, companion_of
from frazil.lake.history import as_of, published, retained
from frazil.lake.schemas import target_columns
from frazil.lake.settling import settle
from frazil.lake.tables import LoadedTable
from frazil.maintenance.landing import MADE_BY
from frazil.model.columns import TableShape
from frazil.model.commit import Accepted, CommitPlan
from frazil.model.ledger import TableHead
from frazil.model.names import BadName, TableName
from frazil.model.parts import UNNAMED, families
from frazil.model.ports import Remarks
from frazil.model.position import Position, is_before, parse_position
from frazil.model.state import TableState
from frazil.model.write import Role


def status(parts: Parts) -> list[TableStatus]:
    """One line for each table: what is published, and how long ago that was at the source."""
    return [_status(parts, target) for target in _targets(parts)]


def epochs(parts: Parts, table: str) -> list[PublishedEpoch]:
    target = _own(parts, table)
    if not parts.tables.exists(target):
        return []
    return [
        PublishedEpoch(
            table=target.text,
            resolved=epoch.entry.resolved.text,
            snapshot_id=epoch.snapshot_id,
            batch_id=str(epoch.entry.batch_id),
            committed_at=epoch.committed_at,
            data_files=epoch.entry.data_files,
            delete_files=epoch.entry.delete_files,
            rows=epoch.entry.rows,
            deletes=epoch.entry.deletes,
        )
        for epoch in published(parts.lake.head(target), parts.config.job)
    ]


def snapshot_at(parts: Parts, table: str, moment: Position) -> int | None:
    target = _own(parts, table)
    if not parts.tables.exists(target):
        return None
    found = as_of(parts.lake.head(target), parts.config.job, moment)
    return None if found is None else found.snapshot_id


def source_snapshot(parts: Parts, table: str, moment: Position | datetime) -> SourceSnapshot:
    """Raises ConfigError if nothing that old can be read."""
    target, job = _own(parts, table), parts.config.job
    asked = moment.isoformat() if isinstance(moment, datetime) else moment.text
    epochs = retained(parts.lake.head(target), job) if parts.tables.exists(target) else ()
    found = next((epoch for epoch in epochs if epoch.is_within(moment)), None)
    if found is None:
        oldest = (
            f"the oldest epoch that can be read is {epochs[-1].entry.resolved}" if epochs else "nothing is published"
        )
        raise errors.ConfigError(
            f"{target} cannot be read as of {asked}: {oldest}",
            hint=f"`frazil epochs CONFIG {target}` lists what there is. Tags keep epochs when snapshots expire.",
            table=target.text,
            asked=asked,
        )
    return SourceSnapshot(
        table=target.text,
        asked=asked,
        snapshot_id=found.snapshot_id,
        resolved=found.entry.resolved.text,
        source_time=found.entry.resolved.source_time,
        reached=epochs[0].reaches(moment),
    )


def consistent(parts: Parts, recorded: Sequence[ConsistentEpoch], moment: Position | None) -> ConsistentEpoch:
    """All tables at one moment: the one asked for, else the newest. Raises ConfigError if not all of them are published
    up to there, or one of them cannot be read that far back any more."""
    job = parts.config.job
    heads = {target: parts.lake.head(target) for target in mirrors(parts) if parts.tables.exists(target)}
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
    snapshots: dict[str, int | None] = {}
    for target, head in heads.items():
        shown = as_of(head, job, at)
        if shown is None and not head.history_is_whole:
            raise errors.ConfigError(
                f"{target} cannot be read as of {at} any more: its snapshots of then have expired",
                hint="Ask for a newer moment, or keep snapshots longer; tags keep them too.",
                table=target.text,
            )
        snapshots[target.text] = None if shown is None else shown.snapshot_id
    known = next((epoch for epoch in recorded if epoch.resolved == at.text), None)
    return ConsistentEpoch(
        resolved=at.text, snapshots=snapshots, recorded_at=None if known is None else known.recorded_at
    )


def check(parts: Parts, catalogs: Sequence[CheckedCatalog], feed: str) -> CheckReport:
    routes = route(parts.config, [table.name for table in parts.source.tables()])
    checked = [_checked(parts, taken) for taken in routes]
    known = [(taken, shape) for taken, (_, shape) in zip(routes, checked, strict=True) if shape is not None]
    return CheckReport(
        tables=tuple(table for table, _ in checked) + tuple(_missing(parts, routes)),
        catalogs=tuple(catalogs),
        feed=feed,
        pin_yaml=Shaper(parts.source).pins(known),
    )


def rewind(parts: Parts, table: str) -> str:
    target = _own(parts, table)
    job = parts.config.job
    head = parts.lake.head(target)
    nothing = f"{target} was not rolled back: nothing to do"
    # Taking the fence ends a running pipeline, so that it is taken only if there is something to set right.
    if not isinstance(read_frontier(head, job), RolledBack):
        return nothing
    fence = take_fence(job, parts.arbiter, parts.clock, floor=newest_generation(head, job))
    head = parts.lake.head(target)
    match rewind_plan(head, target, job, fence):
        case None:
            return nothing
        case CommitPlan() as plan:
            answer = parts.lake.commit(target, head, plan)
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


def _undone(parts: Parts, target: TableName, head: TableHead, resolved: Position) -> str:
    """What there is to say of replays that the rollback took away; empty if there are none."""
    name = companion(companion_of(target), Role.QUARANTINE)
    if not parts.tables.exists(name):
        return ""
    found = undone(parts.lake.head(name), head, parts.config.job.text, resolved)
    if not found:
        return ""
    queries = "".join(
        f"\n  SELECT _key, _position FROM {name} VERSION AS OF {snapshot.parent_id} MINUS "
        f"SELECT _key, _position FROM {name} VERSION AS OF {snapshot.snapshot_id}"
        for snapshot in found
    )
    return (
        "\nChanges that were replayed from quarantine were rolled back too. Those "
        f"up to {resolved} are not read again: change their rows at the source, so that they come once more:{queries}"
    )


def _status(parts: Parts, target: TableName) -> TableStatus:
    state, resolved, snapshot_id, lag = TableState.INITIALIZING, None, None, None
    index = None if parts.locators is None else parts.locators.index
    head = parts.lake.head(target) if parts.tables.exists(target) else None
    held = None if head is None else Holdings.at(head)
    made = None if head is None else next((one for one in head.ancestry if MADE_BY in one.summary), None)
    if head is not None:
        match read_frontier(head, parts.config.job):
            case At(entry):
                state, resolved, snapshot_id = TableState.STEADY_STATE, entry.resolved.text, entry.snapshot_id
                moment = entry.resolved.source_time
                lag = None if moment is None else max(0.0, (parts.clock.now() - moment).total_seconds())
            case Fresh():
                state = TableState.INITIAL_SYNC
            case _:
                state = TableState.STOPPED
    return TableStatus(
        table=target.text,
        state=state,
        resolved=resolved,
        snapshot_id=snapshot_id,
        lag_seconds=lag,
        quarantined=_quarantined(parts, target),
        index_bytes=index.bytes if index is not None and index.files else None,
        index_hit_rate=None if index is None else index.hit_rate,
        data_files=None if held is None else held.data_files,
        delete_files=None if held is None else held.delete_files,
        snapshots=None if held is None else held.snapshots,
        maintenance=None if made is None else made.summary[MADE_BY],
        maintained_at=None if made is None else datetime.fromtimestamp(made.timestamp_ms / 1000, UTC),
    )


def _quarantined(parts: Parts, target: TableName) -> int | None:
    """How many changes are in the table's quarantine; None if it has none."""
    name = companion(target, Role.QUARANTINE)
    if parts.quarantined is None or not parts.tables.exists(name):
        return None
    snapshot_id = parts.lake.head(name).snapshot_id
    return 0 if snapshot_id is None else parts.quarantined.keys(name, snapshot_id)[1]


def mirrors(parts: Parts) -> list[TableName]:
    """The targets of the source's tables, without their companions."""
    offered = [taken.target for taken in route(parts.config, [table.name for table in parts.source.tables()])]
    return list(dict.fromkeys([*(_named(parts, entry) for entry in _all_entries(parts)), *offered]))


def mirror(parts: Parts, table: str) -> TableName:
    """A target that has, or may have, companions. Raises ConfigError if it is none."""
    target = _own(parts, table)
    if target not in mirrors(parts):
        raise errors.ConfigError(
            f"{table} stands beside another table",
            hint=f"Name the table it belongs to: {target.text.rpartition('__')[0]}.",
            table=table,
        )
    return target


def source_of(parts: Parts, target: TableName) -> str:
    """The source's own name of the table that fills this target. Raises ConfigError if nothing was published yet."""
    source = source_table(parts.lake.head(target), parts.config.job) if parts.tables.exists(target) else ""
    if not source:
        raise errors.ConfigError(
            f"nothing is published to {target} yet", hint="Run the pipeline first.", table=target.text
        )
    return source


def _targets(parts: Parts) -> list[TableName]:
    """The targets of the source's tables, and of entries whose table the source does not show yet."""
    routes = route(parts.config, [table.name for table in parts.source.tables()])
    offered = [companion(taken.target, role) for taken in routes for role in _shown_roles(taken.entry)]
    return list(dict.fromkeys([*_all_named(parts), *offered]))


def _all_named(parts: Parts) -> list[TableName]:
    return [companion(_named(parts, entry), role) for entry in _all_entries(parts) for role in _shown_roles(entry)]


def _all_entries(parts: Parts) -> list[TableEntry]:
    """Entries that name one table."""
    return [entry for entry in parts.config.tables if not is_pattern(entry.source)]


def _shown_roles(entry: TableEntry) -> tuple[Role, ...]:
    """A quarantine is shown as a number beside its mirror."""
    return (Role.MIRROR, Role.CHANGELOG) if entry.changelog else (Role.MIRROR,)


def _named(parts: Parts, entry: TableEntry) -> TableName:
    """The target of an entry that names one table."""
    return target_of(entry.target, entry.source, entry.source, parts.config.pipeline)


def _own(parts: Parts, table: str) -> TableName:
    """A table that the configuration names and the catalog has is ours without a look at the source."""
    try:
        wanted = TableName.parse(table)
    except BadName:
        wanted = None
    if wanted is not None and wanted in _all_named(parts) and parts.tables.exists(wanted):
        return wanted
    targets = _targets(parts)
    if wanted not in targets:
        raise errors.ConfigError(
            f"{table} is not a table of pipeline {parts.config.pipeline}",
            hint=f"Its tables are: {', '.join(target.text for target in targets) or 'none yet'}.",
            table=table,
        )
    return wanted


def _checked(parts: Parts, taken: Route) -> tuple[CheckedTable, TableShape | None]:
    target = taken.target
    exists = parts.tables.exists(target)
    loaded = parts.tables.load(target) if exists else None
    shape = Shaper(parts.source).preview(taken, loaded)
    notes: list[str] = []
    if shape is None:
        told = "nothing tells its columns and key yet: pin them with `columns:` and `key:`, or wait for its first rows"
        return _untold(taken, exists, *(_remarks(parts, taken) or [told])), None
    action = TableAction.EXISTS if exists else TableAction.CREATE
    if loaded is not None:
        action, notes = _evolution(parts, taken, shape, loaded)
    notes += _parts(taken, shape)
    notes += _remarks(parts, taken)
    columns = tuple(CheckedColumn(c.name, str(c.type), c.source_type, c.origin) for c in shape.columns)
    checked = CheckedTable(
        source=taken.source,
        target=target.text,
        action=action,
        columns=columns,
        key=shape.key,
        key_origin=shape.key_origin,
        notes=tuple(notes),
    )
    return checked, shape


def _remarks(parts: Parts, taken: Route) -> list[str]:
    return list(parts.source.remarks(taken.source)) if isinstance(parts.source, Remarks) else []


def _parts(taken: Route, shape: TableShape) -> list[str]:
    """What there is to say of a table whose rows come in parts."""
    known = [family for family in families(shape) if family != UNNAMED]
    if not known:
        return []
    try:
        check_parts(taken.source, taken.entry, shape)
    except errors.ConfigError as error:
        return [f"problem: {error}", f"to solve it: {error.hint}"]
    return [f"put together of the column families {', '.join(known)}"]


def _evolution(parts: Parts, taken: Route, shape: TableShape, loaded: LoadedTable) -> tuple[TableAction, list[str]]:
    """What a run would change in the table before it writes to it, or what would stop it."""
    target, options = taken.target, taken.entry.options
    known = known_by(loaded, options.mode)
    assert known is not None
    try:
        settled = settle(target, shape, known, options)
        change = parts.tables.plan(target, target_columns(target, settled, options.mode), options)
        # A column that is yet to be added or renamed may be what the table is to be partitioned by.
        layout = () if change.steps else parts.tables.plan_layout(target, options).texts
    except (errors.BadInput, errors.ConfigError) as error:
        return TableAction.EXISTS, [f"problem: {error}", f"to solve it: {error.hint}"]
    notes = [*change.texts, *change.notes, *layout]
    if not change.steps:
        return TableAction.EXISTS, notes
    return (TableAction.ADD_COLUMNS if change.added else TableAction.CHANGE_COLUMNS), notes


def _untold(taken: Route, exists: bool, *notes: str) -> CheckedTable:
    return CheckedTable(
        source=taken.source,
        target=taken.target.text,
        action=TableAction.EXISTS if exists else TableAction.CREATE,
        columns=(),
        key=taken.entry.key,
        key_origin="configuration" if taken.entry.key else "",
        notes=notes,
    )


def _missing(parts: Parts, routes: Sequence[Route]) -> list[CheckedTable]:
    """Entries that name a table which the source does not show: a typo, or a table without changes yet."""
    taken = {id(found.entry) for found in routes}
    note = "the feed has no file of this table yet: check the name, or wait for its first change"
    return [
        _untold(Route(entry.source, entry, _named(parts, entry)), parts.tables.exists(_named(parts, entry)), note)
        for entry in parts.config.tables
        if id(entry) not in taken and not is_pattern(entry.source)
    ]
