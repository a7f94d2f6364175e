"""Decides which equality deletes become positions, and whether what was found may be published. Pure.

    live files --plan_conversion--> ConvertPlan: deletes to convert, files they reach, deletes that reach nothing
        --> searched on Spark, positions written --> Marked
    the head to publish on --rebase--> Ready: deletes to add, to remove, vectors to merge once more
                                  `--> PlanAgain: the head tells another story than the plan

What a delete reaches is fixed by its sequence number, its partition, and those of the data files: none of them ever
changes. So between the plan and a later head on the same line of history

    an append                 is not reached: its files are newer than every delete of the plan
    a delete                  stays; if it is a vector of a file of ours, ours is merged into it
    a rewrite, all applied    takes files away, for which nothing is published any more
    a rewrite from before     brings files that are older than a delete of the plan and were not searched: plan again
    a conversion, a rollback  takes a delete of the plan away: plan again

A delete is removed only if every live file that it reaches was searched for its keys (H15, H47). One that reaches no
live file is removed as it is (H17).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from frazil.data.deletes.delete_files import VECTORS_FROM_VERSION
from frazil.model.conversion import ConvertedTable, DeleteKeys, KeyColumn, Marked, Search, SearchedFile
from frazil.model.files import DeleteId, FileKind, LiveDelete, LiveFile, LiveFiles, WrittenFile
from frazil.model.ids import maintenance_folder
from frazil.model.schema import Decimal, Primitive
from frazil.model.write import ParquetSettings

ACTION = "convert"
_PARQUET = "parquet"
_Place = tuple[tuple[int, ...], int, tuple[Any, ...]]
"""Key columns, spec and partition: whom deletes of a place reach, one of them tells of all (`LiveFile.deletes`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertSettings:
    """`min_delete_files`: below it a run is not worth its snapshot. `max_keys`: of one run, the oldest deletes first;
    the rest is for the next one."""

    min_delete_files: int = 1
    max_keys: int = 200_000_000

    def __post_init__(self) -> None:
        if self.min_delete_files < 1 or self.max_keys < 1:
            raise ValueError("min_delete_files and max_keys begin at 1")


@dataclass(frozen=True, slots=True)
class Left:
    """A delete that stays as it is, and why."""

    delete: LiveDelete
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertPlan:
    """`files` are all live files that a delete of `converted` reaches, in the order of their partitions, each with all
    its deletes."""

    table: ConvertedTable
    snapshot_id: int
    converted: tuple[LiveDelete, ...]
    dangling: tuple[LiveDelete, ...]
    files: tuple[LiveFile, ...]
    left: tuple[Left, ...] = ()
    waiting: int = 0

    @property
    def reason(self) -> str:
        keys = sum(delete.records for delete in self.converted)
        texts = []
        if self.converted:
            texts.append(f"{len(self.converted)} equality delete files with {keys} keys reach {len(self.files)} files")
        if self.dangling:
            texts.append(f"{len(self.dangling)} delete files reach no file")
        if self.waiting:
            texts.append(f"{self.waiting} more wait for the next run")
        if self.left:
            texts.append(f"{len(self.left)} stay as they are: {self.left[0].why}")
        return "; ".join(texts)

    @property
    def deletes_sequence(self) -> int | None:
        """That of what is written; None for that of its snapshot. A position delete file is for many data files and
        names none of them in its manifest, so whoever plans takes it for one of all that are not newer: of those that
        came while it was written, too, if it were as new as its snapshot. It stands for deletes that are older."""
        if self.table.format_version >= VECTORS_FROM_VERSION:
            return None
        return max((delete.sequence_number for delete in self.converted), default=None)

    @property
    def counts(self) -> dict[str, int]:
        return {
            "delete_files": len(self.converted),
            "delete_keys": sum(delete.records for delete in self.converted),
            "dangling_files": len(self.dangling),
            "data_files": len(self.files),
            "left": len(self.left),
            "waiting": self.waiting,
        }

    def search(self, run: UUID, parquet: ParquetSettings | None = None) -> Search:
        """What Spark is to do in this run."""
        table = self.table
        sets = sorted({_key_ids(delete) for delete in self.converted})
        numbers = {ids: number for number, ids in enumerate(sets)}
        places: dict[_Place, int] = {}
        for delete in self.converted:
            places.setdefault(_place(delete), len(places))
        chosen = {delete.id for delete in self.converted}
        return Search(
            table=table.name,
            number=run,
            folder=maintenance_folder(table.data_location, ACTION, run),
            schema_id=table.schema.schema_id,
            format_version=table.format_version,
            key_sets=tuple(tuple(table.columns[id_] for id_ in ids) for ids in sets),
            places=tuple(numbers[ids] for ids, _, _ in places),
            deletes=tuple(DeleteKeys(d.path, d.size, places[_place(d)], d.sequence_number) for d in self.converted),
            files=tuple(
                SearchedFile(
                    file.by_position(),
                    tuple(sorted({places[_place(delete)] for delete in file.deletes if delete.id in chosen})),
                    _constants(file, table),
                )
                for file in self.files
            ),
            parquet=parquet or ParquetSettings(),
            storage=table.storage,
            name_mapping=table.name_mapping,
        )


def plan_conversion(
    table: ConvertedTable, live: LiveFiles, settings: ConvertSettings | None = None
) -> ConvertPlan | None:
    """None if there is nothing to do that can be done."""
    settings = settings or ConvertSettings()
    if live.snapshot_id is None:
        return None
    hindered: dict[DeleteId, str] = {}
    reaching: set[DeleteId] = set()
    for file in live.files:
        for delete in file.deletes:
            reaching.add(delete.id)
            if delete.kind is FileKind.EQUALITY_DELETE and file.format != _PARQUET:
                hindered[delete.id] = f"it reaches {file.path}, which is {file.format}: rewrite that file as Parquet"
    dangling = tuple(delete for delete in live.deletes if delete.id not in reaching)
    left: list[Left] = []
    able: list[LiveDelete] = []
    for delete in live.deletes:
        if delete.kind is FileKind.EQUALITY_DELETE and delete.id in reaching:
            why = hindered.get(delete.id) or _why_not(delete, table.columns)
            if why is None:
                able.append(delete)
            else:
                left.append(Left(delete, why))
    converted = _oldest(able, settings.max_keys)
    if len(converted) + len(dangling) < settings.min_delete_files:
        return None
    chosen = {delete.id for delete in converted}
    files = [file for file in live.files if any(delete.id in chosen for delete in file.deletes)]
    return ConvertPlan(
        table=table,
        snapshot_id=live.snapshot_id,
        converted=converted,
        dangling=dangling,
        files=tuple(sorted(files, key=_in_order)),
        left=tuple(left),
        waiting=len(able) - len(converted),
    )


@dataclass(frozen=True, slots=True)
class Merge:
    """A vector that was written while somebody else gave its data file another one."""

    vector: WrittenFile
    file: LiveFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What is published on the head that was looked at. `rows` are deleted by position from now on."""

    added: tuple[WrittenFile, ...]
    merges: tuple[Merge, ...]
    removed: tuple[LiveDelete, ...]
    dangling: int
    rows: int


@dataclass(frozen=True, slots=True)
class PlanAgain:
    reason: str


def rebase(plan: ConvertPlan, marked: Sequence[Marked], now: LiveFiles, format_version: int) -> Ready | PlanAgain:
    """Whether what was found for the plan holds at a later head, on whose history the plan's snapshot lies."""
    if format_version != plan.table.format_version:
        return PlanAgain(f"the table has become version {format_version}")
    there = {delete.id for delete in now.deletes}
    gone = [delete.path for delete in plan.converted if delete.id not in there]
    if gone:
        return PlanAgain(f"somebody else removed {gone[0]}")
    converted = {delete.id for delete in plan.converted}
    searched = {(file.path, file.sequence_number) for file in plan.files}
    reaching: set[DeleteId] = set()
    for file in now.files:
        reaching.update(delete.id for delete in file.deletes)
        known = (file.path, file.sequence_number) in searched
        if not known and any(delete.id in converted for delete in file.deletes):
            return PlanAgain(f"{file.path} came meanwhile and is older than the deletes")
    dangling = [delete for delete in now.deletes if delete.id not in reaching and delete.id not in converted]
    if not plan.converted and not dangling:
        return PlanAgain("somebody else removed what reached nothing")
    live, planned = now.by_path, {file.path: file for file in plan.files}
    added, merges, replaced, rows = list[WrittenFile](), list[Merge](), list[LiveDelete](), 0
    for one in marked:
        still = [live[path] for path in one.data_files if path in live]
        if not still:
            continue
        rows += one.fresh
        if one.file.vector is None:
            added.append(one.file)
            continue
        (file,) = still
        # A vector takes the place of all earlier deletes by position of its file (H23, H24).
        replaced += [delete for delete in file.position_deletes if delete.data_file == file.path]
        if {one.id for one in file.position_deletes} == {one.id for one in planned[file.path].position_deletes}:
            added.append(one.file)
        else:
            merges.append(Merge(one.file, file.by_position()))
    return Ready(
        added=tuple(added),
        merges=tuple(merges),
        removed=_once([*plan.converted, *dangling, *replaced]),
        dangling=len(dangling),
        rows=rows,
    )


def _why_not(delete: LiveDelete, columns: Mapping[int, KeyColumn]) -> str | None:
    if delete.format != _PARQUET:
        return f"{delete.path} is {delete.format}"
    if not delete.equality_ids:
        return f"{delete.path} names no columns"
    for id_ in delete.equality_ids:
        column = columns.get(id_)
        if column is None:
            return f"{delete.path} deletes by field {id_}, which is no top-level column of a known type"
        match column.field.type:
            case Decimal():
                continue
            case Primitive(name) if name != "variant":
                continue
            case type_:
                return f"{delete.path} deletes by {column.field.name!r}, which is a {type_}"
    return None


def _oldest(deletes: Iterable[LiveDelete], max_keys: int) -> tuple[LiveDelete, ...]:
    """One at least, however many keys it has."""
    chosen: list[LiveDelete] = []
    keys = 0
    for delete in sorted(deletes, key=lambda delete: (delete.sequence_number, delete.path)):
        keys += delete.records
        if chosen and keys > max_keys:
            break
        chosen.append(delete)
    return tuple(chosen)


def _place(delete: LiveDelete) -> _Place:
    return _key_ids(delete), delete.spec_id, delete.partition


def _constants(file: LiveFile, table: ConvertedTable) -> dict[int, Any]:
    """Files that were imported may lack columns that their partition tells."""
    spec = next(spec for spec in table.specs if spec.spec_id == file.spec_id)
    told = zip(spec.fields, file.partition, strict=True)
    return {field.source_id: value for field, value in told if field.transform.name == "identity"}


def _key_ids(delete: LiveDelete) -> tuple[int, ...]:
    """Whatever the order in which a writer names them."""
    return tuple(sorted(set(delete.equality_ids)))


def _in_order(file: LiveFile) -> tuple[int, str, str]:
    return file.spec_id, repr(file.partition), file.path


def _once(deletes: Iterable[LiveDelete]) -> tuple[LiveDelete, ...]:
    return tuple({delete.id: delete for delete in deletes}.values())
