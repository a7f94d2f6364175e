"""What a call of `upsert_stream` wants, checked against the DataFrame it came with.

UpsertOptions ----------------------------+
DataFrame's schema --Spark types----------+--> UpsertRequest     what to publish, where, in which order
query id: given, or the running query's --+         |
                                                    `--> ConfigError that names the option or the column

column        stored in the target
key           yes, and it must not be null
order_by      yes
op            only if the target has a column of that name already
any other     yes
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pyspark.sql import types as spark_types
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructType

from frazil.config.document import YamlDocument
from frazil.config.pipeline_config import CatalogConfig
from frazil.config.problems import explain
from frazil.config.secrets import mask_text
from frazil.config.sink_url import parse_sink_url
from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import CatalogSettings
from frazil.ingest.catalog_handles import catalog_settings
from frazil.ingest.write.row_versions import ColumnChanges
from frazil.model.ids import BadName, JobId, TableName
from frazil.model.position import BatchNumber, NotAPosition
from frazil.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNASSIGNED,
    BadType,
    Column,
    Decimal,
    Field,
    ListOf,
    MapOf,
    SourceSchema,
    StructOf,
    Type,
)
from frazil.model.write import DeleteMode, TableOptions

DELETE_VALUES = ("d", "D", "delete", "DELETE")
ORIGIN = "dataframe"
_FORMAT_VERSIONS = (2, 3)
_PLAIN_COLLATION = "UTF8_BINARY"
_TYPES: Mapping[type[DataType], Type] = {
    spark_types.BooleanType: BOOLEAN,
    spark_types.ByteType: INT,
    spark_types.ShortType: INT,
    spark_types.IntegerType: INT,
    spark_types.LongType: LONG,
    spark_types.FloatType: FLOAT,
    spark_types.DoubleType: DOUBLE,
    spark_types.DateType: DATE,
    spark_types.TimestampType: TIMESTAMPTZ,
    spark_types.TimestampNTZType: TIMESTAMP,
    spark_types.StringType: STRING,
    spark_types.CharType: STRING,
    spark_types.VarcharType: STRING,
    spark_types.BinaryType: BINARY,
}
_OP_TYPES = (BOOLEAN, INT, LONG, STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertOptions:
    """The call's own words, before anything is known about them."""

    pipeline: str
    target: str | None = None
    key: str | Sequence[str] | None = None
    warehouse: object = None
    catalog: CatalogConfig | Mapping[str, Any] | str | None = None
    order_by: str | Sequence[str] = ()
    op: str | None = None
    delete_values: str | Sequence[str] = DELETE_VALUES
    deletes: str = DeleteMode.VECTORS.value
    format_version: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertRequest:
    """One batch for one table. `source_schema` has every column but `op`; `incarnation` is the query's id."""

    job: JobId
    target: TableName
    catalog: CatalogSettings
    position: BatchNumber
    incarnation: str
    source_schema: SourceSchema
    op: Column | None
    changes: ColumnChanges
    mode: DeleteMode
    format_version: int

    @property
    def config_hash(self) -> str:
        """Names what decides the content of the table."""
        changes = self.changes
        content = [self.source_schema.key, changes.order, changes.op, changes.delete_values, self.mode.value]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()

    @property
    def table_options(self) -> TableOptions:
        return TableOptions(mode=self.mode, format_version=self.format_version)

    @property
    def folds(self) -> bool:
        """Whether of several rows of a key only one is kept."""
        return self.mode is not DeleteMode.APPEND_ONLY

    def schema_in(self, stored: Sequence[str]) -> SourceSchema:
        """What a table that has the columns `stored` is to hold."""
        if self.op is None or self.op.name not in stored:
            return self.source_schema
        return replace(self.source_schema, columns=(*self.source_schema.columns, self.op))


def make_request(options: UpsertOptions, schema: StructType, batch_id: int, query_id: str) -> UpsertRequest:
    """Raises ConfigError that names the option or the column which cannot be."""
    config, named_target, named_key = _catalog(options)
    mode, job, target = _mode(options.deletes), _job(options.pipeline), _target(options.target or named_target)
    key = _names("key", options.key if options.key is not None else named_key)
    order = _names("order_by", options.order_by)
    columns = {column.name: column for column in _columns(target, schema, options.op)}
    _known("key", key, columns, target)
    _known("order_by", order, columns, target)
    _check_key(target, key, order, mode, options.op)
    for name in key:
        _check_key_column(target, columns[name], schema[name].dataType)
    for name in order:
        _check_order_column(target, name, schema[name].dataType)
    op = None
    if options.op is not None:
        _known("op", (options.op,), columns, target)
        op = _op_column(target, columns[options.op], (*key, *order))
    if options.format_version not in _FORMAT_VERSIONS:
        raise _wrong("format_version", f"must be 2 or 3, not {options.format_version!r}")
    return UpsertRequest(
        job=job,
        target=target,
        catalog=catalog_settings(config),
        position=_position(batch_id),
        incarnation=query_id,
        source_schema=SourceSchema(tuple(c for c in columns.values() if c is not op), key, ORIGIN),
        op=op,
        changes=ColumnChanges(order, options.op, _delete_values(options) if op else ()),
        mode=mode,
        format_version=options.format_version,
    )


