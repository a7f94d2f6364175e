"""Where files are created: one path, once. And where they are read.

    open_output(path) --write--write--> sync --> close        the file is complete and on the disk, or in the store
                     `--anything else------------> close        a partial file that nobody was told about
    open_input(path)  --> a file to read from; one that is gone says so by name

    a path, file:           here: the operating system
    s3: gs: abfss: ...      `objects`: object stores
    hdfs: webhdfs:          `hdfs`: WebHDFS

Creating is exclusive: a path that exists already is refused and left as it is, because a slower attempt of a
task must never replace a file that was reported (H41, H46). Nothing is removed here, not even after a failure:
what lies below an epoch's prefix and was not reported is swept by the deletion queue.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from frazil.errors import CatalogRefused, ConfigError, FrazilError, StorageUnavailable
from frazil.storage.files.hdfs import HdfsInput, HdfsOutput, is_hdfs
from frazil.storage.files.object import ObjectInput, ObjectOutput
from frazil.storage.files.ranged import file_gone
from frazil.storage.url import is_object_store

_REFUSALS = {
    errno.EACCES: "Let the user that runs the Spark executors create files and folders there.",
    errno.EPERM: "Let the user that runs the Spark executors create files and folders there.",
    errno.EROFS: "The file system is mounted read-only: mount it writable, or move the warehouse.",
    errno.ENOTDIR: "A part of the path is a file: move it away, or choose another warehouse.",
    errno.ENAMETOOLONG: "Choose a shorter warehouse path or pipeline name.",
    errno.EEXIST: "A path is written once only. Another process uses this pipeline's fence and attempt; stop it.",
}
_TROUBLES = {
    errno.ENOSPC: "The disk is full: make room (`frazil maintain` expires old snapshots), then run again.",
    errno.EDQUOT: "The quota is used up: raise it or make room, then run again.",
}


class Output(Protocol):
    """A file being created."""

    def write(self, data: memoryview) -> None:
        """Takes all of it. Raises StorageUnavailable or CatalogRefused naming the path."""

    def sync(self) -> None:
        """After this the file outlives a power cut."""

    def close(self) -> None:
        """Releases the handle; says nothing about the file being whole."""


def open_output(path: str, options: Mapping[str, str]) -> Output:
    """Creates the file and the folders above it. `options` are Iceberg's FileIO properties of the table, credentials
    included; the local file system has none. Raises CatalogRefused if the path exists or may not be written,
    ConfigError for a scheme that workers cannot write to, or options or credentials that cannot be used."""
    if is_object_store(path):
        return ObjectOutput(path, options)
    if is_hdfs(path):
        return HdfsOutput(path, options)
    return LocalOutput(path, local_path(path))


def open_input(path: str, options: Mapping[str, str]) -> pa.NativeFile:
    """Opens a file of a live snapshot for reading; the caller closes it. `options` as for `open_output`. Raises
    TableChanged if there is no such file, CatalogRefused if it may not be read, ConfigError for a scheme that
    workers cannot read from, StorageUnavailable for all else."""
    if is_object_store(path):
        return pa.PythonFile(ObjectInput(path, options), mode="r")
    if is_hdfs(path):
        return pa.PythonFile(HdfsInput(path, options), mode="r")
    try:
        return pa.OSFile(local_path(path), "rb")
    except OSError as error:
        raise input_error(error, path) from error


def input_error(error: OSError, path: str) -> FrazilError:
    """What the operating system said about reading, as an error a caller can act on."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    facts = {"path": path, "errno": error.errno}
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return file_gone(path, errno=error.errno)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EISDIR):
        hint = "Let the user that runs Frazil and the Spark executors read the table's files."
        return CatalogRefused(f"cannot read {path}: {reason}", hint=hint, **facts)
    hint = "See whether the disk or the mount is healthy, then run again."
    return StorageUnavailable(f"cannot read {path}: {reason}", hint=hint, **facts)


def local_path(path: str) -> str:
    """The operating system's name of `file:/x`, `file:///x` or a plain path."""
    scheme, separator, _ = path.partition(":")
    if not separator or "/" in scheme:
        return path
    if scheme != "file":
        raise ConfigError(
            f"workers cannot reach {path!r}: no storage is known by {scheme}:",
            hint="Set the catalog's warehouse or the volume's location to s3://, gs://, abfss://, hdfs://, or a path"
            " that every executor reaches.",
            path=path,
            scheme=scheme,
        )
    # Iceberg neither escapes nor unescapes a location: what stands after the scheme is the path, '%' and all.
    rest = path.removeprefix("file:")
    if not rest.startswith("//"):
        return rest
    host, _, tail = rest[2:].partition("/")
    if host:
        raise ConfigError(
            f"{path!r} names the host {host!r}; a file: URL has none",
            hint="Write file:///folder with three slashes.",
            path=path,
        )
    return f"/{tail}"


class LocalOutput:
    """One local file, created exclusively."""

    def __init__(self, path: str, local: str) -> None:
        self._path = path
        self._folders: list[str] = []
        self._descriptor = -1
        try:
            self._folders = _make_folders(os.path.dirname(os.path.abspath(local)))
            self._descriptor = os.open(local, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise storage_error(error, path) from error

    def write(self, data: memoryview) -> None:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise storage_error(error, self._path) from error

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
            # A file is reachable after a power cut only if the folders that name it are on the disk too.
            for folder in self._folders:
                _sync_folder(folder)
        except OSError as error:
            raise storage_error(error, self._path) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                raise storage_error(error, self._path) from error


def storage_error(error: OSError, path: str) -> FrazilError:
    """What the operating system said, as an error a caller can act on."""
    reason = error.strerror or str(error)
    if error.errno in _REFUSALS:
        return CatalogRefused(
            f"cannot write {path}: {reason}", hint=_REFUSALS[error.errno], path=path, errno=error.errno
        )
    hint = _TROUBLES.get(error.errno or 0, "See whether the disk or the mount is healthy, then run again.")
    return StorageUnavailable(f"cannot write {path}: {reason}", hint=hint, path=path, errno=error.errno)


def _make_folders(folder: str) -> list[str]:
    """Makes the folder and those above it. Returns every folder that has a new name in it, the deepest first."""
    touched = [folder]
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
        touched.append(folder)
    os.makedirs(touched[0], exist_ok=True)
    return touched


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
