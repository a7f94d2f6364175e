"""Which rows of a data file are deleted already, out of vectors and position delete files.

vector            bytes of a Puffin file --> positions
position deletes  a Parquet file, of one data file or of many --> positions by data file
                  neither ever changes: what was read, or written here, is kept within a bound
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from threading import Lock

from pyroaring import BitMap64

from frazil.data.deletes.positions import read_positions
from frazil.data.deletes.vectors import read_vector
from frazil.model.files import Blob, FileKind, LiveDelete, LiveFile

KEPT_BYTES_MAX = 64 << 20
_Rows = Mapping[str, BitMap64]


class DeletedRows:
    """Of the tables of one process; thread-safe."""

    def __init__(self, kept_bytes: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[tuple[str, int | None], tuple[_Rows, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def of(self, file: LiveFile, storage: Mapping[str, str]) -> BitMap64:
        """Without what equality deletes delete. Raises DamagedVector, UnreadableFile, and what reading raises."""
        deletes = (delete for delete in file.deletes if delete.kind is FileKind.POSITION_DELETE)
        return union(self._rows(file.path, delete, storage) for delete in deletes)

    def remember(self, path: str, blob: Blob, bitmap: BitMap64) -> None:
        """A vector that was just written here."""
        self._keep((path, blob.offset), {blob.data_file: bitmap}, blob.length)

    def _rows(self, data_file: str, delete: LiveDelete, storage: Mapping[str, str]) -> BitMap64:
        def read() -> tuple[_Rows, int]:
            if delete.offset is not None and delete.length is not None:
                vector = read_vector(delete.path, delete.offset, delete.length, storage)
                return {data_file: vector}, delete.length
            return read_positions(delete.path, storage, delete.data_file), delete.size

        return self._known((delete.path, delete.offset), read).get(data_file, BitMap64())

    def _known(self, key: tuple[str, int | None], read: Callable[[], tuple[_Rows, int]]) -> _Rows:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        rows, size = read()
        self._keep(key, rows, size)
        return rows

    def _keep(self, key: tuple[str, int | None], rows: _Rows, size: int) -> None:
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = rows, size
            self._bytes += size
            while len(self._kept) > 1 and self._bytes > self._kept_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]


def union(bitmaps: Iterable[BitMap64]) -> BitMap64:
    """Of none it is empty."""
    whole = BitMap64()
    for bitmap in bitmaps:
        whole |= bitmap
    return whole
