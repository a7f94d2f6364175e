"""Messages of a changefeed to changes, whatever their envelope.

    text --open_message--> Message --change_of--> (canonical key, position, op, payload)

| envelope | a row                                             | a delete                          | position        |
|----------|---------------------------------------------------|-----------------------------------|-----------------|
| wrapped  | {"after": {...}, "key": [..], "updated": ".."}    | "after": null                     | updated         |
| enriched | the same with "op", "source"; or under "payload"  | "after": null, "op": "d"          | source.ts_hlc   |
| bare     | {"__crdb__": {"key": .., "updated": ..}, columns} | all columns but the key NULL      | __crdb__.updated|
| row      | as bare, the key beside it                        | an empty value                    | __crdb__.updated|
| key_only | an empty value: carries nothing to write          |                                   |                 |

A bare delete looks like an update that set everything to NULL. Only the operator can tell: by naming the column
that holds `event_op()`, or by `bare_deletes: all-null` (it is a delete) or `never` (it is a row). The default
`refuse` stops at such a row instead of guessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from frazil.errors import BadInput
from frazil.model.change import Op
from frazil.model.position import NotAPosition
from frazil.sources.cockroachdb.decode.exact_json import Json, NotJson, as_text, dumps, fields, quote
from frazil.sources.cockroachdb.decode.keys import EXCERPT, KeyChanged, KeyRule
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.schema.enriched import Described, described

_METADATA = "__crdb__"
_WRAPPED = frozenset(["after", "before", "key", "mvcc_timestamp", "topic", "updated"])
_ENRICHED = _WRAPPED | {"op", "source", "ts_ns"}
_UPDATED_HINT = (
    "Create the changefeed WITH updated (enriched: also enriched_properties='source'): "
    "without commit times a row cannot be put on one side of a resolved timestamp."
)


class Envelope(StrEnum):
    AUTO = "auto"
    WRAPPED = "wrapped"
    BARE = "bare"
    ENRICHED = "enriched"
    ROW = "row"
    KEY_ONLY = "key_only"


class BareDeletes(StrEnum):
    REFUSE = "refuse"
    ALL_NULL = "all-null"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeOptions:
    """What an operator says about the messages of one table. `op_column` holds `event_op()` and `prev_column`
    holds `cdc_prev` of a CDC query; neither is a column of the table. `position_if_absent` is for feeds that are
    complete and therefore carry no commit times. `quarantine` if what is no message is put away instead of stopping
    the pipeline."""

    envelope: Envelope = Envelope.AUTO
    op_column: str | None = None
    prev_column: str | None = None
    bare_deletes: BareDeletes = BareDeletes.REFUSE
    position_if_absent: Hlc | None = None
    quarantine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message, opened. `row` is None for a delete; `raw` holds the text of each of its values. `before_text` is
    None if the message does not tell, and the text `null` if it says that there was no row."""

    envelope: Envelope
    row: Mapping[str, Json] | None = None
    row_text: str | None = None
    raw: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Json] | None = None
    before_text: str | None = None
    key: list[Json] | dict[str, Json] | None = None
    updated: str | None = None
    op: str | None = None
    resolved: str | None = None
    source: Mapping[str, Json] = field(default_factory=dict)
    schema: Described | None = None


@dataclass(frozen=True, slots=True)
class FeedChange:
    key: str
    position: Hlc
    op: Op
    payload: bytes | None
    before: bytes | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class NoKey:
    """The rule of a table without key columns. What the feed says as key is taken as it stands, so that the feed's
    own duplicates fold; a message without one has the empty key, and its reader gives it the place it was read at."""

    table: str
    names: tuple[str, ...] = ()
    names_in_rows: frozenset[str] = frozenset()


def open_message(text: str, envelope: Envelope = Envelope.AUTO) -> Message:
    """Raises BadInput for what is no message of this envelope; the caller adds file and line."""
    if envelope in (Envelope.ROW, Envelope.KEY_ONLY) and not text:
        return Message(envelope=envelope)
    try:
        found = fields(text)
        if _is_beside_its_schema(found, envelope):
            return _enveloped(fields(found["payload"][1]), Envelope.ENRICHED, described(found["schema"][1]))
    except NotJson as error:
        raise BadInput(
            f"not a JSON object: {error}",
            hint="The file may be torn, or written by something else than the changefeed: put the whole file in its "
            "place, then: frazil reload CONFIG. Or set `on_error: quarantine`, which puts such lines aside.",
        ) from error
    metadata = found.get(_METADATA, (None, ""))[0]
    if set(found) == {"resolved"} and isinstance(found["resolved"][0], str):
        return Message(envelope=Envelope.WRAPPED, resolved=found["resolved"][0])
    if set(found) == {_METADATA} and isinstance(metadata, dict) and "resolved" in metadata:
        return Message(envelope=Envelope.BARE, resolved=metadata["resolved"])
    match _recognised(found) if envelope is Envelope.AUTO else envelope:
        case Envelope.WRAPPED | Envelope.ENRICHED as kind:
            return _enveloped(found, kind, None)
        case Envelope.BARE | Envelope.ROW as kind:
            return _bare(found, kind, metadata)
        case _:
            raise BadInput(
                f"unknown envelope with the fields {sorted(found)[:8]}",
                hint="Set `envelope: wrapped`, `bare` or `enriched` as the changefeed was created.",
            )


