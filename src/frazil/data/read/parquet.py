"""Reads key columns, and rows at given positions, out of any Parquet data file of a table.

    file's schema --ids in it?--yes--> by field id
                        `-------no---> by the table's name mapping if it has one, else by name
    read_keys   one batch after another, of the key columns alone         --index_file--> KeyIndex
    read_columns  likewise, and columns that the file does not have
    read_rows   only the row groups that hold a wanted position           --> whole rows, in the order asked for

Files of other writers are read like our own. What cannot be read here (no Parquet, no such column, a key inside a
struct) raises UnreadableFile, and the caller takes another road to the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from frazil.data.keys.codec import KeyCodec, Keys
from frazil.data.keys.index import KeyIndex
from frazil.data.read.align import aligned, field_id
from frazil.errors import BadInput, TableChanged
from frazil.model.arrow import value_type
from frazil.model.schema import Field
from frazil.storage.files.open_file import input_error, open_input

BATCH_ROWS = 1 << 19


class UnreadableFile(BadInput):
    """A file of the table that cannot be read here; another reader may be able to."""


class DamagedFile(UnreadableFile):
    """One that no reader can read: its bytes are not those that were written."""


def read_keys(
    path: str, size: int, fields: Sequence[Field], storage: Mapping[str, str], name_mapping: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The columns of these fields, in their order and under their names, in the types the file has.

    `size` is what the manifest says; `name_mapping` is the table's property `schema.name-mapping.default`. Raises
    UnreadableFile, TableChanged if the file is gone or another one, StorageUnavailable.
    """
    with open_parquet(path, storage, size) as file:
        names = [_required(path, file, field, name_mapping) for field in fields]
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=names):
            columns = [batch.column(name) for name in names]
            yield pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])


