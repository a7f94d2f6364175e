"""The statement of a sinkless changefeed, and what the server's refusals mean.

    tables, FeedStart, FeedOptions --create_changefeed--> CREATE CHANGEFEED FOR TABLE ... WITH ...
    message, SQLSTATE          --explain------------> an error that says what to do next

    frontiers of all tables    --start_of-->  none known     scan everything
                                              all known      cursor = the oldest of them, no scan
                                              some known     cursor = the oldest of them, scan at the cursor

Pure: no connection is opened here. A sinkless feed keeps nothing on the server while nobody is connected,
so everything a restart needs is in the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from frazil.errors import ConfigError, FrazilError, SourceLost, SourceUnavailable
from frazil.model.frontier import Frontier
from frazil.sources.cockroachdb.position import Hlc

CLUSTER_TIME = "SELECT cluster_logical_timestamp()::STRING"
_OPTION_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TABLE_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_OF_A_TABLE = re.compile(r'(?:relation|table) "?([^"\s]+)"?|"([^"]+)" was (?:truncated|dropped)')
_HOST = r"(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?"
_SERVER = re.compile(
    rf"postgres(?:ql)?://(?P<login>[^@/?#]*@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<database>/[^?#@]*)?(?P<query>\?.*)?"
)
_OWN_OPTIONS = {
    "updated": "rows are ordered by it",
    "resolved": "set `resolved` of the source",
    "min_checkpoint_frequency": "set `min_checkpoint_frequency` of the source",
    "key_in_value": "a deleted row is known by its key alone",
    "full_table_name": "two tables may share a short name",
    "diff": "set `diff` of the source",
    "cursor": "the ledger decides where to resume",
    "initial_scan": "the ledger decides whether to scan",
    "initial_scan_only": "the ledger decides whether to scan",
    "no_initial_scan": "the ledger decides whether to scan",
    "format": "the relay reads JSON",
    "envelope": "the relay reads the wrapped envelope",
    "end_time": "a pipeline's feed has no end",
}


@dataclass(frozen=True, slots=True)
class FeedStart:
    """Where a feed begins. Without a cursor only a scan leaves no gap, so that is the default."""

    cursor: Hlc | None = None
    scan: bool = True

    def __post_init__(self) -> None:
        if self.cursor is None and not self.scan:
            raise ValueError("a feed with neither a cursor nor an initial scan would miss all that is already there")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """What a user may choose. `extra` goes through to the statement: (name, value), or None for a bare option."""

    resolved: str = "1s"
    min_checkpoint_frequency: str = "1s"
    diff: bool = False
    extra: tuple[tuple[str, str | None], ...] = ()

    def __post_init__(self) -> None:
        for name, _ in self.extra:
            if name in _OWN_OPTIONS:
                raise ConfigError(
                    f"changefeed option {name!r} belongs to Frazil",
                    hint=f"remove it from the source's options: {_OWN_OPTIONS[name]}",
                    option=name,
                )
            if not _OPTION_NAME.fullmatch(name):
                raise ConfigError(
                    f"{name!r} is no name of a changefeed option",
                    hint="option names are lowercase words like schema_change_policy",
                    option=name,
                )


def start_of(frontiers: Iterable[Frontier | None]) -> FeedStart:
    """Where one feed must begin so that every table finds all it has not published yet.

    A table without a frontier needs its rows scanned, and one feed has one cursor: all tables are scanned at
    the oldest frontier then, and those that had one drop what they know already.
    """
    known: list[Hlc] = []
    scan = False
    for frontier in frontiers:
        match frontier:
            case Frontier(position=Hlc() as position):
                known.append(position)
            case None:
                scan = True
            case _:
                raise ConfigError(
                    f"{frontier.position.text} is no position of a CockroachDB feed",
                    hint="another kind of source has published this table under the same pipeline name",
                )
    return FeedStart(min(known), scan) if known else FeedStart()


def create_changefeed(tables: Sequence[str], start: FeedStart, options: FeedOptions) -> str:
    """The whole statement, without parameters: a feed's options take none. Raises ConfigError on a bad name."""
    if not tables:
        raise ConfigError("a sinkless changefeed needs at least one table", hint="name tables under `tables:`")
    chosen: list[tuple[str, str | None]] = [
        ("updated", None),
        ("resolved", options.resolved),
        ("min_checkpoint_frequency", options.min_checkpoint_frequency),
        ("key_in_value", None),
        ("full_table_name", None),
    ]
    if options.diff:
        chosen.append(("diff", None))
    if start.cursor is not None:
        chosen.append(("cursor", start.cursor.text))
    if start.scan:
        chosen.append(("initial_scan", "yes"))
    chosen.extend(options.extra)
    targets = ", ".join(quoted_table(table) for table in tables)
    settings = ", ".join(name if value is None else f"{name} = {_literal(value)}" for name, value in chosen)
    return f"CREATE CHANGEFEED FOR TABLE {targets} WITH {settings}"


