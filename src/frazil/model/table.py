"""A table at one head, as its writers and readers know it; and what the files of an epoch rest on. Pure.

A form is a table's fields and partition specs, by id:

    form when the files were written      form of the head they are committed on
      3 amount  decimal(12, 2)       -->    -                   misfit: nobody would read the values
      4 qty     int                  -->    4 qty  long         fits: readers widen it
      5 note    string               -->    5 memo string       fits: columns are bound by id
      6 old     string, dropped by us  -->  -                   fits: the source has dropped it

Only fields that we fill count. What others have added to the table, or retired fields, may come and go.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from frazil.model.ids import TableName
from frazil.model.metrics_modes import ALL_TOLD, MetricsModes
from frazil.model.partition import UNPARTITIONED, PartitionSpec
from frazil.model.schema import Remembered, Schema, remembered
from frazil.model.sort import SortField

CHANGELOG_OP = "_op"
CHANGELOG_POSITION = "_position"
CHANGELOG_BEFORE = "_before"
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_CHANGELOG = (CHANGELOG_OP, CHANGELOG_POSITION, CHANGELOG_BEFORE)
_WIDER = {"int": ("long",), "float": ("double",), "date": ("timestamp", "timestamp_ns")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What tasks must know to write and to read its files. `storage` are the properties, by Iceberg's names, of its
    file system, with its credentials; `sort` and `sort_order_id` are how new files are sorted, `metrics` how much is
    told of its columns; `name_mapping` is the property `schema.name-mapping.default`. Picklable."""

    name: TableName
    schema: Schema
    format_version: int
    data_location: str
    spec: PartitionSpec = UNPARTITIONED
    specs: tuple[PartitionSpec, ...] = (UNPARTITIONED,)
    sort: tuple[SortField, ...] = ()
    sort_order_id: int | None = None
    metrics: MetricsModes = ALL_TOLD
    name_mapping: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, table: Table, **more: Any) -> Self:
        """The same table, with what this kind of it knows beside."""
        return cls(**{one.name: getattr(table, one.name) for one in fields(Table)}, **more)

    @property
    def delete_spec(self) -> PartitionSpec:
        """The spec for deletes by key: if there is one, an unpartitioned one, without any field at best."""
        everywhere = (spec for spec in self.specs if not spec.partitions)
        return min(everywhere, key=lambda spec: len(spec.fields), default=self.spec)


@dataclass(frozen=True, slots=True)
class FieldForm:
    """One field, nested ones too. `column` is the id of the column it lies in. A field that others may leave out of
    their files is not `demanded`."""

    path: tuple[str, ...]
    type: str
    column: int
    required: bool = False
    demanded: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class TableForm:
    """`columns` is what the table remembers of the source's columns; a table that remembers nothing has only ours."""

    fields: Mapping[int, FieldForm] = field(default_factory=dict)
    specs: Mapping[int, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    identifiers: frozenset[int] = frozenset()
    columns: Mapping[int, Remembered] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> TableForm:
        """`metadata` is a metadata file's JSON."""
        current = metadata.get("current-schema-id")
        schema = next((s for s in metadata.get("schemas", ()) if s["schema-id"] == current), {"fields": ()})
        specs = {
            spec["spec-id"]: tuple((one["source-id"], one["transform"]) for one in spec["fields"])
            for spec in metadata.get("partition-specs", ())
        }
        return cls(
            fields=dict(_fields(schema["fields"])),
            specs=specs,
            identifiers=frozenset(schema.get("identifier-field-ids", ())),
            columns=remembered(metadata.get("properties", {})),
        )

    def misfit(self, now: TableForm, specs: Collection[int]) -> str | None:
        """Why files that were written under this form, in these partition specs, do not fit the table as it is now;
        None if they do."""
        for number, written in self.fields.items():
            found = now.fields.get(number)
            if found is None:
                if self._fills(written) and not self._dropped_by_us(written, now):
                    again = any(other.path == written.path for other in now.fields.values())
                    return f"column {written.name} was dropped{' and added again as another one' if again else ''}"
            elif not _holds(found.type, written.type):
                return f"column {written.name} was {written.type} and is {found.type} now"
            elif found.required and not written.required:
                return f"column {written.name} must not be NULL any more"
        for number, found in now.fields.items():
            if found.demanded and number not in self.fields:
                return f"column {found.name} was added, and must not be NULL"
        if now.identifiers and now.identifiers != self.identifiers:
            return f"its rows are identified by {_names(now, now.identifiers)} now"
        if any(now.specs.get(number) != self.specs.get(number) for number in specs):
            return "the partitioning that they were written in was removed"
        return None

    def _fills(self, field: FieldForm) -> bool:
        memory = self.columns.get(field.column)
        if memory is not None:
            return not memory.retired
        # What nobody remembers is a changelog's own, or somebody else's.
        return not self.columns or field.path[0] in _CHANGELOG

    def _dropped_by_us(self, field: FieldForm, now: TableForm) -> bool:
        """Our own drops are remembered in their own commit; the row before follows the row's columns."""
        if not now.columns:
            return False
        forgotten = self.columns.keys() - now.columns.keys()
        return any(self.fields[number].path[0] in field.path for number in forgotten if number in self.fields)


def _fields(
    fields: Collection[Mapping[str, Any]], path: tuple[str, ...] = (), column: int | None = None, demands: bool = True
) -> Iterator[tuple[int, FieldForm]]:
    for one in fields:
        own, required = (*path, one["name"]), bool(one["required"])
        root = one["id"] if column is None else column
        demanded = demands and required and one.get("initial-default") is None
        word, inner = _inner(one["type"])
        yield one["id"], FieldForm(own, word, root, required, demanded)
        yield from _fields(inner, own, root, demands and required)


def _inner(given: Any) -> tuple[str, list[Mapping[str, Any]]]:
    """A type's word, and what is nested in it as fields."""
    if isinstance(given, str):
        return given, []
    if given["type"] == "struct":
        return "struct", list(given["fields"])
    inner: list[Mapping[str, Any]] = [
        {"id": given[f"{part}-id"], "name": part, "type": given[part], "required": given.get(f"{part}-required", False)}
        for part in ("element", "key", "value")
        if part in given
    ]
    return given["type"], inner


def _holds(now: str, written: str) -> bool:
    """Whether readers take values of the written type for this one."""
    if now == written or now in _WIDER.get(written, ()):
        return True
    wide, narrow = _DECIMAL.fullmatch(now), _DECIMAL.fullmatch(written)
    if wide is None or narrow is None:
        return False
    return wide[2] == narrow[2] and int(wide[1]) >= int(narrow[1])


def _names(form: TableForm, ids: Collection[int]) -> str:
    return ", ".join(sorted(form.fields[number].name for number in ids if number in form.fields))
