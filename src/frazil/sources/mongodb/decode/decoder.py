"""Keys and documents of one collection to Arrow columns: the one decoder, for the first load and for the stream (H29).

    payloads, BSON one behind the other --layout.walk--> where each field's values lie
        every value has the column's own type ------------> arrays.array_at, without decoding      \\
        a column with other values: only these decoded ---> values.array_of                         +--> Arrow
        documents that cannot be walked together ---------> decoded one by one, values.array_of    /
    keys, canonical texts --------------------------------------------------------------------------> the key column

`values` is what decides; the roads before it are for what leaves nothing to decide.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import bson
import pyarrow as pa
from bson.max_key import MaxKey
from bson.min_key import MinKey

from frazil.data.pieces import contents
from frazil.errors import BadInput, DoesNotFit, FrazilError, UnknownColumn
from frazil.model.arrow import value_type
from frazil.model.schema import Column, SourceSchema
from frazil.sources.mongodb.decode.arrays import array_at
from frazil.sources.mongodb.decode.document_ids import CODEC, NotOfType, key_array
from frazil.sources.mongodb.decode.field_paths import Fields, Path
from frazil.sources.mongodb.decode.values import BsonMisfit, array_of, short
from frazil.sources.mongodb.schema.mapping import cast_of, value_at
from frazil.sources.net import decoded

_EXCERPT = 120
# What is decoded together stays in the processor's cache.
_SLICE = 8192
_SLICE_BYTES = 4 << 20
_NO_VALUE = (type(None), MinKey, MaxKey)


@dataclass(frozen=True, slots=True)
class DecodedCollection:
    """`explicit` if columns are carried by paths, and fields that no column takes are left out."""

    name: str
    source_schema: SourceSchema
    explicit: bool = False


@dataclass(frozen=True, slots=True)
class DocumentDecoder:
    """`tables` are by the index that travels with changes. Picklable."""

    tables: Mapping[int, DecodedCollection]

    def keys(self, table: int, keys: pa.Array) -> pa.RecordBatch:
        known = self.tables[table]
        (column,) = known.source_schema.key_columns

        def part(some: slice) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays([_keys(known, column, keys[some])], schema=_schema([column]))

        return decoded(known.name, keys, slice(0, len(keys)), part)

    def rows(self, table: int, keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        """Raises UnknownColumn (facts `table`, `columns`), DoesNotFit, or BadInput for a document that is none."""
        known = self.tables[table]
        schema = _schema(known.source_schema.columns)
        step = max(1, min(_SLICE, _SLICE_BYTES * len(payloads) // max(payloads.nbytes, 1)))

        def part(some: slice) -> pa.RecordBatch:
            return _rows(known, keys[some], payloads[some], schema)

        with _undisturbed():
            slices = [
                decoded(known.name, keys, slice(at, min(at + step, len(keys))), part)
                for at in range(0, len(keys), step)
            ]
        if len(slices) == 1:
            return slices[0]
        return pa.concat_batches(slices) if slices else schema.empty_table().combine_chunks().to_batches()[0]


def documents_of(keys: pa.Array, payloads: pa.Array, table: str) -> list[dict[str, Any]]:
    """Raises BadInput naming the key of a document that cannot be decoded."""
    if not payloads.null_count:
        with suppress(Exception):  # damaged bytes break in more ways than the driver's own errors tell
            return bson.decode_all(contents(payloads)[0].data, codec_options=CODEC)
    return [_document(key, payload, table) for key, payload in zip(keys.to_pylist(), payloads.to_pylist(), strict=True)]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without Python's search for cycles: documents have none, and looking for them takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def readable(documents: bytes) -> list[dict[str, Any]]:
    """Those of documents that lie one behind the other which can be decoded; the others are told when they are
    written."""
    with suppress(Exception):
        return bson.decode_all(documents, codec_options=CODEC)
    found, at = [], 0
    while at < len(documents):
        # A length that is no document's must not keep us here.
        end = at + max(int.from_bytes(documents[at : at + 4], "little", signed=True), 5)
        with suppress(Exception):
            found.append(bson.decode(documents[at:end], codec_options=CODEC))
        at = end
    return found


def _document(key: str, payload: bytes, table: str) -> dict[str, Any]:
    try:
        return bson.decode(payload, codec_options=CODEC)
    except Exception as error:
        raise BadInput(
            f"{table}: the document with _id {key[:_EXCERPT]} cannot be decoded: {error}",
            hint="Mend the document at the source (a string that is not UTF-8 is the usual cause), or set "
            "`on_error: quarantine` to go on without it.",
            table=table,
            key=key,
        ) from error


def _rows(known: DecodedCollection, keys: pa.Array, payloads: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return _together(known, keys, payloads, schema)
    except FrazilError:
        raise
    except Exception:  # uneven or damaged: one by one tells
        return _apart(known, keys, payloads, schema)


def _together(known: DecodedCollection, keys: pa.Array, payloads: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    columns = _others(known)
    paths = [_path(column, known.explicit) for column in columns]
    (key,) = known.source_schema.key_columns
    fields = Fields.of(payloads, [*key.carried_as, *(name for path in paths for name in path.roots)])
    if fields.strangers and not known.explicit:
        raise _unknown(known, fields.strangers)
    unknown: set[str] = set()
    arrays = {key.name: _keys(known, key, keys)}
    for column, path in zip(columns, paths, strict=True):
        found = fields.at(path)
        array = array_at(fields.data, found, column.type, column.source_type)
        if array is None:
            with _named(known, column, keys):
                values = fields.decoded(found)
                values = _cast(column, values) if known.explicit else values
                array = array_of(values, column.type, column.source_type, column.name, unknown)
        arrays[column.name] = array
    if unknown and not known.explicit:
        raise _unknown(known, unknown)
    return pa.RecordBatch.from_arrays([arrays[column.name] for column in known.source_schema.columns], schema=schema)


def _others(known: DecodedCollection) -> list[Column]:
    return [column for column in known.source_schema.columns if column.name not in known.source_schema.key]


def _path(column: Column, explicit: bool) -> Path:
    names = column.carried_as[0].split(".") if explicit else column.carried_as
    return Path(tuple(names[:1]), tuple(names[1:])) if explicit else Path(tuple(names), ())


def _apart(known: DecodedCollection, keys: pa.Array, payloads: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    documents = documents_of(keys, payloads, known.name)
    if not known.explicit:
        _refuse_unknown(known, documents)
    (key,) = known.source_schema.key
    unknown: set[str] = set()
    arrays = []
    for column in known.source_schema.columns:
        if column.name == key:
            arrays.append(_keys(known, column, keys))
            continue
        with _named(known, column, keys):
            values = _cast(column, _at_path(column, documents)) if known.explicit else _carried(column, documents)
            arrays.append(array_of(values, column.type, column.source_type, column.name, unknown))
    if unknown and not known.explicit:
        raise _unknown(known, unknown)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def _named(known: DecodedCollection, column: Column, keys: pa.Array) -> Iterator[None]:
    """Whoever does not fit is told with its key."""
    try:
        yield
    except BsonMisfit as misfit:
        raise _does_not_fit(known, column, keys[misfit.place].as_py(), misfit) from misfit


def _carried(column: Column, documents: Sequence[dict[str, Any]]) -> list[Any]:
    first, *others = column.carried_as
    if not others:
        return [document.get(first) for document in documents]
    names = column.carried_as
    return [next((document[name] for name in names if name in document), None) for document in documents]


def _at_path(column: Column, documents: Sequence[dict[str, Any]]) -> list[Any]:
    path = column.carried_as[0].split(".")
    return [value_at(document, path) for document in documents]


def _cast(column: Column, values: list[Any]) -> list[Any]:
    convert = cast_of(column.type, column.source_type)
    if convert is None:
        return values
    for place, value in enumerate(values):
        if type(value) not in _NO_VALUE:
            try:
                values[place] = convert(value)
            except (ValueError, TypeError, OverflowError) as error:
                raise BsonMisfit(place, column.name, value, str(column.type)) from error
    return values


def _refuse_unknown(known: DecodedCollection, documents: Sequence[dict[str, Any]]) -> None:
    names = {name for column in known.source_schema.columns for name in column.carried_as}
    unknown: set[str] = set()
    for document in documents:
        if not document.keys() <= names:
            unknown.update(name for name in document.keys() - names if type(document[name]) not in _NO_VALUE)
    if unknown:
        raise _unknown(known, unknown)


def _unknown(known: DecodedCollection, unknown: Iterable[str]) -> UnknownColumn:
    return UnknownColumn(
        f"{known.name}: documents have fields that the table does not have: {', '.join(sorted(unknown)[:20])}",
        hint="The table's schema must gain them first.",
        table=known.name,
        columns=sorted(unknown),
    )


def _does_not_fit(known: DecodedCollection, column: Column, key: str, misfit: BsonMisfit) -> DoesNotFit:
    where = "" if misfit.path == column.name else f" at {misfit.path}"
    return DoesNotFit(
        f"{known.name}: the document with _id {key[:_EXCERPT]} has {short(misfit.value)}{where}, which column "
        f"{column.name!r} of type {misfit.wanted} cannot hold exactly",
        hint=f"Give the field another type in the mapping of {known.name} (`json` or `string` hold anything), or set "
        "`on_error: quarantine` to go on without such documents.",
        table=known.name,
        key=key,
        column=column.name,
    )


def _keys(known: DecodedCollection, column: Column, keys: pa.Array) -> pa.Array:
    try:
        return key_array(keys, column.type, column.source_type)
    except NotOfType as error:
        raise DoesNotFit(
            f"{known.name}: the _id {str(error)[:_EXCERPT]} is not of the type {column.type} that the others have",
            hint=f"Stop the pipeline, drop the target of {known.name} with `frazil drop --force`, set "
            "`columns: {_id: json}` (`type: json` in an explicit mapping) and start again: JSON holds an _id of any "
            "type. Or set `on_error: quarantine` to go on without such documents.",
            table=known.name,
            key=str(error),
            column=column.name,
        ) from error


def _schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, value_type(column.type)) for column in columns])
