"""Repairs what an examination found, each kind in one commit on a head that was looked at.

    repair --head--> Registered --what is to be done?--> nothing left: done
      ^                 |  Spark writes what takes the place of the damage
      |                 v
      |              a later head --are the files that matter as they were?--yes--> ReplaceFiles, sent once
      +------------------- no: from the start (bounded) --------'

    registered twice   the file is written once more and takes the place of all its registrations, with the sequence
                       number of the oldest: the same equality deletes reach it
    wrong partition    all rows of the file, each in its partition, with the sequence number of the head they were read
                       at: no delete of before reaches them, every later one does. Equality deletes are converted first
    duplicate keys     all but the oldest of equal rows are deleted at their positions
    dangling deletes   are removed, if they still reach nothing

The ledger is not touched: none of this is an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from frazil.clock import Clock
from frazil.doctor.examination import ExaminedTable, Folder, Placed, Registered
from frazil.doctor.findings import Looks, dangling, looks_of, place_of, to_look_at, twice
from frazil.doctor.registered import ExaminedTables
from frazil.doctor.tasks import SparkExamining
from frazil.errors import BadInput, Transient
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.maintenance.commit_rewrite import commit_rewrite, summary_of
from frazil.maintenance.convert.planner import ConvertSettings, plan_conversion
from frazil.maintenance.convert.runner import Convert
from frazil.model.commit import ReplaceFiles
from frazil.model.compaction import Group, Rewrite, Rewriting
from frazil.model.conversion import Search
from frazil.model.files import DeleteId, FileKind, LiveDelete, LiveFile, LiveFiles
from frazil.model.ids import TableName, maintenance_folder
from frazil.model.ledger import TableHead
from frazil.model.partition import PartitionSpec
from frazil.model.write import ParquetSettings
from frazil.retry import Attempt

ACTION = "doctor"
PLANS_MAX = 4
_EVERY_KEY = ConvertSettings(max_keys=1 << 62)


@dataclass(frozen=True, slots=True)
class Mended:
    """`left` are things that could not be repaired, each with why."""

    snapshot_ids: tuple[int, ...] = ()
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """What Spark has written for one head. `plan_on` is the commit for a later one, None if that one tells another
    story."""

    run: UUID
    registered: Registered
    plan_on: Callable[[Registered], ReplaceFiles | None]
    left: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """All that repairs of the tables of one catalog are made with."""

    committer: IcebergCommitter
    reads: ExaminedTables
    examining: SparkExamining
    rewriting: Rewriting
    convert: Convert
    clock: Clock
    parquet: ParquetSettings


class Repairs:
    """Of one table."""

    def __init__(self, table: TableName, tools: Tools, configured_key: Sequence[str] = ()) -> None:
        self._table = table
        self._tools = tools
        self._key = tuple(configured_key)

    def register_once(self) -> Mended:
        """Leaves one registration of each file whose registrations all show the same rows."""
        return self._until_done("the repair of files that are registered twice", self._prepare_once)

    def place_rows(self, suspects: Iterable[str]) -> Mended:
        """Moves the rows of these files, as far as they lie in a partition that is not theirs."""
        paths = frozenset(suspects)
        return self._until_done(
            "the repair of rows in wrong partitions",
            lambda head, registered: self._prepare_rows(head, registered, paths),
        )

    def drop_equal_rows(self) -> Mended:
        """Deletes all but the oldest row of each key whose rows are equal."""
        return self._until_done("the repair of duplicate keys", self._prepare_keys)

    def drop_dangling(self, names: Mapping[str, frozenset[str]]) -> Mended:
        """Removes deletes that reach nothing. `names` are the data files that position delete files name."""

        def prepare(head: TableHead, registered: Registered) -> Prepared | None:
            wanted = {delete.id for delete in dangling(registered, names)}
            run = self._tools.clock.new_uuid()

            def plan_on(now: Registered) -> ReplaceFiles | None:
                still = tuple(delete for delete in dangling(now, names) if delete.id in wanted)
                summary = summary_of(ACTION, run, dangling_delete_files=len(still))
                return ReplaceFiles(files=(), summary=summary, removed_deletes=still, rewrites=True) if still else None

            return Prepared(run, registered, plan_on) if wanted else None

        return self._until_done("the removal of dangling deletes", prepare)

    # the way there

    def _until_done(self, what: str, prepare: Callable[[TableHead, Registered], Prepared | None]) -> Mended:
        """Raises Transient if others were faster every time, OutcomeUnknown, CatalogRefused, and what Spark raises."""
        tools, done = self._tools, Mended()
        losses = 0
        while losses < PLANS_MAX:
            head = tools.committer.head(self._table)
            prepared = prepare(head, tools.reads.registered(self._table, head))
            if prepared is None:
                return done
            snapshot_id = self._commit(prepared, what)
            if snapshot_id is None:
                losses += 1
                continue
            done = Mended((*done.snapshot_ids, snapshot_id), prepared.left)
            if not prepared.more:
                return done
        raise Transient(
            f"{self._table}: {what} was overtaken {PLANS_MAX} times",
            hint="Nothing is lost. Run it again, at best while nobody writes to the table.",
            table=self._table.text,
        )

    def _commit(self, prepared: Prepared, what: str) -> int | None:
        """The snapshot; None if the table has become another one."""
        tools, planned = self._tools, prepared.registered

        def attempt(head: TableHead) -> Attempt[None]:
            if head.snapshot_id == planned.snapshot_id:
                now = planned
            elif any(snapshot.snapshot_id == planned.snapshot_id for snapshot in head.ancestry):
                now = tools.reads.registered(self._table, head)
            else:
                return Attempt(None)
            plan = prepared.plan_on(now)
            return Attempt(None, None if plan is None else tools.committer.repair(self._table, head, plan))

        return commit_rewrite(self._table, prepared.run, what, tools.committer.head, attempt, tools.clock)[1]

    # what is to be done

    def _prepare_once(self, head: TableHead, registered: Registered) -> Prepared | None:
        """One commit has one sequence number: files of the oldest one first."""
        examined = self._tools.reads.examined_table(self._table, head, self._key)
        suspects = frozenset(path for path, entries in registered.by_path.items() if len(entries) > 1)
        chosen = [one for one in twice(registered, self._look(examined, registered, suspects)) if not one.hindrance]
        if not chosen:
            return None
        number = min(one.oldest.sequence_number for one in chosen)
        batch = [one for one in chosen if one.oldest.sequence_number == number]
        run = self._tools.clock.new_uuid()
        groups = [_alone(one.oldest) for one in batch]
        rewrite = Rewrite(
            table=examined.table,
            snapshot_id=registered.snapshot_id or 0,
            number=run,
            folder=maintenance_folder(examined.table.data_location, ACTION, run),
            sequence_number=number,
            groups=tuple(groups),
            parquet=self._tools.parquet,
        )
        results = self._tools.rewriting.concatenate(rewrite)
        left = tuple(f"{batch[one.group].oldest.path}: {one.failure}" for one in results if one.failure is not None)
        kept = [(batch[one.group], one) for one in results if one.failure is None]
        files = [file for _, one in kept for file in one.files]
        entries = [entry for one, _ in kept for entry in one.entries]

        def plan_on(now: Registered) -> ReplaceFiles | None:
            if not kept or not unchanged(entries, now, lambda delete: delete.kind is FileKind.EQUALITY_DELETE):
                return None
            return ReplaceFiles(
                files=tuple(files),
                summary=summary_of(ACTION, run, registered_once=len(kept)),
                removed_data=tuple(entries),
                removed_deletes=_own_deletes({entry.path for entry in entries}, now),
                rewrites=True,
                keeps_sequence=number,
            )

        if not kept:
            return None
        return Prepared(run, registered, plan_on, left, more=len(batch) < len(chosen))

    def _prepare_rows(self, head: TableHead, registered: Registered, suspects: frozenset[str]) -> Prepared | None:
        tools = self._tools
        examined = tools.reads.examined_table(self._table, head, self._key)
        looks = self._look(examined, registered, suspects)
        wrong = [
            entries[0]
            for path, entries in registered.by_path.items()
            if path in suspects and len(entries) == 1 and looks.data[place_of(entries[0])].misplaced
        ]
        if not wrong:
            return None
        if any(delete.kind is FileKind.EQUALITY_DELETE for file in wrong for delete in file.deletes):
            self._convert(head, registered)
            return Prepared(tools.clock.new_uuid(), registered, _never)
        run = tools.clock.new_uuid()
        folder = Folder(
            run=run, path=maintenance_folder(examined.table.data_location, ACTION, run), parquet=tools.parquet
        )
        placed = tools.examining.place(examined, wrong, folder)
        left = tuple(f"{one.path}: {one.failure}" for one in placed if one.failure)
        return self._moved(Prepared(run, registered, _never, left), examined, wrong, placed)

    def _moved(
        self, prepared: Prepared, examined: ExaminedTable, wrong: Sequence[LiveFile], placed: Sequence[Placed]
    ) -> Prepared | None:
        made = {one.path: one for one in placed if not one.failure}
        moved = [file for file in wrong if file.path in made]
        if not moved:
            return None
        everywhere = _everywhere(examined.table.specs)

        def plan_on(now: Registered) -> ReplaceFiles | None:
            # An equality delete of one partition would have reached the row where it was, and does not where it goes.
            if not unchanged(moved, now, lambda delete: _reaches_all(delete, everywhere)):
                return None
            return ReplaceFiles(
                files=tuple(file for one in made.values() for file in one.files),
                summary=summary_of(ACTION, prepared.run, moved_data_files=len(moved)),
                removed_data=tuple(moved),
                removed_deletes=_own_deletes(made.keys(), now),
                rewrites=True,
                keeps_sequence=examined.table.sequence_number,
            )

        return replace(prepared, plan_on=plan_on)

    def _prepare_keys(self, head: TableHead, registered: Registered) -> Prepared | None:
        tools = self._tools
        examined = tools.reads.examined_table(self._table, head, self._key)
        run = tools.clock.new_uuid()
        folder = Folder(
            run=run, path=maintenance_folder(examined.table.data_location, ACTION, run), parquet=tools.parquet
        )
        found = tools.examining.surplus(examined, registered.first, self.deletes(head, registered), folder)
        if not found.marked:
            return None
        by_path = registered.by_path
        marked = {path for one in found.marked for path in one.data_files}
        matter = [entry for path in sorted(marked.union(found.kept)) for entry in by_path[path]]
        everywhere = _everywhere(examined.table.specs)

        def plan_on(now: Registered) -> ReplaceFiles | None:
            # What deletes every row of a key deletes the one that stays too, so only deletes of some rows matter.
            if not unchanged(matter, now, lambda delete: _reaches_all(delete, everywhere)):
                return None
            vectors = {one.file.vector.data_file for one in found.marked if one.file.vector is not None}
            return ReplaceFiles(
                files=tuple(one.file for one in found.marked),
                summary=summary_of(ACTION, run, equal_rows=sum(one.fresh for one in found.marked)),
                # A vector takes the place of all earlier deletes by position of its file (H23, H24).
                removed_deletes=_own_deletes(vectors, now),
                must_exist=tuple(sorted(marked)),
            )

        return Prepared(run, registered, plan_on)

    def deletes(self, head: TableHead, registered: Registered) -> Search | None:
        """The equality deletes that reach some file, as a search for what they delete. Raises BadInput if some of
        them cannot be searched for."""
        live = LiveFiles(snapshot_id=registered.snapshot_id, files=registered.first, deletes=registered.deletes)
        plan = plan_conversion(self._tools.committer.converted_table(self._table, head), live, _EVERY_KEY)
        if plan is None:
            return None
        if plan.left:
            raise BadInput(f"{self._table}: {plan.left[0].why}", hint="Rewrite these files with Spark first.")
        return plan.search(self._tools.clock.new_uuid()) if plan.converted else None

    def _convert(self, head: TableHead, registered: Registered) -> None:
        live = LiveFiles(snapshot_id=registered.snapshot_id, files=registered.first, deletes=registered.deletes)
        plan = self._tools.convert.plan(self._table, head, live, _EVERY_KEY)
        if plan is None or plan.left:
            why = plan.left[0].why if plan is not None else "nothing can be converted"
            raise Transient(
                f"{self._table}: equality deletes stay: {why}", hint="Rewrite these files with Spark first."
            )
        self._tools.convert.perform(plan, _EVERY_KEY)

    def _look(self, examined: ExaminedTable, registered: Registered, suspects: frozenset[str]) -> Looks:
        some = replace(registered, data=tuple(one for one in registered.data if one.path in suspects), deletes=())
        data, deletes = to_look_at(some)
        return looks_of(data, deletes, self._tools.examining.look(examined, data, deletes))


def unchanged(planned: Sequence[LiveFile], now: Registered, may_come: Callable[[LiveDelete], bool]) -> bool:
    """Whether files are registered as they were, with the deletes that they had, and none more but such that may come.
    Pure."""
    by_path = now.by_path
    before: dict[str, list[LiveFile]] = {}
    for file in planned:
        before.setdefault(file.path, []).append(file)
    for path, files in before.items():
        found = by_path.get(path, ())
        if sorted(map(_registration, found)) != sorted(map(_registration, files)):
            return False
        had, has = _reaching(files), _reaching(found)
        if had.keys() - has.keys() or any(not may_come(has[one]) for one in has.keys() - had.keys()):
            return False
    return True


def _alone(file: LiveFile) -> Group:
    return Group(
        files=(file.by_position(),),
        reason="it is registered twice",
        file_bytes=max(file.size * 2, 1),
        sequence_until=file.sequence_number,
    )


def _registration(file: LiveFile) -> tuple[int, int, str]:
    return file.sequence_number, file.spec_id, repr(file.partition)


def _reaching(files: Iterable[LiveFile]) -> dict[DeleteId, LiveDelete]:
    return {delete.id: delete for file in files for delete in file.deletes}


def _own_deletes(paths: Iterable[str], now: Registered) -> tuple[LiveDelete, ...]:
    """Deletes by position that are for one of these files alone."""
    wanted = set(paths)
    return tuple(one for one in now.deletes if one.kind is FileKind.POSITION_DELETE and one.data_file in wanted)


def _reaches_all(delete: LiveDelete, everywhere: frozenset[int]) -> bool:
    return delete.kind is FileKind.EQUALITY_DELETE and delete.spec_id in everywhere


def _everywhere(specs: Sequence[PartitionSpec]) -> frozenset[int]:
    return frozenset(spec.spec_id for spec in specs if not spec.partitions)


def _never(now: Registered) -> ReplaceFiles | None:
    """Look again first."""
    return None
