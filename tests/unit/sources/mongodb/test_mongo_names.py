"""Fields that have another name in the table are found in documents by their own, on both roads of decoding."""

from __future__ import annotations

import bson
import pyarrow as pa
import pytest
from bson import Int64

from frazil.iceberg.tables.column_match import named
from frazil.model.ids import TableName
from frazil.model.schema import LONG
from frazil.model.write import TableOptions
from frazil.sources.mongodb.decode.decoder import DecodedCollection, DocumentDecoder
from frazil.sources.mongodb.schema.bson_types import kind_of_documents
from frazil.sources.mongodb.schema.mapping import MappedField
from frazil.sources.mongodb.schema.schema import CollectionSettings, schema_of

DOCUMENTS = [{"_id": Int64(1), "_file": "x", "b": Int64(1), "B": "big"}, {"_id": Int64(2), "b": Int64(2)}]
BY_FIELD = ["_file", "b", "B"]


@pytest.mark.parametrize("explicit", [False, True])
def test_renamed_fields_are_decoded(explicit: bool) -> None:
    mapped = tuple(MappedField(name, name, None) for name in BY_FIELD) if explicit else None
    source_schema = schema_of(
        "t", CollectionSettings(fields=mapped), kind_of_documents(DOCUMENTS), (LONG, "long"), None
    )
    assert source_schema is not None
    settled = named(TableName(("shop",), "t"), source_schema, TableOptions())
    decoder = DocumentDecoder({0: DecodedCollection("t", settled, explicit=explicit)})
    keys = pa.array(['{"$numberLong":"1"}', '{"$numberLong":"2"}'])
    payloads = pa.array([bson.encode(document) for document in DOCUMENTS], pa.binary())
    small, big = ("b_2", "B") if explicit else ("b", "B_2")
    rows = decoder.rows(0, keys, payloads).to_pylist()
    assert [(row["_file_2"], row[small], row[big]) for row in rows] == [("x", 1, "big"), (None, 2, None)]
