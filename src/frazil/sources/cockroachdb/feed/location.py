"""Where a feed lies: a local directory, or an object store.

    location --open--> bytes of one file, decompressed, as a stream
             --size--> is it there
             --pickled, to executors--> with the credentials that were found here

Errors become what the caller can do: gone (SourceLost), refused (ConfigError), no answer (SourceUnavailable).
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError
from obstore.store import HTTPStore, ObjectStore

from frazil.errors import BadInput, ConfigError, FrazilError, SourceLost, SourceUnavailable
from frazil.model.position import without_login
from frazil.sources.cockroachdb.feed.file_names import Compression
from frazil.storage.client import Store, store_for
from frazil.storage.credentials import with_credentials
from frazil.storage.errors import FailureKind, StorageFailure, explained, failure_of
from frazil.storage.url import SCHEMES, is_object_store, parse_place

BLOCK = 2 << 20
"""What is looked at together fits into a processor's cache."""
FETCHED = 8 << 20
ANEW = (
    "make a changefeed with initial_scan = 'yes' at another address and name it as source.feed, stop the pipeline, "
    "frazil drop CONFIG TABLE --force for its tables, and run it again."
)
"""How tables of a feed are loaded anew: nobody can ask a changefeed for all rows."""
_CODECS = {Compression.GZIP: "gzip", Compression.ZSTD: "zstd"}


