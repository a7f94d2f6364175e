"""Where changes come from: MongoDB. And how its collections become tables.

    source: {type: mongodb, uri: ...}     the deployment, and when an epoch of its stream ends
    tables[].mapping                      how documents become rows: auto, or explicit with paths, names and casts

A collection is called database.collection; `source.database` stands in where an entry names the collection alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from frazil.config.block import LocalOrCloud, starts_with
from frazil.config.entry_checks import Judgement, KnownColumns, judge_layout, judge_types
from frazil.config.parse_values import ByteSize, Duration
from frazil.config.table_entries import TableEntry
from frazil.model.schema import Type
from frazil.sources.mongodb.schema.types import named_type
from frazil.sources.registry import SourceConfig

_ID = "_id"
_URIS = ("mongodb://", "mongodb+srv://")


class MongoSource(SourceConfig):
    """MongoDB: a first load of each collection, then its change stream. Needs a replica set or a sharded cluster, and
    frazil[mongodb]."""

    has_documents: ClassVar[bool] = True
    can_reload: ClassVar[bool] = True

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

    @classmethod
    def fitted(cls, data: dict[str, Any]) -> dict[str, Any]:
        """With the database in the names of entries, targets named after it, and columns of another type beside the
        old ones rather than a stop."""
        source, tables = data.get("source"), data.get("tables")
        if not isinstance(source, dict) or not isinstance(tables, list):
            return data
        return {**data, "tables": [_fit(entry, source.get("database")) for entry in tables]}

    def judge(self, entry: TableEntry, *, spark_reads: bool) -> Iterator[Judgement]:
        fields = () if entry.mapping is None else entry.mapping.fields
        if "." not in entry.source:
            yield "name the collection with its database (shop.orders), or set source.database", ("source",)
        if entry.key not in ((), (_ID,)):
            yield f"the key of a collection is its {_ID}", ("key",)
        for name in sorted(entry.model_fields_set & {"history", "rescan"}):
            yield "only a changefeed needs to be told this", (name,)
        if entry.columns and fields:
            yield "an explicit mapping tells the types of its fields itself", ("columns",)
        types: dict[str, Type | None] = {}
        mapped = ((field.column, field.type, ("mapping", "fields", at, "type")) for at, field in enumerate(fields))
        yield from judge_types(entry, mapped, _named, types)
        pinned = ((name, text, ("columns", name)) for name, text in entry.columns.items())
        yield from judge_types(entry, pinned, _named, types)
        types.setdefault(_ID, None)
        yield from judge_layout(entry, KnownColumns(types, whole=bool(fields), named="mapped fields"))


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


def _named(text: str) -> Type | None:
    found = named_type(text)
    return None if found is None else found[0]
