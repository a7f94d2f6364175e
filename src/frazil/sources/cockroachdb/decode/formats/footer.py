"""A Parquet footer without its annotations, so that columns can be read as what they physically are.

CockroachDB annotates DECIMAL columns as decimals but fills them with ASCII digits, and marks TIME as UTC-adjusted.
A reader that trusts the annotations gets garbage or refuses the file. So the annotations are taken out of the
footer, in memory, and kept beside it:

    file bytes --physical--> the same pages under a plain footer, and {column path: what it was annotated as}

The footer is a Thrift compact struct. It is cut into its fields, known or not; what stays is copied as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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


class Value(NamedTuple):
    """One Thrift value: its type code, and its bytes as they stand. A boolean has none: the code tells it."""

    code: int
    raw: bytes = b""


Fields = dict[int, Value]


def physical(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Raises NotParquet."""
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise NotParquet("it does not begin and end with PAR1")
    size = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - size
    if start < 4:
        raise NotParquet("its footer is longer than the file")
    try:
        metadata = fields_in(data[start:-8])
        elements = structs_in(metadata[SCHEMA])
        kinds = _strip(elements)
    except (LookupError, ValueError, StopIteration, RecursionError) as error:
        if isinstance(error, NotParquet):
            raise
        raise NotParquet(f"its footer cannot be read: {error!r}") from error
    return data[:start] + tail_of({**metadata, SCHEMA: list_of(elements)}), kinds


def fields_in(raw: bytes) -> Fields:
    """Of a struct."""
    return _Reader(raw).fields()


def structs_in(value: Value) -> list[Fields]:
    """Of a list of structs."""
    reader = _Reader(value.raw)
    count, _ = reader.list_header()
    return [reader.fields() for _ in range(count)]


def struct_of(fields: Fields) -> Value:
    out, previous = bytearray(), 0
    for number in sorted(fields):
        code, raw = fields[number]
        delta = number - previous
        out += bytes([delta << 4 | code]) if 0 < delta < 16 else bytes([code]) + integer_of(number).raw
        out += raw
        previous = number
    return Value(STRUCT, bytes(out) + b"\0")


def list_of(structs: Sequence[Fields]) -> Value:
    header = bytes([15 << 4 | STRUCT]) + _varint(len(structs))
    return Value(LIST, header + b"".join(struct_of(fields).raw for fields in structs))


def integer_of(number: int) -> Value:
    return Value(I32, _varint(number << 1 if number >= 0 else (-number << 1) - 1))


def tail_of(metadata: Fields) -> bytes:
    """What a file ends with."""
    footer = struct_of(metadata).raw
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def _strip(elements: Sequence[Fields]) -> dict[str, str]:
    """Removes the annotations of all leaves; groups keep theirs, since lists are told by them."""
    kinds: dict[str, str] = {}
    places = iter(elements)

    def walk(count: int, parents: tuple[str, ...]) -> None:
        for _ in range(count):
            element = next(places)
            path = (*parents, _Reader(element[NAME].raw).text())
            if CHILDREN in element and (children := _Reader(element[CHILDREN].raw).integer()):
                walk(children, path)
                continue
            kind = _annotation(element)
            if kind:
                kinds[".".join(path)] = kind
            for annotation in (CONVERTED, SCALE, PRECISION, LOGICAL):
                element.pop(annotation, None)

    walk(_Reader(next(places)[CHILDREN].raw).integer(), ())
    return kinds


def _annotation(element: Fields) -> str | None:
    if LOGICAL in element:
        return _LOGICAL_KINDS.get(next(iter(fields_in(element[LOGICAL].raw)), 0))
    return _CONVERTED_KINDS.get(_Reader(element[CONVERTED].raw).integer()) if CONVERTED in element else None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Fields:
        found: Fields = {}
        number = 0
        while header := self._byte():
            delta, code = header >> 4, header & 15
            number = number + delta if delta else self.integer()
            begin = self._at
            if code not in (TRUE, FALSE):
                self._pass(code)
            found[number] = Value(code, self._data[begin : self._at])
        return found

    def list_header(self) -> tuple[int, int]:
        """The number of elements, and their type."""
        header = self._byte()
        count = header >> 4
        return self._varint() if count == 15 else count, header & 15

    def integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def text(self) -> str:
        return self._take(self._varint()).decode("utf-8")

    def _take(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise NotParquet("its footer is cut off")
        return self._data[self._at - count : self._at]

    def _pass(self, code: int) -> None:
        if code in (TRUE, FALSE, BYTE):  # a boolean in a list has a byte of its own
            self._byte()
        elif code in (I16, I32, I64):
            self._varint()
        elif code == DOUBLE:
            self._take(8)
        elif code == BINARY:
            self._take(self._varint())
        elif code in (LIST, SET):
            count, element = self.list_header()
            for _ in range(count):
                self._pass(element)
        elif code == MAP:
            count = self._varint()
            codes = self._byte() if count else 0
            for _ in range(count):
                self._pass(codes >> 4)
                self._pass(codes & 15)
        elif code == STRUCT:
            self.fields()
        else:
            raise NotParquet(f"its footer holds the unknown type code {code}")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))
