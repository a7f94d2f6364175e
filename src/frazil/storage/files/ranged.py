"""A remote file as a seekable one: the end is held from the start, small reads are read ahead, large ones are exact.

|........ row groups .........|-- held: the last TAIL_BYTES --|      a Parquet footer costs no further request
      |--read ahead--|
"""

from __future__ import annotations

import io
import os
from typing import Any

from frazil.errors import TableChanged

TAIL_BYTES = 256 << 10
READ_AHEAD_BYTES = 1 << 20


def file_gone(path: str, **facts: Any) -> TableChanged:
    """Of a file that was to be read, wherever it lay."""
    return TableChanged(
        f"{path} is gone, and a live snapshot of the table needs it",
        hint="Somebody removed a file of the table without a commit. Restore it, or roll the table back to a"
        " snapshot whose files all exist; then `frazil check`.",
        path=path,
        **facts,
    )


class RangedInput(io.RawIOBase):
    """Give it the size and the end of the file; `fetch` gives exact ranges of the rest."""

    def __init__(self, size: int, tail_start: int, tail: bytes) -> None:
        super().__init__()
        self._size = size
        self._tail = (tail_start, tail)
        self._ahead = (0, b"")
        self._position = 0

    def fetch(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, all of them; raises an error of ours."""
        raise io.UnsupportedOperation("fetch")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._position + size, self._size)
        data = self._between(self._position, end) if end > self._position else b""
        self._position += len(data)
        return data

    def _between(self, start: int, end: int) -> bytes:
        for held_start, held in (self._tail, self._ahead):
            if held_start <= start and end <= held_start + len(held):
                return held[start - held_start : end - held_start]
        if end - start >= READ_AHEAD_BYTES:
            return self.fetch(start, end)
        ahead = self.fetch(start, min(start + READ_AHEAD_BYTES, self._size))
        self._ahead = (start, ahead)
        return ahead[: end - start]