def first_row(table: str, at: Hlc) -> bytes:
    """The statement that gives a row if the table had one then."""
    return f"SELECT 1 FROM {quoted_table(table)} AS OF SYSTEM TIME {_literal(at.text)} LIMIT 1".encode()


def table_parts(name: str) -> tuple[str, ...]:
    """`shop.public."my.table"` as its one to three parts; their case is taken as written. Raises ConfigError."""
    parts: list[str] = []
    at = 0
    while match := _TABLE_PART.match(name, at):
        parts.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        at = match.end()
        if at == len(name) or name[at] != ".":
            break
        at += 1
    if at != len(name) or name.endswith(".") or not 1 <= len(parts) <= 3 or "\0" in name:
        raise ConfigError(
            f"{name!r} is no table name", hint='write database.schema.table, and quote a part with a dot: "a.b"'
        )
    if any("*" in part for part in parts):
        raise ConfigError(
            f"a sinkless changefeed cannot follow the pattern {name!r}",
            hint="name each table, or let CockroachDB write the feed to cloud storage and use that as `feed:`",
            table=name,
        )
    return tuple(parts)


def quoted_table(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in table_parts(name))


def _literal(text: str) -> str:
    if "\0" in text:
        raise ConfigError(f"the option value {text!r} holds a NUL character", hint="remove it")
    return "'" + text.replace("'", "''") + "'"


