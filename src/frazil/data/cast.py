"""Values of one Arrow type as another, without loss or not at all.

    int32 -> int64, decimal(10, 1) -> decimal(12, 2), text -> uuid       widened, re-labelled
    struct<a: int32> -> struct<a: int64, b: string>                      by name at each level, b is null
    int64 -> int32                                                       each value checked
    double -> decimal, text -> number                                    never

Whatever is nested is built anew, so that it carries the field ids of the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_UUID_DIGITS = 32


def unknown_fields(source: pa.DataType, target: pa.DataType, path: str) -> Iterator[str]:
    """Fields of nested structs that the target does not have, by their paths."""
    types = pa.types
    if types.is_struct(source) and types.is_struct(target):
        for field in source:
            place = target.get_field_index(field.name)
            if place < 0:
                yield f"{path}.{field.name}"
            else:
                yield from unknown_fields(field.type, target.field(place).type, f"{path}.{field.name}")
    elif _is_list(source) and _is_list(target):
        yield from unknown_fields(source.value_type, target.value_type, f"{path}.element")
    elif types.is_map(source) and types.is_map(target):
        yield from unknown_fields(source.item_type, target.item_type, f"{path}.value")


def may_become(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a checked cast can only widen, re-label or fail."""
    types = pa.types
    if types.is_null(source) or source == target:
        return True
    if types.is_struct(target):
        return types.is_struct(source) and all(
            may_become(field.type, target.field(place).type)
            for field in source
            if (place := target.get_field_index(field.name)) >= 0
        )
    if types.is_map(target):
        return types.is_map(source) and all(
            may_become(*pair) for pair in ((source.key_type, target.key_type), (source.item_type, target.item_type))
        )
    if _is_list(target):
        return _is_list(source) and may_become(source.value_type, target.value_type)
    if target == pa.uuid():
        return _is_text(source) or (types.is_fixed_size_binary(source) and source.byte_width == 16)
    if types.is_floating(target):
        return bool(types.is_floating(source) and source.bit_width <= target.bit_width)
    if types.is_timestamp(target):
        return types.is_timestamp(source) and (source.tz is None) == (target.tz is None)
    same_family: tuple[tuple[Any, Any], ...] = (
        (types.is_integer, types.is_integer),
        (types.is_decimal, types.is_decimal),
        (_is_text, _is_text),
        (_is_bytes, _is_bytes),
        (types.is_time, types.is_time),
    )
    return any(is_source(source) and is_target(target) for is_source, is_target in same_family)


def cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Raises pa.ArrowInvalid or ValueError for a value that does not fit."""
    if target == pa.uuid():
        return _uuids(values)
    if pa.types.is_null(values.type):
        return nulls(len(values), target)
    if pa.types.is_struct(target):
        return _struct(values, target)
    if pa.types.is_map(target):
        return _map(values, target)
    if _is_list(target):
        return _list(values, target)
    return values if values.type == target else values.cast(target, safe=True)


def nulls(count: int, target: pa.DataType) -> pa.Array:
    """Pyarrow has no nulls of a struct or a list that holds uuids."""
    if pa.types.is_struct(target):
        children = [nulls(count, field.type) for field in target]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=pa.repeat(True, count))
    if pa.types.is_map(target) or _is_list(target):
        offsets = pa.repeat(pa.scalar(0, pa.int32()), count + 1)
        mask = pa.repeat(True, count)
        if _is_list(target):
            return pa.ListArray.from_arrays(offsets, nulls(0, target.value_type), type=target, mask=mask)
        keys, items = nulls(0, target.key_type), nulls(0, target.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=mask)
    return pa.nulls(count, target)


def _struct(values: pa.Array, target: pa.DataType) -> pa.Array:
    # Below a missing struct lies whatever its maker left there: flattened, it is missing as well.
    given = values.flatten()
    children = []
    for field in target:
        place = values.type.get_field_index(field.name)
        child = nulls(len(values), field.type) if place < 0 else cast(given[place], field.type)
        if not field.nullable and pc.any(pc.and_(child.is_null(), values.is_valid()), min_count=0).as_py():
            raise ValueError(f"its field {field.name!r} is null and must not be")
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(values))


def _list(values: pa.Array, target: pa.DataType) -> pa.Array:
    start, end, offsets = _extent(values)
    elements = cast(values.values.slice(start, end - start), target.value_type)
    if elements.null_count and not target.value_field.nullable:
        raise ValueError("an element of the list is null and must not be")
    return pa.ListArray.from_arrays(offsets, elements, type=target, mask=_mask(values))


def _map(values: pa.Array, target: pa.DataType) -> pa.Array:
    start, end, offsets = _extent(values)
    keys = cast(values.keys.slice(start, end - start), target.key_type)
    items = cast(values.items.slice(start, end - start), target.item_type)
    if items.null_count and not target.item_field.nullable:
        raise ValueError("a value of the map is null and must not be")
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=_mask(values))


def _extent(values: pa.Array) -> tuple[int, int, pa.Array]:
    """Where the elements of a list or map begin and end, and offsets that count from there."""
    offsets = values.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    return start, end, pc.subtract(offsets, offsets[0]).cast(pa.int32())


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _uuids(values: pa.Array) -> pa.Array:
    if values.type == pa.uuid():
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.uuid())
    if _is_text(values.type):
        values = _uuid_bytes(values)
    return pa.ExtensionArray.from_storage(pa.uuid(), values)


def _uuid_bytes(texts: pa.Array) -> pa.Array:
    """All texts at once: the hex digits of a column without gaps are one long number."""
    filled = pc.fill_null(texts, "0" * _UUID_DIGITS).cast(pa.string())
    digits = pc.replace_substring(filled, "-", "")
    lengths = pc.binary_length(digits)
    if len(digits) and pc.any(pc.not_equal(lengths, _UUID_DIGITS)).as_py():
        bad = filled.filter(pc.not_equal(lengths, _UUID_DIGITS))[0].as_py()
        raise ValueError(f"{bad!r} is no uuid")
    raw = bytes.fromhex("".join(digits.to_pylist()))
    if len(raw) != 16 * len(texts):
        raise ValueError("a text with spaces is no uuid")
    plain = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(raw)])
    return pc.if_else(texts.is_null(), pa.scalar(None, pa.binary(16)), plain) if texts.null_count else plain


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_))
