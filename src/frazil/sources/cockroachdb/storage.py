"""Where a feed lies: a local directory, or an object store.

    location --open--> bytes of one file, decompressed, as a stream
             --size--> is it there

Errors become what the caller can do: gone (SourceLost), refused (ConfigError), no answer (SourceUnavailable).
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import (
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import ObjectStore, from_url

from frazil.errors import BadInput, ConfigError, FrazilError, SourceLost, SourceUnavailable
from frazil.sources.cockroachdb.names import Compression

BLOCK = 8 << 20
_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https")
_SEPARATE = ("client_options", "retry_config")
_CODECS = {Compression.GZIP: "gzip", Compression.ZSTD: "zstd"}


@dataclass(frozen=True, slots=True)
class FeedLocation:
    """`url` is a path, file://, s3://, gs:// or az://; `options` go to the object store untouched. Picklable."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scheme = urlsplit(self.url).scheme if "://" in self.url else "file"
        if scheme != "file" and scheme not in _SCHEMES:
            raise ConfigError(
                f"feed {self.url!r}: no storage is known by {scheme}://",
                hint="Use a path, file://, s3://, gs:// or az://.",
            )

    @property
    def local_root(self) -> Path | None:
        """The directory, if the feed lies on local disk."""
        if "://" not in self.url:
            return Path(self.url).expanduser().absolute()
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def normalised(self) -> str:
        """One spelling for one place: what positions of a feed are relative to."""
        if self.local_root is not None:
            return "file://" + os.path.normpath(self.local_root)
        parts = urlsplit(self.url)
        path = "/".join(part for part in parts.path.split("/") if part)
        return f"{parts.scheme.lower()}://{parts.netloc}" + (f"/{path}" if path else "")

    def store(self) -> ObjectStore:
        return _store(self.url, json.dumps(dict(self.options), sort_keys=True))

    def size(self, path: str) -> int | None:
        """Its bytes; None if it is not there. Raises SourceUnavailable or ConfigError."""
        try:
            with reaching(self.url, path):
                root = self.local_root
                return (root / path).stat().st_size if root is not None else obstore.head(self.store(), path)["size"]
        except SourceLost:
            return None

    @contextmanager
    def open(self, path: str, compression: Compression = Compression.NONE) -> Iterator[Any]:
        """The decompressed bytes of one file: an object with read(size).

        Raises SourceLost if it is gone, BadInput if it cannot be decompressed.
        """
        with reaching(self.url, path):
            root = self.local_root
            raw: Any
            if root is not None:
                raw = pa.OSFile(str(root / path), "rb")
            else:
                chunks = obstore.get(self.store(), path).stream(min_chunk_size=BLOCK)
                raw = pa.PythonFile(_Chunks(iter(chunks)), mode="r")
            codec = _CODECS.get(compression)
            with raw if codec is None else pa.CompressedInputStream(raw, codec) as stream:
                yield stream


@contextmanager
def reaching(feed: str, path: str) -> Iterator[None]:
    """Turns the storage's errors into ours."""
    try:
        yield
    except FrazilError:
        raise
    except (NotFoundError, FileNotFoundError) as error:
        raise SourceLost(
            f"{feed}: the file {path} is gone",
            hint="Files behind the published frontier may be deleted, others not. Restore it, or resync the table.",
            file=path,
        ) from error
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        raise ConfigError(f"{feed}: access to {path or 'the feed'} is refused: {_short(error)}", file=path) from error
    except BaseError as error:
        raise SourceUnavailable(
            f"{feed}: {path or 'the feed'} cannot be reached: {_short(error)}", file=path
        ) from error
    except OSError as error:
        if error.errno is not None:
            raise SourceUnavailable(f"{feed}: {path} cannot be read: {_short(error)}", file=path) from error
        raise BadInput(
            f"{path}: cannot be decompressed: {_short(error)}",
            hint="The file is torn. Compare its size with the object in the store.",
            file=path,
        ) from error


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


@lru_cache(maxsize=16)
def _store(url: str, options: str) -> ObjectStore:
    given = json.loads(options)
    separate = {name: given.pop(name) for name in _SEPARATE if name in given}
    try:
        return from_url(url, config=given or None, **separate)
    except (UnknownConfigurationKeyError, BaseError, ValueError) as error:
        raise ConfigError(
            f"feed {url!r}: the storage options are not understood: {_short(error)}",
            hint="`options:` takes what the object store's client knows, for instance endpoint, region, access_key_id.",
        ) from error


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
