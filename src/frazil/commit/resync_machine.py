"""Loads a table anew on a branch, then publishes it at once: decides what may be done with the branch. Pure.

    the table holds                          stage            what follows
    no branch, or none of ours               NotUnderWay      begin: the branch is made and cleared
    a branch whose newest mark is the clear  Loading(None)    epochs are published on the branch, as on main, from the
    a branch whose newest mark is an epoch   Loading(entry)   source's start or on from there; once the source says
                                                              that the load is whole, and not before main: adopt

    heads, wish --decide--> damaged, another coordinator's fence, ...  --> the error to stop with
                            nothing left to do                         --> the outcome
                            otherwise                                  --> Clear | TakeOver | Adopt | DropBranch

After a crash the table alone says how far it was, and whoever comes next takes it over, which leaves its fence on the
branch: no older coordinator can clear it or publish to it from then on. As everywhere, only the exact newest fence may
act: on the branch, and on main, where another coordinator may have gone on. A lost answer proves nothing: looking again
finds what had landed. `resync_runner` performs.

Main may be rolled back, or filled from another source, when the load begins: to replace it is what the load is for.
Nothing is asked of main but its fences, and that its readers do not go back in time.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil import errors
from frazil.commit.admission import Coordinator, edited_error, fenced_error, outranks
from frazil.commit.frontier_check import At, Damaged, Fresh, RolledBack, read_frontier
from frazil.commit.recovery import StartPoint, newest_generation, restated, start
from frazil.model.commit import ClearPlan, CommitPlan
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import BranchedHead, Fence, LedgerEntry, TableHead
from frazil.model.position import is_before

ADOPT = "adopt"
TAKE_OVER = "take-over"
CANCEL = "cancel"
"""What the property of a table says whose load somebody no longer wants."""


@dataclass(frozen=True, slots=True)
class NotUnderWay:
    """The table is not being loaded anew."""


@dataclass(frozen=True, slots=True)
class Loading:
    """The table is being loaded on its branch. `entry` is the newest one there, None if nothing is loaded yet, and
    `frontier` what follows from it."""

    frontier: Frontier | None
    entry: LedgerEntry | None


@dataclass(frozen=True, slots=True)
class Adopted:
    """Main shows what was loaded; the branch is gone."""

    loaded: LedgerEntry


@dataclass(frozen=True, slots=True)
class Behind:
    """Main was published beyond the load: its readers would go back in time. Load on, then adopt."""

    loaded: LedgerEntry
    published: LedgerEntry


@dataclass(frozen=True, slots=True)
class MainMoved:
    """The branch no longer ends at what was to be adopted: look at it again. `entry` is where it ends now, None if it
    was cleared."""

    entry: LedgerEntry | None


Outcome = NotUnderWay | Loading | Adopted | Behind | MainMoved


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The table is to be loaded anew, by this coordinator. What is under way is taken over, unless it is to begin
    `anew`. `source` is the source's own name of the table."""

    table: TableName
    coordinator: Coordinator
    anew: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What was loaded up to `loaded`, the newest entry on the branch, is to be main. The caller knows that it is whole:
    the source's notes in the entry tell."""

    table: TableName
    coordinator: Coordinator
    loaded: LedgerEntry

    def __post_init__(self) -> None:
        if self.loaded.snapshot_id is None:
            raise ValueError(f"{self.table}: the entry at {self.loaded.resolved} was not read from a branch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandonment:
    """What is under way is to be given up; main stays as it is."""

    table: TableName
    coordinator: Coordinator


Wish = Begin | Adoption | Abandonment


@dataclass(frozen=True, slots=True)
class Clear:
    plan: ClearPlan


@dataclass(frozen=True, slots=True)
class TakeOver:
    """`plan` states the newest entry on the branch once more, with the fence of whoever goes on."""

    plan: CommitPlan


@dataclass(frozen=True, slots=True)
class Adopt:
    """`plan` states `loaded` once more, with the fence of whoever adopts."""

    plan: CommitPlan
    loaded: LedgerEntry


@dataclass(frozen=True, slots=True)
class DropBranch:
    """The branch is removed."""


Step = Clear | TakeOver | Adopt | DropBranch


def resync_stage(
    heads: BranchedHead, table: TableName, coordinator: Coordinator
) -> NotUnderWay | Loading | errors.Terminal:
    """How far the table is, or the error to stop with."""
    if (error := _barred(heads.main, table, coordinator)) is not None:
        return error
    branch = heads.branch
    if branch is None or not _is_ours(heads, coordinator.job):
        return NotUnderWay()
    match start(branch, table, coordinator):
        case StartPoint(frontier, entry):
            return Loading(frontier, entry)
        case errors.Terminal() as error:
            return error


def highest_generation(heads: BranchedHead, job: JobId) -> int:
    """As `recovery.newest_generation`, for main and the branch."""
    known = (heads.main,) if heads.branch is None else (heads.main, heads.branch)
    return max(newest_generation(head, job) for head in known)


def decide(heads: BranchedHead, wish: Wish) -> Step | Outcome | errors.Terminal:
    """What the wish means for the table as it is now."""
    match wish:
        case Begin():
            return _begin(heads, wish)
        case Adoption():
            return _adoption(heads, wish)
        case Abandonment():
            return _abandonment(heads, wish)


def clear_plan(coordinator: Coordinator, source: str = "") -> ClearPlan:
    """The snapshot that begins a load."""
    return ClearPlan(
        job=coordinator.job,
        fence=coordinator.fence,
        incarnation=coordinator.incarnation,
        config_hash=coordinator.config_hash,
        source=source,
    )


def _begin(heads: BranchedHead, wish: Begin) -> Step | Outcome | errors.Terminal:
    clear = Clear(clear_plan(wish.coordinator, wish.source))
    match resync_stage(heads, wish.table, wish.coordinator):
        case NotUnderWay():
            foreign = heads.branch is not None and not _has_been_ours(heads.branch, wish.coordinator.job)
            return _not_ours(wish.table, wish.coordinator.job) if foreign else clear
        case Loading(_, None) as loading:
            return loading if _marked_by(heads, wish.coordinator) else clear
        case Loading(_, LedgerEntry() as entry) as loading if not wish.anew:
            if _marked_by(heads, wish.coordinator):
                return loading
            return TakeOver(restated(entry, wish.coordinator.fence, TAKE_OVER))
        case Loading():
            return clear
        case errors.SourceLost() if wish.anew:
            # Of another source: whatever it was to be, it cannot go on.
            return clear
        case errors.Terminal() as error:
            return error


def _adoption(heads: BranchedHead, wish: Adoption) -> Step | Outcome | errors.Terminal:
    coordinator, loaded = wish.coordinator, wish.loaded
    stage = resync_stage(heads, wish.table, coordinator)
    match stage:
        case errors.Terminal():
            return stage
        case NotUnderWay():
            known = _is_on_main(heads.main, loaded, coordinator.job)
            return Adopted(loaded) if known else _gone(wish.table, coordinator.job)
        case Loading(_, entry) if entry is None or entry.snapshot_id != loaded.snapshot_id:
            return MainMoved(entry)
    published = _published(heads.main, coordinator.job)
    if published is not None and _is_older(loaded, published):
        return Behind(loaded, published)
    return Adopt(restated(loaded, coordinator.fence, ADOPT), loaded)


def _abandonment(heads: BranchedHead, wish: Abandonment) -> Step | Outcome | errors.Terminal:
    match resync_stage(heads, wish.table, wish.coordinator):
        case NotUnderWay() as nothing:
            return nothing
        case Loading() | errors.SourceLost():
            return DropBranch()
        case errors.Terminal() as error:
            return error


def _barred(main: TableHead, table: TableName, coordinator: Coordinator) -> errors.Terminal | None:
    """The error to stop with if main's ledger cannot be read, or tells of a newer coordinator. What is on the branch
    is asked by `recovery.start`, as on every table."""
    match read_frontier(main, coordinator.job):
        case Damaged(reason):
            return edited_error(table, coordinator.job, reason)
        case At(entry):
            fences: tuple[Fence | None, ...] = (entry.fence,)
        case Fresh(forgotten_by):
            fences = (forgotten_by,)
        case RolledBack(lost, left, _):
            fences = (lost.fence, None if left is None else left.fence)
    for fence in fences:
        if fence is not None and outranks(fence, coordinator.fence):
            return fenced_error(table, fence, coordinator.fence)
    return None


def _is_ours(heads: BranchedHead, job: JobId) -> bool:
    """Whether the branch holds a load that main does not hold already: somebody may have set main forward by hand."""
    branch = heads.branch
    mark = None if branch is None else branch.mark(job)
    if mark is None or mark.branch != job.resync_branch:
        return False
    return all(snapshot.snapshot_id != mark.snapshot_id for snapshot in heads.main.ancestry)


def _has_been_ours(branch: TableHead, job: JobId) -> bool:
    mark = branch.mark(job)
    return mark is not None and mark.branch == job.resync_branch


def _marked_by(heads: BranchedHead, coordinator: Coordinator) -> bool:
    """Whether the newest mark on the branch is of this very coordinator."""
    match None if heads.branch is None else read_frontier(heads.branch, coordinator.job):
        case At(entry):
            return entry.fence == coordinator.fence
        case Fresh(fence):
            return fence == coordinator.fence
        case _:
            return False


def _is_on_main(main: TableHead, loaded: LedgerEntry, job: JobId) -> bool:
    """Also if all of the load but its adoption has expired, and if main was rolled back behind it since."""
    seen = {id_ for snapshot in main.ancestry for id_ in (snapshot.snapshot_id, snapshot.parent_id)}
    in_property = main.in_property(job)
    return loaded.snapshot_id in seen or (
        in_property is not None and (in_property.operation, in_property.batch_id) == (ADOPT, loaded.batch_id)
    )


def _published(main: TableHead, job: JobId) -> LedgerEntry | None:
    match read_frontier(main, job):
        case At(entry) | RolledBack(entry, _, _):
            return entry
        case _:
            return None


def _is_older(loaded: LedgerEntry, published: LedgerEntry) -> bool:
    """Positions of two sources cannot be compared: then what main held is history, whatever it says."""
    ours, theirs = loaded.resolved, published.resolved
    same_source = not (loaded.incarnation and published.incarnation) or loaded.incarnation == published.incarnation
    return same_source and type(ours) is type(theirs) and is_before(ours, theirs)


def _not_ours(table: TableName, job: JobId) -> errors.TableChanged:
    return errors.TableChanged(
        f"{table} has a branch {job.resync_branch} that this pipeline did not make, and needs one of that name",
        hint=f"If nobody needs it: ALTER TABLE {table} DROP BRANCH `{job.resync_branch}`, then restart.",
        table=table.text,
        what="foreign branch",
        branch=job.resync_branch,
    )


def _gone(table: TableName, job: JobId) -> errors.TableChanged:
    return errors.TableChanged(
        f"{table} was loaded anew, but its branch {job.resync_branch} is gone, and main does not show the load",
        hint=f"Somebody removed the branch. Run `frazil resync CONFIG {table}` to load it once more.",
        table=table.text,
        what="branch gone",
        branch=job.resync_branch,
    )
