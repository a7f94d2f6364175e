"""Tables that Iceberg encrypts are refused by name, whatever tells that they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from frazil.errors import ConfigError
from frazil.iceberg.commits.operations import TableTransaction
from frazil.iceberg.commits.transaction import publish
from frazil.iceberg.tables import head
from frazil.iceberg.tables.encryption import encrypted_by
from frazil.iceberg.tables.head import Base
from frazil.iceberg.tables.tables import parse_table
from frazil.model.commit import Refused
from frazil.model.ids import TableName

GOLDEN = Path(__file__).parents[2] / "fixtures" / "ledger_v1" / "marked" / "cockroachdb.json"
ORDERS = TableName(("shop",), "orders")


def plain() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def with_property(name: str) -> dict[str, Any]:
    document = plain()
    document["properties"][name] = "16"
    return document


def with_keys() -> dict[str, Any]:
    return {**plain(), "encryption-keys": [{"key-id": "k", "encrypted-key-metadata": "AA=="}]}


def with_keyed_snapshot() -> dict[str, Any]:
    document = plain()
    document["snapshots"][0] = {**document["snapshots"][0], "snapshot-id": 77, "key-id": "k"}
    return document


ENCRYPTED = [
    (with_property("encryption.key-id"), r"table property encryption\.key-id"),
    (with_property("encryption.data-key-length"), r"table property encryption\.data-key-length"),
    (with_keys(), "encryption-keys in its metadata"),
    (with_keyed_snapshot(), "key-id of snapshot 77"),
]


def test_a_plain_table_is_loaded() -> None:
    assert encrypted_by(plain()) is None
    assert encrypted_by({**plain(), "encryption-keys": []}) is None
    assert parse_table(ORDERS, plain()).name == ORDERS


@pytest.mark.parametrize(("document", "mark"), ENCRYPTED)
def test_an_encrypted_table_is_refused_when_it_is_loaded(document: dict[str, Any], mark: str) -> None:
    with pytest.raises(ConfigError, match=rf"shop\.orders is encrypted \({mark}\)") as caught:
        parse_table(ORDERS, document)
    assert "another table" in caught.value.hint


@pytest.mark.parametrize(("document", "mark"), ENCRYPTED)
def test_nothing_is_staged_on_an_encrypted_table(document: dict[str, Any], mark: str) -> None:
    """For whoever had loaded it before it was encrypted; Java is not even asked."""
    no_java: Any = None
    answer = publish(no_java, Base("shop.orders", None, None, document), TableTransaction(()))
    assert isinstance(answer, Refused)
    assert re.search(rf"is encrypted \({mark}\)", answer.reason)


def test_a_table_whose_storage_java_does_not_tell_without_a_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a Hive catalog that was given no key management."""

    def keyless(*_: object) -> dict[str, str]:
        raise Py4JError("no key management client")

    monkeypatch.setattr(head, "document_of", lambda *_: with_property("encryption.key-id"))
    monkeypatch.setattr(head, "storage_of", keyless)
    monkeypatch.setattr(head, "made_once", lambda *_: "shop.orders")
    with pytest.raises(ConfigError, match=r"shop\.orders is encrypted"):
        head.read_metadata(MagicMock(), ORDERS)