def _is_beside_its_schema(found: Mapping[str, tuple[Json, str]], envelope: Envelope) -> bool:
    names = set(found)
    return (
        envelope in (Envelope.AUTO, Envelope.ENRICHED)
        and names == {"payload", "schema"}
        and isinstance(found["payload"][0], dict)
    )


def _recognised(found: Mapping[str, tuple[Json, str]]) -> Envelope | None:
    names = set(found)
    if _METADATA in names:
        return Envelope.BARE
    if "after" in names and isinstance(found["after"][0], dict | None):
        if "op" in names and names <= _ENRICHED:
            return Envelope.ENRICHED
        return Envelope.WRAPPED if names <= _WRAPPED else None
    return Envelope.BARE


def _enveloped(found: Mapping[str, tuple[Json, str]], kind: Envelope, schema: Described | None) -> Message:
    if "after" not in found or not isinstance(found["after"][0], dict | None):
        raise BadInput(f"a {kind} message has `after`, an object or null; this one has {sorted(found)[:8]}")
    for name in ("before", "source"):
        if not isinstance(found.get(name, (None, ""))[0], dict | None):
            raise BadInput(f"`{name}` of a {kind} message is an object or null, not {found[name][1][:EXCERPT]}")
    row, row_text = found["after"]
    _check_names(row)
    source = found.get("source", (None, ""))[0] or {}
    keys = source.get("primary_keys")
    if keys is not None and not (isinstance(keys, list) and all(isinstance(name, str) for name in keys)):
        raise BadInput(f"`primary_keys` of a message's source are a list of names, not {dumps(keys)[:EXCERPT]}")
    updated = source.get("ts_hlc") if kind is Envelope.ENRICHED else found.get("updated", (None, ""))[0]
    return Message(
        envelope=kind,
        row=row,
        row_text=None if row is None else row_text,
        before=found.get("before", (None, ""))[0],
        before_text=found["before"][1] if "before" in found else None,
        key=found.get("key", (None, ""))[0],
        updated=updated,
        op=found.get("op", (None, ""))[0],
        source=source,
        schema=schema,
    )


def _bare(found: Mapping[str, tuple[Json, str]], kind: Envelope, metadata: Json) -> Message:
    if metadata is not None and not isinstance(metadata, dict):
        raise BadInput(f"`{_METADATA}` of a bare message is an object")
    metadata = metadata or {}
    columns = {name: pair for name, pair in found.items() if name != _METADATA}
    _check_names(columns)
    return Message(
        envelope=kind,
        row={name: value for name, (value, _) in columns.items()},
        raw={name: raw for name, (_, raw) in columns.items()},
        key=metadata.get("key"),
        updated=metadata.get("updated"),
    )


def _check_names(row: Mapping[str, Json] | None) -> None:
    """Raises BadInput for a column that no table can have: half a surrogate pair parses, but is no text."""
    try:
        "".join(row or ()).encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(f"a column name is no text: {error.object[:EXCERPT]!r}") from error


def change_of(
    message: Message,
    rule: KeyRule | NoKey,
    options: EnvelopeOptions,
    key_beside: list[Json] | dict[str, Json] | None = None,
) -> FeedChange:
    """One change of the rule's table. `key_beside` is the key where it travels outside of the value.

    Raises BadInput for what must not be guessed; the caller adds file and line.
    """
    if message.resolved is not None:
        raise BadInput("a resolved message among the rows of a table")
    if message.envelope is Envelope.KEY_ONLY:
        raise BadInput(
            f"{rule.table}: key_only messages carry no row, and do not tell a delete from an insert",
            hint="Create the changefeed with envelope=wrapped.",
            table=rule.table,
        )
    position = position_of(message, rule, options)
    key = message.key if message.key is not None else key_beside
    deleted = _is_delete(message, rule, options)
    payload = None if deleted else _payload(message, options)
    op, before = Op.DELETE if deleted else Op.UPSERT, _before(message, options)
    try:
        return FeedChange(key_of(message, key, rule, deleted), position, op, payload, before)
    except KeyChanged as error:
        raise BadInput(
            f"the key of table {rule.table} changed: {error}",
            hint=f"Pin `key: [...]` in the entry of {rule.table}: the columns that identify a row, in key order.",
            table=rule.table,
        ) from error


