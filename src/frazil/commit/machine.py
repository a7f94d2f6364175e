"""Publishes one epoch of one table exactly once.

    NeedHead --head--> another uuid, rolled back, edited, another source  --> Stopped
     ^    |            another coordinator's fence                        --> FencedOut
     |    |            P >= upper          somebody, or we, did it before --> AlreadyPublished
     |    |            lower < P < upper   part of it is there            --> Recut(P)
     |    |            P < lower           something is missing           --> Stopped
     |    |            P == lower, but not the columns of the files       --> Stopped
     |    |            P == lower, older rows must be found first         --> Locating --located--.
     |    |            P == lower                                         --> Committing <--------'
     |    `--unavailable--.   (Locating: unavailable, or refused --> Stopped) |   |   |
     +--------------------+----------------------- conflict or unknown -------'   |   `--refused--> Stopped
                          `--> GaveUp, once attempts are used up                  `--accepted--> Published

    Committing --our clock is behind the last commit's--> NeedHead, after a wait; Postponed if that were a long one

P is the newest own entry on the ancestry of the very head that the commit is conditional on. Unknown is
treated like conflict on purpose: both mean "look again" (a 409 may have landed, H43), and looking finds our
own snapshot if the lost request did land (H6). Nothing else decides.

What was located holds for one head: it is committed on exactly that head, and located again on the next one (H47).
Whoever loses the race three times stops searching and publishes that one epoch with equality deletes, which hold
for any head. An epoch with rows that older ones must complete is searched for each time, since deletes by key fill
nothing, and so is one of a table with readers that cannot read such deletes: if it never wins within the attempts, it
gives up, and the pipeline begins with it anew. Pure: `advance` decides, `publisher` performs.

Tables that are published together each go through these states. Their commits are one request, sent when every one of
them is Committing. Servers that promise all or nothing may still land a part of it: then those that landed find
themselves AlreadyPublished, and the others are sent again. Whoever ends unpublished holds back what was not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from frazil import errors
from frazil.commit.admission import (
    Admitted,
    Coordinator,
    FencedOut,
    Stopped,
    admit,
    fenced_error,
    other_table_error,
)
from frazil.model.commit import Accepted, CommitAnswer, CommitPlan, Conflicted, Early, Refused, Unknown
from frazil.model.files import FileClosed, FileKind
from frazil.model.frontier import Frontier
from frazil.model.ids import TableName, batch_id
from frazil.model.ledger import LedgerEntry, SummarizesEpochs, TableHead
from frazil.model.ports import Located
from frazil.model.position import Position, is_before
from frazil.model.table import TableForm
from frazil.retry import Backoff

EPOCHS = Backoff(first=0.1, longest=10.0, attempts=8)
LOOKUPS_LOST_MAX = 3
CLOCK_WAIT_MAX = 30.0
_WRITE_AGAIN = (
    "Restart the pipeline: it writes the epoch again for the table as it is now. If a column is gone that the source "
    "still has, it stops there and says how to go on."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCommit:
    """One epoch of one table that is to be published.

    `table_uuid` is the table that the files were written for, `written` the form it had then. `requires_empty` if they
    were written without deletes because that table was empty. `vectors` if the plan's files are not yet what is
    published: the older rows of their keys must be found first. `by_position` if they may not be deleted by key.
    """

    table: TableName
    table_uuid: str
    coordinator: Coordinator
    plan: CommitPlan
    requires_empty: bool = False
    vectors: bool = False
    by_position: bool = False
    written: TableForm | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not is_before(self.lower, self.upper):
            raise ValueError(f"{self.table}: an epoch cannot reach from {self.lower} to {self.upper}")
        if self.needs_completing and not self.needs_locating:
            raise ValueError(f"{self.table}: nobody looks for the older rows that are to complete partial ones")

    @property
    def lower(self) -> Position | None:
        return self.plan.entry.lower

    @property
    def upper(self) -> Position:
        return self.plan.entry.resolved

    @property
    def needs_locating(self) -> bool:
        """Whether there are keys whose older rows may be in the table."""
        return self.vectors and bool(self.plan.files) and not self.requires_empty

    @property
    def must_search(self) -> bool:
        """Whether deletes by key cannot take the place of a search."""
        return self.by_position or self.needs_completing

    @property
    def needs_completing(self) -> bool:
        """Whether there are rows of which only older ones know all columns."""
        return any(file.kind is FileKind.PARTIAL for file in self.plan.files)


@dataclass(frozen=True, slots=True)
class NeedHead:
    """`in_doubt` once a commit was sent whose fate nobody proved: then nothing may be deleted. `lost` counts the
    lookups whose head had moved before they could be committed. The next look comes after `wait` seconds at least."""

    attempt: int = 1
    in_doubt: bool = False
    lost: int = 0
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Locating:
    """`must_search` if deletes by key cannot take the place of a search."""

    attempt: int
    head: TableHead
    in_doubt: bool = False
    lost: int = 0
    must_search: bool = False

    @property
    def by_equality(self) -> bool:
        return self.lost >= LOOKUPS_LOST_MAX and not self.must_search


@dataclass(frozen=True, slots=True)
class Committing:
    """`plan` holds for this head alone."""

    attempt: int
    head: TableHead
    plan: CommitPlan
    in_doubt: bool = False
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Published:
    """`plan` is what was committed: of an epoch with lookups more than the intent could know."""

    snapshot_id: int
    plan: CommitPlan = field(compare=False)


@dataclass(frozen=True, slots=True)
class AlreadyPublished:
    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class Recut:
    """The files do not fit what the table holds: write the epoch again, from this frontier on."""

    position: Position | None


@dataclass(frozen=True, slots=True)
class GaveUp:
    attempts: int
    in_doubt: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Postponed:
    """It cannot be published yet; `error` says until when."""

    error: errors.Transient


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Another table of the same commit cannot be published."""


