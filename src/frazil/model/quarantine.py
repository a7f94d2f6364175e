"""The table of changes that could not be taken, and what its rows say.

    a value that does not fit, a key that is NULL  --> one row: reason, column, payload, key, op, position
    a line that is no message of the feed          --> one row: reason, file, line, the raw line as payload
    a later change of a key that is in here        --> one row, `_captured`: it waits for its turn (H49)

`_id` is made of what the row is, never of when it was written, so that a replay can be told from another one.
`_major` and `_minor` are the position's order as numbers; of a line without a position, those of its file. Iceberg
keeps the name `_file` to itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from frazil.model.schema import BINARY, BOOLEAN, INT, LONG, STRING, Column, SourceSchema

ID, REASON, COLUMN, PAYLOAD, BEFORE = "_id", "_reason", "_column", "_payload", "_before"
KEY, OP, POSITION, MAJOR, MINOR, PART = "_key", "_op", "_position", "_major", "_minor", "_part"
FILE, LINE, CAPTURED = "_source_file", "_source_line", "_captured"
WAITS = "an earlier change of this key is in quarantine"

_TYPES = {
    ID: STRING,
    REASON: STRING,
    COLUMN: STRING,
    KEY: STRING,
    OP: STRING,
    POSITION: STRING,
    PAYLOAD: BINARY,
    BEFORE: BINARY,
    FILE: STRING,
    LINE: LONG,
    CAPTURED: BOOLEAN,
    MAJOR: LONG,
    MINOR: LONG,
    PART: INT,
}
SOURCE_SCHEMA = SourceSchema(
    tuple(Column(name, type_, "", "frazil") for name, type_ in _TYPES.items()), (ID,), "frazil"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """What a reader knows of a line that it could make no change of. It travels in place of the before-image.

    `keyed` if the key of the change row is the key of a row, `positioned` if its position is the change's own.
    """

    reason: str
    file: str
    line: int
    column: str | None = None
    keyed: bool = False
    positioned: bool = False

    def to_bytes(self) -> bytes:
        facts = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(facts, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> BadLine:
        facts: dict[str, Any] = json.loads(data)
        return cls(**facts)


def line_key(file: str, line: int) -> str:
    """What a line without a key travels under; no key of a row looks like it."""
    return f"#{file}:{line}"


def change_id(source: str, key: str, part: int, major: int, minor: int) -> UUID:
    """Names one change of one source table, or one line of one file, forever."""
    return uuid5(NAMESPACE_URL, f"frazil:quarantine:{source}:{part}:{major}.{minor}:{key}")


def replay_id(ids: list[str]) -> UUID:
    """Names the replay of exactly these rows."""
    return uuid5(NAMESPACE_URL, "frazil:replay:" + ",".join(sorted(ids)))
