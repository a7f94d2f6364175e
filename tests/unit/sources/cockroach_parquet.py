"""Writes Parquet files as CockroachDB does: annotations that do not match the bytes under them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.sources.cockroachdb.decode.formats.footer import (
    CHILDREN,
    CONVERTED,
    LOGICAL,
    NAME,
    PRECISION,
    SCALE,
    SCHEMA,
    TRUE,
    Value,
    fields_in,
    integer_of,
    list_of,
    struct_of,
    structs_in,
    tail_of,
)

_KEY_VALUES = 5
_EMPTY = struct_of({})


def decimal(precision: int, scale: int) -> dict[int, Value]:
    logical = struct_of({5: struct_of({1: integer_of(scale), 2: integer_of(precision)})})
    return {CONVERTED: integer_of(5), SCALE: integer_of(scale), PRECISION: integer_of(precision), LOGICAL: logical}


UUID_TYPE = {LOGICAL: struct_of({14: _EMPTY})}
JSON_TYPE = {CONVERTED: integer_of(19), LOGICAL: struct_of({12: _EMPTY})}
ENUM_TYPE = {CONVERTED: integer_of(4), LOGICAL: struct_of({4: _EMPTY})}
STRING_TYPE = {CONVERTED: integer_of(0), LOGICAL: struct_of({1: _EMPTY})}
_MICROS = struct_of({2: _EMPTY})
TIME_TYPE = {CONVERTED: integer_of(8), LOGICAL: struct_of({7: struct_of({1: Value(TRUE), 2: _MICROS})})}


def write(columns: Mapping[str, tuple[Any, list[Any]]], annotations: Mapping[str, dict[int, Value]]) -> bytes:
    """`columns`: name -> (physical Arrow type, values). `annotations` by the name of the leaf, `element` in lists."""
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", store_schema=False)
    data = out.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    metadata = fields_in(data[-8 - size : -8])
    metadata.pop(_KEY_VALUES, None)
    elements = structs_in(metadata[SCHEMA])
    path: list[str] = []
    for element in elements[1:]:
        name = element[NAME].raw[1:].decode()
        if CHILDREN in element and name != "list":
            path = [name]
        is_leaf = CHILDREN not in element
        given = annotations.get(f"{path[0]}.element" if name == "element" else name)
        if is_leaf and given:
            element.update(given)
    return data[: len(data) - 8 - size] + tail_of({**metadata, SCHEMA: list_of(elements)})
