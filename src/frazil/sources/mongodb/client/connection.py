"""Connections to MongoDB, what the server is, and its errors as ours.

uri --connected--> client --look--> Server(replica set or sharded)   a server that stands alone is refused
PyMongoError --translated--> SourceUnavailable | ConfigError | SourceLost
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient, timeout
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    CursorNotFound,
    InvalidURI,
    OperationFailure,
    PyMongoError,
)
from pymongo.uri_parser import parse_uri

from frazil.errors import ConfigError, FrazilError, SourceLost, SourceUnavailable
from frazil.sources.mongodb.position import ClusterTime

Client = MongoClient[dict[str, Any]]
_ANSWER_MS = 10_000
_GOODBYE_SECONDS = 1.0
_BAD_LOGIN = frozenset((18, 8000))
_UNAUTHORIZED = 13
HISTORY_LOST = frozenset((136, 222, 260, 280, 286))
TOO_LARGE = 10334


@dataclass(frozen=True, slots=True)
class Server:
    """`incarnation` names the replica set, `now` is the newest cluster time it knows of."""

    incarnation: str
    is_sharded: bool
    now: ClusterTime


@contextmanager
def connected(uri: str, table: str | None = None) -> Iterator[Client]:
    """A client for a while; what goes wrong within is raised as one of ours."""
    with translated(uri, table):
        client = open_client(uri)
        try:
            yield client
        finally:
            let_go(client)


def let_go(client: MongoClient[Any]) -> None:
    """Says goodbye, but does not wait long for a server that is away."""
    with timeout(_GOODBYE_SECONDS):
        client.close()


def open_client(uri: str) -> Client:
    """Nothing is sent yet. Raises ConfigError for an impossible URI."""
    with translated(uri):
        return MongoClient(uri, **_options(uri))


def raw_client(uri: str) -> MongoClient[Any]:
    """One whose documents are bytes until somebody asks for a field."""
    return MongoClient(uri, document_class=RawBSONDocument, datetime_conversion="DATETIME_AUTO", **_options(uri))


def _options(uri: str) -> dict[str, Any]:
    """What the URI does not say itself."""
    own: dict[str, Any] = {"serverSelectionTimeoutMS": _ANSWER_MS, "appname": "frazil"}
    return {name: value for name, value in own.items() if f"{name}=".lower() not in uri.lower()}


def look(client: Client, uri: str) -> Server:
    """Raises ConfigError for a server without an oplog."""
    with translated(uri):
        hello = client.admin.command("hello")
        sharded = hello.get("msg") == "isdbgrid"
        if not sharded and "setName" not in hello:
            raise ConfigError(
                f"{hosts_of(uri)} is a MongoDB server that stands alone, and only a replica set or a sharded cluster "
                "tells its changes",
                hint="Start mongod with --replSet rs0 and run rs.initiate() once; one member is enough.",
                hosts=hosts_of(uri),
            )
        return Server(f"mongodb:{hello.get('setName', 'sharded')}", sharded, position_of(hello["operationTime"]))


def position_of(time: Timestamp) -> ClusterTime:
    return ClusterTime.of(time.time, time.inc)


def timestamp_of(position: ClusterTime) -> Timestamp:
    return Timestamp(position.seconds, position.increment)


def hosts_of(uri: str) -> str:
    """Without user and password."""
    try:
        return ",".join(f"{host}:{port}" for host, port in parse_uri(uri, validate=False)["nodelist"])
    except (PyMongoError, ValueError):
        return uri.rpartition("@")[2].partition("/")[0] or "the server"


@contextmanager
def translated(uri: str, table: str | None = None) -> Iterator[None]:
    try:
        yield
    except PyMongoError as error:
        raise translation(error, uri, table) from error


def translation(error: PyMongoError, uri: str, table: str | None = None) -> FrazilError:
    facts = {} if table is None else {"table": table}
    named = hosts_of(uri) if table is None else f"{table} at {hosts_of(uri)}"
    words = said(error)
    if isinstance(error, OperationFailure):
        if error.code in _BAD_LOGIN:
            return ConfigError(
                f"{named} refused the user or password of the URI: {words}",
                hint="Correct user, password and authSource in source.uri; ${NAME} takes them from the environment.",
                **facts,
            )
        if error.code == _UNAUTHORIZED:
            return ConfigError(
                f"{named}: the user may not do what is needed: {words}",
                hint="Grant it the role `read` on the databases it reads; several databases in one pipeline need "
                "readAnyDatabase, since they share one change stream.",
                **facts,
            )
        if error.code in HISTORY_LOST:
            return SourceLost(
                f"{named}: the oplog no longer holds what follows the published position: {words}",
                hint="The pipeline was stopped for longer than the oplog reaches back, or the collection was restored. "
                "What is lost is synced again by itself; `frazil resync` does it by hand. Enlarge the oplog "
                "(replSetResizeOplog) so that it covers a longer stop.",
                **facts,
            )
        if error.code == TOO_LARGE:
            return SourceLost(
                f"{named}: a change is larger than the 16 MB that an event of the change stream may have: {words}",
                hint="Make the document smaller.",
                **facts,
            )
    if isinstance(error, (ConfigurationError, InvalidURI)) and not isinstance(error, OperationFailure):
        return ConfigError(
            f"source.uri cannot be used: {words}",
            hint="A URI looks like mongodb://user:password@host:27017/?replicaSet=rs0 or mongodb+srv://host; special "
            "characters in user and password are written as %xx.",
            **facts,
        )
    retry = isinstance(error, (ConnectionFailure, CursorNotFound, OperationFailure))
    hint = (
        "See that the server runs and can be reached from here; Frazil tries again." if retry else "Frazil tries again."
    )
    return SourceUnavailable(f"{named} did not answer: {words}", hint=hint, **facts)


def said(error: PyMongoError) -> str:
    """The server's own words, without the whole reply behind them."""
    text = str(error).partition(", full error:")[0].partition(", Timeout:")[0]
    return text if len(text) <= 400 else text[:397] + "..."
