"""Rows of Parquet files, read by their physical columns and turned into the JSON a JSON feed would hold.

    i INT64, d BYTE_ARRAY "1.50", __crdb__event_type "c", __crdb__updated "17...0"
      ->  {"i": 1, "d": 1.50}  upsert at 17...0

The annotations of the file tell how bytes are meant; the pinned source type tells what they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.errors import BadInput, DoesNotFit
from frazil.model.schema import SourceSchema
from frazil.sources.cockroachdb.decode.exact_json import Json, Number, quote
from frazil.sources.cockroachdb.decode.formats.footer import NotParquet, physical
from frazil.sources.cockroachdb.decode.formats.sqltext import json_of
from frazil.sources.cockroachdb.decode.values import Misfit, not_null, time_text
from frazil.sources.cockroachdb.schema.types import Family, SourceType, carrier, parse_source_type

_EVENT, _UPDATED = "__crdb__event_type", "__crdb__updated"
_METADATA_PREFIX = "__crdb__"
_ROWS = 20_000
_DEFAULT_TYPES = {"DECIMAL": "DECIMAL", "JSON": "JSONB", "STRING": "STRING", "ENUM": "ENUM"}


OnBad = Callable[[int, str, BadInput], None]


@dataclass(frozen=True, slots=True)
class ParquetRow:
    row: dict[str, Json]
    updated: str | None
    deleted: bool
    number: int = 0


def parquet_rows(
    data: bytes, path: str, table: str, source_schema: SourceSchema | None, *, on_bad: OnBad | None = None
) -> Iterator[ParquetRow]:
    """Raises BadInput naming the file; `on_bad` takes the error of a single row instead, with its number and text."""
    number = 0
    try:
        plain, kinds = physical(data)
        file = pq.ParquetFile(pa.BufferReader(plain))
        names = [name for name in file.schema_arrow.names if not name.startswith(_METADATA_PREFIX)]
        metadata = [name for name in (_EVENT, _UPDATED) if name in file.schema_arrow.names]
        batches = file.iter_batches(batch_size=_ROWS, columns=None)
        render = {
            name: _renderer(name, file.schema_arrow.field(name).type, kinds, _pinned(name, source_schema))
            for name in names
        }
        for batch in batches:
            columns = {name: batch.column(name).to_pylist() for name in (*names, *metadata)}
            for i in range(batch.num_rows):
                number += 1
                try:
                    row = {name: _value(columns[name][i], render[name], name, path, table) for name in names}
                except DoesNotFit as error:
                    if on_bad is None:
                        raise
                    on_bad(number, repr({name: columns[name][i] for name in (*names, *metadata)}), error)
                    continue
                event = columns[_EVENT][i] if _EVENT in columns else None
                updated = columns[_UPDATED][i] if _UPDATED in columns else None
                yield ParquetRow(row, None if updated is None else updated.decode("ascii"), event == b"d", number)
    except (NotParquet, pa.ArrowInvalid, OSError) as error:
        raise BadInput(
            f"{path}: not a Parquet file of a changefeed: {error}",
            hint="The file is torn: put the whole file in its place, then: frazil reload CONFIG.",
            file=path,
            table=table,
        ) from error


Renderer = Callable[[Any], Json]


def _pinned(name: str, source_schema: SourceSchema | None) -> SourceType | None:
    column = carrier(source_schema, name) if source_schema else None
    return parse_source_type(column.source_type) if column else None


def _value(value: Any, render: Renderer, name: str, path: str, table: str) -> Json:
    if value is None:
        return None
    try:
        return not_null(render(value))
    except (Misfit, UnicodeDecodeError) as error:
        raise DoesNotFit(
            f"{path}: {table}.{name} holds {quote(str(value)[:80])}: {error}",
            hint=f"Pin the type of {name} under `columns:` of {table}.",
            table=table,
            column=name,
            file=path,
        ) from error


def _renderer(path: str, physical_type: Any, kinds: dict[str, str], source: SourceType | None) -> Renderer:
    if pa.types.is_struct(physical_type):
        parts = {field.name: _renderer(f"{path}.{field.name}", field.type, kinds, None) for field in physical_type}
        return lambda value: {
            name: None if value[name] is None else render(value[name]) for name, render in parts.items()
        }
    if pa.types.is_list(physical_type):
        inner = source.element if source and source.element else None
        element = _renderer(f"{path}.list.element", physical_type.value_type, kinds, inner)
        return lambda value: [None if item is None else element(item) for item in value]
    kind = kinds.get(path)
    family = source.family if source else None
    if pa.types.is_boolean(physical_type):
        return bool
    if kind == "TIME" and pa.types.is_integer(physical_type):
        return time_text
    if pa.types.is_integer(physical_type):
        return _integer(family)
    if pa.types.is_floating(physical_type):
        return _float
    if kind == "UUID" or (pa.types.is_fixed_size_binary(physical_type) and physical_type.byte_width == 16):
        return lambda value: str(UUID(bytes=value))
    if kind is None and family in (None, Family.BYTES):
        return lambda value: "\\x" + value.hex()
    meant = source or parse_source_type(_DEFAULT_TYPES.get(kind or "", "STRING"))
    if kind == "JSON" and meant.family not in (Family.JSON, Family.GEO):
        meant = parse_source_type("JSONB")
    return lambda value: json_of(value.decode("utf-8"), meant)


def _integer(family: Family | None) -> Renderer:
    if family is Family.LSN:
        return lambda value: f"{value >> 32 & 0xFFFFFFFF:X}/{value & 0xFFFFFFFF:X}"
    if family is Family.OID:
        return lambda value: str(value & 0xFFFFFFFF)  # unsigned, in a signed column
    return Number


def _float(value: float) -> Json:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return Number(repr(value))
