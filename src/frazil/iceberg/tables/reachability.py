"""Which files a table's metadata reaches: told inside the JVM, so that a million files cost a few crossings.

    metadata.json --> metadata log, statistics                          from its JSON
        `--> manifest list of each snapshot --> manifests --> data files, delete files, vectors

    unreferenced(paths)   of these, those that nothing refers to
    freed(removed)        what only these snapshots reach
    reached               all of it, of a table that is dropped

Paths are compared by what follows scheme and authority: `file:/w/a`, `file:///w/a` and `/w/a` are one file, and so are
`s3://b/k` and `s3a://b/k`. Two files that differ in the bucket alone count as one, which keeps one too many and never
deletes one that is needed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog, catalog_error
from frazil.iceberg.jvm.bridge import java_list
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.iceberg.jvm.method_handles import Handles, handles_of, lines, made_once
from frazil.iceberg.tables.head import Base
from frazil.model.ids import TableName

_SCHEME = r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?"
_SLASHES = "/+"
_STATISTICS = ("statistics", "partition-statistics")


def path_key(path: str) -> str:
    """By what paths are compared. Pure."""
    return re.sub(_SLASHES, "/", re.sub(_SCHEME, "", path, count=1))


def named_by(document: Mapping[str, Any], metadata_file: str | None, without: Collection[int] = ()) -> Iterator[str]:
    """Files that the metadata's JSON names itself: manifest lists, statistics, metadata files. Pure."""
    if metadata_file:
        yield metadata_file
    yield from (entry["metadata-file"] for entry in document.get("metadata-log", ()))
    for snapshot in document.get("snapshots", ()):
        if snapshot["snapshot-id"] not in without:
            if "manifest-list" in snapshot:
                yield snapshot["manifest-list"]
            yield from snapshot.get("manifests", ())
    yield from _statistics(document, without)


def _statistics(document: Mapping[str, Any], without: Collection[int]) -> Iterator[str]:
    for kind in _STATISTICS:
        for entry in document.get(kind, ()):
            if entry["snapshot-id"] not in without:
                yield entry["statistics-path"]


