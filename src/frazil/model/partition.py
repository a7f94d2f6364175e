"""How a table is cut into partitions: a specification of fields, each a transform of a column.

    "day(created_at)", "bucket(16, id)"  --parse_partition--> Transform text and column name
    PartitionSpec 1:  1000 created_at_day = day(field 4), 1001 id_bucket_16 = bucket[16](field 1)

The transforms themselves compute on Arrow, in `data.transforms`. Values of partitions are in Iceberg's JSON form of
single values; `exact_values` makes them comparable.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from frazil.model.schema import DATE, INT, TIMESTAMP, TIMESTAMPTZ, VARIANT, Decimal, Primitive, Type

_TRANSFORM = re.compile(r"(identity|year|month|day|hour|void)|(bucket|truncate)\[(\d+)\]")
_WRITTEN = re.compile(r"\s*(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*(?:,\s*(\d+)\s*)?\)|([^(),]+?))\s*")
_TRUNCATED = frozenset(("int", "long", "string", "binary"))
_HASHED = _TRUNCATED | {"date", "time", "timestamp", "timestamptz", "uuid"}
_PLURALS = {"years": "year", "months": "month", "days": "day", "hours": "hour", "date": "day", "date_hour": "hour"}


class BadPartition(ValueError):
    """Not a partition field this product knows."""


@dataclass(frozen=True, slots=True)
class Transform:
    """`name` is the specification's word; `width` belongs to bucket and truncate alone."""

    name: str
    width: int | None = None

    def __post_init__(self) -> None:
        if not _TRANSFORM.fullmatch(self.text) or self.width == 0:
            raise BadPartition(
                f"unknown transform {self.text!r}: identity, bucket[N], truncate[W], year, month, day, hour or void"
            )

    @classmethod
    def parse(cls, text: str) -> Transform:
        """The form of table metadata: `bucket[16]`."""
        match = _TRANSFORM.fullmatch(text)
        if match is None:
            raise BadPartition(f"unknown transform {text!r}")
        return cls(match[1]) if match[1] else cls(match[2], int(match[3]))

    @property
    def text(self) -> str:
        return self.name if self.width is None else f"{self.name}[{self.width}]"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class WantedPartition:
    """A partition field as the configuration writes it."""

    column: str
    transform: Transform

    @property
    def text(self) -> str:
        """What `parse_partition` reads as this."""
        if self.transform.name == "identity":
            return self.column
        width = "" if self.transform.width is None else f"{self.transform.width}, "
        return f"{self.transform.name}({width}{self.column})"

    @property
    def name(self) -> str:
        """The field's name, as Spark would choose it."""
        match self.transform:
            case Transform("identity"):
                return self.column
            case Transform("bucket", width):
                return f"{self.column}_bucket_{width}"
            case Transform("truncate", width):
                return f"{self.column}_trunc_{width}"
            case Transform("void"):
                return f"{self.column}_null"
            case Transform(name):
                return f"{self.column}_{name}"


def parse_partition(text: str) -> WantedPartition:
    """`day(created_at)`, `bucket(16, id)`, `truncate(4, name)`, `region`. Raises BadPartition."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise BadPartition(f"{text!r} is no partition field: write a column, day(column) or bucket(16, column)")
    word, before, inner, after, plain = match.groups()
    if plain:
        return WantedPartition(plain, Transform("identity"))
    if before and after:
        raise BadPartition(f"{text!r} has two widths")
    width = before or after
    name = _PLURALS.get(word.lower(), word.lower())
    if (name in ("bucket", "truncate")) != (width is not None):
        raise BadPartition(f"{text!r}: bucket and truncate, and only they, have a width: bucket(16, column)")
    return WantedPartition(inner, Transform(name, None if width is None else int(width)))


@dataclass(frozen=True, slots=True)
class PartitionField:
    """`source_id` is the field id of the column (of a top-level column or one nested in structs)."""

    field_id: int
    source_id: int
    name: str
    transform: Transform


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    spec_id: int
    fields: tuple[PartitionField, ...] = ()

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> PartitionSpec:
        """Raises BadPartition for a transform of a later specification."""
        return cls(
            json["spec-id"],
            tuple(
                PartitionField(f["field-id"], f["source-id"], f["name"], Transform.parse(f["transform"]))
                for f in json["fields"]
            ),
        )

    @property
    def partitions(self) -> bool:
        """Whether rows go to different places at all; a void field sends none anywhere."""
        return any(field.transform.name != "void" for field in self.fields)


UNPARTITIONED = PartitionSpec(0)


def takes(transform: Transform, type_: Type) -> bool:
    """Whether the specification lets the transform be applied to columns of the type."""
    name = type_.name if isinstance(type_, Primitive) else None
    match transform.name:
        case "void":
            return True
        case "identity":
            return type_ != VARIANT and (name is not None or isinstance(type_, Decimal))
        case "bucket":
            return isinstance(type_, Decimal) or (name is not None and (name in _HASHED or name.startswith("fixed[")))
        case "truncate":
            return isinstance(type_, Decimal) or name in _TRUNCATED
        case "hour":
            return type_ in (TIMESTAMP, TIMESTAMPTZ)
        case _:
            return type_ in (DATE, TIMESTAMP, TIMESTAMPTZ)


def result_type(transform: Transform, source: Type) -> Type:
    """The type of the partition values that the transform makes of a column it takes."""
    match transform.name:
        case "identity" | "void" | "truncate":
            return source
        case "day":
            return DATE
        case _:
            return INT


class PartitionFloat(float):
    """A floating point number as a partition value: told from others by its bits, so that every NaN is one value, and
    0.0 and -0.0 are two. In JSON it is what any float is."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and float.__repr__(self) == float.__repr__(other)

    def __hash__(self) -> int:
        return hash(float.__repr__(self))


def exact_values(values: Iterable[Any], floats: Mapping[int, str] | None = None) -> tuple[Any, ...]:
    """The values of a partition, equal if the partition is the same. `floats` says at which places a manifest has
    floating point numbers, and their format of `struct`: iceberg-java writes the ones that are no numbers as texts, and
    the others with as few digits as tell them apart."""
    told = floats or {}
    return tuple(_exact(value, told.get(place)) for place, value in enumerate(values))


def _exact(value: Any, form: str | None) -> Any:
    if form is not None and value is not None:
        (value,) = struct.unpack(form, struct.pack(form, float(value)))
    return PartitionFloat(value) if isinstance(value, float) else value
