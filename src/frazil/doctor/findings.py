"""Decides what is wrong with a table, and says it in words. Pure: values in, findings out.

    Registered, looks at files --> registered twice, wrong partition, missing, different, dangling, two vectors
    DuplicateKeys -------------------> duplicate keys
    delete kinds, declared readers --> unreadable deletes                (`readers`)
    the metadata, the ledger --------> near limits; property, summary and tag disagree (`metadata`)

A finding is `fixable` if there is a repair after which every reader sees the rows that the table was made of, no more
and no fewer. What two people could see in two ways is explained, and left to one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frazil.doctor.examination import (
    SAMPLES,
    DuplicateKeys,
    FileLook,
    Finding,
    KeySample,
    Registered,
    Severity,
    Trouble,
)
from frazil.model.compaction import RewrittenTable
from frazil.model.files import DeleteId, FileKind, LiveDelete, LiveFile
from frazil.model.partition import PartitionSpec
from frazil.model.schema import Field, StructOf

FIX = "Run it again with --fix."
_PARQUET = "parquet"
_Place = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Looks:
    """What tasks saw: of each registration of a data file by path, spec and partition, and of each delete file; of each
    vector where there are several in one."""

    data: Mapping[_Place, FileLook] = field(default_factory=dict)
    deletes: Mapping[DeleteId, FileLook] = field(default_factory=dict)

    def of(self, file: LiveFile) -> FileLook:
        return self.data[place_of(file)]


def place_of(file: LiveFile) -> _Place:
    """What a look depends on. Partition values may be NaN, which equals nothing."""
    return file.path, file.spec_id, repr(file.partition)


def to_look_at(registered: Registered) -> tuple[tuple[LiveFile, ...], tuple[LiveDelete, ...]]:
    """Each file once, and once more for each other partition that it is registered in."""
    data = {place_of(file): file for file in registered.data}
    deletes = {delete.id: delete for delete in registered.deletes}
    return tuple(data.values()), tuple(deletes.values())


def looks_of(data: Sequence[LiveFile], deletes: Sequence[LiveDelete], seen: Sequence[FileLook]) -> Looks:
    """`seen` has one look for each of them, in order."""
    of_data, of_deletes = seen[: len(data)], seen[len(data) :]
    return Looks(
        {place_of(file): look for file, look in zip(data, of_data, strict=True)},
        {delete.id: look for delete, look in zip(deletes, of_deletes, strict=True)},
    )


# files that are registered twice


@dataclass(frozen=True, slots=True)
class Twice:
    """The registrations of one file, the oldest first. `hindrance` is why nobody can say which rows are right."""

    entries: tuple[LiveFile, ...]
    hindrance: str = ""

    @property
    def oldest(self) -> LiveFile:
        return self.entries[0]


def twice(registered: Registered, looks: Looks) -> tuple[Twice, ...]:
    """The oldest registration stays if all of them show the same rows."""
    return tuple(
        Twice(entries, _hindrance(entries, looks)) for entries in registered.by_path.values() if len(entries) > 1
    )


def _hindrance(entries: Sequence[LiveFile], looks: Looks) -> str:
    oldest = entries[0]
    if any(looks.of(entry).size != entry.size for entry in entries):
        return "the file itself is missing or another one"
    if oldest.format != _PARQUET:
        return f"it is {oldest.format}, which is not rewritten here"
    if any(looks.of(entry).damage or looks.of(entry).trouble for entry in entries):
        return looks.of(oldest).damage or looks.of(oldest).trouble or "it cannot be read"
    told = [{(id_, entry.spec_id, repr(entry.partition)) for id_ in looks.of(entry).told} for entry in entries]
    if any(one != told[0] for one in told):
        return "it lacks columns that its partitions tell, and each registration tells others"
    reached = {delete.id for delete in oldest.deletes}
    for later in entries[1:]:
        if {delete.id for delete in later.deletes} != reached and not _refused(later, oldest):
            return "some deletes reach one registration and not the other: rows are gone in one and alive in the other"
    return ""


def _refused(later: LiveFile, oldest: LiveFile) -> bool:
    """A vector that is older than the file's registration makes readers refuse the table: nobody ever saw this one."""
    vector = oldest.vector
    return vector is not None and vector.sequence_number < later.sequence_number


