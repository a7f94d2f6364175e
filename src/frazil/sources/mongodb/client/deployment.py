"""What a deployment holds that a pipeline wants: collections by name or pattern, their documents by sample.

wanted names --present--> Collection facts: uuid, images      `system.*`, views and time series are left out
collection --sampled--> documents, the ends of its _id index --> DocumentOf kind, type of the key
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pymongo.collection import Collection

from frazil.model.schema import Type
from frazil.sources.mongodb.client.connection import Client
from frazil.sources.mongodb.decode.decoder import readable
from frazil.sources.mongodb.decode.document_ids import CODEC, id_type
from frazil.sources.mongodb.schema.bson_types import DocumentOf, OnConflict, kind_of_documents

_INTERNAL = frozenset(("admin", "config", "local"))


@dataclass(frozen=True, slots=True)
class CollectionFacts:
    name: str
    uuid: str
    has_images: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """`id_type` is None for a collection without documents."""

    seen: DocumentOf
    id_type: tuple[Type, str] | None


def collection_of(client: Client, name: str) -> Collection[dict[str, Any]]:
    database, _, collection = name.partition(".")
    return client.get_database(database, codec_options=CODEC)[collection]


def present(
    client: Client, named: Sequence[str], is_wanted: Callable[[str], bool] | None
) -> dict[str, CollectionFacts]:
    """The named collections that there are, and with `is_wanted` every other one it wants. Raises PyMongoError."""
    databases = {name.partition(".")[0] for name in named}
    if is_wanted is not None:
        databases |= set(client.list_database_names()) - _INTERNAL
    found = {}
    for database in sorted(databases):
        for info in client.get_database(database, codec_options=CODEC).list_collections():
            name = f"{database}.{info['name']}"
            wanted = name in named or (is_wanted is not None and is_wanted(name))
            if wanted and info.get("type", "collection") == "collection" and not info["name"].startswith("system."):
                images = info.get("options", {}).get("changeStreamPreAndPostImages", {})
                found[name] = CollectionFacts(name, _hex(info["info"].get("uuid")), bool(images.get("enabled")))
    return found


def counted(client: Client, name: str, expected: int) -> tuple[int, int]:
    """How many documents a collection holds, and as of which cluster time at the latest. What the server knows without
    looking is enough if it is what was expected. Raises PyMongoError."""
    collection = collection_of(client, name)
    with client.start_session() as session:
        count = collection.estimated_document_count()
        if count != expected:
            count = collection.count_documents({}, hint="_id_", session=session)
        time = session.operation_time
        return count, 0 if time is None else time.time << 32 | time.inc


def sampled(collection: Collection[dict[str, Any]], size: int, tell: OnConflict) -> Sample:
    """Random documents, or all of a small collection. Raises PyMongoError."""
    if collection.estimated_document_count() <= size:
        batches: Iterable[Any] = collection.find_raw_batches(limit=size)
    else:
        batches = collection.aggregate_raw_batches([{"$sample": {"size": size}}])
    documents = [document for batch in batches for document in readable(batch)]
    seen = kind_of_documents(documents, tell)
    ends = [_end(collection, order) for order in (1, -1)]
    if not documents or not all(ends):
        return Sample(seen, None)
    first, last = (end[0]["_id"] for end in ends)
    return Sample(seen, id_type(first, last, [document["_id"] for document in documents]))


def _end(collection: Collection[dict[str, Any]], order: int) -> list[dict[str, Any]]:
    return list(collection.find({}, {"_id": 1}).sort("_id", order).limit(1))


def _hex(uuid: Any) -> str:
    """The server's uuid of the collection, which is another one after it was dropped and made again."""
    if uuid is None:
        return ""
    return uuid.hex if isinstance(uuid, UUID) else bytes(uuid).hex()