def read_columns(
    path: str,
    size: int,
    fields: Sequence[Field],
    storage: Mapping[str, str],
    name_mapping: str | None = None,
    *,
    missing: Mapping[int, pa.Scalar] | None = None,
    rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """As `read_keys`, in batches of so many rows at most, with the values in `missing`, by field id, for columns that
    the file does not have. Raises UnreadableFile for a column that is in neither."""
    with open_parquet(path, storage, size) as file:
        names = [_bound(path, file, field, name_mapping) for field in fields]
        for name, field in zip(names, fields, strict=True):
            if name is None and field.id not in (missing or {}):
                raise unreadable(path, f"it has no key column {field.name!r} (id {field.id})")
        # A batch without columns does not tell how many rows it has: then read one that nobody needs.
        wanted = [name for name in names if name is not None] or [_any_column(path, file)]
        for batch in file.iter_batches(batch_size=rows, columns=wanted):
            columns = [
                pa.repeat((missing or {})[field.id], batch.num_rows) if name is None else batch.column(name)
                for name, field in zip(names, fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])


def index_file(
    path: str, size: int, codec: KeyCodec, storage: Mapping[str, str], name_mapping: str | None = None
) -> KeyIndex:
    """The key index of one data file. A row whose key has a NULL is in no index: it is nobody's older row.

    Raises like `read_keys`, and UnreadableFile for values that the key's types cannot hold.
    """
    parts = [codec.encode([pa.array([], column) for column in _empty_columns(codec)])]
    positions: list[NDArray[np.int64]] = []
    records = 0
    for batch in read_keys(path, size, codec.fields, storage, name_mapping):
        rows = np.arange(records, records + batch.num_rows)
        records += batch.num_rows
        if any(column.null_count for column in batch.columns):
            whole = _rows_without_nulls(batch)
            batch, rows = batch.take(pa.array(whole)), rows[whole]
        try:
            parts.append(codec.encode(batch.columns))
        except BadInput as error:
            raise unreadable(path, error.message) from error
        positions.append(rows)
    keys = Keys.concat(parts)
    rows = np.concatenate(positions) if positions else np.empty(0, np.int64)
    return KeyIndex.build(codec.signature, keys, positions=rows, records=records)


def read_rows(
    path: str,
    positions: Sequence[int] | NDArray[Any],
    fields: Sequence[Field],
    storage: Mapping[str, str],
    name_mapping: str | None = None,
) -> pa.Table:
    """The rows at these positions, in this order, with the fields' names and the types of the table's schema.

    A column that the file does not have is null. Raises like `read_keys`; ValueError for a position beyond the file.
    """
    wanted, places = np.unique(np.asarray(positions, np.int64), return_inverse=True)
    with open_parquet(path, storage) as file:
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        if len(wanted) and (wanted[0] < 0 or wanted[-1] >= starts[-1]):
            raise ValueError(f"{path} has {starts[-1]} rows, and none at {wanted[-1] if wanted[0] >= 0 else wanted[0]}")
        names = [_bound(path, file, field, name_mapping) for field in fields]
        by_id = has_ids(file.schema_arrow)
        groups = np.searchsorted(starts, wanted, side="right") - 1
        parts = []
        for group in np.unique(groups):
            # Of a table without columns nothing could be taken.
            own = [name for name in names if name is not None] or [_any_column(path, file)]
            read = file.read_row_group(int(group), columns=own)
            parts.append(_aligned_rows(read.take(wanted[groups == group] - starts[group]), names, fields, by_id))
        if not parts:
            empty = file.schema_arrow.empty_table()
            parts = [_aligned_rows(empty, names, fields, by_id)]
    return pa.concat_tables(parts).take(places)


@contextmanager
def open_parquet(path: str, storage: Mapping[str, str], size: int | None = None) -> Iterator[pq.ParquetFile]:
    """The file, closed at the end. Whatever goes wrong while it is read becomes an error of ours."""
    with open_input(path, storage) as source:
        try:
            found = source.size()
            if size is not None and found != size:
                raise TableChanged(
                    f"{path} has {found} bytes, and {size} in the table's manifest",
                    hint="Somebody replaced a file of the table. Restore the right one, or roll the table back.",
                    path=path,
                )
            yield pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        except OSError as error:
            # Arrow calls damaged pages an OSError too, but without a number from the operating system.
            raise (input_error(error, path) if error.errno else damaged(path, str(error))) from error
        except pa.ArrowNotImplementedError as error:
            raise unreadable(path, str(error)) from error
        except pa.ArrowException as error:
            raise damaged(path, str(error)) from error


def bound_name(schema: pa.Schema, field: Field, name_mapping: str | None = None) -> str | None:
    """What the file calls the top-level column of this field; None if it has none. Raises ValueError if the answer
    is not clear."""
    if has_ids(schema):
        names = [column.name for column in schema if field_id(column) == field.id]
        if not names and any(_is_inside(column, field.id) for column in schema):
            raise ValueError(f"column {field.name!r} (id {field.id}) lies inside a struct, list or map")
    elif name_mapping:
        mapped = {
            name for entry in json.loads(name_mapping) if entry.get("field-id") == field.id for name in entry["names"]
        }
        names = [column.name for column in schema if column.name in mapped]
    else:
        names = [column.name for column in schema if column.name == field.name]
    if len(names) > 1 or (names and len(schema.get_all_field_indices(names[0])) > 1):
        raise ValueError(f"columns {names} all claim to be {field.name!r} (id {field.id})")
    return names[0] if names else None


def has_ids(schema: pa.Schema) -> bool:
    """Whether the writer numbered the columns; if it did, names mean nothing (H30)."""
    return any(field_id(column) is not None or _is_inside(column, None) for column in schema)


def unreadable(path: str, reason: str) -> UnreadableFile:
    return UnreadableFile(
        f"cannot read {path}: {reason}",
        hint="If the file is damaged, restore it. If another tool wrote it in a form that is not read here, rewrite"
        " it (Spark: CALL system.rewrite_data_files).",
        path=path,
    )


def damaged(path: str, reason: str) -> DamagedFile:
    return DamagedFile(
        f"cannot read {path}: {reason}",
        hint="Restore the file, or roll the table back to a snapshot before it.",
        path=path,
    )


def _bound(path: str, file: pq.ParquetFile, field: Field, name_mapping: str | None) -> str | None:
    try:
        return bound_name(file.schema_arrow, field, name_mapping)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise unreadable(path, str(error)) from error


def _required(path: str, file: pq.ParquetFile, field: Field, name_mapping: str | None) -> str:
    name = _bound(path, file, field, name_mapping)
    if name is None:
        raise unreadable(path, f"it has no key column {field.name!r} (id {field.id})")
    return name


def _any_column(path: str, file: pq.ParquetFile) -> str:
    names = file.schema_arrow.names
    plain = [name for name in names if not pa.types.is_nested(file.schema_arrow.field(name).type)]
    if not names:
        raise unreadable(path, "it has no columns")
    return str((plain or names)[0])


def _is_inside(column: pa.Field, wanted: int | None) -> bool:
    """Whether a field below this one has the wanted id, or any id at all."""
    type_ = column.type
    if not pa.types.is_nested(type_):
        return False
    if pa.types.is_map(type_):
        children = [type_.key_field, type_.item_field]
    else:
        children = [type_.field(i) for i in range(type_.num_fields)]
    ids = [field_id(child) for child in children]
    found = any(one is not None for one in ids) if wanted is None else wanted in ids
    return found or any(_is_inside(child, wanted) for child in children)


def _empty_columns(codec: KeyCodec) -> list[pa.DataType]:
    return [value_type(field.type) for field in codec.fields]


def _rows_without_nulls(batch: pa.RecordBatch) -> NDArray[np.int64]:
    valid = np.ones(batch.num_rows, np.bool_)
    for column in batch.columns:
        valid &= pc.is_valid(column).to_numpy(zero_copy_only=False)
    return np.flatnonzero(valid)


def _aligned_rows(rows: pa.Table, names: Sequence[str | None], fields: Sequence[Field], by_id: bool) -> pa.Table:
    columns = []
    for name, field in zip(names, fields, strict=True):
        column = None if name is None else rows.column(name)
        file_field = None if name is None else rows.schema.field(name)
        columns.append(aligned(column, file_field, field.type, rows.num_rows, by_id=by_id))
    return pa.Table.from_arrays(columns, names=[field.name for field in fields])