def registered_twice(found: Sequence[Twice]) -> list[Finding]:
    findings = []
    for fixable in (True, False):
        chosen = [one for one in found if (not one.hindrance) is fixable]
        if not chosen:
            continue
        rows = sum(one.oldest.records * (len(one.entries) - 1) for one in chosen)
        why = "" if fixable else f" ({chosen[0].hindrance})"
        findings.append(
            Finding(
                trouble=Trouble.REGISTERED_TWICE,
                severity=Severity.ERROR,
                what=f"{_files(chosen, 'data file')} registered more than once{why}",
                where=_samples(
                    f"{one.oldest.path}: {len(one.entries)} times, with sequence numbers "
                    f"{', '.join(str(entry.sequence_number) for entry in one.entries)}"
                    for one in chosen
                ),
                means=f"Readers see up to {rows:,} rows too many: every row of such a file comes once for each "
                "registration. With deletion vectors some engines refuse to plan a query at all.",
                next=FIX + " Each file is written once more, under a new name, in place of all its registrations."
                if fixable
                else "Find out which registration is right, by `SELECT * FROM table.entries` in Spark; then delete the "
                "rows of the other one, or roll back to a snapshot before it.",
                fixable=fixable,
            )
        )
    return findings


# rows in another partition than theirs


def wrong_partition(registered: Registered, looks: Looks, table: RewrittenTable) -> list[Finding]:
    findings = []
    by_id = {spec.spec_id: spec for spec in table.specs}
    known = set(_field_ids(table.schema.fields))
    wrong = [file for file in registered.first if looks.of(file).misplaced]
    for fixable in (True, False):
        chosen = [file for file in wrong if (not _lost_columns(by_id[file.spec_id], known)) is fixable]
        if not chosen:
            continue
        rows = sum(looks.of(file).misplaced for file in chosen)
        at_most = any(delete.kind is FileKind.EQUALITY_DELETE for file in chosen for delete in file.deletes)
        lost = ", ".join(dict.fromkeys(name for file in chosen for name in _lost_columns(by_id[file.spec_id], known)))
        why = "" if fixable else f" (the column of {lost} was dropped)"
        samples = [
            f"{file.path}, row {sample.position}: lies in {partition_text(by_id[file.spec_id], file.partition)}, "
            f"belongs to {partition_text(by_id[file.spec_id], sample.partition)}"
            for file in chosen
            for sample in looks.of(file).samples
        ]
        findings.append(
            Finding(
                trouble=Trouble.WRONG_PARTITION,
                severity=Severity.ERROR,
                what=f"{'up to ' if at_most else ''}{rows:,} rows of {_files(chosen, 'data file')} lie in a partition "
                f"that is not theirs{why}",
                where=_samples(samples),
                means="A query that filters by the partition's column skips these rows, and a delete there misses "
                "them. For `identity` partitions Spark and Trino show the partition's value, PyIceberg and DuckDB the "
                "row's own.",
                next=FIX + " Their files are written once more, every row in the partition that its columns give it."
                if fixable
                else "A file of that partition spec cannot be written any more. Rewrite these files with Spark under "
                "the table's present spec: CALL system.rewrite_data_files with rewrite-all.",
                fixable=fixable,
            )
        )
    return findings


def _lost_columns(spec: PartitionSpec, known: Collection[int]) -> list[str]:
    """Partition fields that cannot be computed any more: the schema has their column no longer."""
    return [part.name for part in spec.fields if part.transform.name != "void" and part.source_id not in known]


def _field_ids(fields: Iterable[Field]) -> Iterator[int]:
    """Of columns, and of what lies in structs."""
    for one in fields:
        yield one.id
        if isinstance(one.type, StructOf):
            yield from _field_ids(one.type.fields)


def partition_text(spec: PartitionSpec, values: Sequence[Any]) -> str:
    pairs = zip(spec.fields, values, strict=True)
    return "/".join(f"{part.name}={'null' if value is None else value}" for part, value in pairs) or "no partition"


# keys


