"""Makes whole rows of partial ones: what they lack is what the older row of their key has, at one head.

    partial rows --keys--> older rows of these keys, alive at the head          key --> data file, position
                             not deleted at their position (that is known), nor by an equality delete that applies
                             several? the one of the newest data file, the last in it
    partial rows, so many at a time:  + columns of the older rows that they lack  --> data files, as tasks write them

It runs where the lookup is decided on, in the driver, and holds the keys of all partial rows and some ten thousand
rows. A column that the older file does not have is NULL; so is every column that is not known where no older row is.
Deletes that are not by the table's key are refused: nobody could tell which row is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.data.deletes.vectors import to_positions
from frazil.data.keys.codec import KeyCodec, Keys
from frazil.data.keys.index import KeyIndex
from frazil.data.read.align import aligned
from frazil.data.read.parquet import bound_name, open_parquet, read_keys, read_rows, unreadable
from frazil.errors import BadInput
from frazil.ingest.locate.search import DeletedPositions
from frazil.ingest.locate.searched_table import SearchedTable
from frazil.ingest.write.column_mask import INSERTS, KNOWN, Bits, from_masks
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.model.files import FileClosed, FileKind, LiveDelete, LiveFile
from frazil.model.ids import prefix_of
from frazil.model.schema import Field, Schema
from frazil.model.write import DeleteMode, EpochTarget, TableTask

ROWS_AT_ONCE = 1 << 16
_NOWHERE = -1
IndexOf = Callable[[str, int], KeyIndex]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OlderRows:
    """For each partial row the data file (by its number in `files`) and the position of its older row."""

    files: tuple[LiveFile, ...]
    file: Numbers
    position: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class _Partial:
    """Some partial rows with the table's columns; `known` has a bit for each of them."""

    columns: list[pa.Array]
    known: Bits
    inserts: Bits


def complete(
    table: SearchedTable,
    partial: Sequence[FileClosed],
    deletions: Sequence[DeletedPositions],
    attempt: str,
    index: IndexOf,
    *,
    indexed: bool,
) -> tuple[FileClosed, ...]:
    """Data files of the partial rows. `deletions` name the rows of their keys, and of others, that are alive as far as
    position deletes tell; `index` gives the key index of a file, and is asked for data files if they are `indexed` on
    this machine.

    Raises BadInput for a required column that nobody knows and for deletes that cannot be read by key, and what
    reading and writing raise.
    """
    schema = table.schema
    older = _older_rows(table, partial, deletions, index, indexed)
    first = partial[0]
    target = EpochTarget(first.epoch, first.batch_id, prefix_of(first.path))
    place = TaskOutput(shard=first.worker, attempt=attempt, parquet=table.parquet)
    key = tuple(field.name for field in table.key)
    task = TableTask.of(table, index=0, key=key, mode=DeleteMode.VECTORS, epochs=(target,))
    writer = TableEpochWriter(task, target, place)
    names, start = [field.name for field in schema], 0
    try:
        for file in partial:
            for rows in _partial_rows(table, schema, file):
                count = len(rows.inserts)
                columns = _filled(table, schema, rows, older, start)
                wanted = rows.inserts | (older.file[start : start + count] != _NOWHERE)
                batch = pa.RecordBatch.from_arrays(columns, names=names)
                writer.upserts(batch if wanted.all() else batch.filter(pa.array(wanted)))
                start += count
        return writer.close()
    except BaseException:
        writer.abandon()
        raise


# which row is the older one


def _older_rows(
    table: SearchedTable,
    partial: Sequence[FileClosed],
    deletions: Sequence[DeletedPositions],
    index: IndexOf,
    indexed: bool,
) -> OlderRows:
    codec = KeyCodec(table.key)
    batches = (
        batch
        for file in partial
        for batch in read_keys(file.path, file.size, table.key, table.storage, table.name_mapping)
    )
    keys = Keys.concat([codec.encode(batch.columns) for batch in batches])
    file_of, position_of = np.full(len(keys), _NOWHERE, np.int64), np.zeros(len(keys), np.int64)
    # The newest file last: what is found later takes the place of what was found before.
    ordered = sorted(deletions, key=lambda one: (one.file.sequence_number, one.file.path))
    for number, one in enumerate(ordered):
        positions, needles = _matches(table, codec, one, keys, index, indexed)
        is_alive = _survives(table, one.file, keys, needles, index)
        file_of[needles[is_alive]] = number
        position_of[needles[is_alive]] = positions[is_alive]
    return OlderRows(tuple(one.file for one in ordered), file_of, position_of)


