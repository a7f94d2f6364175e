"""Tables that Iceberg encrypts, which Frazil refuses: its files are written in plain.

    property encryption.key-id (and whatever else begins with `encryption.`)   the table's master key
    metadata encryption-keys                                                   keys that were made with it
    snapshot key-id                                                            the key of a manifest list

Asked wherever a table is loaded to be written to (`tables.parse_table`), before any file is, and once more before
anything is staged (`commits.transaction`), for whoever was told of the table before it was encrypted. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.errors import ConfigError
from frazil.model.ids import TableName

ENCRYPTION = "encryption."
"""What the names of Iceberg's properties for it begin with."""
WAY_OUT = "Publish to another table, or make this one anew without encryption. Frazil writes its files in plain."


def encrypted_by(metadata: Mapping[str, Any]) -> str | None:
    """What of a metadata file's JSON says that the table is encrypted; None if nothing does."""
    for name in metadata.get("properties", {}):
        if name.startswith(ENCRYPTION):
            return f"table property {name}"
    if metadata.get("encryption-keys"):
        return "encryption-keys in its metadata"
    keyed = next((one for one in metadata.get("snapshots", ()) if one.get("key-id") is not None), None)
    return None if keyed is None else f"key-id of snapshot {keyed['snapshot-id']}"


def check_plain(table: TableName, metadata: Mapping[str, Any]) -> None:
    """Raises ConfigError for a table that is encrypted."""
    if (mark := encrypted_by(metadata)) is not None:
        raise ConfigError(
            f"table {table} is encrypted ({mark}), and nothing is written to it", hint=WAY_OUT, table=table.text
        )
