"""How a table is cut into partitions and sorted: what the configuration wants, and what must change for it.

    options.partition, options.sort --check_layout--> every column is there and of a type its transform takes
    table as it is --layout_change--> fields to add, fields to remove, another order, an unpartitioned spec for deletes
                                          `--stage_layout--> updateSpec, replaceSortOrder in one transaction

A table of ours starts with the unpartitioned spec 0, and the wanted one is added as its default: deletes by key are
written under an unpartitioned spec, because only these reach a row in whatever partition it lies (H1). A table of
somebody else that never had such a spec gets one beside its default, which stays as it is.
Old files keep the spec they were written under. What is not configured is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.model.ids import TableName
from frazil.model.partition import BadPartition, PartitionSpec, Transform, WantedPartition, takes
from frazil.model.schema import VARIANT, Decimal, Field, Primitive, Remembered, Schema, SourceSchema, StructOf, Type
from frazil.model.sort import SortField
from frazil.model.write import TableOptions

_UNSORTED = 0


@dataclass(frozen=True, slots=True)
class AddedField:
    """A partition field to be added: its name, its column as iceberg-java finds it, its transform."""

    name: str
    column: str
    transform: Transform


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChange:
    """What turns the table into the wanted one. `unpartitioned` asks for a spec beside the default one."""

    remove: tuple[str, ...] = ()
    add: tuple[AddedField, ...] = ()
    sort: tuple[SortField, ...] = ()
    unpartitioned: bool = False

    def __bool__(self) -> bool:
        return bool(self.remove or self.add or self.sort or self.unpartitioned)

    @property
    def texts(self) -> tuple[str, ...]:
        """For people."""
        removed = [f"stops partitioning by {name}; older files stay as they are" for name in self.remove]
        added = [f"partitions new files by {one.transform}({one.column})" for one in self.add]
        order = [", ".join(f"{one.column}{' desc' if one.descending else ''}" for one in self.sort)]
        return (*removed, *added, *(f"sorts new files by {by}" for by in order if by))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What table metadata says. A sort order that no plain columns make up counts as none: rows need not be sorted."""

    spec: PartitionSpec
    specs: tuple[PartitionSpec, ...]
    sort: tuple[SortField, ...] = ()
    sort_order_id: int | None = None


def parse_layout(table: TableName, schema: Schema, metadata: Mapping[str, Any]) -> Layout:
    """Pure. Raises ConfigError if the default spec has a transform that this product cannot compute."""
    default, specs = metadata["default-spec-id"], []
    for json in metadata["partition-specs"]:
        try:
            specs.append(PartitionSpec.from_json(json))
        except (BadPartition, KeyError) as error:
            if json["spec-id"] != default:
                continue
            by = ", ".join(f"{field['transform']} as {field['name']}" for field in json["fields"])
            raise ConfigError(
                f"table {table} is partitioned by {by}: a writer of another specification made it",
                hint=f"publish to another table than {table}, or change its partitioning with ALTER TABLE",
                table=table.text,
            ) from error
    sort, order_id = _parse_sort(schema, metadata)
    spec = next(spec for spec in specs if spec.spec_id == default)
    return Layout(spec=spec, specs=tuple(specs), sort=sort, sort_order_id=order_id)