Outcome = Published | AlreadyPublished | Recut | FencedOut | Stopped | GaveUp | Postponed | HeldBack
State = NeedHead | Locating | Committing | Outcome


@dataclass(frozen=True, slots=True)
class HeadUnavailable:
    """The catalog did not answer."""

    reason: str


@dataclass(frozen=True, slots=True)
class HeadRefused:
    """The catalog proved that there is no such table, or none for us."""

    error: errors.Terminal


@dataclass(frozen=True, slots=True)
class LocatingFailed:
    """The storage or the catalog did not answer."""

    reason: str


@dataclass(frozen=True, slots=True)
class LocatingRefused:
    """A file of the table or of the epoch cannot be read, and never will."""

    error: errors.Terminal


Answer = TableHead | HeadUnavailable | HeadRefused | Located | LocatingFailed | LocatingRefused | CommitAnswer


def advance(state: State, answer: Answer, epoch_commit: EpochCommit) -> State:
    match state, answer:
        case NeedHead(), TableHead() as head:
            return _decide(state, head, epoch_commit)
        case NeedHead(), HeadUnavailable(reason):
            return _look_again(state, state.in_doubt, reason)
        case NeedHead(), HeadRefused(error):
            return Stopped(error)
        case Locating(attempt, head, in_doubt, lost), Located() as located:
            return Committing(attempt, head, located_plan(epoch_commit, located), in_doubt, lost)
        case Locating(), LocatingFailed(reason):
            return _look_again(state, state.in_doubt, reason)
        case Locating(), LocatingRefused(error):
            return Stopped(error)
        case Committing(), Accepted(snapshot_id):
            return Published(snapshot_id, state.plan)
        case Committing(), Early():
            return _too_early(state, answer, epoch_commit)
        case Committing(lost=lost), Conflicted(reason):
            return _look_again(replace(state, lost=lost + epoch_commit.needs_locating), True, reason)
        case Committing(), Unknown(reason):
            return _look_again(state, True, reason)
        case Committing(), Refused():
            return Stopped(_refused(epoch_commit, answer))
        case _:
            raise AssertionError(f"{answer} cannot follow {state}")


def held_back(states: Sequence[State]) -> tuple[State, ...]:
    """The tables of one commit, once one of them has ended without being published: then nothing more is sent."""
    if not any(isinstance(state, Recut | FencedOut | Stopped | GaveUp | Postponed) for state in states):
        return tuple(states)
    return tuple(HeldBack() if isinstance(state, NeedHead | Locating | Committing) else state for state in states)


