"""A whole table in memory: its snapshots, what names them, every file in its storage, and what its rows must be.

    Metadata     which snapshots are kept, main, branches, tags, the ledger property; names the metadata files before it
    Manifest     which files of one kind and spec a snapshot has; what none of its manifests lists is not in it
    model        of each snapshot: the rows that it must show, from what was done and never from files
    stored       the files there are, and when they were written

Every snapshot is read when it is made, as Iceberg's specification says, and must show what the model has; files never
change, so later it is enough that all files of the snapshots that are kept are there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from conversion_world import NAME, Row, State, World

from frazil.commit.frontier_check import RolledBack, read_frontier
from frazil.errors import TableChanged
from frazil.iceberg.commits.snapshots import MAIN, Expiry, Reference, TableSnapshots
from frazil.iceberg.tables.file_listing import applied
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, ReplaceFiles, Unknown
from frazil.model.compaction import RewrittenTable
from frazil.model.files import FileKind, LiveDelete, LiveFile, LiveFiles, LiveManifest
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, LedgerEntry, SnapshotFacts, TableHead
from frazil.model.schema import Schema
from frazil.sources.cockroachdb.position import Hlc

JOB = JobId("shop")
LOCATION = "table"
SPAN = 6 * 3600 * 10**9
"""Between two epochs, in nanoseconds of the source."""
ROW_BYTES = 40
ENTRY_BYTES = 100
_LOG_MAX = 2
Model = Mapping[int, tuple[int | None, int | None, tuple[int, ...]]]
"""Rows by their number: a, b, and the partition."""
Change = Callable[[Model, State], Model]
FileId = tuple[str, int | None]
"""A path, and of a vector its place in the file."""


def unchanged(before: Model, state: State) -> Model:
    return before


class Violation(AssertionError):
    """Something happened that must never happen."""


@dataclass(frozen=True)
class Metadata:
    """A metadata file and what it says. `references` are branches and tags beside main."""

    path: str
    main: int = 0
    kept: frozenset[int] = frozenset()
    references: Mapping[str, Reference] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    path: str
    deletes: bool
    spec_id: int
    entries: frozenset[FileId]


class UpkeepTable(World):
    """`answers` tells what becomes of the next commit."""

    def __init__(self, version: int, now: Callable[[], datetime]) -> None:
        super().__init__(version)
        self.now = now
        self.stored: dict[str, datetime] = {}
        self.model: dict[int, Model] = {0: {}}
        self.fence = Fence(1, UUID(int=1))
        self.lineage_from = 0 if version >= 3 else 1 << 30
        self._times: dict[int, int] = {}
        self._facts: dict[int, SnapshotFacts] = {}
        self._used: set[str] = set()
        self._manifests: dict[int, tuple[Manifest, ...]] = {0: ()}
        self._staged: tuple[Manifest, ...] | None = None
        self._paths: dict[int, frozenset[str]] = {}
        self._live: dict[int, LiveFiles] = {}
        self._needed: tuple[Metadata | None, frozenset[str]] = None, frozenset()
        self._change: Change = unchanged
        self._branch: str | None = None
        self._noted: dict[str, Reference] = {}
        self._ledger: dict[str, str] = {}
        self.metadata = Metadata(self._metadata_path())
        self.put(self.metadata.path)

    # files

    def put(self, path: str) -> None:
        assert path not in self._used, f"H46: {path} was used before"
        self._used.add(path)
        self.stored[path] = self.now()

    def read(self, path: str) -> None:
        if path not in self.stored:
            raise TableChanged(f"{path} is gone", hint="look again")

    def needed(self) -> frozenset[str]:
        """All files that the table refers to now."""
        if self._needed[0] is not self.metadata:
            found = {self.metadata.path, *self.metadata.log}
            found.update(*(self._paths[number] for number in self.metadata.kept))
            self._needed = self.metadata, frozenset(found)
        return self._needed[1]

    def paths_of(self, number: int) -> frozenset[str]:
        return self._paths.get(number, frozenset())

    def check_files(self) -> None:
        if missing := self.needed() - self.stored.keys():
            raise Violation(f"a snapshot that is kept needs {min(missing)}, which is gone")

    def deleted_in(self, file: LiveFile) -> frozenset[int]:
        """Positions of the file that are deleted by position."""
        found = (
            self.positions[delete.path, delete.offset].get(file.path, frozenset[int]())
            for delete in file.deletes
            if delete.kind is FileKind.POSITION_DELETE
        )
        return frozenset[int]().union(*found)

    # snapshots, as they are made

    def _become(
        self,
        data: Mapping[str, LiveFile],
        deletes: Mapping[tuple[str, int | None], LiveDelete],
        summary: Mapping[str, str] | None = None,
    ) -> None:
        parent = self.current
        super()._become(data, deletes, summary)
        state = self.current
        for path in {*state.data, *(path for path, _ in state.deletes)}:
            if path not in self._used:
                self.put(path)  # somebody else's
        self.model[state.number] = self._change(self.model[parent.number], state)
        self._times[state.number] = int(self.now().timestamp() * 1000)
        listed = self._manifests[state.number] = self._listed(parent, state)
        paths = (self.write_list(), *(one.path for one in listed), *state.data, *(path for path, _ in state.deletes))
        self._paths[state.number] = frozenset(paths)
        kept = self.metadata.kept | {state.number}
        if self._branch is None:
            properties = {**self.metadata.properties, **self._ledger}
            references = {**self.metadata.references, **self._noted}
            self.replace_metadata(main=state.number, kept=kept, references=references, properties=properties)
            self.note({}, {})
        else:
            references = {**self.metadata.references, self._branch: Reference(state.number, True)}
            self.replace_metadata(kept=kept, references=references)
            self.current = self.states[self.metadata.main]
        shown, model = self.shown(state), self.model[state.number]
        if shown != model:
            lost, back = model.items() - shown.items(), shown.items() - model.items()
            raise Violation(f"snapshot {state.number}: lost {sorted(lost)}, came back {sorted(back)}")

    def _must_show_the_same(self, before: State) -> None:
        """Which was looked at already: every snapshot is compared with the model."""

    def replace_metadata(self, **changes: object) -> None:
        log = (*self.metadata.log, self.metadata.path)[-_LOG_MAX:]
        path = self._metadata_path()
        self.put(path)
        self.metadata = replace(self.metadata, path=path, log=log, **changes)  # type: ignore[arg-type]
        self.check_files()

    def write_list(self) -> str:
        path = f"{LOCATION}/metadata/snap-{next(self.numbers)}-1-{self._uuid()}.avro"
        self.put(path)
        return path

    def _listed(self, parent: State, state: State) -> tuple[Manifest, ...]:
        """The manifests of a new snapshot, as Iceberg has it: one that lost files is written anew, and goes with the
        next commit if it lost all of them; new files come in new ones."""
        if self._staged is not None:
            return self._staged
        files = {(path, None): (False, file.spec_id) for path, file in state.data.items()}
        files |= {place: (True, delete.spec_id) for place, delete in state.deletes.items()}
        found, new = [], dict(files)
        for one in self._manifests[parent.number]:
            left = one.entries & files.keys()
            if one.entries:
                found.append(one if left == one.entries else self._manifest(one.deletes, one.spec_id, left))
            for file in left:
                del new[file]
        for deletes, spec_id in sorted(set(new.values())):
            entries = (file for file, kind in new.items() if kind == (deletes, spec_id))
            found.append(self._manifest(deletes, spec_id, entries))
        return tuple(found)

    def _manifest(
        self, deletes: bool, spec_id: int, entries: Iterable[FileId], form: str = "{uuid}-m0.avro"
    ) -> Manifest:
        path = f"{LOCATION}/metadata/{form.format(uuid=self._uuid())}"
        self.put(path)
        return Manifest(path, deletes, spec_id, frozenset(entries))

    def _metadata_path(self) -> str:
        return f"{LOCATION}/metadata/{next(self.numbers):05d}-{self._uuid()}.metadata.json"

    def _uuid(self) -> str:
        return f"{next(self.numbers):08x}-0000-0000-0000-000000000000"

    def changing(self, change: Change, act: Callable[[], object]) -> None:
        """The snapshot that `act` makes does this to the rows."""
        self._change = change
        try:
            act()
        finally:
            self._change = unchanged

    def shown(self, state: State) -> dict[int, tuple[int | None, int | None, tuple[int, ...]]]:
        found: dict[int, tuple[int | None, int | None, tuple[int, ...]]] = {}
        for path, file in state.data.items():
            for a, b, number in self.seen_in(path, state):
                if number in found:
                    raise Violation(f"snapshot {state.number} shows row {number} twice")
                found[number] = a, b, file.partition
        return found

    # what others do, and what that means

    def note(self, references: Mapping[str, Reference], properties: Mapping[str, str]) -> None:
        """To be set together with the next snapshot of main."""
        self._noted, self._ledger = dict(references), dict(properties)

    def _file(self, path: str, rows: list[Row], part: int | None) -> LiveFile:
        return replace(super()._file(path, rows, part), size=ROW_BYTES * len(rows))

    def append_rows(self, rows: Iterable[tuple[int | None, int | None]], part: int | None, branch: str | None) -> None:
        self._branch = branch
        if branch is not None:
            self.current = self.states[self.metadata.references[branch].snapshot_id]
        try:
            self.changing(self.with_new_files, lambda: self.append(rows, part))
        finally:
            self._branch = None

    def with_new_files(self, before: Model, state: State) -> Model:
        old = self.states[state.parent or 0].data
        new = [(path, file.partition) for path, file in state.data.items() if path not in old]
        return {**before, **{row[2]: (row[0], row[1], part) for path, part in new for row in self.rows[path]}}

    def adopt(self, path: str, part: int | None) -> None:
        """A file that lies around becomes part of the table."""
        file = self._file(path, list(self.rows[path]), part)
        self.changing(self.with_new_files, lambda: self._commit(data=[file]))

    def erase_keys(self, ids: tuple[int, ...], keys: list[tuple[int | None, ...]], part: int | None) -> None:
        gone = frozenset(keys)

        def without(before: Model, state: State) -> Model:
            return {
                number: row
                for number, row in before.items()
                if tuple(row[id_ - 1] for id_ in ids) not in gone or (part is not None and row[2] != (part,))
            }

        self.changing(without, lambda: self.delete_keys(ids, keys, part))

    def erase_row(self, path: str, position: int) -> None:
        """Of a row that is dead in this file, another file may have a copy that is alive."""
        row = self.rows[path][position]
        number = row[2] if row in self.seen_in(path, self.current) else None
        self.changing(
            lambda before, _: {key: row for key, row in before.items() if key != number},
            lambda: self.delete_rows(path, [position]),
        )

    def roll_back(self, number: int) -> None:
        self.current = self.states[number]
        self.replace_metadata(main=number)

    def take_over(self) -> None:
        """Another coordinator of the pipeline begins."""
        self.fence = Fence(self.fence.generation + 1, UUID(int=self.fence.generation + 1))

    def rewind(self) -> None:
        """The pipeline is told to go on from what main holds now, or, if that is nothing of it, to start over."""
        self.take_over()
        mark = self.mark()
        summary = {} if mark is None else {**mark.summary, "frazil.fence": self.fence.text}
        entry = LedgerEntry.from_summary(summary)
        if entry is not None:
            number = len(self.states)
            self.note({JOB.tag: Reference(number)}, {JOB.ledger_property: entry.to_property(number, number)})
            self._become(self.current.data, self.current.deletes, summary)
        else:
            without = {name: one for name, one in self.metadata.references.items() if name != JOB.tag}
            self.replace_metadata(properties={}, references=without)
            forget = {"frazil.job-id": JOB.text, "frazil.fence": self.fence.text}
            self._become(self.current.data, self.current.deletes, forget)

    def upgrade(self) -> None:
        if self.version < 3:
            super().upgrade()
            self.lineage_from = len(self.states)
            self.replace_metadata()

    def mark(self) -> State | None:
        """The newest snapshot of the pipeline that main ever had, whether it is kept or not."""
        own = (number for number in self._line(self.metadata.main) if "frazil.job-id" in self.states[number].summary)
        return next((self.states[number] for number in own), None)

    def frontier(self) -> int:
        """The newest epoch on main; 0 if the pipeline starts there."""
        mark = self.mark()
        position = "" if mark is None else mark.summary.get("frazil.resolved", "")
        return Hlc.parse(position).wall // SPAN if position else 0

    def is_rolled_back(self) -> bool:
        """Behind what the ledger property tells."""
        text, mark = self.metadata.properties.get(JOB.ledger_property), self.mark()
        if text is None:
            return False
        entry = LedgerEntry.from_property(text)
        assert entry is not None
        assert entry.snapshot_id is not None
        return mark is None or entry.snapshot_id > mark.number

    # the lake, as actions know it

    def live_at(self, state: State) -> LiveFiles:
        if state.number not in self._live:
            self._live[state.number] = applied(self._listing(state))
        return self._live[state.number]

    def facts(self, number: int) -> SnapshotFacts:
        if number not in self._facts:
            state = self.states[number]
            self._facts[number] = SnapshotFacts(
                number, state.parent or None, number, self._times[number], state.summary
            )
        return self._facts[number]

    def head_of(self, number: int) -> TableHead:
        ancestry = []
        base = self.metadata
        while number in base.kept:
            ancestry.append(self.facts(number))
            number = self.states[number].parent or 0
        return TableHead(uuid="u", ancestry=tuple(ancestry), properties=base.properties, base=base)

    def head(self, table: TableName) -> TableHead:
        return self.head_of(self.metadata.main)

    def live(self, table: TableName, head: TableHead, bounds_of: Iterable[int] = ()) -> LiveFiles:
        return self.live_at(self._state(head))

    def live_with_lineage(self, table: TableName, head: TableHead) -> LiveFiles:
        state = self._state(head)
        live = self.live_at(state)
        if state.number < self.lineage_from:
            return live
        return replace(live, files=tuple(replace(file, first_row_id=0) for file in live.files))

    def rewritten_table(self, table: TableName, head: TableHead) -> RewrittenTable:
        known = self.converted_table(table, head)
        return RewrittenTable(
            name=NAME,
            schema=Schema(0, tuple(column.field for column in known.columns.values())),
            format_version=self.version,
            sequence_number=self._state(head).number,
            data_location=known.data_location,
            specs=known.specs,
        )

    def repair(self, table: TableName, head: TableHead, plan: ReplaceFiles) -> CommitAnswer:
        return self._sent(head.base, lambda: self._land(plan))

    def manifests(self, table: TableName, head: TableHead) -> tuple[LiveManifest, ...]:
        return tuple(
            LiveManifest(one.path, ENTRY_BYTES * len(one.entries), one.spec_id, len(one.entries), one.deletes)
            for one in self._manifests[self._state(head).number]
        )

    def merge_manifests(
        self, table: TableName, head: TableHead, paths: Iterable[str], summary: Mapping[str, str]
    ) -> CommitAnswer:
        return self._sent(head.base, lambda: self._merge(self._state(head), frozenset(paths), summary))

    def _merge(self, seen: State, paths: frozenset[str], summary: Mapping[str, str]) -> None:
        """The snapshot has what its manifests list, and those were read from `seen`."""
        known = self._manifests[seen.number]
        assert paths <= {one.path for one in known}, "a manifest that is not there cannot be replaced"
        piles: dict[tuple[bool, int], set[FileId]] = {}
        for one in known:
            if one.path in paths:
                piles.setdefault((one.deletes, one.spec_id), set()).update(one.entries)
        merged = [self._manifest(*kind, files, "optimized-m-{uuid}.avro") for kind, files in piles.items() if files]
        self._staged = (*(one for one in known if one.path not in paths), *merged)
        listed = frozenset[FileId]().union(*(one.entries for one in self._staged))
        data = {path: file for path, file in seen.data.items() if (path, None) in listed}
        try:
            self._become(data, {place: one for place, one in seen.deletes.items() if place in listed}, summary)
        finally:
            self._staged = None

    def snapshots(self, table: TableName) -> TableSnapshots:
        base = self.metadata
        main = {MAIN: Reference(base.main, True)} if base.main else {}
        return TableSnapshots(
            uuid="u",
            snapshots={number: self.facts(number) for number in base.kept},
            references={**base.references, **main},
            properties=base.properties,
            base=base,
        )

    def freed(self, table: TableName, seen: TableSnapshots, removed: frozenset[int]) -> list[str]:
        going = frozenset[str]().union(*(self._paths[number] for number in removed))
        left = frozenset[str]().union(*(self._paths[number] for number in seen.snapshots.keys() - removed))
        return sorted(going - left)

    def expire(self, table: TableName, seen: TableSnapshots, expiry: Expiry) -> CommitAnswer:
        def remove() -> None:
            wanted = self._wanted({*expiry.dropped_tags, *expiry.tags}) & self.metadata.kept
            references = {n: r for n, r in self.metadata.references.items() if n not in expiry.dropped_tags}
            references |= {name: Reference(number) for name, number in expiry.tags.items()}
            self.replace_metadata(kept=self.metadata.kept - expiry.removed, references=references)
            if expired := wanted - self.metadata.kept:
                raise Violation(f"snapshot {min(expired)} must not expire")
            reading = read_frontier(self.head(table), JOB)
            if isinstance(reading, RolledBack) != self.is_rolled_back():
                raise Violation(f"H4: the pipeline takes the table for {reading}")

        return self._sent(seen.base, remove)

    def _wanted(self, moving: set[str]) -> set[int]:
        """What must never expire: what is named, what is only on a branch, the pipeline's newest epoch on main."""
        main, mark = self._line(self.metadata.main), self.mark()
        wanted = {main[0], main[0] if mark is None else mark.number}
        for name, reference in self.metadata.references.items():
            if name not in moving:
                wanted.add(reference.snapshot_id)
            if reference.is_branch:
                kept = itertools.takewhile(self.metadata.kept.__contains__, self._line(reference.snapshot_id))
                wanted |= set(kept) - set(main)
        return wanted

    def _line(self, number: int) -> list[int]:
        """All that were ever on it, newest first."""
        found = []
        while number:
            found.append(number)
            number = self.states[number].parent or 0
        return found

    def _sent(self, base: object, land: Callable[[], None]) -> CommitAnswer:
        """Its manifests and its metadata are written before it is known whether it lands."""
        answer = self.answers()
        if answer == "is lost" or base is not self.metadata:
            self.write_list()
            self._manifest(False, 0, ())
            self.put(self._metadata_path())
            return Unknown("no answer") if answer != "lands" else Conflicted("the table has changed")
        land()
        return Unknown("no answer") if answer == "lands without a word" else Accepted(self.metadata.main)

    def _state(self, head: TableHead) -> State:
        assert isinstance(head.base, Metadata)
        return self.states[head.base.main]
