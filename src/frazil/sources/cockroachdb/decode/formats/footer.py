"""A Parquet footer without its annotations, so that columns can be read as what they physically are.

CockroachDB annotates DECIMAL columns as decimals but fills them with ASCII digits, and marks TIME as UTC-adjusted.
A reader that trusts the annotations gets garbage or refuses the file. So the annotations are taken out of the
footer, in memory, and kept beside it:

    file bytes --physical--> the same pages under a plain footer, and {column path: what it was annotated as}

The footer is a Thrift compact struct. It is parsed to a tree that keeps every field, known or not, and is
written back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

MAGIC = b"PAR1"
# Thrift compact type codes.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
# FileMetaData.schema; SchemaElement fields.
SCHEMA = 2
NAME, CHILDREN, CONVERTED, SCALE, PRECISION, LOGICAL = 4, 5, 6, 7, 8, 10
_CONVERTED_KINDS = {0: "STRING", 4: "ENUM", 5: "DECIMAL", 7: "TIME_MILLIS", 8: "TIME", 19: "JSON"}
_LOGICAL_KINDS = {1: "STRING", 4: "ENUM", 5: "DECIMAL", 7: "TIME", 12: "JSON", 14: "UUID"}


class NotParquet(ValueError):
    """The bytes are no Parquet file."""


@dataclass(slots=True)
class Value:
    """One Thrift value with its type code. A struct holds {field id: Value}, a list (element code, [values])."""

    code: int
    value: Any


def physical(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Raises NotParquet."""
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise NotParquet("it does not begin and end with PAR1")
    size = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - size
    if start < 4:
        raise NotParquet("its footer is longer than the file")
    try:
        metadata = parse(data[start:-8])
        kinds = _strip(metadata)
    except (LookupError, TypeError, AttributeError, ValueError, StopIteration, RecursionError, struct.error) as error:
        if isinstance(error, NotParquet):
            raise
        raise NotParquet(f"its footer cannot be read: {error!r}") from error
    footer = serialise(metadata)
    return data[:start] + footer + len(footer).to_bytes(4, "little") + MAGIC, kinds


def parse(data: bytes) -> dict[int, Value]:
    return _Parser(data).fields()


def serialise(fields: dict[int, Value]) -> bytes:
    out = bytearray()
    _write_fields(out, fields)
    return bytes(out)


def _strip(metadata: dict[int, Value]) -> dict[str, str]:
    """Removes the annotations of all leaves; groups keep theirs, since lists are told by them."""
    kinds: dict[str, str] = {}
    elements: list[dict[int, Value]] = [element.value for element in metadata[SCHEMA].value[1]]
    places = iter(elements)
    next(places)

    def walk(count: int, parents: tuple[str, ...]) -> None:
        for _ in range(count):
            element = next(places)
            path = (*parents, element[NAME].value.decode("utf-8"))
            children = element[CHILDREN].value if CHILDREN in element else 0
            if children:
                walk(children, path)
                continue
            kind = _annotation(element)
            if kind:
                kinds[".".join(path)] = kind
            for annotation in (CONVERTED, SCALE, PRECISION, LOGICAL):
                element.pop(annotation, None)

    walk(elements[0][CHILDREN].value, ())
    return kinds


def _annotation(element: dict[int, Value]) -> str | None:
    if LOGICAL in element:
        return _LOGICAL_KINDS.get(next(iter(element[LOGICAL].value), 0))
    return _CONVERTED_KINDS.get(element[CONVERTED].value) if CONVERTED in element else None


class _Parser:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> dict[int, Value]:
        found: dict[int, Value] = {}
        number = 0
        while header := self._byte():
            delta, code = header >> 4, header & 15
            number = number + delta if delta else self._zigzag()
            found[number] = Value(code, code == TRUE if code in (TRUE, FALSE) else self._value(code))
        return found

    def _value(self, code: int) -> Any:
        if code in (TRUE, FALSE):  # an element of a list: the type does not tell which
            return self._byte() == TRUE
        if code == BYTE:
            return self._byte()
        if code in (I16, I32, I64):
            return self._zigzag()
        if code == DOUBLE:
            return struct.unpack("<d", self._bytes(8))[0]
        if code == BINARY:
            return self._bytes(self._varint())
        if code in (LIST, SET):
            header = self._byte()
            count, element = header >> 4, header & 15
            count = self._varint() if count == 15 else count
            return element, [Value(element, self._value(element)) for _ in range(count)]
        if code == STRUCT:
            return self.fields()
        if code == MAP:
            return self._map()
        raise NotParquet(f"its footer holds the unknown type code {code}")

    def _map(self) -> tuple[int, int, list[tuple[Value, Value]]]:
        count = self._varint()
        if not count:
            return 0, 0, []
        codes = self._byte()
        key, value = codes >> 4, codes & 15
        return key, value, [(Value(key, self._value(key)), Value(value, self._value(value))) for _ in range(count)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise NotParquet("its footer is cut off")
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)


def _write_fields(out: bytearray, fields: dict[int, Value]) -> None:
    previous = 0
    for number in sorted(fields):
        field = fields[number]
        code = (TRUE if field.value else FALSE) if field.code in (TRUE, FALSE) else field.code
        delta = number - previous
        if 0 < delta < 16:
            out.append(delta << 4 | code)
        else:
            out.append(code)
            _write_zigzag(out, number)
        previous = number
        if code not in (TRUE, FALSE):
            _write_value(out, code, field.value)
    out.append(0)


def _write_value(out: bytearray, code: int, value: Any) -> None:
    if code in (TRUE, FALSE):
        out.append(TRUE if value else FALSE)
    elif code == BYTE:
        out.append(value)
    elif code in (I16, I32, I64):
        _write_zigzag(out, value)
    elif code == DOUBLE:
        out += struct.pack("<d", value)
    elif code == BINARY:
        _write_varint(out, len(value))
        out += value
    elif code in (LIST, SET):
        element, items = value
        if len(items) < 15:
            out.append(len(items) << 4 | element)
        else:
            out.append(15 << 4 | element)
            _write_varint(out, len(items))
        for item in items:
            _write_value(out, element, item.value)
    elif code == STRUCT:
        _write_fields(out, value)
    else:
        key, item_code, items = value
        _write_varint(out, len(items))
        if items:
            out.append(key << 4 | item_code)
        for left, right in items:
            _write_value(out, key, left.value)
            _write_value(out, item_code, right.value)


def _write_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _write_zigzag(out: bytearray, number: int) -> None:
    _write_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)
