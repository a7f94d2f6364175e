"""Files in an object store: created once and whole, read by ranges.

    ObjectOutput   small:  bytes gather in memory --sync--> one exclusive PUT --> HEAD has the size
                   large:  exclusive PUT of a claim --> parts go up while rows are written --sync--> complete --> HEAD
                           close without sync --> the upload is given up; the claim stays, as a torn local file would
    ObjectInput    opening fetches the end (a Parquet footer) and the size in one request; then ranges, with read-ahead

A multipart upload cannot be conditional with every store, so the path is claimed first by a small object that only one
writer can create (H41, H46). An object that is reported is complete: stores show an upload at its end or not at all.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping

from frazil.clock import SystemClock
from frazil.errors import CatalogRefused, ConfigError, FrazilError, StorageUnavailable
from frazil.storage.client import Store, store_for
from frazil.storage.errors import FailureKind, StorageFailure, StoreFailed, explained
from frazil.storage.files.ranged import TAIL_BYTES, RangedInput, file_gone
from frazil.storage.url import parse_place

_CLAIM = b"frazil: being written by "
_CONFIGURED_WRONGLY = frozenset(
    {
        FailureKind.NO_BUCKET,
        FailureKind.BAD_KEY,
        FailureKind.NO_CREDENTIALS,
        FailureKind.WRONG_REGION,
        FailureKind.UNTRUSTED,
        FailureKind.UNSUPPORTED,
    }
)


class ObjectOutput:
    """One object, created exclusively."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self._path = path
        self._place = parse_place(path)
        self._store = store_for(self._place, options)
        self._part_bytes = self._store.settings.part_bytes
        self._gathered = bytearray()
        self._size = 0
        self._upload: _Upload | None = None

    def write(self, data: memoryview) -> None:
        self._gathered += data
        self._size += data.nbytes
        while len(self._gathered) >= self._part_bytes:
            part = bytes(memoryview(self._gathered)[: self._part_bytes])
            del self._gathered[: self._part_bytes]
            try:
                if self._upload is None:
                    self._store.create(self._place.key, _CLAIM + SystemClock().new_uuid().hex.encode())
                    self._upload = _Upload(self._store, self._place.key)
                self._upload.add(part)
            except StoreFailed as failed:
                raise store_error(failed.failure, self._store, self._path, "write") from failed

    def sync(self) -> None:
        """Returns once the store has acknowledged the whole object, and shows it with its size."""
        try:
            if self._upload is None:
                self._store.create(self._place.key, bytes(self._gathered))
            else:
                self._finish(self._upload)
            found = self._store.size(self._place.key)
        except StoreFailed as failed:
            raise store_error(failed.failure, self._store, self._path, "write") from failed
        if found != self._size:
            raise StorageUnavailable(
                f"{self._path} has {found} bytes at {self._store.settings.endpoint} after {self._size} were written",
                hint="The storage lost a part of an upload that it had acknowledged. Nothing was published; run again,"
                " and see whether something between Frazil and the storage alters requests.",
                path=self._path,
            )

    def close(self) -> None:
        upload, self._upload = self._upload, None
        self._gathered = bytearray()
        if upload is not None:
            upload.give_up()

    def _finish(self, upload: _Upload) -> None:
        if self._gathered:
            upload.add(bytes(self._gathered))
            self._gathered = bytearray()
        try:
            upload.finish()
        except StoreFailed as failed:
            # Its completion may have landed without an answer. The path is claimed, so a whole object there is ours.
            if failed.failure.kind not in (FailureKind.UNAVAILABLE, FailureKind.GONE):
                raise
            try:
                landed = self._store.size(self._place.key) == self._size
            except (StoreFailed, FrazilError):
                landed = False
            if not landed:
                raise


class _GivenUp(Exception):
    """The writer went away before the end."""


class _Upload:
    """A multipart upload beside the thread that writes: one part waits while others are on their way."""

    def __init__(self, store: Store, key: str) -> None:
        self._parts: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=1)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(store, key), name="frazil-upload", daemon=True)
        self._thread.start()

    def add(self, part: bytes) -> None:
        """Raises StoreFailed if the upload has failed."""
        self._hand_over(part)

    def finish(self) -> None:
        """Returns once the store has acknowledged the whole. Raises StoreFailed."""
        self._hand_over(None)
        self._thread.join()
        self._raise_failure()

    def give_up(self) -> None:
        """Ends an upload that is under way; one that has ended is left as it is."""
        while self._thread.is_alive():
            try:
                self._parts.put(_GivenUp(), timeout=0.1)
                break
            except queue.Full:
                continue
        self._thread.join()

    def _hand_over(self, part: bytes | None) -> None:
        while self._thread.is_alive():
            try:
                self._parts.put(part, timeout=0.1)
                return
            except queue.Full:
                continue
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self, store: Store, key: str) -> None:
        try:
            store.upload(key, self._taken())
        except _GivenUp:
            pass
        except BaseException as error:
            self._failure = error

    def _taken(self) -> Iterator[bytes]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, BaseException):
                raise part
            yield part


class ObjectInput(RangedInput):
    """An object of a live snapshot, as a seekable file."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self._path = path
        self._place = parse_place(path)
        self._store = store_for(self._place, options)
        try:
            tail = self._store.tail(self._place.key, TAIL_BYTES)
        except StoreFailed as failed:
            raise read_error(failed.failure, self._store, path) from failed
        super().__init__(tail.size, tail.start, tail.data)

    def fetch(self, start: int, end: int) -> bytes:
        try:
            return self._store.range(self._place.key, start, end)
        except StoreFailed as failed:
            raise read_error(failed.failure, self._store, self._path) from failed


def read_error(failure: StorageFailure, store: Store, path: str) -> FrazilError:
    """Why a file of a live snapshot could not be read."""
    if failure.kind in (FailureKind.GONE, FailureKind.EMPTY_RANGE):
        return file_gone(path, endpoint=store.settings.endpoint)
    return store_error(failure, store, path, "read")


def store_error(failure: StorageFailure, store: Store, path: str, verb: str) -> FrazilError:
    """What a store said, as an error a caller can act on: who asked, where, and what to do."""
    settings = store.settings
    text, hint = explained(failure, settings, path, verb)
    facts = {
        "path": path,
        "bucket": settings.bucket,
        "endpoint": settings.endpoint,
        "identity": settings.identity,
        "code": failure.code or None,
        "status": failure.status,
    }
    if failure.transient:
        return StorageUnavailable(text, hint=hint, **facts)
    if failure.kind is FailureKind.EXPIRED and settings.expires_at_ms is not None:
        # Whoever handed these out gives new ones with the next load of the table.
        return StorageUnavailable(
            text, hint="The table is loaded anew for the next try, with new credentials.", **facts
        )
    if failure.kind in _CONFIGURED_WRONGLY:
        return ConfigError(text, hint=hint, **facts)
    return CatalogRefused(text, hint=hint, **facts)