def query_id_of(given: str | None, running: str | None) -> str:
    """The id that makes batch numbers comparable: `running` is the one of the query that called us (H53).

    Raises ConfigError without either, or if they differ: batch numbers follow the running query's checkpoint,
    whatever the call says.
    """
    if given and running and given != running:
        raise ConfigError(
            f"query_id={given!r} is not the id of the running query, {running!r}, whose batch numbers are published",
            hint="Leave query_id out inside foreachBatch: the running query's id is found by itself.",
            query_id=given,
            running=running,
        )
    if found := given or running:
        return found
    raise ConfigError(
        "no streaming query runs in this thread, so nothing says what the batch number counts",
        hint="Call upsert_stream in the function given to foreachBatch, in its own thread. Elsewhere pass query_id=: a "
        "text that stays the same as long as batch numbers go on, such as the id in the checkpoint's `metadata` file.",
    )


def iceberg_type(given: DataType) -> Type:
    """Raises BadType for a type that this product does not store."""
    match given:
        case DecimalType():
            return Decimal(given.precision, given.scale)
        case ArrayType():
            return ListOf(iceberg_type(given.elementType))
        case MapType():
            return MapOf(iceberg_type(given.keyType), iceberg_type(given.valueType))
        case StructType():
            return StructOf(
                tuple(Field(UNASSIGNED, field.name, iceberg_type(field.dataType)) for field in given.fields)
            )
        case _ if type(given) in _TYPES:
            return _TYPES[type(given)]
    raise BadType(f"{given.simpleString()} has no counterpart")


def _catalog(options: UpsertOptions) -> tuple[CatalogConfig, str | None, tuple[str, ...]]:
    """The catalog, and the target and key that a sink URL names besides."""
    given = options.catalog
    if (given is None) == (options.warehouse is None):
        raise ConfigError(
            "the catalog is not given" if given is None else "both warehouse and catalog are given",
            hint='Give warehouse="./warehouse" for the builtin catalog there, or catalog= as a mapping like the '
            "configuration's `catalog:`, a CatalogConfig or a sink URL iceberg://...",
        )
    if given is None:
        return _config({"warehouse": str(options.warehouse)}, "warehouse"), None, ()
    if isinstance(given, CatalogConfig):
        return given, None, ()
    if isinstance(given, Mapping):
        return _config(dict(given), "catalog"), None, ()
    try:
        url = parse_sink_url(given)
    except ValueError as error:
        raise _wrong("catalog", mask_text(str(error))) from error
    block = {"type": "rest", "uri": url.uri, "warehouse": url.warehouse, "properties": url.properties}
    return _config(block, "catalog"), url.target, url.key


def _config(block: dict[str, Any], option: str) -> CatalogConfig:
    try:
        return CatalogConfig.model_validate(block)
    except ValidationError as error:
        problems = [mask_text(str(problem)) for problem in explain(error, CatalogConfig, YamlDocument(block))]
        raise _wrong(option, "; ".join(problems)) from error


def _mode(text: str) -> DeleteMode:
    try:
        return DeleteMode(text)
    except ValueError as error:
        raise _wrong("deletes", f"must be one of {', '.join(DeleteMode)}, not {text!r}") from error


def _job(text: str) -> JobId:
    try:
        return JobId(text)
    except (BadName, TypeError) as error:
        raise _wrong("pipeline", str(error)) from error


def _target(text: str | None) -> TableName:
    if not text:
        raise _wrong("target", 'is missing: name the table, such as "analytics.orders"')
    try:
        return TableName.parse(text)
    except BadName as error:
        raise _wrong("target", str(error)) from error


def _position(batch_id: int) -> BatchNumber:
    if isinstance(batch_id, bool) or not isinstance(batch_id, int):
        raise _wrong("batch_id", f"must be the number that foreachBatch gives, not {batch_id!r}")
    try:
        return BatchNumber(batch_id)
    except NotAPosition as error:
        raise _wrong("batch_id", str(error)) from error


