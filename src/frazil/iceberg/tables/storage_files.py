"""Files of tables as the storage has them: listed, asked whether anything refers to them, deleted.

    local                the operating system, which says of each file why it could not be deleted
    anything else        the table's own FileIO: the file system and the credentials that its commits use
    a table that is gone the FileIO of the deletion queue, which lies in the same catalog

Who decides what is deleted is `maintenance`; nothing here is called by anybody else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from frazil.errors import CatalogRefused
from frazil.iceberg.catalogs.open_catalog import Catalog, catalog_error, iceberg_properties
from frazil.iceberg.catalogs.table_scan import CatalogTableScan
from frazil.iceberg.commits.expire import parse_snapshots
from frazil.iceberg.commits.snapshots import GC_PROPERTY
from frazil.iceberg.jvm.bridge import java_list
from frazil.iceberg.jvm.errors import JAVA_ERRORS, NO_FILE, NO_JSON, NO_SUCH_TABLE, failure_of
from frazil.iceberg.jvm.method_handles import Handles, handles_of, lines, made_once
from frazil.iceberg.system.queue_rows import ListedFile, Remains, TablePlace, TableStanding
from frazil.iceberg.tables.head import MAIN, document_of, parse_head, read_metadata
from frazil.iceberg.tables.reachability import Reach, to_stream
from frazil.iceberg.tables.storage import is_local, table_location
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import TableName
from frazil.storage.files.open_file import local_path
from frazil.storage.table_locations import DATA_PATH, METADATA_PATH, lies_in, own_locations

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BULK_FAILED = "org.apache.iceberg.io.BulkDeletionFailureException"
_OWN_FOLDERS = ("shard=", "epoch=", "fence=", "replay=", "deletes", "partial", "vectors")


class TableFiles:
    """The files of one catalog's tables. `queue` is the table whose FileIO stands in for that of a dropped one."""

    def __init__(self, catalog: Catalog, queue: TableName) -> None:
        self._catalog = catalog
        self._queue = queue
        self._asked: tuple[tuple[str, str], dict[str, bool]] | None = None

    def table_scan(self) -> CatalogTableScan:
        """Nothing is asked yet."""
        return CatalogTableScan(self._catalog)

    def standing(self, table: TableName) -> TableStanding:
        """Raises CatalogUnavailable or CatalogRefused."""
        if not Tables(self._catalog).exists(table):
            return TableStanding(None)
        base, _ = read_metadata(self._catalog, table)
        seen = parse_snapshots(base)
        locations = own_locations(table_location(base.document["location"]), seen.properties)
        return TableStanding(seen.uuid, seen.may_be_cleaned, locations)

    def place(self, table: TableName) -> TablePlace:
        """Raises CatalogUnavailable, CatalogRefused, or TableChanged if the table is gone."""
        base, document = read_metadata(self._catalog, table)
        seen = parse_snapshots(base)
        location = table_location(document["location"])
        data = seen.properties.get(DATA_PATH, f"{location}/data").rstrip("/")
        metadata = seen.properties.get(METADATA_PATH, f"{location}/metadata").rstrip("/")
        return TablePlace(
            uuid=seen.uuid,
            data_location=data if lies_in(data, [location]) else None,
            metadata_location=metadata if lies_in(metadata, [location]) else None,
            main=parse_head(document),
            branches={
                name: parse_head(document, branch=name)
                for name, reference in seen.references.items()
                if reference.is_branch and name != MAIN
            },
            may_be_cleaned=seen.may_be_cleaned,
        )

    def unreferenced(self, table: TableName, paths: Sequence[str]) -> Sequence[str]:
        """Of these, those that nothing of the table refers to now. The table is looked at with every call; while its
        metadata is the same file, what was asked before is not searched again. Raises CatalogUnavailable,
        CatalogRefused, or TableChanged if the table is gone."""
        base, document = read_metadata(self._catalog, table)
        state = document["table-uuid"], str(base.metadata.metadataFileLocation())
        if self._asked is None or self._asked[0] != state:
            self._asked = state, {}
        answers = self._asked[1]
        fresh = [path for path in paths if path not in answers]
        if fresh:
            free = set(Reach.of(self._catalog, table, base).unreferenced(fresh))
            answers.update((path, path in free) for path in fresh)
        return [path for path in paths if answers[path]]

    def remains(self, metadata_file: str) -> Remains:
        """All files that this metadata file reaches, itself included; none if it is gone, or says that its files are
        shared. Raises CatalogUnavailable or CatalogRefused."""
        io = self._io(None)
        try:
            metadata = self._catalog.iceberg.TableMetadataParser.read(io, metadata_file)
            document = document_of(self._catalog, metadata)
        except JAVA_ERRORS as error:
            if failure_of(error, iceberg_properties(self._catalog.settings)).has(*NO_FILE):
                return Remains()
            raise catalog_error(self._catalog, error, "read the metadata of a dropped table", metadata_file) from None
        properties = document.get("properties", {})
        if properties.get(GC_PROPERTY, "true").lower() == "false":
            return Remains()
        files = Reach(self._catalog, self._queue, document, metadata, io).reached()
        return Remains(files, own_locations(table_location(document["location"]), properties))

    def delete(self, table: TableName, paths: Sequence[str]) -> Mapping[str, str]:
        """Those that could not be deleted, with why; one that is not there counts as deleted. Raises
        CatalogUnavailable or CatalogRefused."""
        failed = {path: why for path in paths if is_local(path) and (why := _delete_locally(path)) is not None}
        remote = [path for path in paths if not is_local(path)]
        if remote:
            failed |= self._delete_by(self._io(table), remote)
        return failed

    def list(self, table: TableName, folder: str) -> Sequence[ListedFile]:
        """All files below a folder, which need not exist. Raises CatalogUnavailable or CatalogRefused."""
        if is_local(folder):
            return _list_locally(folder)
        io = self._io(table)
        handles = handles_of(self._catalog)
        try:
            found = io.listPrefix(folder.rstrip("/") + "/")
            infos = handles.call(made_once(self._catalog, "stream", to_stream), found).toList()
            columns = [
                lines(self._catalog, infos.stream().map(made_once(self._catalog, f"FileInfo.{name}", make)))
                for name, make in (("location", _location), ("size", _size), ("created", _created))
            ]
        except Py4JJavaError as error:
            if failure_of(error, iceberg_properties(self._catalog.settings)).has(*NO_FILE):
                return ()
            raise catalog_error(self._catalog, error, "list the files of", table.text) from None
        except Py4JError as error:
            raise CatalogRefused(
                f"the files of {table} below {folder} cannot be listed: {type(io).__name__} has no listing",
                hint="set io-impl in catalog.properties to a FileIO that lists prefixes, such as S3FileIO",
                table=table.text,
            ) from error
        return [
            ListedFile(path, int(size), _EPOCH + timedelta(milliseconds=int(millis)))
            for path, size, millis in zip(*columns, strict=True)
        ]

    def owner_of(self, table: TableName, metadata_file: str) -> str | None:
        """The uuid of the table that a metadata file describes; None if it cannot be read: a commit that was cut off
        while it was written. Raises CatalogUnavailable or CatalogRefused."""
        io = self._io(table)
        try:
            return str(self._catalog.iceberg.TableMetadataParser.read(io, metadata_file).uuid())
        except JAVA_ERRORS as error:
            if failure_of(error, iceberg_properties(self._catalog.settings)).has(NO_JSON, *NO_FILE):
                return None
            raise catalog_error(self._catalog, error, "read the metadata files of", table.text) from None

    def _io(self, table: TableName | None) -> Any:
        """The table's own, or that of the queue if there is no such table."""
        try:
            if table is not None:
                try:
                    return self._catalog.java.loadTable(self._catalog.identifier(table)).io()
                except JAVA_ERRORS as error:
                    if not failure_of(error, iceberg_properties(self._catalog.settings)).is_a(NO_SUCH_TABLE):
                        raise
            return self._catalog.java.loadTable(self._catalog.identifier(self._queue)).io()
        except JAVA_ERRORS as error:
            raise catalog_error(self._catalog, error, "reach the files of", str(table or self._queue)) from None

    def _delete_by(self, io: Any, paths: Sequence[str]) -> dict[str, str]:
        """At once where the storage can; one by one if that failed, which tells which."""
        try:
            io.deleteFiles(java_list(self._catalog, paths))
            return {}
        except Py4JJavaError as error:
            failure = failure_of(error, iceberg_properties(self._catalog.settings))
            if not failure.is_a(_BULK_FAILED):
                raise catalog_error(self._catalog, error, "delete files at") from None
        except Py4JError:
            pass  # this kind of file system has no such method
        failed = {}
        for path in paths:
            try:
                io.deleteFile(path)
            except JAVA_ERRORS as error:
                failure = failure_of(error, iceberg_properties(self._catalog.settings))
                if not failure.has(*NO_FILE):
                    failed[path] = str(failure)
        return failed


