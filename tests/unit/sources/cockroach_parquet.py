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
    I32,
    LOGICAL,
    MAGIC,
    NAME,
    PRECISION,
    SCALE,
    SCHEMA,
    STRUCT,
    TRUE,
    Value,
    parse,
    serialise,
)

_KEY_VALUES = 5
_EMPTY = Value(STRUCT, {})


def decimal(precision: int, scale: int) -> dict[int, Value]:
    return {
        CONVERTED: Value(I32, 5),
        SCALE: Value(I32, scale),
        PRECISION: Value(I32, precision),
        LOGICAL: Value(STRUCT, {5: Value(STRUCT, {1: Value(I32, scale), 2: Value(I32, precision)})}),
    }


UUID_TYPE = {LOGICAL: Value(STRUCT, {14: _EMPTY})}
JSON_TYPE = {CONVERTED: Value(I32, 19), LOGICAL: Value(STRUCT, {12: _EMPTY})}
ENUM_TYPE = {CONVERTED: Value(I32, 4), LOGICAL: Value(STRUCT, {4: _EMPTY})}
STRING_TYPE = {CONVERTED: Value(I32, 0), LOGICAL: Value(STRUCT, {1: _EMPTY})}
_MICROS = Value(STRUCT, {2: _EMPTY})
TIME_TYPE = {CONVERTED: Value(I32, 8), LOGICAL: Value(STRUCT, {7: Value(STRUCT, {1: Value(TRUE, True), 2: _MICROS})})}


def write(columns: Mapping[str, tuple[Any, list[Any]]], annotations: Mapping[str, dict[int, Value]]) -> bytes:
    """`columns`: name -> (physical Arrow type, values). `annotations` by the name of the leaf, `element` in lists."""
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", store_schema=False)
    data = out.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    metadata = parse(data[-8 - size : -8])
    metadata.pop(_KEY_VALUES, None)
    path: list[str] = []
    for element in metadata[SCHEMA].value[1][1:]:
        name = element.value[NAME].value.decode()
        if CHILDREN in element.value and name != "list":
            path = [name]
        is_leaf = CHILDREN not in element.value
        given = annotations.get(f"{path[0]}.element" if name == "element" else name)
        if is_leaf and given:
            element.value.update(given)
    footer = serialise(metadata)
    return data[: len(data) - 8 - size] + footer + len(footer).to_bytes(4, "little") + MAGIC