def make_epoch_commit(
    coordinator: Coordinator,
    table: TableName,
    table_uuid: str,
    lower: Position | None,
    upper: Frontier,
    files: Iterable[FileClosed],
    requires_empty: bool = False,
    source: str = "",
    vectors: bool = False,
    by_position: bool = False,
    written: TableForm | None = None,
) -> EpochCommit:
    """The intent to publish these files as the epoch (lower, upper]; without files it is a heartbeat.

    `source` is the source's own name of the table. With `vectors` the files are data and keys of deleted rows, of
    which a Locator makes what is published, with `by_position` never deletes by key. `written` is the table's form
    that the files were written under.
    """
    files = tuple(files)
    entry = replace(ledger_entry(coordinator, table, lower, upper, files), source=source)
    plan = CommitPlan(entry=entry, files=files, extra_summary=_extra_summary(entry))
    return EpochCommit(
        table=table,
        table_uuid=table_uuid,
        coordinator=coordinator,
        plan=plan,
        requires_empty=requires_empty,
        vectors=vectors,
        by_position=by_position,
        written=written,
    )


def located_plan(epoch_commit: EpochCommit, located: Located) -> CommitPlan:
    """What is committed in place of the intent's own plan; its ledger counts what really is."""
    files = located.files
    if any(file.kind is FileKind.PARTIAL for file in files):
        raise AssertionError(f"{epoch_commit.table}: rows that are not whole cannot be committed")
    data = [file for file in files if file.kind is FileKind.DATA]
    deletes = [file for file in files if file.kind.deletes]
    by_equality = sum(file.records for file in deletes if file.kind is FileKind.EQUALITY_DELETE)
    entry = replace(
        epoch_commit.plan.entry,
        operation=_operation(data, deletes or located.removed_deletes),
        data_files=len(data),
        delete_files=len(deletes),
        rows=sum(file.records for file in data),
        # A vector says how many rows of its file are deleted by now, not how many this epoch deleted.
        deletes=by_equality + located.found,
    )
    return replace(
        epoch_commit.plan,
        entry=entry,
        files=files,
        extra_summary={**epoch_commit.plan.extra_summary, **_extra_summary(entry)},
        removed_deletes=located.removed_deletes,
        must_exist=located.must_exist,
    )


def ledger_entry(
    coordinator: Coordinator, table: TableName, lower: Position | None, upper: Frontier, files: tuple[FileClosed, ...]
) -> LedgerEntry:
    """What the ledger will say. It does not depend on the head; the lake adds snapshot id and sequence number."""
    data = [file for file in files if file.kind is FileKind.DATA]
    deletes = [file for file in files if file.kind.deletes]
    return LedgerEntry(
        job=coordinator.job,
        batch_id=batch_id(coordinator.job, table, upper.position),
        lower=lower,
        resolved=upper.position,
        notes=upper.notes,
        position_time=upper.time,
        fence=coordinator.fence,
        incarnation=coordinator.incarnation,
        config_hash=coordinator.config_hash,
        operation=_operation(data, deletes),
        data_files=len(data),
        delete_files=len(deletes),
        rows=sum(file.records for file in data),
        deletes=sum(file.records for file in deletes),
    )


def _operation(data: Sequence[object], deletes: Sequence[object]) -> str:
    return "row_delta" if deletes else "append" if data else "heartbeat"


def failure(outcome: Outcome, epoch_commit: EpochCommit) -> errors.FrazilError | None:
    """The error a caller meets; None if the epoch is published or is to be cut again."""
    match outcome:
        case Stopped(error) | Postponed(error):
            return error
        case FencedOut(by):
            return fenced_error(epoch_commit.table, by, epoch_commit.coordinator.fence)
        case GaveUp(attempts, in_doubt, reason):
            kind = errors.OutcomeUnknown if in_doubt else errors.CatalogUnavailable
            return kind(
                f"{epoch_commit.table}: the epoch up to {epoch_commit.upper} was tried {attempts} times, "
                f"last answer: {reason}",
                hint="The pipeline tries again by itself and first looks whether the commit landed. Delete no files. "
                "If it stays like this, look at the catalog.",
                table=epoch_commit.table.text,
                epoch=epoch_commit.upper.text,
                attempts=attempts,
            )
        case _:
            return None


def _decide(state: NeedHead, head: TableHead, epoch_commit: EpochCommit) -> State:
    if head.uuid != epoch_commit.table_uuid:
        return Stopped(_recreated(epoch_commit, head))
    match admit(head, epoch_commit.table, epoch_commit.coordinator):
        case Admitted(entry) as admitted:
            # Two names of one table, in a catalog that does not tell upper from lower case.
            if error := other_table_error(entry, epoch_commit.table, epoch_commit.plan.entry.source):
                return Stopped(error)
            return _compare_and_set(state, head, admitted, epoch_commit)
        case barred:
            return barred