def _delete_locally(path: str) -> str | None:
    """None, or why it is still there. Folders of ours that are empty then go too."""
    local = local_path(path)
    try:
        os.remove(local)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        return f"cannot delete {path}: {error.strerror}"
    folder, name = os.path.split(local)
    with suppress(OSError):
        # Hadoop's local file system keeps a checksum beside each file.
        os.remove(os.path.join(folder, f".{name}.crc"))
    with suppress(OSError):  # not empty, or somebody else was faster
        while _is_own(folder):
            os.rmdir(folder)
            folder = os.path.dirname(folder)
    return None


def _is_own(folder: str) -> bool:
    above, name = os.path.split(folder)
    return name.startswith(_OWN_FOLDERS) if "/frazil_job=" in above else "/frazil_maintenance" in above


def _list_locally(folder: str) -> Sequence[ListedFile]:
    root = local_path(folder.rstrip("/"))
    found = []
    for directory, _, names in os.walk(root):
        for name in names:
            full = os.path.join(directory, name)
            with suppress(FileNotFoundError):  # deleted meanwhile
                facts = os.stat(full)
                path = folder.rstrip("/") + full[len(root) :]
                found.append(ListedFile(path, facts.st_size, _EPOCH + timedelta(seconds=facts.st_mtime)))
    return found


def _location(handles: Handles) -> Any:
    info, string = handles.iceberg("io.FileInfo"), handles.kind("java.lang.String")
    return handles.as_function(handles.virtual(info, "location", string))


def _size(handles: Handles) -> Any:
    return _number(handles, "size")


def _created(handles: Handles) -> Any:
    return _number(handles, "createdAtMillis")


def _number(handles: Handles, name: str) -> Any:
    info, string = handles.iceberg("io.FileInfo"), handles.kind("java.lang.String")
    as_text = handles.static(string, "valueOf", string, handles.long)
    number = handles.virtual(info, name, handles.long)
    return handles.as_function(handles.all.filterReturnValue(number, as_text))