@dataclass(frozen=True, slots=True, repr=False)
class FeedLocation:
    """`url` is a path, file://, s3://, gs://, az:// or abfss://; `options` are its storage's. Picklable: what is found
    in the environment or a profile here goes along, since executors have none of it."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scheme = urlsplit(self.url).scheme if "://" in self.url else "file"
        if scheme not in ("file", "http", "https", *SCHEMES):
            raise ConfigError(
                f"feed {self.shown!r}: no storage is known by {scheme}://",
                hint="Use a path, file://, s3://, gs://, az:// or abfss://.",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return FeedLocation, (self.url, with_credentials(self._address, self.options))

    def __repr__(self) -> str:
        return f"FeedLocation({self.shown!r})"

    @property
    def local_root(self) -> Path | None:
        """The directory, if the feed lies on local disk."""
        if "://" not in self.url:
            return Path(self.url).expanduser().absolute()
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def normalised(self) -> str:
        """One spelling for one place: what positions of a feed are relative to. It is written into ledgers, so it has
        nothing in it that logs in."""
        if self.local_root is not None:
            return "file://" + os.path.normpath(self.local_root)
        parts = urlsplit(without_login(self.url))
        path = "/".join(part for part in parts.path.split("/") if part)
        return f"{parts.scheme.lower()}://{parts.netloc}" + (f"/{path}" if path else "")

    @property
    def digest(self) -> str:
        """Tells one place from another."""
        return hashlib.sha256(self.normalised.encode()).hexdigest()[:12]

    @property
    def shown(self) -> str:
        """For messages: without what logs in, and without a query, which may be signed."""
        return self.url if self.local_root is not None else without_login(self.url).partition("?")[0]

    def store(self) -> ObjectStore:
        """The client, with keys relative to the feed. Raises ConfigError for options or credentials that are wrong."""
        store = self._store()
        return HTTPStore.from_url(self.url) if store is None else store.listed

    def size(self, path: str) -> int | None:
        """Its bytes; None if it is not there. Raises SourceUnavailable or ConfigError."""
        try:
            with self.reaching(path):
                root = self.local_root
                return (root / path).stat().st_size if root is not None else obstore.head(self.store(), path)["size"]
        except SourceLost:
            return None

    def written_at(self, path: str) -> float:
        """By the storage's clock, in seconds. Raises SourceLost if it is gone, SourceUnavailable or ConfigError."""
        with self.reaching(path):
            root = self.local_root
            if root is not None:
                return (root / path).stat().st_mtime
            return obstore.head(self.store(), path)["last_modified"].timestamp()

    @contextmanager
    def open(self, path: str, compression: Compression = Compression.NONE) -> Iterator[Any]:
        """The decompressed bytes of one file: an object with read(size), and read() for the whole of a plain one.

        Raises SourceLost if it is gone, BadInput if it cannot be decompressed.
        """
        with self.reaching(path):
            root = self.local_root
            raw: Any
            if root is not None:
                raw = pa.OSFile(str(root / path), "rb")
            else:
                chunks = obstore.get(self.store(), path).stream(min_chunk_size=FETCHED)
                raw = io.BufferedReader(_Chunks(iter(chunks)), FETCHED)
            codec = _CODECS.get(compression)
            if codec is not None:
                raw = pa.CompressedInputStream(raw if root is not None else pa.PythonFile(raw, mode="r"), codec)
            with raw as stream:
                yield stream

    @contextmanager
    def reaching(self, path: str) -> Iterator[None]:
        """Turns the storage's errors into ours. `path` is relative to the feed; empty for the feed as a whole."""
        try:
            yield
        except FrazilError:
            raise
        except FileNotFoundError as error:
            if self.local_root is None and failure_of(error).kind is not FailureKind.GONE:
                raise self._refusal(failure_of(error), path) from error
            raise _gone(self.shown, path) from error
        except BaseError as error:
            raise self._refusal(failure_of(error), path) from error
        except PermissionError as error:
            raise ConfigError(
                f"{self.shown}: access to {path or 'the feed'} is refused: {_short(error)}",
                hint="Let the user that runs Frazil and the Spark executors read the feed.",
                file=path,
            ) from error
        except OSError as error:
            if error.errno is not None:
                raise SourceUnavailable(f"{self.shown}: {path} cannot be read: {_short(error)}", file=path) from error
            raise BadInput(
                f"{path}: cannot be decompressed: {_short(error)}",
                hint="The file is torn: put the whole file in its place, then: frazil reload CONFIG.",
                file=path,
            ) from error

    @property
    def _address(self) -> str:
        """Without the parameters that CREATE CHANGEFEED takes behind it."""
        return self.url.partition("?")[0]

    def _store(self) -> Store | None:
        if not is_object_store(self.url):
            return None
        place = parse_place(self._address)
        return store_for(place, with_credentials(self._address, self.options), strict=True, below=place.key)

    def _refusal(self, failure: StorageFailure, path: str) -> FrazilError:
        if failure.kind is FailureKind.GONE:
            return _gone(self.shown, path)
        store = self._store()
        what = f"{self.shown.rstrip('/')}/{path}" if path else self.shown
        text, hint = without_login(failure.text), ""
        if store is not None:
            text, hint = explained(failure, store.settings, what, "read")
            if failure.kind is FailureKind.DENIED:
                hint = (
                    f"Allow {store.settings.identity} to list the bucket and read objects below the feed's prefix;"
                    " docs/storage.md has a policy to copy."
                )
        kind = SourceUnavailable if failure.transient else ConfigError
        return kind(f"the feed cannot be read: {text}", hint=hint, file=path, code=failure.code or None)


def _gone(feed: str, path: str) -> SourceLost:
    return SourceLost(
        f"{feed}: the file {path} is gone",
        hint=f"Files behind the published frontier may be deleted, others not. Restore it. If it cannot be: {ANEW}",
        file=path,
    )


def line_blocks(stream: Any, block: int = BLOCK) -> Iterator[bytes]:
    """Bytes in blocks that end where a line ends. A line longer than a block makes its block longer."""
    pending: list[bytes | memoryview] = []
    while data := stream.read(block):
        cut = data.rfind(b"\n") + 1
        if not cut:
            pending.append(data)
            continue
        view = memoryview(data)
        yield b"".join([*pending, view[:cut]])
        pending = [view[cut:]]
    if any(pending):
        yield b"".join(pending)


class _Chunks(io.RawIOBase):
    """A stream of chunks as a file."""

    def __init__(self, chunks: Iterator[Any]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
