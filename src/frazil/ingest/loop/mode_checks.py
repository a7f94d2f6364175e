"""Whether a table that is live may be written in the mode that the configuration wants now.

equality <-> vectors        yes: both mean one row for a key
main table  --> append-only     yes: log rows begin here, older rows have no `_op`
append-only --> main table      no: a log holds many rows for a key, and nobody could tell which of them is the row

A table whose rows come in parts (column families), or without cells that did not change, is a main table by vectors and
nothing else: only a lookup can fill what a change leaves out.
"""

from __future__ import annotations

from frazil.config.table_entries import TableEntry
from frazil.errors import ConfigError
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.schema import UNNAMED, SourceSchema, families
from frazil.model.table import CHANGELOG_OP, CHANGELOG_POSITION
from frazil.model.write import DeleteMode


def check_mode(table: TargetTable, is_published: bool) -> None:
    """Raises ConfigError for a changelog that is to become a main table."""
    mode, loaded = table.options.mode, table.loaded
    if not table.is_main or mode is DeleteMode.APPEND_ONLY or loaded is None or not is_published:
        return
    told = table.route.entry.columns
    if all(loaded.schema.field(name) is not None and name not in told for name in (CHANGELOG_OP, CHANGELOG_POSITION)):
        raise ConfigError(
            f"{table.name} is a changelog, many rows for a key; it cannot hold one row for each (deletes: {mode})",
            hint=f"Give {table.source} a new target and load it from the start of the source; or set "
            "`deletes: append-only` again. To have both, use `changelog: true` with the new target.",
            table=table.name,
            mode=mode.value,
        )


def check_parts(source: str, entry: TableEntry, source_schema: SourceSchema) -> None:
    """Raises ConfigError for a table whose rows are put together in a mode that cannot do it."""
    known = [family for family in families(source_schema) if family != UNNAMED]
    if not (known or source_schema.leaves_out) or (entry.deletes is DeleteMode.VECTORS and not entry.changelog):
        return
    mode = "a changelog" if entry.changelog else f"`deletes: {entry.deletes}`"
    if not known:
        raise ConfigError(
            f"changes of {source} may come without cells that did not change, and {mode} cannot tell what they were",
            hint=f"Set `deletes: vectors` without `changelog:` for {source}, or let the source send whole rows.",
            table=source,
        )
    own = ", ".join(f"{source}+{family}" for family in known)
    raise ConfigError(
        f"{source} has the column families {', '.join(known)}, and {mode} cannot put its rows together: a change of "
        "one family says nothing about the others",
        hint=f"Set `deletes: vectors` without `changelog:` for {source}; or name each family as a table of its own: "
        f"{own}.",
        table=source,
        families=known,
    )