def duplicate_keys(
    found: DuplicateKeys, key: Sequence[str], registered: Registered, specs: Sequence[PartitionSpec]
) -> list[Finding]:
    """Of a key that lives in several partitions these are told: there a reader finds one row or the other, and it is
    what an update leaves behind that did not delete the older row where that lay (H1)."""
    findings = []
    named = f"({', '.join(key)})"
    differing = found.keys - found.equal
    places = _partitions(registered, specs)
    if found.equal:
        findings.append(
            Finding(
                trouble=Trouble.DUPLICATE_KEYS,
                severity=Severity.ERROR,
                what=f"{found.equal:,} keys {named} have more than one row, and all their rows are equal",
                where=_key_samples(found, places, equal=True),
                means="Counts and sums are too high, and a join over the key multiplies rows.",
                next=FIX + " The oldest row of each key stays, the others are deleted at their positions.",
                fixable=True,
            )
        )
    if differing:
        apart = any(len(_apart(sample, places)) > 1 for sample in found.samples if not sample.equal)
        findings.append(
            Finding(
                trouble=Trouble.DUPLICATE_KEYS,
                severity=Severity.ERROR,
                what=f"{differing:,} keys {named} have several rows that differ"
                f"{', some of them in several partitions' if apart else ''}",
                where=_key_samples(found, places, equal=False),
                means="Two versions of one row are alive; a reader cannot tell which is right."
                f"{_LEFT_BEHIND if apart else ''}",
                next="Look at both rows and delete the wrong one, or load the table anew: then the source decides.",
            )
        )
    return findings


_LEFT_BEHIND = (
    " The older one was probably left behind in its partition by an update that moved the row to another one."
)


def _partitions(registered: Registered, specs: Sequence[PartitionSpec]) -> dict[str, str]:
    """Of each file, in words."""
    by_id = {spec.spec_id: spec for spec in specs}
    return {file.path: partition_text(by_id[file.spec_id], file.partition) for file in registered.first}


def _apart(sample: KeySample, places: Mapping[str, str]) -> dict[str, None]:
    """The partitions in which the key lives."""
    return dict.fromkeys(places[path] for path, _ in sample.rows)


def _key_samples(found: DuplicateKeys, places: Mapping[str, str], *, equal: bool) -> tuple[str, ...]:
    texts = []
    for sample in found.samples:
        if sample.equal is equal:
            lies = len(_apart(sample, places)) > 1
            rows = (f"{path} row {at}{f' in {places[path]}' if lies else ''}" for path, at in sample.rows)
            texts.append(f"{sample.key}: {', '.join(rows)}")
    return _samples(texts)


# deletes


def dangling(registered: Registered, names: Mapping[str, frozenset[str]]) -> tuple[LiveDelete, ...]:
    """Deletes that reach no live row. `names` are the data files that position delete files of several name; one of
    which they are not known counts as reaching whatever its partition holds."""
    reaching: set[DeleteId] = set()
    for file in registered.data:
        for delete in file.deletes:
            named = names.get(delete.path) if delete.kind is FileKind.POSITION_DELETE and not delete.is_vector else None
            if named is None or file.path in named:
                reaching.add(delete.id)
    return tuple(delete for delete in registered.deletes if delete.id not in reaching)


def names_in(looks: Looks) -> dict[str, frozenset[str]]:
    return {path: look.names for (path, _), look in looks.deletes.items() if look.names is not None}


def dangling_deletes(found: Sequence[LiveDelete]) -> list[Finding]:
    if not found:
        return []
    kinds = {
        "equality delete files": sum(one.kind is FileKind.EQUALITY_DELETE for one in found),
        "deletion vectors": sum(one.is_vector for one in found),
        "position delete files": sum(one.kind is FileKind.POSITION_DELETE and not one.is_vector for one in found),
    }
    counted = ", ".join(f"{count:,} {name}" for name, count in kinds.items() if count)
    return [
        Finding(
            trouble=Trouble.DANGLING_DELETES,
            severity=Severity.WARNING,
            what=f"{counted} reach no data file",
            where=_samples(one.path if one.data_file is None else f"{one.path} for {one.data_file}" for one in found),
            means="Rows are right. Every query still opens these deletes, and some readers refuse a table that has "
            "them.",
            next=FIX + " They are removed, and nothing else.",
            fixable=True,
        )
    ]


