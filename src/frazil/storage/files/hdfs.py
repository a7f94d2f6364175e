"""Files in HDFS: created once and whole, read by ranges.

    HdfsOutput   namenode: does the path exist? --> datanode takes chunks --sync--> 201, and the namenode has the size
    HdfsInput    the end and the size at once, then ranges with read-ahead

The datanode creates with overwrite=false, so that of two writers of one path one is refused (H41, H46). A file that
was not synced may stay behind, torn, as on a local disk; nobody was told of it.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping

from frazil.errors import CatalogRefused, ConfigError, FrazilError, StorageUnavailable
from frazil.storage.files.ranged import TAIL_BYTES, RangedInput, file_gone
from frazil.storage.files.webhdfs import HdfsAnswer, WebHdfs
from frazil.storage.url import scheme_of

_SCHEMES = ("hdfs", "webhdfs", "swebhdfs", "viewfs")
_CHUNK_BYTES = 1 << 20
_GONE = ("FileNotFoundException", "ParentNotDirectoryException")
_HINTS = {
    "FileAlreadyExistsException": "A path is written once only. Another process uses this pipeline's fence and attempt;"
    " stop it.",
    "AccessControlException": "Let this user (or its group) write below the volume's location: hdfs dfs -chown or"
    " -chmod; docs/storage.md says what is needed.",
    "SecurityException": "The service asks for Kerberos: set `kerberos: true` on the volume and get a ticket (kinit).",
}


def is_hdfs(path: str) -> bool:
    return scheme_of(path) in _SCHEMES


class HdfsOutput:
    """One file, created exclusively."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self._path = path
        self._name = _file_of(path)
        self._service = WebHdfs(path, options)
        self._gathered = bytearray()
        self._size = 0
        self._connection: http.client.HTTPConnection | None = None
        try:
            if self._exists():
                raise HdfsAnswer(403, "FileAlreadyExistsException", "it is there already")
            self._connection = self._service.create(self._name)
        except HdfsAnswer as said:
            raise _write_error(said, self._service, path) from said

    def write(self, data: memoryview) -> None:
        self._gathered += data
        self._size += data.nbytes
        if len(self._gathered) >= _CHUNK_BYTES:
            self._send(bytes(self._gathered))
            self._gathered = bytearray()

    def sync(self) -> None:
        """Returns once the datanode has acknowledged the whole file, and the namenode shows its size."""
        if self._gathered:
            self._send(bytes(self._gathered))
            self._gathered = bytearray()
        try:
            self._connected.send(b"0\r\n\r\n")
            self._take_answer()
            found = int(self._service.status(self._name)["length"])
        except HdfsAnswer as said:
            raise _write_error(said, self._service, self._path) from said
        except (OSError, http.client.HTTPException) as error:
            raise self._cut(error) from error
        if found != self._size:
            raise StorageUnavailable(
                f"{self._path} has {found} bytes at {self._service.endpoint} after {self._size} were written",
                hint="HDFS lost a part of a file that it had acknowledged. Nothing was published; run again, and see"
                " whether its datanodes are healthy (hdfs fsck).",
                path=self._path,
            )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            raise ValueError(f"{self._path} is closed")
        return self._connection

    def _send(self, data: bytes) -> None:
        try:
            self._connected.send(b"%x\r\n" % len(data) + data + b"\r\n")
        except (OSError, http.client.HTTPException) as error:
            try:
                # A datanode that refuses says why before it hangs up.
                self._take_answer()
            except HdfsAnswer as said:
                raise _write_error(said, self._service, self._path) from said
            except (OSError, http.client.HTTPException):
                pass
            raise self._cut(error) from error

    def _take_answer(self) -> None:
        answer = self._connected.response_class(self._connected.sock, method="PUT")
        answer.begin()
        if answer.status != 201:
            raise HdfsAnswer.of(answer.status, answer.read())

    def _exists(self) -> bool:
        try:
            self._service.status(self._name)
        except HdfsAnswer as said:
            if said.exception in _GONE:
                return False
            raise
        return True

    def _cut(self, error: Exception) -> FrazilError:
        return StorageUnavailable(
            f"cannot write {self._path} as {self._service.identity} at {self._service.endpoint}: the datanode hung up"
            f" ({type(error).__name__})",
            hint="See whether the datanodes are healthy and have room (hdfs dfsadmin -report), then run again.",
            path=self._path,
        )


class HdfsInput(RangedInput):
    """A file of a live snapshot, as a seekable one."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self._path = path
        self._name = _file_of(path)
        self._service = WebHdfs(path, options)
        try:
            size = int(self._service.status(self._name)["length"])
            start = max(size - TAIL_BYTES, 0)
            tail = self._service.read(self._name, start, size) if size else b""
        except HdfsAnswer as said:
            raise _read_error(said, self._service, path) from said
        super().__init__(size, start, tail)

    def fetch(self, start: int, end: int) -> bytes:
        try:
            return self._service.read(self._name, start, end)
        except HdfsAnswer as said:
            raise _read_error(said, self._service, self._path) from said


def _file_of(path: str) -> str:
    return "/" + path.partition("://")[2].partition("/")[2]


def _read_error(said: HdfsAnswer, service: WebHdfs, path: str) -> FrazilError:
    if said.exception in _GONE:
        return file_gone(path)
    return _refused(said, service, f"cannot read {path}", path)


def _write_error(said: HdfsAnswer, service: WebHdfs, path: str) -> FrazilError:
    return _refused(said, service, f"cannot write {path}", path)


def _refused(said: HdfsAnswer, service: WebHdfs, what: str, path: str) -> FrazilError:
    text = f"{what} as {service.identity} at {service.endpoint}: {said}"
    facts = {"path": path, "endpoint": service.endpoint, "identity": service.identity, "status": said.status}
    if said.exception.startswith(("DSQuota", "NSQuota", "QuotaExceeded")):
        return StorageUnavailable(text, hint="The quota is used up: raise it or make room, then run again.", **facts)
    if said.status == 401 or said.exception == "SecurityException":
        return ConfigError(text, hint=_HINTS["SecurityException"], **facts)
    if said.status >= 500 or said.exception in ("IOException", "StandbyException", "RetriableException"):
        return StorageUnavailable(text, hint="See whether HDFS is healthy, then run again.", **facts)
    hint = _HINTS.get(said.exception, "See what the namenode's log says about it, and correct the volume's settings.")
    return CatalogRefused(text, hint=hint, **facts)