def _compare_and_set(state: NeedHead, head: TableHead, admitted: Admitted, epoch_commit: EpochCommit) -> State:
    """Rule 2 of publishing: nothing but the frontier on this head says whether the epoch fits."""
    position = admitted.position
    if position == epoch_commit.lower:
        if epoch_commit.requires_empty and not head.is_empty:
            return Recut(position)
        if (error := _misfit(epoch_commit, head)) is not None:
            return Stopped(error)
        if epoch_commit.needs_locating:
            return Locating(state.attempt, head, state.in_doubt, state.lost, epoch_commit.must_search)
        return Committing(state.attempt, head, epoch_commit.plan, state.in_doubt, state.lost)
    if admitted.entry is not None and not is_before(position, epoch_commit.upper):
        return AlreadyPublished(admitted.entry)
    if is_before(epoch_commit.lower, position):
        return Recut(position)
    return Stopped(_behind(epoch_commit, position))


def _look_again(state: NeedHead | Locating | Committing, in_doubt: bool, reason: str) -> NeedHead | GaveUp:
    if state.attempt >= EPOCHS.attempts:
        return GaveUp(state.attempt, in_doubt, reason)
    return NeedHead(state.attempt + 1, in_doubt, state.lost)


def _too_early(state: Committing, answer: Early, epoch_commit: EpochCommit) -> NeedHead | Postponed:
    if answer.seconds <= CLOCK_WAIT_MAX and state.attempt < EPOCHS.attempts:
        return NeedHead(state.attempt + 1, state.in_doubt, state.lost, answer.seconds)
    return Postponed(clock_error(answer, epoch_commit.table.text))


def clock_error(answer: Early, table: str) -> errors.ClockBehind:
    return errors.ClockBehind(
        f"{table}: {answer.reason}",
        hint=answer.hint,
        table=table,
        seconds=round(answer.seconds),
    )


def _extra_summary(entry: LedgerEntry) -> Mapping[str, str]:
    return entry.resolved.summary(entry) if isinstance(entry.resolved, SummarizesEpochs) else {}


def _recreated(epoch_commit: EpochCommit, head: TableHead) -> errors.TableChanged:
    return errors.TableChanged(
        f"{epoch_commit.table} was dropped and created again while its epoch up to {epoch_commit.upper} was "
        "being written",
        hint="Restart the pipeline: it loads the new table from the start of the source, if the source still has it.",
        table=epoch_commit.table.text,
        what="recreated",
        expected_uuid=epoch_commit.table_uuid,
        found_uuid=head.uuid,
    )


def _behind(epoch_commit: EpochCommit, position: Position | None) -> errors.TableChanged:
    found = "holds no epoch of this pipeline" if position is None else f"ends at {position}"
    return errors.TableChanged(
        f"{epoch_commit.table} {found}, but this coordinator had published it up to {epoch_commit.lower}: "
        "the table was set back together with its ledger",
        hint=f"If that was intended, run `frazil rewind CONFIG {epoch_commit.table}` and restart: the pipeline goes "
        "on from what the table holds now. `frazil epochs` shows what that is.",
        table=epoch_commit.table.text,
        what="edited",
        expected=None if epoch_commit.lower is None else epoch_commit.lower.text,
        found=None if position is None else position.text,
    )


def _misfit(epoch_commit: EpochCommit, head: TableHead) -> errors.TableChanged | None:
    """Committed under another form, the values of the epoch would be under ids that nobody reads, or unreadable."""
    if epoch_commit.written is None or head.form is None or not epoch_commit.plan.files:
        return None
    why = epoch_commit.written.misfit(head.form, {file.spec_id for file in epoch_commit.plan.files})
    return None if why is None else misfit_error(epoch_commit.table, why, f"the epoch up to {epoch_commit.upper}")


def misfit_error(table: TableName, why: str, what: str, hint: str = _WRITE_AGAIN) -> errors.TableChanged:
    return errors.TableChanged(
        f"{table}: somebody changed the table while {what} was being written: {why}",
        hint=hint,
        table=table.text,
        what="other columns",
    )


def _refused(epoch_commit: EpochCommit, answer: Refused) -> errors.CatalogRefused:
    return errors.CatalogRefused(
        f"{epoch_commit.table}: the catalog refused the epoch up to {epoch_commit.upper}: {answer.reason}",
        hint=answer.hint or "Check the catalog's permissions for this table, then restart.",
        table=epoch_commit.table.text,
        epoch=epoch_commit.upper.text,
    )
