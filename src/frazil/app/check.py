"""What `frazil check` tells: what a run would make or change, and where each type comes from. Changes nothing.

configuration --claims--> source tables it takes --preview--> columns and key --> made, evolved, or a problem
                                             |                     |
                  refused, not shown by the source          some rows, tried on it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from frazil import errors
from frazil.app.inspect import claims_of, exact_entries, target_named
from frazil.app.pin_block import pin_block
from frazil.config.engines import REMEDIES, Ability, reasons, told_of, without
from frazil.config.pipeline_config import OnError
from frazil.config.routing import Route, is_pattern
from frazil.iceberg.tables.column_match import match_columns, named
from frazil.iceberg.tables.layout import partition_texts
from frazil.iceberg.tables.new_schema import target_columns
from frazil.iceberg.tables.tables import LoadedTable
from frazil.ingest.loop.claims import Claims
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.mode_checks import check_parts
from frazil.ingest.loop.table_stats import TableStats
from frazil.ingest.write.schema_tracker import SchemaTracker, known_by
from frazil.model.results import CheckedCatalog, CheckedColumn, CheckedTable, CheckReport, MadeAs, TableAction
from frazil.model.schema import UNNAMED, SourceSchema, families
from frazil.model.write import DEFAULT_FORMAT_VERSION, DeleteMode, Role, side_table
from frazil.sources.base import Remarks, TriesRows

Note = str | errors.FrazilError
"""What there is to say of a table; an error is a problem that stops it."""


def check(parts: Components, catalogs: Sequence[CheckedCatalog], feed: str) -> CheckReport:
    claims = claims_of(parts)
    routes = claims.routes
    checked = [_checked(parts, taken) for taken in routes]
    known = [
        (taken, source_schema)
        for taken, (_, source_schema) in zip(routes, checked, strict=True)
        if source_schema is not None
    ]
    return CheckReport(
        tables=(*(table for table, _ in checked), *_missing(parts, routes), *_refused(claims), *_unmet(parts, claims)),
        catalogs=tuple(catalogs),
        feed=feed,
        pin_yaml=pin_block(parts.config, known),
    )


def _checked(parts: Components, taken: Route) -> tuple[CheckedTable, SourceSchema | None]:
    target = taken.target
    exists = parts.tables.exists(target)
    try:
        loaded = parts.tables.load(target) if exists else None
        source_schema = SchemaTracker(parts.source).preview(taken, loaded)
    except errors.Terminal as error:  # the trouble of one table is its own here, too
        return _untold(parts, taken, error), None
    if source_schema is None:
        told = "nothing tells its columns and key yet: pin them with `columns:` and `key:`, or wait for its first rows"
        return _untold(parts, taken, *(_remarks(parts, taken) or [told])), None
    action = TableAction.EXISTS if exists else TableAction.CREATE
    notes: list[Note]
    if loaded is not None and not loaded.is_unused:
        action, notes = _evolution(parts, taken, source_schema, loaded)
    else:
        notes = [*_renamed(named(target, source_schema, taken.options))]
    if taken.entry.changelog or not exists:
        notes += _no_place_for_a_changelog(taken, source_schema)
    notes += _rows_that_do_not_fit(parts, taken.source, source_schema)
    notes += _parts(taken, source_schema)
    notes += _remarks(parts, taken)
    notes += _side_tables(parts, taken)
    notes += _readers(parts, taken, loaded)
    columns = tuple(CheckedColumn(c.name, str(c.type), c.source_type, c.origin) for c in source_schema.columns)
    checked = CheckedTable(
        source=taken.source,
        target=target.text,
        action=action,
        columns=columns,
        key=source_schema.key,
        key_origin=source_schema.key_origin,
        notes=_texts(notes),
        exit_code=_exit_code(notes),
        made=_made(parts, taken, loaded),
    )
    return checked, source_schema


def _made(parts: Components, taken: Route, loaded: LoadedTable | None) -> MadeAs:
    """How the table is made, or is there already. What the configuration says of its layout comes about either way."""
    entry, options = taken.entry, taken.options
    partition, sort = tuple(entry.partition), tuple(entry.sort)
    if loaded is not None:
        partition = partition or partition_texts(loaded.spec, loaded.schema)
        sort = sort or tuple(order.text for order in loaded.sort)
    beside = [side_table(taken.target, role) for role in Role if role is not Role.MAIN]
    wanted = [side_table(taken.target, role) for role in parts.config.roles(taken)]
    return MadeAs(
        deletes=options.mode.value,
        format_version=options.format_version if loaded is None else loaded.format_version,
        partition=partition,
        sort=sort,
        side_tables=tuple(name.text for name in beside if name in wanted or parts.tables.exists(name)),
    )


def _no_place_for_a_changelog(taken: Route, source_schema: SourceSchema) -> list[Note]:
    """What a changelog, the table itself or one beside it, cannot be made of."""
    mode = DeleteMode.APPEND_ONLY if taken.entry.changelog else taken.options.mode
    try:
        target_columns(taken.target, source_schema, mode)
    except errors.ConfigError as error:
        return [error]
    return []


def _side_tables(parts: Components, taken: Route) -> list[Note]:
    """What would stop tables beside this one, which are written with it."""
    notes: list[Note] = []
    for name in (side_table(taken.target, role) for role in Role if role is not Role.MAIN):
        try:
            if parts.tables.exists(name):
                parts.tables.load(name)
        except errors.Terminal as error:
            notes.append(error)
    return notes


def _readers(parts: Components, taken: Route, loaded: LoadedTable | None) -> list[str]:
    """Why the table is made as it is for its readers; of one that is there, what they cannot read and what to do."""
    if loaded is None or loaded.is_unused:
        return reasons(taken.entry.options, taken.readers)
    stats = TableStats.at(parts.committer.head(taken.target))
    there = [Ability.FORMAT_3] if loaded.format_version >= DEFAULT_FORMAT_VERSION else []
    there += [Ability.POSITIONS] if stats.position_deletes and not there else []
    there += [Ability.EQUALITY] if stats.equality_deletes else []
    return [
        f"{told_of(blind, ability)}, which this table has. {REMEDIES[ability]}"
        for ability in there
        if (blind := without(taken.readers, ability))
    ]


def _remarks(parts: Components, taken: Route) -> list[str]:
    return list(parts.source.remarks(taken.source)) if isinstance(parts.source, Remarks) else []


def _parts(taken: Route, source_schema: SourceSchema) -> list[Note]:
    """What there is to say of a table whose rows come in parts."""
    known = [family for family in families(source_schema) if family != UNNAMED]
    if not known:
        return []
    try:
        check_parts(taken.source, taken.entry, source_schema)
    except errors.ConfigError as error:
        return [error]
    return [f"put together of the column families {', '.join(known)}"]


def _evolution(
    parts: Components, taken: Route, source_schema: SourceSchema, loaded: LoadedTable
) -> tuple[TableAction, list[Note]]:
    """What a run would change in the table before it writes to it, or what would stop it."""
    target, options = taken.target, taken.options
    known = known_by(loaded, options.mode)
    assert known is not None
    try:
        matched = match_columns(target, source_schema, known, options)
        change = parts.tables.plan(target, target_columns(target, matched, options.mode), options)
        # A column that is yet to be added or renamed may be what the table is to be partitioned by.
        layout = () if change.steps else parts.tables.plan_layout(target, options).texts
    except (errors.BadInput, errors.ConfigError, errors.TableChanged) as error:
        return TableAction.EXISTS, [error]
    notes: list[Note] = [*change.texts, *change.notes, *layout, *_renamed(matched)]
    if not change.steps:
        return TableAction.EXISTS, notes
    return (TableAction.ADD_COLUMNS if change.added else TableAction.CHANGE_COLUMNS), notes


def _rows_that_do_not_fit(parts: Components, source: str, source_schema: SourceSchema) -> list[Note]:
    """What the first of the sampled rows that could not be taken says. It stops nothing if it goes to quarantine."""
    if not isinstance(parts.source, TriesRows):
        return []
    try:
        parts.source.try_rows(source, source_schema)
    except errors.BadInput as error:
        return [f"goes to quarantine: {error}" if parts.config.on_error is OnError.QUARANTINE else error]
    return []


def _renamed(matched: SourceSchema) -> list[str]:
    """Columns that readers could not tell by the name that they have at the source."""
    pairs = [(column.carried_as[0], column.name) for column in matched.columns]
    return [
        f"column {source} is called {name} in the table: readers keep {source} to themselves, or take it for a column "
        "whose name differs in case only"
        for source, name in pairs
        if re.fullmatch(re.escape(source) + r"_\d+", name)
    ]


def _texts(notes: Iterable[Note]) -> tuple[str, ...]:
    lines: list[str] = []
    for note in notes:
        lines.append(f"problem: {note}" if isinstance(note, errors.FrazilError) else note)
        if isinstance(note, errors.FrazilError) and note.hint:
            lines.append(f"to solve it: {note.hint}")
    return tuple(lines)


def _exit_code(notes: Iterable[Note]) -> int:
    """That of the first problem; 0 if there is none."""
    return next((note.exit_code for note in notes if isinstance(note, errors.FrazilError)), 0)


def _untold(parts: Components, taken: Route, *notes: Note) -> CheckedTable:
    exists, loaded = parts.tables.exists(taken.target), None
    with suppress(errors.Terminal):  # a table that cannot be written to says so in `notes`
        loaded = parts.tables.load(taken.target) if exists else None
    return CheckedTable(
        source=taken.source,
        target=taken.target.text,
        action=TableAction.EXISTS if exists else TableAction.CREATE,
        made=_made(parts, taken, loaded),
        columns=(),
        key=taken.entry.key,
        key_origin="configuration" if taken.entry.key else "",
        notes=_texts(notes),
        exit_code=_exit_code(notes),
    )


def _refused(claims: Claims) -> list[CheckedTable]:
    return [
        CheckedTable(
            source=name,
            target="",
            action=TableAction.REFUSED,
            columns=(),
            key=(),
            key_origin="",
            notes=_texts([error]),
            exit_code=error.exit_code,
        )
        for name, error in claims.refused.items()
    ]


def _unmet(parts: Components, claims: Claims) -> list[CheckedTable]:
    """Patterns that fit no table which the source shows."""
    shown = [*(taken.source for taken in claims.routes), *claims.refused]
    return [
        CheckedTable(
            source=entry.source,
            target="",
            action=TableAction.NO_TABLE,
            columns=(),
            key=(),
            key_origin="",
            notes=("the source shows no table that fits this pattern: check it, or wait for the first change",),
        )
        for entry in parts.config.entries.unmet(shown)
        if is_pattern(entry.source)
    ]


def _missing(parts: Components, routes: Sequence[Route]) -> list[CheckedTable]:
    """Entries that name a table which the source does not show: a typo, a table without changes yet, or one whose files
    are gone."""
    taken = {id(found.entry) for found in routes}
    entries = [entry for entry in exact_entries(parts) if id(entry) not in taken]
    return [
        _not_shown(parts, parts.config.routed(entry.source, entry, target_named(parts, entry))) for entry in entries
    ]


def _not_shown(parts: Components, taken: Route) -> CheckedTable:
    try:
        exists = parts.tables.exists(taken.target)
        last = parts.committer.head(taken.target).newest(parts.config.job) if exists else None
    except errors.LedgerTooNew as error:
        return _untold(parts, taken, error)
    if last is None:
        note = "the source shows nothing of this table yet: check the name, or wait for its first change"
        return _untold(parts, taken, note)
    checked, _ = _checked(parts, taken)
    note = (
        f"the source shows nothing of this table, which is published up to {last.shown}: it may have been "
        "renamed, dropped or taken out of the changefeed; or only files behind that are gone, and it goes on with its "
        "next change"
    )
    return replace(checked, notes=(*checked.notes, note))
