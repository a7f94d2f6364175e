"""Writes a changefeed as CockroachDB's cloud storage sink would.

    emit(...)  --buffer per node and topic-->  flush()  --one file each-->  resolve(R)  --R.RESOLVED-->

It is as untidy as the real thing: rows beyond R share a file with rows before it, rows inside a file are
not in time order, and a restart writes rows again under a new session. Files appear whole, as objects do.
"""

from __future__ import annotations

import json
import os
import random
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from frazil.sources.cockroachdb.position import Hlc

_LAYOUTS = {"flat": "", "daily": "{:%Y-%m-%d}/", "hourly": "{:%Y-%m-%d/%H}/"}


@dataclass(frozen=True, slots=True)
class ShopChange:
    """One change as the database emits it: `after` is None for a delete."""

    topic: str
    schema_version: int
    key: tuple[Any, ...]
    after: Mapping[str, Any] | None
    updated: Hlc

    def line(self) -> str:
        return json_text({"after": self.after, "key": list(self.key), "updated": self.updated.text})


class Changefeed:
    """One feed below `root`. `nodes` write files of their own, as a cluster does."""

    def __init__(self, root: Path, *, chance: random.Random, start: Hlc, layout: str = "daily", nodes: int = 2) -> None:
        self.root = root
        self._chance = chance
        self._layout = _LAYOUTS[layout]
        self._frontier = start
        self._nodes = nodes
        self._buffers: dict[tuple[int, str, int], list[ShopChange]] = defaultdict(list)
        self._since_resolved: list[ShopChange] = []
        self._file_number = 0
        self._session = self._new_session()

    def emit(self, change: ShopChange) -> None:
        # The node is a property of the key's range: stable within one session.
        node = zlib.crc32(repr((self._session, change.topic, change.key)).encode()) % self._nodes + 1
        self._buffers[node, change.topic, change.schema_version].append(change)
        self._since_resolved.append(change)

    def flush(self) -> None:
        """Closes all open files. They are named from the frontier: a lower bound of what they hold."""
        for (node, topic, schema_version), changes in sorted(self._buffers.items()):
            self._chance.shuffle(changes)
            name = f"{self._frontier.file_stamp}-{self._session}-{node}-{node}-{self._file_number:08x}"
            self._file_number += 1
            lines = "".join(change.line() + "\n" for change in changes)
            self._put(f"{name}-{topic}-{schema_version:x}.ndjson", lines)
        self._buffers.clear()

    def resolve(self, resolved: Hlc) -> None:
        """Promises that nothing at or before `resolved` is unseen."""
        self.flush()
        self._frontier = resolved
        self._put(f"{resolved.file_stamp}.RESOLVED", json.dumps({"resolved": resolved.text}, separators=(",", ":")))
        self._since_resolved = [change for change in self._since_resolved if change.updated > resolved]
        self._frontier = resolved.next()

    def restart(self) -> None:
        """A node was lost: what came after the last resolved timestamp is written again, by a new session."""
        self.flush()
        self._session = self._new_session()
        again, self._since_resolved = self._since_resolved, []
        for change in again:
            self.emit(change)

    def _put(self, name: str, text: str) -> None:
        moment = self._frontier.source_time
        path = self.root / (self._layout.format(moment) + name)
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.part")
        hidden.write_text(text, encoding="utf-8")
        os.replace(hidden, path)

    def _new_session(self) -> str:
        return f"{self._chance.getrandbits(64):016x}"


def json_text(value: Any) -> str:
    """A value as CockroachDB prints it in JSON: keys sorted, decimals as bare numbers with their scale."""
    match value:
        case None | bool() | int() | str():
            return json.dumps(value, ensure_ascii=False)
        case Decimal():
            return format(value, "f")
        case datetime():
            zoned = value.tzinfo is not None
            moment = value.astimezone(UTC).replace(tzinfo=None) if zoned else value
            return json.dumps(_trimmed(moment) + ("Z" if zoned else ""))
        case date():
            return json.dumps(value.isoformat())
        case UUID():
            return json.dumps(str(value))
        case bytes():
            return json.dumps("\\x" + value.hex())
        case Mapping():
            return "{" + ", ".join(f"{json.dumps(k)}: {json_text(value[k])}" for k in sorted(value)) + "}"
        case Sequence():
            return "[" + ", ".join(json_text(item) for item in value) + "]"
        case _:
            raise TypeError(f"no CockroachDB value: {value!r}")


def _trimmed(moment: datetime) -> str:
    text = moment.isoformat()
    return text.rstrip("0") if "." in text else text
