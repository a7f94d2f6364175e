"""Documents of updates that the stream told without them, looked up together.

    updates without a document --> by collection, some hundred ids at once --> documents as they are now

The server would look each one up by itself (`updateLookup`), which takes it several times as long as all else it does
for a change. Both show a document as it is at that moment, never older than the change: a read waits for its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from bson.timestamp import Timestamp
from pymongo.read_concern import ReadConcern

from frazil.sources.mongodb.client.connection import Client, let_go, open_client, translated
from frazil.sources.mongodb.decode.document_ids import CODEC
from frazil.sources.mongodb.load.scan import found_by_commands, meets_one_server
from frazil.sources.mongodb.stream.replies import ReplyBatch

IDS_FIRST, _IDS_MIN, _IDS_MAX = 8, 2, 2_000
_BYTES = 8 << 20


class Lookups:
    """Asked by one thread. Documents that are gone by now are left out: the event that tells so is still to come."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._client: Client | None = None
        self._at_once: dict[str, int] = {}

    def at_once(self, name: str) -> int:
        """How many ids to ask for together: what is found must fit into memory, however large documents are."""
        return self._at_once.get(name, IDS_FIRST)

    def find(self, name: str, ids: Sequence[Any], at: Timestamp) -> tuple[pa.Array, pa.Array]:
        """Keys and documents, not older than `at`. Raises one of our errors."""
        keys, payloads = [pa.array([], pa.string())], [pa.array([], pa.binary())]
        with translated(self._uri, name):
            for batch in self._batches(name, ids, at):
                some, documents = batch.rows(name)
                keys.append(some)
                payloads.append(documents)
        found = pa.concat_arrays(payloads)
        self._at_once[name] = min(max(_BYTES * len(ids) // max(found.nbytes, 1), _IDS_MIN), _IDS_MAX)
        return pa.concat_arrays(keys), found

    def _batches(self, name: str, ids: Sequence[Any], at: Timestamp) -> Iterator[ReplyBatch]:
        if self._client is None:
            self._client = open_client(self._uri)
        wanted = {"_id": {"$in": list(ids)}}
        if meets_one_server(self._client):
            concern = {"level": "majority", "afterClusterTime": at}
            yield from found_by_commands(self._client, name, {"filter": wanted}, concern)
            return
        database, _, collection = name.partition(".")
        place = self._client.get_database(database, codec_options=CODEC, read_concern=ReadConcern("majority"))
        with self._client.start_session(causal_consistency=True) as session:
            session.advance_operation_time(at)
            found: Any = place[collection].find_raw_batches(wanted, session=session)
            for raw in found:
                yield ReplyBatch.lying(raw)

    def close(self) -> None:
        if self._client is not None:
            let_go(self._client)
            self._client = None
