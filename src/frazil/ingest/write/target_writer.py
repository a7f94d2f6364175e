"""Writes one epoch of one source table to all its targets.

    rows of the epoch, sorted --+--> a raw line that is no change -----------------------+
                                +--> behind a change of its key that is in quarantine ---+--> quarantine
                                +--> does not decode or bind ----------------------------+
                                +--> the rest, decoded once --> every one ------------------> changelog
                                                           `--> the last one of each key --> main table
                                                                (of each part of it: put together first)

A target takes nothing at or below its own `lower`: after a crash between two commits the targets of a source table
are not equally far, and what is read again must not come twice. Rows reach the changelog and the main table only after
all of them were decoded and bound for both, so that a bad one is in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.bind import Binding, key_fields, optional_but
from frazil.errors import BadInput, UnknownColumn
from frazil.ingest.quarantine.bisect import bad_rows
from frazil.ingest.quarantine.captured_keys import CapturedKeys, order_of
from frazil.ingest.quarantine.rows import bad_lines, bad_values, captured_rows, no_before
from frazil.ingest.write.assemble_families import WholeKeys, assemble
from frazil.ingest.write.change_rows import FileOf, PositionText, unplaced
from frazil.ingest.write.fold import differ
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.model import quarantine as q
from frazil.model.change import Op
from frazil.model.files import FileClosed
from frazil.model.table import CHANGELOG_BEFORE, CHANGELOG_OP, CHANGELOG_POSITION
from frazil.model.write import DeleteMode, Role, TableTask
from frazil.sources.base import Decoder, TellsSent

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenChanges:
    """Decoded changes. `decoded` has a row for each upsert, `keys` one for each delete, in their order; `keys` and
    `befores` are None where nobody needs them. `sent` says which cells of `decoded` came; None if all did."""

    rows: pa.RecordBatch
    is_upsert: Mask
    decoded: pa.RecordBatch | None
    keys: pa.RecordBatch | None
    befores: pa.Array | None
    sent: Mask | None = None


class TargetsWriter:
    """Takes the sorted changes of one source table and epoch, batch by batch, and reports the files at the end."""

    def __init__(
        self,
        tasks: Sequence[TableTask],
        epoch: int,
        place: TaskOutput,
        decoder: Decoder,
        position_text: PositionText,
        captures: CapturedKeys | None,
        file_of: FileOf = unplaced,
    ) -> None:
        """`captures` is there if the source table has a quarantine; `file_of` names the partition that a change says it
        was read from."""
        self._file_of = file_of
        self._index = tasks[0].index
        self._decoder = decoder
        self._position_text = position_text
        self._captures = captures
        self._writers = [(task, TableEpochWriter(task, task.epochs[epoch], place)) for task in tasks]
        self._quarantine = next(((t, w) for t, w in self._writers if t.role is Role.QUARANTINE), None)
        self._origin = "" if self._quarantine is None else self._quarantine[0].name.text
        self._logs = [(t, w) for t, w in self._writers if is_log(t)]
        self._main_table = next(((t, w) for t, w in self._writers if t.role is Role.MAIN and not is_log(t)), None)
        # Bound twice where there is a quarantine: once to see whether it can be, once to be written.
        self._trials = [(t, _trial(t)) for t, _ in self._writers if t.role is not Role.QUARANTINE]
        self._held: _Held | None = None
        self._whole_keys = WholeKeys() if self._main_table is not None and self._main_table[0].parts else None
        if self._whole_keys is not None and self._logs:
            raise AssertionError(f"table {self._index} comes in parts, which a changelog cannot keep")

    def take(self, rows: pa.RecordBatch) -> None:
        """Raises what the decoder and the writers raise; of a row's own errors only where they are not put away."""
        self._take(rows if self._whole_keys is None else self._whole_keys.take(rows))

    def _take(self, rows: pa.RecordBatch) -> None:
        rows = self._without_lines(rows)
        rows = self._without_waiting(rows)
        if not rows.num_rows:
            return
        if self._captures is None or not self._captures.takes_new:
            try:
                self._write(self._taken(rows))
            except UnknownColumn:
                raise
            except BadInput as error:
                raise self._placed(rows, error) from error
            return
        try:
            taken = self.tried(rows)
        except UnknownColumn:
            raise
        except BadInput:
            rows = self._without_bad(rows, self._captures)
            if not rows.num_rows:
                return
            taken = self.tried(rows)
        self._write(taken)

    def _write(self, taken: TakenChanges) -> None:
        for task, writer in self._logs:
            self._log(task, writer, taken)
        if self._main_table is not None:
            self._reflect(*self._main_table, taken)

    def _placed(self, rows: pa.RecordBatch, error: BadInput) -> BadInput:
        """The error with file and line of the row to blame, where the source has them."""
        at, found = next(iter(bad_rows(rows, self.tried)), (None, error))
        if at is None or rows.column("line")[at].as_py() is None or "line" in found.facts:
            return error
        file, line = self._file_of(rows.column("partition")[at].as_py()), rows.column("line")[at].as_py()
        facts = {**found.facts, "file": file, "line": line}
        return type(found)(f"{file}:{line}: {found.message}", hint=found.hint, **facts)

    def close(self) -> tuple[FileClosed, ...]:
        if self._whole_keys is not None and (rest := self._whole_keys.rest()) is not None:
            self._take(rest)
        if self._held is not None and self._main_table is not None:
            self._held.write(self._main_table[1])
            self._held = None
        return tuple(file for _, writer in self._writers for file in writer.close())

    def abandon(self) -> None:
        """Releases open files after a failure."""
        for _, writer in self._writers:
            writer.abandon()

    # what goes to quarantine

    def _without_lines(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        bad = pc.equal(rows.column("op"), int(Op.BAD)).to_numpy(zero_copy_only=False)
        if not bad.any():
            return rows
        lines = rows.filter(pa.array(bad))
        batch, keyed = bad_lines(lines, self._origin, self._position_text)
        for at in range(lines.num_rows):
            key, order = lines.column("key")[at].as_py(), order_of(lines, at)
            if not self._known().holds(key, order):
                self._must_be_new(order, self._turned_bad(batch.column(q.REASON)[at].as_py()))
            if keyed[at]:
                self._known().add(key, order, None)
        self._put_away(lines, batch)
        return rows.filter(pa.array(~bad))

    def _without_waiting(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        waiting = None if self._captures is None else self._captures.waiting(rows)
        if waiting is None:
            return rows
        chosen = rows.filter(pa.array(waiting))
        self._put_away(chosen, captured_rows(chosen, self._origin, self._position_text, self._file_of))
        return rows.filter(pa.array(~waiting))

    def _without_bad(self, rows: pa.RecordBatch, captures: CapturedKeys) -> pa.RecordBatch:
        found = bad_rows(rows, self.tried)
        bad = np.zeros(rows.num_rows, dtype=bool)
        errors = []
        for at, error in found:
            key, order = rows.column("key")[at].as_py(), order_of(rows, at)
            if captures.holds(key, order):
                continue  # behind an earlier bad row of its key in this very batch
            self._must_be_new(order, error)
            captures.add(key, order, error.facts.get("column"))
            bad[at] = True
            errors.append(error)
        chosen = rows.filter(pa.array(bad))
        self._put_away(chosen, bad_values(chosen, errors, self._origin, self._position_text, self._file_of))
        return self._without_waiting(rows.filter(pa.array(~bad)))

    def _must_be_new(self, order: tuple[int, int], error: BadInput) -> None:
        """The quarantine was published up to `lower` and does not hold this row: it was good when the epoch was written
        first. Left out now it would be nowhere."""
        assert self._quarantine is not None
        lower = self._quarantine[0].lower
        if lower is not None and order <= lower:
            raise error

    def _turned_bad(self, reason: str) -> BadInput:
        return BadInput(
            f"{reason}: it could be read when its epoch of {self._origin} was published, and would be in neither table "
            "now",
            hint="Take back what has changed in the configuration since, at least until the table has caught up with "
            "its quarantine.",
            table=self._origin,
        )

    def _put_away(self, rows: pa.RecordBatch, batch: pa.RecordBatch) -> None:
        if self._quarantine is None:
            raise AssertionError(
                f"a row of table {self._index} is to be put away, and the job has no quarantine for it"
            )
        task, writer = self._quarantine
        chosen = beyond(rows, task.lower)
        batch = batch if chosen is None else batch.filter(pa.array(chosen))
        if batch.num_rows:
            writer.upserts(batch)
            self._known().count(batch.num_rows)

    def _known(self) -> CapturedKeys:
        if self._captures is None:
            raise AssertionError(f"table {self._index} has no quarantine")
        return self._captures

    # what goes to the others

    def tried(self, rows: pa.RecordBatch) -> TakenChanges:
        """Decodes and binds for every target, without a trace."""
        taken = self._taken(rows, every_key=True)
        for task, trial in self._trials:
            if is_log(task):
                for batch in self._logged(task, taken, None):
                    trial.rows.bind(batch)
                continue
            if taken.decoded is not None:
                trial.rows.bind(taken.decoded)
            if taken.keys is not None:
                trial.keys.bind(taken.keys)
        return taken

    def _taken(self, rows: pa.RecordBatch, every_key: bool = False) -> TakenChanges:
        upserts = pc.equal(rows.column("op"), int(Op.UPSERT)).to_numpy(zero_copy_only=False)
        decoded = keys = sent = None
        if upserts.any():
            some = _filtered(rows, upserts)
            decoded = self._decoder.rows(self._index, some.column("key"), some.column("payload"))
            if isinstance(self._decoder, TellsSent):
                sent = self._decoder.sent(self._index, some.column("payload"))
        if not upserts.all() and (every_key or self._logs or not self._drops_deletes):
            some = _filtered(rows, ~upserts)
            keys = self._decoder.keys(self._index, some.column("key"))
        befores = self._befores(rows) if any(_keeps_before(task) for task, _ in self._logs) else None
        return TakenChanges(rows=rows, is_upsert=upserts, decoded=decoded, keys=keys, befores=befores, sent=sent)

    @property
    def _drops_deletes(self) -> bool:
        return self._main_table is None or self._main_table[1].drops_deletes

    def _befores(self, rows: pa.RecordBatch) -> pa.Array | None:
        """The rows as they were. One with columns that the table does not have (any more) is left out: it tells of a
        schema that is gone. None if no row has one."""
        told = ~no_before(rows.column("before"))
        if not told.any():
            return None
        some = _filtered(rows, told)

        def decode(part: pa.RecordBatch) -> pa.RecordBatch:
            return self._decoder.rows(self._index, part.column("key"), part.column("before"))

        try:
            decoded = decode(some)
        except UnknownColumn:
            outdated = _outdated(some, decode)
            told[np.flatnonzero(told)[outdated]] = False
            if not told.any():
                return None
            decoded = decode(_filtered(rows, told))
        whole = pa.StructArray.from_arrays(decoded.columns, fields=list(decoded.schema))
        places = np.full(rows.num_rows, -1, dtype=np.int64)
        places[told] = np.arange(int(told.sum()))
        return whole.take(pa.array(places, mask=~told))

    def _log(self, task: TableTask, writer: TableEpochWriter, taken: TakenChanges) -> None:
        for batch in self._logged(task, taken, beyond(taken.rows, task.lower)):
            writer.log(batch)

    def _logged(self, task: TableTask, taken: TakenChanges, chosen: Mask | None) -> list[pa.RecordBatch]:
        """Upserts and deletes as rows of a changelog."""
        found = []
        for mask, columns in ((taken.is_upsert, taken.decoded), (~taken.is_upsert, taken.keys)):
            picked = mask if chosen is None else mask & chosen
            if not picked.any() or columns is None:
                continue
            rows = _filtered(taken.rows, picked)
            own = columns.columns if chosen is None or not columns.columns else _filtered(columns, picked[mask]).columns
            arrays = [*own, _ops(rows), self._position_text(rows.column("major"), rows.column("minor"))]
            names = [*columns.schema.names, CHANGELOG_OP, CHANGELOG_POSITION]
            if taken.befores is not None and _keeps_before(task):
                arrays.append(taken.befores.filter(pa.array(picked)))
                names.append(CHANGELOG_BEFORE)
            found.append(pa.RecordBatch.from_arrays(arrays, names=names))
        return found

    def _reflect(self, task: TableTask, writer: TableEpochWriter, taken: TakenChanges) -> None:
        chosen = beyond(taken.rows, task.lower)
        if task.parts:
            self._put_together(task, writer, taken, chosen)
            return
        if not self._logs:
            # Folded before it came here: every row is the net change of its key.
            _Held(taken, chosen).write(writer)
            return
        places = np.arange(taken.rows.num_rows) if chosen is None else np.flatnonzero(chosen)
        if not len(places):
            return
        rows = taken.rows if chosen is None else taken.rows.filter(pa.array(chosen))
        if self._held is not None and self._held.identity != _identity(rows, 0):
            self._held.write(writer)
        net = np.zeros(taken.rows.num_rows, dtype=bool)
        net[places[:-1][differ(rows, ("key", "part"))]] = True
        _Held(taken, net).write(writer)
        # Whether the last row is the net change of its key, only the next batch can tell.
        last = np.zeros(taken.rows.num_rows, dtype=bool)
        last[places[-1]] = True
        self._held = _Held(taken, last, _identity(rows, rows.num_rows - 1))

    def _put_together(
        self, task: TableTask, writer: TableEpochWriter, taken: TakenChanges, chosen: Mask | None
    ) -> None:
        mask = np.ones(taken.rows.num_rows, dtype=bool) if chosen is None else chosen
        nothing = pa.array([], pa.string()), pa.array([], pa.binary())
        decoded = self._decoder.rows(self._index, *nothing) if taken.decoded is None else taken.decoded
        upserts, deletes = mask[taken.is_upsert], mask[~taken.is_upsert]
        keys = None if taken.keys is None or writer.drops_deletes else _filtered(taken.keys, deletes)
        rows = _filtered(taken.rows, mask)
        sent = None if taken.sent is None else taken.sent[upserts]
        found = assemble(task, rows, taken.is_upsert[mask], _filtered(decoded, upserts), keys, sent)
        if found.deleted is not None:
            writer.deletes(found.deleted)
        # In a table that is known to be empty there is no older row: what is not known is NULL.
        whole = found.inserts if writer.drops_deletes else found.whole
        if whole.any():
            writer.upserts(_filtered(found.rows, whole))
        if not writer.drops_deletes and not whole.all():
            writer.partials(_filtered(found.rows, ~whole), found.known[~whole], found.inserts[~whole])


class _Held:
    """Changes chosen for the main table."""

    def __init__(self, taken: TakenChanges, chosen: Mask | None, identity: tuple[str, int] | None = None) -> None:
        self.identity = identity
        self._upserts, self._keys = taken.decoded, taken.keys
        if chosen is not None:
            upserts, deletes = chosen[taken.is_upsert], chosen[~taken.is_upsert]
            self._upserts = None if self._upserts is None else _filtered(self._upserts, upserts)
            self._keys = None if self._keys is None else _filtered(self._keys, deletes)

    def write(self, writer: TableEpochWriter) -> None:
        if self._upserts is not None and self._upserts.num_rows:
            writer.upserts(self._upserts)
        if self._keys is not None and self._keys.num_rows and not writer.drops_deletes:
            writer.deletes(self._keys)


@dataclass(frozen=True, slots=True)
class _Trial:
    rows: Binding
    keys: Binding


def _trial(task: TableTask) -> _Trial:
    keys = key_fields(task.name, task.schema, task.key)
    # One part of a row lacks the others' columns; whether a required one is missing, the whole row tells.
    fields = optional_but(task.key, task.schema.fields) if task.parts else task.schema.fields
    return _Trial(Binding(task.name, fields, task.key), Binding(task.name, keys, task.key))


def is_log(task: TableTask) -> bool:
    """Whether the target keeps every change."""
    return task.mode is DeleteMode.APPEND_ONLY and task.role is not Role.QUARANTINE


def beyond(rows: pa.RecordBatch, lower: tuple[int, int] | None) -> Mask | None:
    """Which rows lie beyond a position; None if all do."""
    if lower is None:
        return None
    major, minor = (rows.column(name).to_numpy(zero_copy_only=False) for name in ("major", "minor"))
    found: Mask = (major > lower[0]) | ((major == lower[0]) & (minor > lower[1]))
    return None if found.all() else found


def _keeps_before(task: TableTask) -> bool:
    return task.schema.field(CHANGELOG_BEFORE) is not None


def _ops(rows: pa.RecordBatch) -> pa.Array:
    """What happened: exactly, where the source told what there was before."""
    before, deleted = rows.column("before"), pc.not_equal(rows.column("op"), int(Op.UPSERT))
    was_none = pc.equal(before, pa.scalar(b"null", pa.binary()))
    told = pc.if_else(was_none, "insert", "update")
    return pc.if_else(deleted, "delete", pc.if_else(before.is_null(), "upsert", told))


def _outdated(rows: pa.RecordBatch, decode: Any) -> list[int]:
    """Rows whose before-image has columns nobody knows."""
    found = []
    for at in range(rows.num_rows):
        try:
            decode(rows.slice(at, 1))
        except UnknownColumn:
            found.append(at)
    return found


def _identity(rows: pa.RecordBatch, at: int) -> tuple[str, int]:
    return rows.column("key")[at].as_py(), rows.column("part")[at].as_py()


def _filtered(rows: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    """Without a copy where all are wanted."""
    return rows if mask.all() else rows.filter(pa.array(mask))
