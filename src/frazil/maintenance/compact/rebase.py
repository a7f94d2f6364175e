"""Decides what of a rewrite may be published on a head that may be later than the one of its plan. Pure.

an append                 needs nothing
an equality delete        needs nothing: it is newer
a vector, a position      follows its rows into the rewritten file (H16); if that is all there is to it, the group
                          is published
a rewrite of an input     makes the group useless: it is dropped, and planned anew from what is there then
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.model.compaction import Carried, Moved, Rewrite, RewriteResult
from frazil.model.files import DeleteId, FileKind, LiveDelete, LiveFile, LiveFiles


@dataclass(frozen=True, slots=True)
class Dropped:
    group: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebased:
    """What may be published on a head: `kept` groups, of which `moved` need their deletes re-projected. `removed` are
    the deletes that go with the inputs; those in `carried` go only if they delete rows of inputs, and then their other
    rows are written anew."""

    kept: tuple[RewriteResult, ...]
    moved: tuple[Moved, ...]
    inputs: tuple[LiveFile, ...]
    removed: tuple[LiveDelete, ...]
    carried: tuple[Carried, ...]
    dropped: tuple[Dropped, ...]


def rebase(
    rewrite: Rewrite,
    results: Sequence[RewriteResult],
    now: LiveFiles,
    format_version: int,
    undone: Collection[int] = (),
) -> Rebased:
    """What of the results holds at a head that may be later than the one of the plan, or another one altogether:
    data files never change, so it is enough to compare the inputs and their deletes."""
    live = now.by_path
    unmoved = now.snapshot_id == rewrite.snapshot_id
    kept, moved, dropped = list[RewriteResult](), list[Moved](), list[Dropped]()
    inputs: list[LiveFile] = []
    for result in results:
        group = rewrite.groups[result.group]
        why = result.failure
        if result.group in undone:
            why = "a row that was left out is alive again"
        if format_version != rewrite.table.format_version:
            why = f"the table has become version {format_version}"
        if rewrite.table.has_lineage and not unmoved and any(file.first_row_id is None for file in group.files):
            # The first commit after an upgrade gives ids to all rows there are, and rows keep the id they got.
            why = "its rows got their ids meanwhile"
        why = why or next(filter(None, (_why_not(file, live, rewrite) for file in group.files)), None)
        if why is not None:
            dropped.append(Dropped(result.group, why))
            continue
        files = tuple(live[file.path].by_position() for file in group.files)
        kept.append(result)
        inputs += files
        if any(_ids(one) != _ids(other) for one, other in zip(group.files, files, strict=True)):
            moved.append(Moved(result, files))
    removed, carried = _deletes_of(inputs, now, _fresh(rewrite, moved))
    return Rebased(
        kept=tuple(kept),
        moved=tuple(moved),
        inputs=tuple(inputs),
        removed=removed,
        carried=carried,
        dropped=tuple(dropped),
    )


def _why_not(file: LiveFile, live: Mapping[str, LiveFile], rewrite: Rewrite) -> str | None:
    found = live.get(file.path)
    if found is None:
        return f"somebody else removed {file.path}"
    if _identity(found) != _identity(file):
        return f"{file.path} is no longer what it was"
    for delete in found.deletes:
        if delete.kind is FileKind.EQUALITY_DELETE and delete.sequence_number <= rewrite.sequence_number:
            # It would not reach what was written; only a table that was rolled back shows such a delete again.
            return f"the older equality delete {delete.path} reaches {file.path} again"
    return None


def _fresh(rewrite: Rewrite, moved: Iterable[Moved]) -> frozenset[DeleteId]:
    """Deletes that the inputs did not have when they were read."""
    return frozenset(
        id_
        for one in moved
        for before, file in zip(rewrite.groups[one.result.group].files, one.files, strict=True)
        for id_ in _ids(file) - _ids(before)
    )


def _deletes_of(
    inputs: Sequence[LiveFile], now: LiveFiles, fresh: Collection[DeleteId]
) -> tuple[tuple[LiveDelete, ...], tuple[Carried, ...]]:
    """Deletes by position that reach inputs alone go with them. One that others may need as well stays, unless it is
    fresh and does delete rows of inputs: Iceberg takes deletes in a rewrite in exchange for others only."""
    mine = {delete.id: delete for file in inputs for delete in file.deletes}
    gone = {file.path for file in inputs}
    others: dict[DeleteId, list[str]] = {}
    for file in now.files:
        if file.path not in gone:
            for delete in file.deletes:
                if delete.id in mine:
                    others.setdefault(delete.id, []).append(file.path)
    removed = tuple(delete for id_, delete in mine.items() if id_ not in others)
    carried = tuple(Carried(mine[id_], tuple(sorted(paths))) for id_, paths in others.items() if id_ in fresh)
    return removed, carried


def _identity(file: LiveFile) -> tuple[Any, ...]:
    return file.size, file.records, file.sequence_number, file.spec_id, file.partition


def _ids(file: LiveFile) -> set[DeleteId]:
    return {delete.id for delete in file.deletes}