def _matches(
    table: SearchedTable, codec: KeyCodec, one: DeletedPositions, keys: Keys, index: IndexOf, indexed: bool
) -> tuple[Numbers, Numbers]:
    """Rows of the file that were found alive, each with the partial row that has its key; ascending by position."""
    alive, file = to_positions(one.fresh).astype(np.int64), one.file
    if indexed:
        positions, needles = index(file.path, file.size).match(keys)
        chosen = np.isin(positions, alive)
        return positions[chosen], needles[chosen]
    found: list[tuple[Numbers, Numbers]] = []
    for start in range(0, len(alive), ROWS_AT_ONCE):
        some = alive[start : start + ROWS_AT_ONCE]
        rows = read_rows(file.path, some, table.key, table.storage, table.name_mapping)
        own = codec.encode([column.combine_chunks() for column in rows.columns])
        found.append(KeyIndex.build(codec.signature, own, positions=some, records=file.records).match(keys))
    return np.concatenate([of for of, _ in found]), np.concatenate([of for _, of in found])


def _survives(table: SearchedTable, file: LiveFile, keys: Keys, needles: Numbers, index: IndexOf) -> Bits:
    """Which of these rows of the file no equality delete takes away."""
    alive = np.ones(len(needles), np.bool_)
    if not len(needles):
        return alive
    for delete in file.deletes:
        if delete.kind is not FileKind.EQUALITY_DELETE:
            continue
        _must_be_by_key(table, delete)
        _, gone = index(delete.path, delete.size).match(keys.take(needles))
        alive[gone] = False
    return alive


def _must_be_by_key(table: SearchedTable, delete: LiveDelete) -> None:
    if delete.format != "parquet":
        raise unreadable(delete.path, f"it is {delete.format}")
    if set(delete.equality_ids) == {field.id for field in table.key}:
        return
    raise BadInput(
        f"{table.name}: rows cannot be completed while {delete.path} deletes by the columns with ids "
        f"{', '.join(map(str, delete.equality_ids))}, which are not the table's key",
        hint=f"Apply the deletes, then run again: CALL system.rewrite_data_files(table => '{table.name}', "
        "options => map('delete-file-threshold', '1')).",
        table=table.name.text,
        path=delete.path,
    )


# what the older row has


def _partial_rows(table: SearchedTable, schema: Schema, file: FileClosed) -> Iterator[_Partial]:
    """The rows of one file, in its order. A column that the table has got since is known to be NULL."""
    with open_parquet(file.path, table.storage, file.size) as source:
        own = source.schema_arrow
        places = [_place(own, field) for field in schema]
        for batch in source.iter_batches(batch_size=ROWS_AT_ONCE):
            rows = pa.Table.from_batches([batch])
            bits = from_masks(batch.column(KNOWN.name), len(own) - 2)
            known = np.ones((batch.num_rows, len(places)), np.bool_)
            columns = []
            for number, (place, field) in enumerate(zip(places, schema, strict=True)):
                column, given = (None, None) if place is None else (rows.column(place), own.field(place))
                columns.append(aligned(column, given, field.type, batch.num_rows, by_id=True))
                if place is not None:
                    known[:, number] = bits[:, place]
            yield _Partial(columns, known, batch.column(INSERTS.name).to_numpy(zero_copy_only=False))


def _place(own: pa.Schema, field: Field) -> int | None:
    name = bound_name(own, field)
    return None if name is None else int(own.get_field_index(name))


def _filled(table: SearchedTable, schema: Schema, rows: _Partial, older: OlderRows, start: int) -> list[pa.Array]:
    count = len(rows.inserts)
    file_of, position_of = older.file[start : start + count], older.position[start : start + count]
    lacks = ~rows.known & (file_of != _NOWHERE)[:, None]
    lacking = np.flatnonzero(lacks.any(axis=0))
    if not len(lacking):
        return rows.columns
    fields = [schema.fields[number] for number in lacking]
    parts, places = [], np.full(count, _NOWHERE, np.int64)
    at = count
    for number in np.unique(file_of[lacks.any(axis=1)]):
        mine = np.flatnonzero(lacks.any(axis=1) & (file_of == number))
        path = older.files[number].path
        parts.append(read_rows(path, position_of[mine], fields, table.storage, table.name_mapping))
        places[mine] = np.arange(at, at + len(mine))
        at += len(mine)
    found = pa.concat_tables(parts)
    columns = list(rows.columns)
    for place, number in enumerate(lacking):
        known = rows.known[:, number]
        both = pa.concat_arrays([columns[number], found.column(place).combine_chunks()])
        chosen = np.where(known, np.arange(count), places)
        columns[number] = both.take(pa.array(chosen, mask=chosen == _NOWHERE))
    return columns
