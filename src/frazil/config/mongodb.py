"""Where changes come from: MongoDB. And how its collections become tables.

    source: {type: mongodb, uri: ...}     the deployment, and when an epoch of its stream ends
    tables[].mapping                      how documents become rows: auto, or explicit with paths, names and casts

A collection is called database.collection; `source.database` stands in where an entry names the collection alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from frazil.config.block import LocalOrCloud, Settings, problem, starts_with
from frazil.config.parse_values import ByteSize, Duration, Shown

_URIS = ("mongodb://", "mongodb+srv://")


class MongoSource(Settings):
    """MongoDB: a first load of each collection, then its change stream. Needs a replica set or a sharded cluster, and
    frazil[mongodb]."""

    type: Literal["mongodb"] = Field(description="The kind of source.")
    uri: Annotated[str, AfterValidator(starts_with(_URIS, "a URI mongodb://... or mongodb+srv://..."))] = Field(
        description=(
            "The connection string, with user, password and TLS settings as MongoDB documents them. The user needs the "
            "role `read` on what it reads; pipelines over several databases need readAnyDatabase."
        ),
        examples=["mongodb://frazil:secret@localhost:27017/?replicaSet=rs0"],
    )
    database: str | None = Field(
        default=None,
        pattern=r"^[^.\s$/\\]+$",
        description="The database of entries under `tables:` that name a collection alone.",
        examples=["shop"],
    )
    sample: int = Field(
        default=1000, ge=1, le=100_000, description="Documents that are looked at to infer the columns of a new table."
    )
    max_records: int = Field(default=50_000, ge=1, description="An epoch of the stream ends at this many changes,")
    max_bytes: ByteSize = Field(default=128 << 20, ge=1024, description="or at this much data,")
    flush_interval: Duration = Field(
        default=60.0,
        ge=0.01,
        description="or when its oldest change has waited this long; always between two cluster times.",
    )
    spool: LocalOrCloud | None = Field(
        default=None,
        description=(
            "A directory for changes that are read from the stream and not yet published. Executors must see it too. "
            "Default: in Frazil's cache directory."
        ),
    )
    poll_interval: Duration = Field(default=1.0, ge=0.01, description="How often an idle stream is looked at again.")

    @property
    def address(self) -> str:
        return self.uri


class FieldConfig(Settings):
    """One field of a document, and the column it becomes."""

    source: str = Field(min_length=1, description="The path of the field: `total`, `customer.name`.")
    target: str | None = Field(
        default=None, min_length=1, description="The column. Default: the path, with `_` between its parts."
    )
    type: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "The column's type: string, int, long, double, decimal(p, s), boolean, timestamp, date, binary, uuid, "
            "json; list, struct and decimal are inferred inside, as is a field without type. Values are cast where "
            "that is exact."
        ),
        examples=["decimal(12, 2)"],
    )

    @property
    def column(self) -> str:
        return self.target or self.source.replace(".", "_")


class MappingConfig(Settings):
    """How the documents of a collection become rows."""

    mode: Literal["auto", "explicit"] = Field(
        default="auto",
        description=(
            "auto: every field becomes a column, new fields too. explicit: the listed fields do; others are left out."
        ),
    )
    fields: Annotated[tuple[FieldConfig, ...], Shown("list of fields")] = Field(
        default=(),
        description="explicit: the fields, each with its path, column and type.",
        examples=[[{"source": "customer.name", "target": "customer_name", "type": "string"}]],
    )

    @model_validator(mode="after")
    def _fits_together(self) -> MappingConfig:
        if (self.mode == "explicit") != bool(self.fields):
            raise problem("explicit needs fields, and auto takes none", "fields")
        columns = [field.column for field in self.fields]
        for index, column in enumerate(columns):
            if column in columns[:index]:
                raise problem(f"two fields become the column {column!r}", "fields", index, "target")
        return self


def fit_collections(data: Any) -> Any:
    """The entries of a pipeline over MongoDB with what follows from the source: the database in their names, targets
    named after it, and columns of another type beside the old ones rather than a stop."""
    source, tables = data.get("source"), data.get("tables")
    if not isinstance(source, dict) or source.get("type") != "mongodb" or not isinstance(tables, list):
        return data
    return {**data, "tables": [_fit(entry, source.get("database")) for entry in tables]}


def _fit(entry: Any, database: Any) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get("source"), str):
        return entry
    name = entry["source"]
    if "." not in name and isinstance(database, str):
        name = f"{database}.{name}"
    target = entry.get("target") or "{database}.{table}"
    if name.count(".") == 1 and isinstance(target, str):
        target = target.replace("{database}", "{schema}")
    mapping = entry.get("mapping")
    explicit = isinstance(mapping, dict) and mapping.get("mode") == "explicit"
    defaults = {} if explicit else {"on_schema_conflict": "new-column"}
    return {**defaults, **entry, "source": name, "target": target}