def partition_texts(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """As a configuration writes them; by a field's own name where its column is nested."""
    names = {field.id: field.name for field in schema}
    return tuple(
        WantedPartition(names.get(field.source_id, field.name), field.transform).text
        for field in spec.fields
        if field.transform.name != "void"
    )


def check_layout(
    table: TableName, schema: Schema, options: TableOptions, known: Mapping[int, Remembered] | None = None
) -> None:
    """Raises ConfigError naming the column for a partition or sort field that cannot be. `known` tells former names
    of the table's columns."""
    seen: set[tuple[int, Transform]] = set()
    for wanted in options.partition:
        _, field = _resolve(table, schema, wanted.column, "partition", known or {})
        if not takes(wanted.transform, field.type):
            raise ConfigError(
                f"table {table}: partition field {wanted.name!r}: {wanted.transform} does not take {field.type}, "
                f"the type of column {wanted.column!r}",
                hint=f"choose another transform or another column in tables[].partition for {table}",
                table=table.text,
                column=wanted.column,
                type=str(field.type),
                transform=wanted.transform.text,
            )
        if (field.id, wanted.transform) in seen:
            raise ConfigError(
                f"table {table}: partition field {wanted.name!r} is written twice",
                hint=f"remove one of them from tables[].partition for {table}",
                table=table.text,
                column=wanted.column,
            )
        seen.add((field.id, wanted.transform))
    for order in options.sort:
        path, field = _resolve(table, schema, order.column, "sort", known or {})
        if len(path) > 1 or not _is_plain(field.type):
            raise ConfigError(
                f"table {table} cannot be sorted by {order.column!r}, which is {field.type}"
                + (" inside a struct" if len(path) > 1 else ""),
                hint=f"name columns of simple types in tables[].sort for {table}",
                table=table.text,
                column=order.column,
            )


def check_identifiers(table: TableName, schema: Schema, source_schema: SourceSchema, options: TableOptions) -> None:
    """Raises ConfigError if the table says that other columns identify its rows than the key does."""
    identifiers = [field.name for field in schema.identifiers]
    if options.mode.needs_key and schema.identifier_ids and set(identifiers) != set(source_schema.key):
        raise ConfigError(
            f"table {table} identifies its rows by {', '.join(identifiers) or 'nested columns'}, "
            f"but the key is {', '.join(source_schema.key)} (from {source_schema.key_origin})",
            hint=f"set tables[].key for {table} to its identifier fields, or change these: "
            f"ALTER TABLE {table} SET IDENTIFIER FIELDS {', '.join(source_schema.key)}",
            table=table.text,
        )


def layout_change(
    table: TableName, schema: Schema, layout: Layout, options: TableOptions, known: Mapping[int, Remembered]
) -> LayoutChange:
    """What must change for the table to be as configured. Pure. Raises like `check_layout`."""
    check_layout(table, schema, options, known)
    remove: list[str] = []
    add: list[AddedField] = []
    if options.partition:
        wanted = {}
        for one in options.partition:
            path, field = _resolve(table, schema, one.column, "partition", known)
            column = ".".join(path)
            wanted[field.id, one.transform] = replace(one, column=column), column
        there = {(field.source_id, field.transform): field.name for field in layout.spec.fields}
        # A void field sends no row anywhere: what a first version of the format keeps of a removed field stays.
        remove = [name for key, name in there.items() if key not in wanted and key[1].name != "void"]
        for key, (one, column) in wanted.items():
            if key not in there:
                name = _free_name(one, key, schema, layout.specs, [field.name for field in add])
                add.append(AddedField(name, column, one.transform))
    sort = tuple(
        SortField(".".join(_resolve(table, schema, f.column, "sort", known)[0]), f.descending, f.nulls_first)
        for f in options.sort
    )
    return LayoutChange(
        remove=tuple(remove),
        add=tuple(add),
        sort=() if sort == layout.sort else sort,
        unpartitioned=options.mode.needs_key and all(spec.partitions for spec in layout.specs),
    )


def stage_layout(catalog: Catalog, transaction: Any, change: LayoutChange) -> None:
    """Stages the change in an iceberg-java transaction; the caller commits it. Raises what Java raises."""
    if change.unpartitioned:
        # First, and on a spec whose fields all go: what is not the default does not touch what is.
        update = transaction.updateSpec()
        for field in _names_of(transaction.table().spec()):
            update.removeField(field)
        update.addNonDefaultSpec().commit()
    if change.remove or change.add:
        update = transaction.updateSpec()
        for name in change.remove:
            update.removeField(name)
        for added in change.add:
            update.addField(added.name, _term(catalog, added))
        update.commit()
    if change.sort:
        stage_sort(catalog, transaction.replaceSortOrder(), change.sort).commit()


def stage_sort(catalog: Catalog, builder: Any, order: Sequence[SortField]) -> Any:
    """Adds the fields to anything of iceberg-java that builds a sort order."""
    nulls, ref = catalog.iceberg.NullOrder, catalog.iceberg.expressions.Expressions.ref
    for field in order:
        place = nulls.NULLS_FIRST if field.nulls_first else nulls.NULLS_LAST
        add = builder.desc if field.descending else builder.asc
        builder = add(ref(field.column), place)
    return builder


def _term(catalog: Catalog, added: AddedField) -> Any:
    expressions = catalog.iceberg.expressions.Expressions
    match added.transform:
        case Transform("identity"):
            return expressions.ref(added.column)
        case Transform("void"):
            return expressions.transform(added.column, catalog.iceberg.transforms.Transforms.alwaysNull())
        case Transform(name, None):
            return getattr(expressions, name)(added.column)
        case Transform(name, width):
            return getattr(expressions, name)(added.column, width)


def _names_of(java_spec: Any) -> list[str]:
    fields = java_spec.fields()
    return [fields.get(place).name() for place in range(fields.size())]


def _resolve(
    table: TableName, schema: Schema, column: str, option: str, known: Mapping[int, Remembered]
) -> tuple[tuple[str, ...], Field]:
    """A column by its name, by a name it has had at the source, or as `a.b` inside of structs: path and field."""
    if (field := schema.field(column)) is not None:
        return (field.name,), field
    for field in schema:
        if column in known.get(field.id, Remembered()).carried:
            return (field.name,), field
    outer, _, inner = column.partition(".")
    path: list[str] = []
    fields: tuple[Field, ...] = schema.fields
    while outer:
        field = next((field for field in fields if field.name == outer), None)
        if field is None:
            break
        path.append(field.name)
        if not inner:
            return tuple(path), field
        fields = field.type.fields if isinstance(field.type, StructOf) else ()
        outer, _, inner = inner.partition(".")
    raise ConfigError(
        f"table {table} has no column {column!r}, which tables[].{option} names",
        hint=f"name one of its columns: {', '.join(field.name for field in schema)}",
        table=table.text,
        column=column,
    )


def _free_name(
    wanted: WantedPartition, key: tuple[int, Transform], schema: Schema, specs: Sequence[PartitionSpec], more: list[str]
) -> str:
    """The field's own name, or that with a number where a column or another field, now or once, is called so."""
    taken = {*more, *_dotted(schema.fields)}
    if wanted.transform.name == "identity":
        taken.discard(wanted.column)
    for field in (field for spec in specs for field in spec.fields):
        if (field.source_id, field.transform) != key:
            taken.add(field.name)
    name, number = wanted.name, 2
    while name in taken:
        name, number = f"{wanted.name}_{number}", number + 1
    return name


def _dotted(fields: Sequence[Field]) -> list[str]:
    names = []
    for field in fields:
        names.append(field.name)
        if isinstance(field.type, StructOf):
            names.extend(f"{field.name}.{inner}" for inner in _dotted(field.type.fields))
    return names


def _is_plain(type_: Type) -> bool:
    return isinstance(type_, Primitive | Decimal) and type_ != VARIANT


def preserved_order(metadata: Mapping[str, Any]) -> list[int]:
    """Fields by whose values the table's sort order goes, be it roughly. Pure."""
    default = metadata.get("default-sort-order-id", _UNSORTED)
    order = next((o for o in metadata.get("sort-orders", ()) if o["order-id"] == default), {"fields": ()})
    return [one["source-id"] for one in order["fields"] if not one["transform"].startswith(("bucket", "void"))]


def _parse_sort(schema: Schema, metadata: Mapping[str, Any]) -> tuple[tuple[SortField, ...], int | None]:
    default = metadata.get("default-sort-order-id", _UNSORTED)
    order = next((o for o in metadata.get("sort-orders", ()) if o["order-id"] == default), None)
    if default == _UNSORTED or order is None:
        return (), None
    names = {field.id: field.name for field in schema if _is_plain(field.type)}
    fields = []
    for field in order["fields"]:
        if field["transform"] != "identity" or field.get("source-id") not in names:
            return (), None
        descending, nulls_first = field["direction"] == "desc", field["null-order"] == "nulls-first"
        fields.append(SortField(names[field["source-id"]], descending, nulls_first))
    return tuple(fields), default
