"""Documents of a range of `_id`, batch by batch, as the bytes that the server sends.

    find between two bounds --reply: {cursor: {firstBatch: [...], id}}--> ReplyBatch(bytes, where documents begin, end)
        `-- getMore --reply: {cursor: {nextBatch: [...], id}}-----------> ReplyBatch

The driver's cursors make an object of each document even where it is only passed on, which takes longer than all else
here. So the replies are read as they are, where commands are sure to meet the same server again: the primary, or the
one router there is. Elsewhere the driver's raw batches stand in.

A range is read as of a moment where the server still can (snapshot reads reach back five minutes), else as it is now.
If that is found out in the middle, it goes on behind the last document: none comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import bson
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.timestamp import Timestamp
from pymongo import ReadPreference
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure, PyMongoError

from frazil.sources.mongodb.client.connection import Client
from frazil.sources.mongodb.decode.document_ids import CODEC, bound_of
from frazil.sources.mongodb.stream.replies import RAW, ReplyBatch, read_reply

_BATCH = 20_000
_NO_SNAPSHOT = frozenset((20, 72, 239, 246, 263))
Session = ClientSession | None


def batches(client: Client, name: str, lower: str | None, upper: str | None, at: Timestamp) -> Iterator[ReplyBatch]:
    """From `lower` up to but without `upper`, see `ids.bound_text`. Raises PyMongoError."""
    low = MinKey() if lower is None else bound_of(lower)
    high = MaxKey() if upper is None else bound_of(upper)
    last: bytes | None = None
    try:
        with client.start_session(causal_consistency=False) as session:
            for batch in _between(client, name, low, high, session, at):
                last = batch.last_id
                yield batch
        return
    except OperationFailure as error:
        if error.code not in _NO_SNAPSHOT:
            raise
    if last is not None:
        low = bson.decode(last, codec_options=CODEC)["_id"]
    for batch in _between(client, name, low, high, None, None):
        if last is not None and batch.first_id == last:
            batch = batch.without_first()
        last = None
        if batch.starts:
            yield batch


def _between(
    client: Client, name: str, low: Any, high: Any, session: Session, at: Timestamp | None
) -> Iterator[ReplyBatch]:
    bounds: dict[str, Any] = {"hint": {"_id": 1}}
    # An end of the order is no bound: the index cannot be walked from or to there.
    if not isinstance(low, MinKey | MaxKey):
        bounds["min"] = {"_id": low}
    if not isinstance(high, MaxKey):
        bounds["max"] = {"_id": high}
    if not isinstance(low, MaxKey):
        yield from _found(client, name, bounds, session, at)
    if isinstance(high, MaxKey) and ("min" in bounds or isinstance(low, MaxKey)):
        # A walk along the index from a bound on stops before MaxKey, which is an _id like any other.
        yield from _found(client, name, {"filter": {"_id": MaxKey()}}, session, at)


def _found(
    client: Client, name: str, asked: dict[str, Any], session: Session, at: Timestamp | None
) -> Iterator[ReplyBatch]:
    if meets_one_server(client):
        concern = {} if at is None else {"level": "snapshot", "atClusterTime": at}
        return found_by_commands(client, name, asked, concern, session)
    return _found_by_cursor(client, name, asked, session, at)


def meets_one_server(client: Client) -> bool:
    """Whether commands that follow one another are answered by the same server, or not at all."""
    if client.read_preference != ReadPreference.PRIMARY:
        return False
    return client.topology_description.topology_type_name != "Sharded" or len(client.nodes) == 1


def found_by_commands(
    client: Client, name: str, asked: dict[str, Any], concern: dict[str, Any], session: Session = None
) -> Iterator[ReplyBatch]:
    place, _, collection = name.partition(".")
    database = client[place]
    command: dict[str, Any] = {"find": collection, **asked, "batchSize": _BATCH}
    if concern:
        command["readConcern"] = concern
    cursor = 0
    try:
        while True:
            reply = read_reply(bytes(database.command(command, codec_options=RAW, session=session).raw))
            cursor = reply.cursor
            if reply.batch.starts:
                yield reply.batch
            if not cursor:
                return
            command = {"getMore": Int64(cursor), "collection": collection, "batchSize": _BATCH}
    finally:
        if cursor:
            with suppress(PyMongoError):
                database.command({"killCursors": collection, "cursors": [Int64(cursor)]}, session=session)


def _found_by_cursor(
    client: Client, name: str, asked: dict[str, Any], session: Session, at: Timestamp | None
) -> Iterator[ReplyBatch]:
    place, _, collection = name.partition(".")
    with client.start_session(snapshot=True) as other:
        if at is not None:
            # The driver has no public way yet to choose the moment of a snapshot.
            other._snapshot_time = at  # type: ignore[assignment]
        found: Any = client.get_database(place, codec_options=CODEC)[collection].find_raw_batches(
            asked.get("filter", {}), batch_size=_BATCH, session=session if at is None else other
        )
        for option in ("hint", "min", "max"):
            if option in asked:
                found = getattr(found, option)(list(asked[option].items()))
        for raw in found:
            if raw:
                yield ReplyBatch.lying(raw)
