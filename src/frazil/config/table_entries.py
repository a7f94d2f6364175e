"""One entry of `tables:`: which source table, as what, and how its target is made.

source name or pattern --config.routing--> target, key, columns    options --> model.write.TableOptions
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from frazil.config import routing
from frazil.config.block import ColumnNames, PartitionFields, Settings, SortFields, problem, whole_number
from frazil.config.document_mapping import MappingConfig
from frazil.config.parse_values import TextMap
from frazil.model.partition import parse_partition
from frazil.model.sort import parse_sort
from frazil.model.write import DEFAULT_FORMAT_VERSION, DeleteMode, SchemaConflict, TableOptions

# Spaces within a part: a source may have tables that are called so.
_SOURCE = re.compile(r"[^.\s]([^.\n]*[^.\s])?(\.[^.\s]([^.\n]*[^.\s])?){0,2}")


def _source_name(value: str) -> str:
    if not _SOURCE.fullmatch(value):
        raise ValueError(f"{value!r} is not written as it must be: table, schema.table or database.schema.table")
    return value


class HistoryMode(StrEnum):
    WHOLE = "whole"
    PARTIAL = "partial"


class Rescan(StrEnum):
    STOP = "stop"
    MERGE = "merge"


class TableEntry(Settings):
    """One table of the source, or a pattern for several, and what becomes of it."""

    source: Annotated[str, AfterValidator(_source_name)] = Field(
        description=(
            "The source table: table, schema.table or database.schema.table. `*` and `?` match within one part "
            "(`shop.public.*`). Where a feed tells only the table's name, only that part is compared. An exact entry "
            "wins over a pattern, an earlier pattern over a later one. A table with column families is one table; a "
            "family that an entry names (`orders+f2`) is a table of its own instead."
        ),
        examples=["shop.public.orders"],
    )
    target: str | None = Field(
        default=None,
        description=(
            "The Iceberg table, namespace.table. May hold `{table}`, `{schema}` and `{database}`, which patterns need. "
            "Default: `{database}.{table}`, with the pipeline's name where the database is not known."
        ),
        examples=["analytics.orders"],
    )
    key: ColumnNames = Field(
        default=(),
        description="The key columns. Default: the primary key, where the source tells it.",
        examples=[["id"]],
    )
    columns: TextMap = Field(
        default_factory=dict,
        description="Source types by column name, as in CREATE TABLE. Pins what would be discovered otherwise.",
        examples=[{"id": "INT8", "amount": "DECIMAL(12,2)"}],
    )
    mapping: MappingConfig | None = Field(
        default=None, description="MongoDB: how documents become rows. Default: every field becomes a column."
    )
    deletes: DeleteMode = Field(
        default=DeleteMode.VECTORS,
        description=(
            "vectors: older rows are found through the key index and deleted at their position, so readers "
            "search for nothing. equality: older rows are deleted by key, which readers pay for until it is converted. "
            "append-only: a changelog of all changes. mirror+changelog: vectors, with `changelog: true`."
        ),
    )
    changelog: bool = Field(
        default=False,
        description=(
            "Keeps a changelog beside the main table, in `<target>__changelog`, published for the same epochs: every "
            "change with `_op`, `_position` and, where the source tells it, `_before`."
        ),
    )
    partition: PartitionFields = Field(
        default=(),
        description=(
            "How the table is partitioned: columns, or year, month, day, hour(column), bucket(N, column), "
            "truncate(W, column). An existing table's partitioning evolves to it; left out, it stays as it is."
        ),
        examples=[["day(created_at)", "bucket(16, id)"]],
    )
    sort: SortFields = Field(
        default=(),
        description="The order of rows within a file: columns, each with `desc` or `nulls last` if wanted.",
        examples=[["created_at desc", "id"]],
    )
    catalog: str | None = Field(
        default=None, description="The catalog of `catalogs:` that has the table. Default: the pipeline's first."
    )
    volume: str | None = Field(
        default=None, description="The volume of `volumes:` that the table lies on. Default: its catalog's, if any."
    )
    location: str | None = Field(
        default=None, description="Where the table's files go. Default: where the volume or the catalog puts them."
    )
    drop: bool = Field(
        default=False,
        description="Whether a column that is dropped at the source is dropped here; else it stays and reads as NULL.",
    )
    on_schema_conflict: SchemaConflict = Field(
        default=SchemaConflict.STOP,
        description=(
            "What happens when a column's new type cannot hold its old values. stop: the table stays at its last "
            "epoch. new-column: new values go to a column `<name>_v2`."
        ),
    )
    json_as: Literal["string", "variant"] = Field(
        default="string",
        description=(
            "JSONB columns become strings of JSON text. `variant` is refused for now: PyArrow cannot write it."
        ),
    )
    history: HistoryMode = Field(
        default=HistoryMode.WHOLE,
        description=(
            "CockroachDB: what a table that has nothing published yet may begin with. whole: a scan, or all that the "
            "feed's prefix ever held, as far as it can be told. partial: what there is."
        ),
    )
    rescan: Rescan = Field(
        default=Rescan.STOP,
        description=(
            "CockroachDB: what happens when another changefeed scans the table again into the same prefix. stop: the "
            "table stays at its last epoch. merge: its rows are taken, and rows that were deleted in between stay."
        ),
    )
    properties: TextMap = Field(
        default_factory=dict,
        description="Iceberg table properties, set when the table is created.",
        examples=[{"write.metadata.delete-after-commit.enabled": "true"}],
    )
    format_version: Annotated[Literal[2, 3], BeforeValidator(whole_number)] | None = Field(
        default=None,
        description=(
            "The Iceberg format of a table that is created; in format 2 `vectors` are position deletes. Default: 3, or "
            "2 in a catalog that has no 3. Set to 3, such a catalog is refused."
        ),
    )

    @property
    def options(self) -> TableOptions:
        return TableOptions(
            mode=self.deletes,
            format_version=self.format_version or DEFAULT_FORMAT_VERSION,
            insists_on_version=self.format_version is not None,
            partition=tuple(parse_partition(text) for text in self.partition),
            sort=tuple(parse_sort(text) for text in self.sort),
            location=self.location,
            properties=self.properties,
            drop=self.drop,
            on_conflict=self.on_schema_conflict,
        )

    @model_validator(mode="before")
    @classmethod
    def _mirror_and_changelog(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("deletes") == "mirror+changelog":
            return {**data, "deletes": DeleteMode.VECTORS.value, "changelog": True}
        return data

    @model_validator(mode="after")
    def _fits_together(self) -> TableEntry:
        if self.changelog and self.deletes is DeleteMode.APPEND_ONLY:
            raise problem("an append-only table is a changelog already", "changelog")
        try:
            routing.check_names(self.source, self.target)
        except ValueError as error:
            raise problem(str(error), "target") from error
        for name in self.properties:
            if name == "format-version":
                raise problem("set format_version instead", "properties", name)
            if name.startswith("frazil."):
                raise problem("properties named frazil.* belong to the ledger", "properties", name)
            if name.startswith("encryption."):
                raise problem("Frazil writes its files in plain: it cannot encrypt a table", "properties", name)
        return self