def key_of(message: Message, key: Json, rule: KeyRule | NoKey, deleted: bool) -> str:
    """The canonical key. Raises BadInput or KeyChanged."""
    if isinstance(rule, NoKey):
        return "" if key is None else as_text(dumps(key))
    if deleted:
        return _deleted_key(message, key, rule)
    return _row_key(message.row or {}, key, rule)


def position_of(message: Message, rule: KeyRule | NoKey, options: EnvelopeOptions) -> Hlc:
    if message.updated is None:
        if options.position_if_absent is not None:
            return options.position_if_absent
        raise BadInput(f"{rule.table}: a message without commit time", hint=_UPDATED_HINT, table=rule.table)
    try:
        return Hlc.parse(message.updated)
    except (NotAPosition, TypeError) as error:
        raise BadInput(
            f"{rule.table}: {message.updated!r} is no commit time",
            hint="A commit time looks like 1701102296662969433.0000000001: the file is damaged, or not a changefeed's.",
            table=rule.table,
        ) from error


def _is_delete(message: Message, rule: KeyRule | NoKey, options: EnvelopeOptions) -> bool:
    row = message.row
    if row is None:
        return True
    if options.op_column is not None and message.envelope in (Envelope.BARE, Envelope.ROW):
        match row.get(options.op_column):
            case "delete":
                return True
            case "insert" | "update" | "upsert":
                return False
            case other:
                raise BadInput(
                    f"{rule.table}: column {options.op_column} holds {dumps(other)[:40]}, not what event_op() returns",
                    hint="Name the column of event_op() with `op_column:`.",
                    table=rule.table,
                    column=options.op_column,
                )
    if message.envelope is not Envelope.BARE or options.bare_deletes is BareDeletes.NEVER:
        return False
    others = [value for name, value in row.items() if name not in rule.names_in_rows and name != options.prev_column]
    if others and any(value is not None for value in others):
        return False
    if others and options.bare_deletes is BareDeletes.ALL_NULL:
        return True
    raise BadInput(
        f"{rule.table}: a bare message with nothing but a key may be a delete or a row of NULLs",
        hint="Select event_op() AS op in the changefeed and set `op_column: op`; or say what such rows are: "
        "`bare_deletes: all-null` (deletes) or `never` (rows).",
        table=rule.table,
    )


def _row_key(row: Mapping[str, Json], key: Json, rule: KeyRule) -> str:
    match key:
        case None:
            return rule.spell(rule.of_row(row))
        case list():
            return rule.agreed(key, row)
        case dict():
            return rule.agreed(rule.named(key), row)
    raise KeyChanged(f"its key {dumps(key)[:80]} is neither an array nor an object")


def _deleted_key(message: Message, key: Json, rule: KeyRule) -> str:
    before = message.before if message.before is not None else message.row
    match key:
        case list():
            return rule.spell(rule.trailing(key))
        case dict():
            return rule.spell(rule.named(key))
        case _ if before is not None and rule.is_in(before):
            return rule.spell(rule.of_row(before))
    raise BadInput(
        f"{rule.table}: a delete that does not say which row",
        hint="Create the changefeed WITH key_in_value, or diff, or select the key columns.",
        table=rule.table,
    )


def _before(message: Message, options: EnvelopeOptions) -> bytes | None:
    text = message.before_text
    if text is None and options.prev_column is not None:
        text = message.raw.get(options.prev_column)
    return None if text is None else text.encode("utf-8")


def _payload(message: Message, options: EnvelopeOptions) -> bytes:
    hidden = {options.op_column, options.prev_column} - {None}
    if message.row_text is None:
        kept = {name: raw for name, raw in message.raw.items() if name not in hidden}
        text = "{" + ", ".join(f"{quote(name)}: {raw}" for name, raw in kept.items()) + "}"
    elif message.row and hidden & set(message.row):
        text = dumps({name: value for name, value in message.row.items() if name not in hidden})
    else:
        text = message.row_text
    return text.encode("utf-8")