def two_vectors(registered: Registered) -> list[Finding]:
    damaged = [file for file in registered.first if sum(delete.is_vector for delete in file.deletes) > 1]
    if not damaged:
        return []
    return [
        Finding(
            trouble=Trouble.TWO_VECTORS,
            severity=Severity.ERROR,
            what=f"{_files(damaged, 'data file')} with more than one deletion vector",
            where=_samples(file.path for file in damaged),
            means="Iceberg allows one. Spark refuses to read the table; other engines may show rows that are deleted.",
            next="Roll back to a snapshot before the second vector (`CALL system.rollback_to_snapshot`), then `frazil "
            "rewind CONFIG TABLE`; find out which writer made it.",
        )
    ]


# files


_RESTORE = (
    "Restore the file from a backup or an older version of the bucket. If there is none: roll the table back to a "
    "snapshot whose files all exist, or load it anew. Nothing brings it back here."
)


def missing_files(registered: Registered, looks: Looks) -> list[Finding]:
    seen: list[tuple[LiveFile | LiveDelete, FileLook]] = [(file, looks.of(file)) for file in registered.first]
    seen += [(delete, looks.deletes[delete.id]) for delete in to_look_at(registered)[1]]
    gone = list(dict.fromkeys(file.path for file, look in seen if look.size is None))
    findings = []
    if gone:
        findings.append(
            Finding(
                trouble=Trouble.MISSING_FILES,
                severity=Severity.ERROR,
                what=f"{_files(gone, 'file')} that live manifests name, and that do not exist",
                where=_samples(gone),
                means="Every query that needs one of them fails; without a delete file, deleted rows would come back.",
                next=_RESTORE,
            )
        )
    return findings + different_files(_difference(file, look) for file, look in seen)


def different_files(texts: Iterable[str]) -> list[Finding]:
    """`texts` say which file, and what is different; an empty one says nothing."""
    different = [text for text in dict.fromkeys(texts) if text]
    if not different:
        return []
    return [
        Finding(
            trouble=Trouble.DIFFERENT_FILES,
            severity=Severity.ERROR,
            what=f"{_files(different, 'file')} not as the manifests say",
            where=_samples(different),
            means="Somebody replaced, cut or damaged a file that is never written twice. Queries fail, or show other "
            "rows.",
            next=_RESTORE,
        )
    ]


def _difference(file: LiveFile | LiveDelete, look: FileLook) -> str:
    if look.size is None:
        return ""
    if look.size != file.size:
        return f"{file.path}: {look.size:,} bytes, {file.size:,} in the manifest"
    if look.records is not None and look.records != file.records:
        return f"{file.path}: {look.records:,} rows, {file.records:,} in the manifest"
    return look.damage


def is_foreign(registered: Registered) -> bool:
    """Whether some files are of a format that is not read here."""
    files: list[LiveFile | LiveDelete] = [*registered.data, *(one for one in registered.deletes if not one.is_vector)]
    return any(file.format != _PARQUET for file in files)


def not_examined(troubles: Iterable[str]) -> list[Finding]:
    """`troubles` say of what, and why."""
    told = list(troubles)
    if not told:
        return []
    return [
        Finding(
            trouble=Trouble.NOT_EXAMINED,
            severity=Severity.INFO,
            what=f"{_files(told, 'thing')} could not be looked at",
            where=_samples(told),
            means="Whether their rows are right is not known.",
            next="Nothing, if another engine reads them. Files that are not Parquet can be rewritten by Spark: CALL "
            "system.rewrite_data_files.",
        )
    ]


def unreadable_rows(registered: Registered, looks: Looks) -> list[str]:
    troubles = [f"{file.path}: {look.trouble}" for file in registered.first if (look := looks.of(file)).trouble]
    return troubles + [f"{look.path}: {look.trouble}" for look in looks.deletes.values() if look.trouble]


# words


def _files(things: Sequence[Any], noun: str) -> str:
    return f"{len(things):,} {noun}{'' if len(things) == 1 else 's'}"


def _samples(texts: Iterable[str]) -> tuple[str, ...]:
    """The first few, and how many more there are."""
    every = list(texts)
    more = len(every) - SAMPLES
    return (*every[:SAMPLES], f"and {more:,} more") if more > 0 else tuple(every)