def _names(option: str, given: str | Sequence[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if len(set(names)) != len(names):
        raise _wrong(option, f"names a column twice: {', '.join(names)}")
    return names


def _delete_values(options: UpsertOptions) -> tuple[str, ...]:
    given = options.delete_values
    values = (given,) if isinstance(given, str) else tuple(given)
    if not values or not all(isinstance(value, str) for value in values):
        raise _wrong("delete_values", f"must be texts of the column {options.op!r} that mean a delete, not {given!r}")
    return values


def _columns(target: TableName, schema: StructType, op: str | None) -> list[Column]:
    alike = [name for name, count in Counter(name.lower() for name in schema.names).items() if count > 1]
    if alike:
        raise ConfigError(
            f"{target}: the DataFrame has more than one column named {alike[0]!r}, if upper and lower case are one",
            hint="Rename or drop one of them: most readers of the table could not tell them apart.",
            table=target.text,
            column=alike[0],
        )
    unspeakable = [name for name in schema.names if "." in name or "`" in name]
    if unspeakable:
        raise ConfigError(
            f"{target}: column {unspeakable[0]!r} has a dot or a backtick in its name, and Spark cannot hand such "
            "a column to Python tasks",
            hint="Rename it in the DataFrame before upsert_stream.",
            table=target.text,
            column=unspeakable[0],
        )
    return [_column(target, field.name, field.dataType, op) for field in schema.fields]


def _column(target: TableName, name: str, given: DataType, op: str | None) -> Column:
    try:
        return Column(name, iceberg_type(given), given.simpleString(), ORIGIN)
    except BadType as error:
        raise ConfigError(
            f"{target}: column {name!r} is {given.simpleString()}, which "
            + ("cannot tell an operation" if name == op else "cannot be stored"),
            hint=f"Cast it in the DataFrame, or drop {name}.",
            table=target.text,
            column=name,
            type=given.simpleString(),
        ) from error


def _known(option: str, names: Sequence[str], columns: Mapping[str, Column], target: TableName) -> None:
    for name in names:
        if name not in columns:
            raise ConfigError(
                f"{target}: {option} names {name!r}, which the DataFrame does not have",
                hint=f"It has {', '.join(columns)}.",
                table=target.text,
                column=name,
            )


def _check_key(target: TableName, key: Sequence[str], order: Sequence[str], mode: DeleteMode, op: str | None) -> None:
    if key or (mode is DeleteMode.APPEND_ONLY and not order and op is None):
        return
    reason = {
        mode is not DeleteMode.APPEND_ONLY: "a change cannot be told from a new row",
        op is not None: "nobody could say what was deleted",
    }.get(True, "order_by has no versions to order")
    raise ConfigError(
        f"{target}: without key {reason}",
        hint='Give key=["id"], the columns that name a row.',
        table=target.text,
    )


def _check_key_column(target: TableName, column: Column, given: DataType) -> None:
    """Keys are compared exactly, so they must be of a kind that can be (H21, H51)."""
    why = None
    if column.type in (FLOAT, DOUBLE) or isinstance(column.type, ListOf):
        why = f"is {given.simpleString()}, which cannot identify a row"
    elif isinstance(given, StringType) and given.collation != _PLAIN_COLLATION:
        why = f"has the collation {given.collation}: texts that it holds equal are different keys in Iceberg"
    if why is not None:
        raise ConfigError(
            f"{target}: key column {column.name!r} {why}",
            hint=f"Choose another key, or cast {column.name} to a decimal, an integer or a plain string.",
            table=target.text,
            column=column.name,
        )


def _check_order_column(target: TableName, name: str, given: DataType) -> None:
    if isinstance(given, StringType) and given.collation != _PLAIN_COLLATION:
        raise ConfigError(
            f"{target}: order_by column {name!r} has the collation {given.collation}, and texts that it holds equal "
            "have no order",
            hint=f"Order by another column, or by {name} cast to a plain string.",
            table=target.text,
            column=name,
        )


def _op_column(target: TableName, column: Column, taken: Sequence[str]) -> Column:
    if column.name in taken or column.type not in _OP_TYPES:
        why = "is among key and order_by" if column.name in taken else f"is {column.source_type}"
        raise ConfigError(
            f"{target}: op column {column.name!r} {why}, so it cannot tell an operation",
            hint="op names a column of its own: a text, a boolean or a whole number.",
            table=target.text,
            column=column.name,
        )
    return column


def _wrong(option: str, what: str) -> ConfigError:
    return ConfigError(f"upsert_stream: {option}: {what}", hint="docs/upsert_stream.md describes every option.")
