"""What a head holds: its live data files and the deletes that apply to each, out of the manifests.

    manifests of the snapshot --one stream inside the JVM--> a line per entry --> Listing --applied--> LiveFiles

    the head is                                   how its listing is made
    the one that was asked for last               it is known
    what our own accepted commit made of it       from the plan: no manifest is read
    anything else that shares manifests with it   entries of manifests that came, minus those of manifests that went:
                                                  foreign appends, deletes, rewrites and rollbacks alike
    unknown                                       all manifests

A manifest never changes, so the difference of two sets of manifests is the difference of two heads, whatever happened
in between. Nothing is pruned here: bounds tell a reader what to skip, and iceberg-java orders some of them wrongly.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog, catalog_error
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.iceberg.jvm.method_handles import Handles, lines, made_once
from frazil.iceberg.tables.fields import float_places
from frazil.iceberg.tables.file_listing import (
    FILE_PATH_ID,
    Entry,
    Listing,
    advanced,
    applied,
    changed,
    parse_entry,
    reapplied,
)
from frazil.iceberg.tables.head import Base
from frazil.model.commit import CommitPlan
from frazil.model.files import FileKind, LiveDelete, LiveFiles
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead

ENTRIES_KEPT_MAX = 2_000_000
_FEW = 8
_SPARSE = 0.5
"""Of the manifests: if more than this changed, reading all of them is no more work than telling the difference."""


class LiveReader:
    """Lists the live files of heads of one catalog; keeps what it listed last of each table. Thread-safe."""

    def __init__(self, catalog: Catalog, entries_kept: int = ENTRIES_KEPT_MAX) -> None:
        self._catalog = catalog
        self._entries_kept = entries_kept
        self._kept: OrderedDict[tuple[str, tuple[int, ...]], tuple[Listing, LiveFiles]] = OrderedDict()
        self._lock = Lock()
        self.manifests_read = 0

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int]) -> LiveFiles:
        """Raises CatalogUnavailable if the manifests cannot be read."""
        base = head.base
        if not isinstance(base, Base):
            raise TypeError(f"the head of {table} was not read from this lake")
        key = head.uuid, tuple(sorted(bounds_of))
        with self._lock:
            known = self._kept.get(key)
        if known is not None and known[0].snapshot_id == head.snapshot_id:
            return known[1]
        if head.snapshot_id is None:
            return LiveFiles(snapshot_id=None)
        try:
            listing = self._derived(base, head.snapshot_id, key[1], known[0] if known else None)
        except JAVA_ERRORS as error:
            raise catalog_error(self._catalog, error, "read the manifests of", table.text) from None
        return self._keep(key, listing, applied(listing))

    def committed(self, head: TableHead, plan: CommitPlan, snapshot_id: int, sequence_number: int) -> None:
        """Our commit landed on this head: what is known of it becomes what is known of the new one."""
        with self._lock:
            known = [(key, *kept) for key, kept in self._kept.items() if key[0] == head.uuid]
        for key, listing, live in known:
            if listing.snapshot_id == head.snapshot_id:
                after = advanced(listing, plan, snapshot_id, sequence_number, key[1])
                if after is not None:
                    self._keep(key, after, reapplied(after, live, plan))

    def _keep(self, key: tuple[str, tuple[int, ...]], listing: Listing, live: LiveFiles) -> LiveFiles:
        with self._lock:
            self._kept[key] = listing, live
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and self._entries() > self._entries_kept:
                self._kept.popitem(last=False)
        return live

    def _entries(self) -> int:
        return sum(len(listing) for listing, _ in self._kept.values())

    def _derived(self, base: Base, snapshot_id: int, bounds_of: tuple[int, ...], known: Listing | None) -> Listing:
        manifests = _Manifests(self._catalog, base, base.metadata.snapshot(snapshot_id))
        before = None if known is None or known.snapshot_id is None else base.metadata.snapshot(known.snapshot_id)
        if known is not None and before is not None:
            try:
                older = _Manifests(self._catalog, base, before)
                came, went = manifests.paths - older.paths, older.paths - manifests.paths
                if len(came) + len(went) <= max(_FEW, _SPARSE * len(manifests.paths)):
                    gone = older.read(went, bounds_of)
                    return self._read(known, snapshot_id, manifests, came, bounds_of, gone)
            except JAVA_ERRORS:
                # The older head's manifests may be deleted by now; the newer one's say everything.
                pass
        return self._read(Listing(None, {}, {}), snapshot_id, manifests, manifests.paths, bounds_of, ())

    def _read(
        self,
        listing: Listing,
        snapshot_id: int,
        manifests: _Manifests,
        wanted: frozenset[str],
        bounds_of: tuple[int, ...],
        gone: Iterable[Entry],
    ) -> Listing:
        came = manifests.read(wanted, bounds_of)
        self.manifests_read += len(wanted)
        by_equality = {entry.spec_id for entry in came if isinstance(entry, LiveDelete) and entry.equality_ids}
        everywhere = manifests.unpartitioned(by_equality - listing.everywhere)
        return changed(listing, snapshot_id, gone, came, everywhere)


def entries_of(catalog: Catalog, base: Base, snapshot_id: int) -> list[Entry]:
    """Every live entry of every manifest of a snapshot, as it stands there: a file that is registered twice comes
    twice. Raises what Java raises."""
    manifests = _Manifests(catalog, base, base.metadata.snapshot(snapshot_id))
    return manifests.read(manifests.paths, ())


class _Manifests:
    """The manifests of one snapshot."""

    def __init__(self, catalog: Catalog, base: Base, snapshot: Any) -> None:
        self._catalog = catalog
        self._base = base
        self._io = base.table.io()
        self._java = {
            FileKind.DATA: snapshot.dataManifests(self._io),
            FileKind.POSITION_DELETE: snapshot.deleteManifests(self._io),
        }
        path_of = made_once(catalog, "manifest path", _manifest_path)
        self._paths = {kind: lines(catalog, java.stream().map(path_of)) for kind, java in self._java.items()}
        self.paths = frozenset(path for paths in self._paths.values() for path in paths)

    def read(self, wanted: frozenset[str], bounds_of: tuple[int, ...]) -> list[Entry]:
        """The live entries of these manifests. Equality deletes know whether they apply everywhere."""
        specs, floats = self._base.metadata.specsById(), float_places(self._base.document)
        found: list[Entry] = []
        for kind, java in self._java.items():
            paths = self._paths[kind]
            if not wanted.isdisjoint(paths):
                chosen = java if wanted.issuperset(paths) else self._chosen(java, paths, wanted)
                columns = (FILE_PATH_ID,) if kind is not FileKind.DATA else bounds_of
                for line in self._entries(kind, chosen, specs, columns):
                    sequence, brace, rest = line.partition("{")
                    found.append(parse_entry(json.loads(brace + rest), int(sequence), floats))
        return found

    def unpartitioned(self, spec_ids: Iterable[int]) -> frozenset[int]:
        specs = self._base.metadata.specsById()
        return frozenset(spec_id for spec_id in spec_ids if specs.get(spec_id).isUnpartitioned())

    def _chosen(self, java: Any, paths: Sequence[str], wanted: frozenset[str]) -> Any:
        chosen = self._catalog.spark._jvm.java.util.ArrayList()
        for place, path in enumerate(paths):
            if path in wanted:
                chosen.add(java.get(place))
        return chosen

    def _entries(self, kind: FileKind, manifests: Any, specs: Any, columns: tuple[int, ...]) -> list[str]:
        handles = made_once(self._catalog, "entries", _EntryHandles)
        readers = manifests.stream().map(handles.reader(kind is FileKind.DATA, self._io, specs)).toList()
        ids = self._catalog.spark._jvm.java.util.HashSet()
        for column in columns:
            ids.add(column)
        # Closes each manifest when it is through, and reads several at a time.
        pool = self._catalog.iceberg.util.ThreadPools.getWorkerPool()
        entries = self._catalog.iceberg.util.ParallelIterable(readers, pool)
        try:
            return lines(self._catalog, handles.stream(entries).map(handles.line(ids, specs)))
        finally:
            entries.close()


class _EntryHandles:
    """(manifest) -> its reader, and (entry) -> its sequence number and JSON."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        file, spec, text = handles.iceberg("ContentFile"), handles.iceberg("PartitionSpec"), handles.kind(_STRING)
        thing, mapping, integer = (handles.kind(name) for name in ("java.lang.Object", "java.util.Map", _INTEGER))
        long, ids = handles.kind("java.lang.Long"), handles.kind("java.util.Set")
        reader, manifest, io = (handles.iceberg(name) for name in ("ManifestReader", "ManifestFile", "io.FileIO"))
        files = handles.iceberg("ManifestFiles")
        self._read = handles.static(files, "read", reader, manifest, io, mapping)
        self._read_deletes = handles.static(files, "readDeleteManifest", reader, manifest, io, mapping)

        spec_id = handles.virtual(file, "specId", handles.int).asType(handles.type(integer, file))
        get = handles.virtual(mapping, "get", thing, thing).asType(handles.type(spec, mapping, integer))
        spec_of = handles.filtered(get, 1, spec_id)
        to_json = handles.static(handles.iceberg("ContentFileParser"), "toJson", text, file, spec)
        as_json = handles.all.collectArguments(to_json, 1, spec_of)
        slim = handles.virtual(file, "copyWithStats", thing, ids).asType(handles.type(file, file, ids))
        as_json = handles.all.collectArguments(as_json, 0, slim)
        number = handles.virtual(file, "dataSequenceNumber", long)
        number = handles.all.filterReturnValue(
            number, handles.static(text, "valueOf", text, thing).asType(handles.type(text, long))
        )
        concat = handles.virtual(text, "concat", text, text)
        line = handles.all.collectArguments(handles.all.collectArguments(concat, 0, number), 1, as_json)
        # (file, file, ids, specs, file) becomes (file, ids, specs).
        self._line = handles.permuted(line, handles.type(text, file, ids, mapping), 0, 0, 1, 2, 0)

        spliterator = handles.kind("java.util.Spliterator")
        split = handles.virtual(handles.kind("java.lang.Iterable"), "spliterator", spliterator)
        support, stream = (handles.kind(f"java.util.stream.{name}") for name in ("StreamSupport", "Stream"))
        to_stream = handles.static(support, "stream", stream, spliterator, handles.boolean)
        self._stream = handles.all.collectArguments(handles.bound(to_stream, 1, False), 0, split)

    def stream(self, iterable: Any) -> Any:
        """A sequential stream; Py4J does not see the default methods of interfaces."""
        return self._handles.call(self._stream, iterable)

    def reader(self, data: bool, io: Any, specs: Any) -> Any:
        return self._handles.as_function(self._handles.bound(self._read if data else self._read_deletes, 1, io, specs))

    def line(self, ids: Any, specs: Any) -> Any:
        return self._handles.as_function(self._handles.bound(self._line, 1, ids, specs))


_STRING, _INTEGER = "java.lang.String", "java.lang.Integer"


def _manifest_path(handles: Handles) -> Any:
    return handles.as_function(handles.virtual(handles.iceberg("ManifestFile"), "path", handles.kind(_STRING)))