def explain(message: str, sqlstate: str | None, *, url: str, start: FeedStart, tables: Sequence[str]) -> FrazilError:
    """What a failure means to the operator. Never holds the password of `url`.

    What is not known is taken for transient: another try from the published frontier loses nothing, while
    stopping for good on a passing failure does.
    """
    said = without_password(" ".join(message.split()), url)
    facts = {"sqlstate": sqlstate or "", "said": said, "server": server_of(url)}
    if table := _told_of(said, tables):
        facts["table"] = table
    lowered = message.lower()
    names = ", ".join(tables)
    cursor = "" if start.cursor is None else start.cursor.text

    def has(*texts: str) -> bool:
        return any(text in lowered for text in texts)

    if has("older than the gc threshold", "must be after replica gc threshold") or re.search(
        r"batch timestamp \S+ must be after", lowered
    ):
        return SourceLost(
            f"CockroachDB no longer holds the changes after {cursor or 'the start of the feed'}: {said}",
            hint="Frazil was away for longer than gc.ttlseconds keeps old row versions (4 hours unless changed), and a "
            "sinkless feed protects nothing meanwhile. Drop or rename the target tables and run again: that loads "
            "everything anew with an initial scan. To bear longer absences raise it first: "
            "ALTER TABLE ... CONFIGURE ZONE USING gc.ttlseconds = 86400, or let the cluster write the feed to "
            "cloud storage",
            **facts,
            cursor=cursor,
        )
    if has("do the targets exist at the specified cursor time"):
        return SourceLost(
            f"a table of the feed is younger than the position to resume from ({cursor}): {said}",
            hint=f"one of {names} was created, or dropped and created again, after it. A new table: publish the others "
            "past its creation first, then add it. A recreated one: drop or rename its target table, too",
            **facts,
            cursor=cursor,
            too_young=True,
        )
    if has("was truncated", "was dropped"):
        return SourceLost(
            f"a table of the feed is gone: {said}",
            hint="a changefeed tells no deletes for TRUNCATE and DROP TABLE. After TRUNCATE, drop or rename the target "
            "table and run again; after DROP, take the table out of `tables:`",
            **facts,
        )
    if has("kv.rangefeed.enabled"):
        return ConfigError(
            f"changefeeds are switched off on this cluster: {said}",
            hint="as an admin, run: SET CLUSTER SETTING kv.rangefeed.enabled = true",
            **facts,
        )
    if has("schema change occurred at"):
        return ConfigError(
            f"the feed stopped at a schema change, as it was told to: {said}",
            hint="remove schema_change_policy from the source's options, or set it to backfill",
            **facts,
        )
    if sqlstate == "42501" or has("does not have select privilege", "does not have changefeed privilege"):
        return ConfigError(
            f"the user of the feed may not read its tables: {said}",
            hint=f"run: GRANT SELECT ON TABLE {', '.join(map(quoted_table, tables))} TO <the user of `feed:`>",
            **facts,
        )
    if sqlstate in {"28P01", "28000"} or has("password authentication failed"):
        return ConfigError(
            f"{server_of(url)} refused the login: {said}",
            hint="check user, password and sslmode in the URL of `feed:`",
            **facts,
        )
    if sqlstate in {"42P01", "3D000", "3F000"} or re.search(
        r"\b(relation|table|database|schema)\b.* does not exist", lowered
    ):
        return ConfigError(
            f"a table of the feed does not exist: {said}",
            hint=f"check the names under `tables:` (database.schema.table, case matters): {names}",
            **facts,
        )
    if has("invalid connection option", "missing key/value", 'missing "=" after', "invalid uri", "invalid port"):
        return ConfigError(
            f"the URL of the feed cannot be read: {said}",
            hint="write postgresql://user:password@host:26257/database?sslmode=verify-full, with special "
            "characters of the password percent-encoded",
            **facts,
        )
    if has("certificate"):
        return ConfigError(
            f"{server_of(url)} and Frazil do not trust each other: {said}",
            hint="check sslmode, sslrootcert, sslcert and sslkey in the URL of `feed:`",
            **facts,
        )
    if sqlstate is not None and sqlstate[:2] in {"0A", "22", "42"}:
        return ConfigError(
            f"CockroachDB refused the changefeed: {said}",
            hint="check the source's options against the documentation of CREATE CHANGEFEED for your version",
            **facts,
        )
    return SourceUnavailable(
        f"the changefeed from {server_of(url)} was interrupted: {said}",
        hint="Frazil resumes from the published frontier. If this repeats, look at the cluster's health and at what "
        "lies between (a proxy or balancer that closes idle connections)",
        **facts,
    )


def _told_of(said: str, tables: Sequence[str]) -> str | None:
    """The table of the feed that a refusal names: it is that one's trouble, and the others can go on without it. Names
    may be told in part; None if several could be meant."""
    match = _OF_A_TABLE.search(said)
    parts = tuple((match[1] or match[2]).split(".")) if match else ("",)
    found = [table for table in tables if table_parts(table)[-len(parts) :] == parts[-len(table_parts(table)) :]]
    return found[0] if len(found) == 1 else None


def server_of(url: str) -> str:
    """Host, port and database: names the server in messages and, since nothing in a sinkless feed tells the
    cluster's id, stands for the feed's incarnation. A URL that does not read cleanly gives no part of itself."""
    match = _SERVER.fullmatch(url)
    if match is None or "@" in (match["query"] or ""):
        return "the server"
    return match["hosts"] + (match["database"] or "").rstrip("/")


def without_password(text: str, url: str) -> str:
    """The text without the URL's password, however the text came to hold it."""
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, "***")
    text = re.sub(r"(://[^\s:/@]*):\S*@", r"\1:***@", text)
    return re.sub(r"(?i)\b((?:ssl)?password=)('[^']*'|[^\s&\"]+)", r"\1***", text)


def _secrets(url: str) -> set[str]:
    # By hand: the very URL that no parser reads is the one that libpq prints.
    found: set[str] = set()
    if "@" in url:
        login = url.split("://", 1)[-1].rsplit("@", 1)[0]
        if ":" in login:
            password = login.split(":", 1)[1]
            found.update((password, password.split("@", 1)[0]))
    found.update(re.findall(r"(?i)[?&](?:ssl)?password=([^&\s]+)", url))
    return {form for secret in found for form in (secret, unquote(secret)) if form}
