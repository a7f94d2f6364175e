"""A head as two flat sets, data files and delete files, and which delete applies to which data file. Pure.

    Listing --changed: entries that went, entries that came--> Listing          two heads, any commit between them
            --advanced: the plan that landed-----------------> Listing          our own commit
            --applied----------------------------------------> LiveFiles

Which deletes apply to a data file of sequence number n (Iceberg's specification, "Scan planning"):

    vector              that names it
    position deletes    of its spec and partition, sequence >= n, naming it or possibly it; none if it has a vector
    equality deletes    of its spec and partition, or of an unpartitioned spec; sequence > n

No bounds are looked at: they may let a reader skip a delete, and tell a writer nothing it needs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from frazil.model.commit import CommitPlan
from frazil.model.files import DeleteId, FileKind, LiveDelete, LiveFile, LiveFiles, WrittenFile
from frazil.model.partition import exact_values

FILE_PATH_ID = 2147483546
"""The column of a position delete file that names data files; equal bounds mean it names only one."""

Entry = LiveFile | LiveDelete
FloatPlaces = Mapping[int, Mapping[int, str]]
"""By spec, see `exact_values`."""


@dataclass(frozen=True, slots=True)
class Listing:
    """`everywhere` are the specs whose equality deletes apply to every partition."""

    snapshot_id: int | None
    data: Mapping[str, LiveFile]
    deletes: Mapping[DeleteId, LiveDelete]
    everywhere: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.data) + len(self.deletes)


def parse_entry(json: Mapping[str, Any], sequence_number: int, floats: FloatPlaces | None = None) -> Entry:
    """`json` is what iceberg-java's ContentFileParser writes, which reads floats only as numbers."""
    told = (floats or {}).get(json["spec-id"])
    partition = exact_values(_listed(json.get("partition", ())), told)
    if told:
        json = {**json, "partition": list(partition)}
    common: dict[str, Any] = {
        "path": json["file-path"],
        "format": json["file-format"].lower(),
        "size": json["file-size-in-bytes"],
        "records": json["record-count"],
        "sequence_number": sequence_number,
        "spec_id": json["spec-id"],
        "partition": partition,
    }
    kind = FileKind(json["content"].lower().replace("_", "-"))
    if kind is FileKind.DATA:
        first_row_id, sort_order_id = json.get("first-row-id"), json.get("sort-order-id")
        return LiveFile(**common, bounds=_bounds(json), first_row_id=first_row_id, sort_order_id=sort_order_id)
    return LiveDelete(
        **common,
        kind=kind,
        equality_ids=tuple(json.get("equality-ids", ())),
        data_file=json.get("referenced-data-file") or _only_data_file(kind, json),
        offset=json.get("content-offset"),
        length=json.get("content-size-in-bytes"),
        entry=json,
    )


def changed(
    listing: Listing, snapshot_id: int, gone: Iterable[Entry], came: Iterable[Entry], everywhere: frozenset[int]
) -> Listing:
    """The listing without what went and with what came. What did both, in a rewritten manifest, stays."""
    data, deletes = dict(listing.data), dict(listing.deletes)
    for entry in gone:
        if isinstance(entry, LiveFile):
            data.pop(entry.path, None)
        else:
            deletes.pop(entry.id, None)
    for entry in came:
        if isinstance(entry, LiveFile):
            data[entry.path] = entry
        else:
            deletes[entry.id] = entry
    return Listing(snapshot_id, data, deletes, listing.everywhere | everywhere)


def advanced(
    listing: Listing, plan: CommitPlan, snapshot_id: int, sequence_number: int, bounds_of: Iterable[int]
) -> Listing | None:
    """The listing after our plan landed on it; None if the plan does not tell enough."""
    wanted = frozenset(bounds_of)
    came: list[Entry] = [_own_data(file, sequence_number, wanted) for file in plan.data_files]
    came += [_own_delete(file, sequence_number) for file in plan.delete_files]
    by_equality = {file.spec_id for file in plan.delete_files if file.kind is FileKind.EQUALITY_DELETE}
    # A spec without fields has no partition values; one of void fields has some, and looks like any other from here.
    fieldless = {file.spec_id for file in plan.delete_files if not file.partition}
    if by_equality - listing.everywhere - fieldless:
        return None
    return changed(listing, snapshot_id, plan.removed_deletes, came, frozenset(by_equality & fieldless))


