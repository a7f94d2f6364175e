"""Which order the rows of a table get when it is compacted. Pure.

maintenance.compact.zorder_by   bits of these columns in turn
maintenance.compact.order_by    by these columns, one after the other
nothing                         the table's own sort order, if it has one; else rows stay in the order they are in
"""

from __future__ import annotations

from collections.abc import Sequence

from frazil.errors import ConfigError
from frazil.model.compaction import RewrittenTable
from frazil.model.partition import takes
from frazil.model.schema import Field, StructOf
from frazil.model.sort import IDENTITY, Order, OrderField, SortField


def order_of(table: RewrittenTable, order_by: Sequence[SortField] = (), zorder_by: Sequence[str] = ()) -> Order | None:
    """None if rows stay in the order they are in. Raises ConfigError naming table and column for a column that the
    table does not have, or that has no order."""
    if zorder_by:
        fields = tuple(OrderField(_column(table, name, "zorder_by").id) for name in zorder_by)
        return Order(fields, interleaved=True)
    wanted = tuple(
        OrderField(_column(table, by.column, "order_by").id, IDENTITY, by.descending, by.nulls_first) for by in order_by
    )
    if wanted and wanted != table.order:
        return Order(wanted)
    return Order(table.order, order_id=table.order_id) if table.order else None


def _column(table: RewrittenTable, name: str, option: str) -> Field:
    found = _find(table.schema.fields, name)
    if found is not None and takes(IDENTITY, found.type):
        return found
    what = "it has no such column" if found is None else f"its values, of type {found.type}, have no order"
    raise ConfigError(
        f"{table.name} cannot be compacted by column {name!r}: {what}",
        hint=f"Name others in maintenance.compact.{option}, of these: "
        + ", ".join(field.name for field in table.schema if takes(IDENTITY, field.type)),
        table=table.name.text,
        column=name,
        option=f"maintenance.compact.{option}",
    )


def _find(fields: Sequence[Field], name: str) -> Field | None:
    """A column, or `a.b` inside of structs."""
    for field in fields:
        if field.name == name:
            return field
        if isinstance(field.type, StructOf) and name.startswith(f"{field.name}."):
            inner = _find(field.type.fields, name.removeprefix(f"{field.name}."))
            if inner is not None:
                return inner
    return None