class Reach:
    """What one state of a table reaches. Nothing is kept between calls but the manifests' names."""

    def __init__(self, catalog: Catalog, table: TableName, document: Mapping[str, Any], metadata: Any, io: Any) -> None:
        self._catalog = catalog
        self._table = table
        self._document = document
        self._metadata = metadata
        self._io = io
        self._manifests: dict[int, list[tuple[str, Any]]] = {}
        self._known: dict[str, Any] = {}

    @classmethod
    def of(cls, catalog: Catalog, table: TableName, base: Base) -> Reach:
        return cls(catalog, table, base.document, base.metadata, base.table.io())

    def unreferenced(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Of these paths, those that no snapshot, no metadata file in the log and no statistics refer to. Raises
        CatalogUnavailable or CatalogRefused."""
        asked = {path_key(path): path for path in paths}
        for path in named_by(self._document, self._metadata_file):
            asked.pop(path_key(path), None)
        if not asked:
            return ()
        try:
            manifests = self._union(self._snapshot_ids)
            for path in manifests:
                asked.pop(path_key(path), None)
            left = self._without_content(list(asked), manifests.values())
        except JAVA_ERRORS as error:
            raise self._error(error) from None
        return tuple(asked[key] for key in left)

    def freed(self, removed: frozenset[int]) -> tuple[str, ...]:
        """What nothing refers to once these snapshots are gone. Raises like `unreferenced`."""
        if not removed:
            return ()
        left = set(self._snapshot_ids) - removed
        named = {path_key(path): path for path in named_by(self._document, None, left)}
        kept_names = {path_key(path) for path in named_by(self._document, self._metadata_file, removed)}
        try:
            going, staying = self._union(removed), self._union(left)
            named |= {path_key(path): path for path in going}
            content = self._content_of([going[path] for path in going if path not in staying])
            left_over = self._without_content([path_key(path) for path in content], staying.values())
        except JAVA_ERRORS as error:
            raise self._error(error) from None
        by_key = {path_key(path): path for path in content}
        named |= {key: by_key[key] for key in left_over}
        kept_names |= {path_key(path) for path in staying}
        return tuple(path for key, path in named.items() if key not in kept_names)

    def reached(self) -> tuple[str, ...]:
        """Everything, each path once. Raises like `unreferenced`."""
        try:
            manifests = self._union(self._snapshot_ids)
            content = self._content_of(list(manifests.values()))
        except JAVA_ERRORS as error:
            raise self._error(error) from None
        return tuple(dict.fromkeys((*content, *manifests, *named_by(self._document, self._metadata_file))))

    @property
    def _metadata_file(self) -> str | None:
        location: str | None = self._metadata.metadataFileLocation()
        return location

    @property
    def _snapshot_ids(self) -> list[int]:
        return [snapshot["snapshot-id"] for snapshot in self._document.get("snapshots", ())]

    def _union(self, snapshot_ids: Iterable[int]) -> dict[str, Any]:
        """Manifests of these snapshots, by path."""
        found: dict[str, Any] = {}
        for snapshot_id in snapshot_ids:
            if snapshot_id not in self._manifests:
                self._manifests[snapshot_id] = list(self._manifests_of(snapshot_id))
            for path, manifest in self._manifests[snapshot_id]:
                found.setdefault(path, manifest)
        return found

    def _manifests_of(self, snapshot_id: int) -> Iterator[tuple[str, Any]]:
        manifests = self._metadata.snapshot(snapshot_id).allManifests(self._io)
        path_of = made_once(self._catalog, "manifest path", _manifest_path)
        paths = lines(self._catalog, manifests.stream().map(path_of))
        for place, path in enumerate(paths):
            yield path, self._known.get(path) or self._known.setdefault(path, manifests.get(place))

    def _content_of(self, manifests: Sequence[Any]) -> list[str]:
        """Paths of the live entries of these manifests."""
        return (
            [] if not manifests else self._each_path(manifests, lambda stream: lines(self._catalog, stream.distinct()))
        )

    def _without_content(self, keys: list[str], manifests: Iterable[Any]) -> list[str]:
        """Of these keys, those that are not among the live entries of these manifests."""
        chosen = list(manifests)
        if not keys or not chosen:
            return keys
        left = self._catalog.spark._jvm.java.util.LinkedHashSet(java_list(self._catalog, keys))
        handles = handles_of(self._catalog)
        remove = made_once(self._catalog, "remove path", _remove_path).bindTo(left)
        consumer = handles.as_function(remove, "java.util.function.Consumer")
        self._each_path(chosen, lambda stream: stream.forEach(consumer))
        return lines(self._catalog, left.stream())

    def _each_path(self, manifests: Sequence[Any], use: Any) -> Any:
        """Several manifests at a time; each is closed when it is through."""
        handles = handles_of(self._catalog)
        java = self._catalog.spark._jvm.java.util.ArrayList()
        for manifest in manifests:
            java.add(manifest)
        read = handles.bound(
            made_once(self._catalog, "read paths", _read_paths), 1, self._io, self._metadata.specsById()
        )
        readers = java.stream().map(handles.as_function(read)).toList()
        pool = self._catalog.iceberg.util.ThreadPools.getWorkerPool()
        paths = self._catalog.iceberg.util.ParallelIterable(readers, pool)
        try:
            return use(handles.call(made_once(self._catalog, "stream", to_stream), paths))
        finally:
            paths.close()

    def _error(self, error: BaseException) -> Exception:
        return catalog_error(self._catalog, error, "read the manifests of", self._table.text)


def _manifest_path(handles: Handles) -> Any:
    return handles.as_function(
        handles.virtual(handles.iceberg("ManifestFile"), "path", handles.kind("java.lang.String"))
    )


def _read_paths(handles: Handles) -> Any:
    """(manifest, io, specs) -> an iterable of the paths of its live entries, of data and of deletes alike."""
    manifest, io = handles.iceberg("ManifestFile"), handles.iceberg("io.FileIO")
    iterable, specs = handles.iceberg("io.CloseableIterable"), handles.kind("java.util.Map")
    return handles.static(handles.iceberg("ManifestFiles"), "readPaths", iterable, manifest, io, specs)


def _remove_path(handles: Handles) -> Any:
    """(set, path) removes the path's key from the set."""
    string, thing = handles.kind("java.lang.String"), handles.kind("java.lang.Object")
    plain = handles.virtual(string, "replaceFirst", string, string, string)
    plain = handles.bound(plain, 1, _SCHEME, "")
    single = handles.bound(handles.virtual(string, "replaceAll", string, string, string), 1, _SLASHES, "/")
    key = handles.all.filterReturnValue(plain, single)
    sets = handles.kind("java.util.Set")
    remove = handles.virtual(sets, "remove", handles.boolean, thing).asType(handles.type(handles.boolean, sets, string))
    return handles.filtered(remove, 1, key)


def to_stream(handles: Handles) -> Any:
    """(iterable) -> a sequential stream; Py4J does not see the default methods of interfaces."""
    spliterator = handles.kind("java.util.Spliterator")
    split = handles.virtual(handles.kind("java.lang.Iterable"), "spliterator", spliterator)
    support, stream = (handles.kind(f"java.util.stream.{name}") for name in ("StreamSupport", "Stream"))
    to_stream = handles.static(support, "stream", stream, spliterator, handles.boolean)
    return handles.all.collectArguments(handles.bound(to_stream, 1, False), 0, split)