def applied(listing: Listing) -> LiveFiles:
    """Every data file with the deletes that apply to it."""
    vectors: dict[str, list[LiveDelete]] = {}
    single: dict[str, list[LiveDelete]] = {}
    positions: dict[Any, list[LiveDelete]] = {}
    equality: dict[Any, list[LiveDelete]] = {}
    for delete in sorted(listing.deletes.values(), key=lambda delete: (delete.sequence_number, delete.path)):
        place = delete.place
        if delete.is_vector and delete.data_file is not None:
            vectors.setdefault(delete.data_file, []).append(delete)
        elif delete.kind is FileKind.POSITION_DELETE and delete.data_file is not None:
            single.setdefault(delete.data_file, []).append(delete)
        elif delete.kind is FileKind.POSITION_DELETE:
            positions.setdefault(place, []).append(delete)
        else:
            equality.setdefault(None if delete.spec_id in listing.everywhere else place, []).append(delete)
    by_place, by_equality = _Suffixes(positions), _Suffixes(equality)

    def deletes_of(file: LiveFile) -> tuple[LiveDelete, ...]:
        place, number = file.place, file.sequence_number
        after = (*by_equality.after(place, number), *by_equality.after(None, number))
        # One at most, unless a writer broke the specification (H23): then all of them are shown, to be merged.
        own = tuple(vector for vector in vectors.get(file.path, ()) if vector.sequence_number >= number)
        if own:
            return (*own, *after)
        named = (delete for delete in single.get(file.path, ()) if delete.sequence_number >= number)
        return (*named, *by_place.at_or_after(place, number), *after)

    files = []
    for file in listing.data.values():
        found = deletes_of(file)
        files.append(replace(file, deletes=found) if found else file)
    return _live(listing, files)


def reapplied(listing: Listing, before: LiveFiles, plan: CommitPlan) -> LiveFiles:
    """`applied`, cheaper: after a plan whose deletes are all vectors, other files keep theirs."""
    if any(file.vector is None for file in plan.delete_files):
        return applied(listing)
    vectors = {file.vector.data_file: (file.path, file.vector.offset) for file in plan.delete_files if file.vector}
    replaced = {delete.data_file for delete in plan.removed_deletes}
    if replaced - vectors.keys():
        return applied(listing)
    files = []
    for file in before.files:
        if file.path in vectors:
            rest = tuple(delete for delete in file.deletes if delete.kind is FileKind.EQUALITY_DELETE)
            file = replace(file, deletes=(listing.deletes[vectors[file.path]], *rest))
        files.append(file)
    added = [listing.data[file.path] for file in plan.data_files]
    return _live(listing, [*files, *added])


def _live(listing: Listing, files: Sequence[LiveFile]) -> LiveFiles:
    return LiveFiles(snapshot_id=listing.snapshot_id, files=tuple(files), deletes=tuple(listing.deletes.values()))


class _Suffixes:
    """Of deletes ascending by sequence number: those from a number on, as tuples that files share."""

    def __init__(self, groups: Mapping[Any, list[LiveDelete]]) -> None:
        self._groups = groups
        self._numbers = {place: [delete.sequence_number for delete in group] for place, group in groups.items()}
        self._cut: dict[tuple[Any, int], tuple[LiveDelete, ...]] = {}

    def at_or_after(self, place: Any, number: int) -> tuple[LiveDelete, ...]:
        return self._from(place, bisect_left(self._numbers.get(place, ()), number))

    def after(self, place: Any, number: int) -> tuple[LiveDelete, ...]:
        return self._from(place, bisect_right(self._numbers.get(place, ()), number))

    def _from(self, place: Any, start: int) -> tuple[LiveDelete, ...]:
        group = self._groups.get(place, ())
        if start >= len(group):
            return ()
        if (place, start) not in self._cut:
            self._cut[place, start] = tuple(group[start:])
        return self._cut[place, start]


def _listed(values: Any) -> Iterable[Any]:
    return values.values() if isinstance(values, Mapping) else values


def _bounds(json: Mapping[str, Any]) -> dict[int, tuple[bytes | None, bytes | None]]:
    lower, upper = (_column(json, name) for name in ("lower-bounds", "upper-bounds"))
    return {field: (lower.get(field), upper.get(field)) for field in sorted({*lower, *upper})}


def _column(json: Mapping[str, Any], name: str) -> dict[int, bytes]:
    column = json.get(name)
    if not column:
        return {}
    return {key: bytes.fromhex(value) for key, value in zip(column["keys"], column["values"], strict=True)}


def _only_data_file(kind: FileKind, json: Mapping[str, Any]) -> str | None:
    if kind is not FileKind.POSITION_DELETE:
        return None
    lower, upper = _bounds(json).get(FILE_PATH_ID, (None, None))
    return lower.decode() if lower is not None and lower == upper else None


def _own_data(file: WrittenFile, sequence_number: int, bounds_of: frozenset[int]) -> LiveFile:
    bounds = {
        m.field_id: (m.lower, m.upper)
        for m in sorted(file.metrics, key=lambda m: m.field_id)
        if m.field_id in bounds_of and (m.lower is not None or m.upper is not None)
    }
    return LiveFile(
        path=file.path,
        format="parquet",
        size=file.size,
        records=file.records,
        sequence_number=sequence_number,
        spec_id=file.spec_id,
        partition=exact_values(file.partition),
        bounds=bounds,
        sort_order_id=file.sort_order_id,
    )


def _own_delete(file: WrittenFile, sequence_number: int) -> LiveDelete:
    entry = parse_entry(file.manifest_json(), sequence_number)
    assert isinstance(entry, LiveDelete)
    return entry
