"""Writes the entries of several manifests of deletes into one: what iceberg-java's core replaces, but does not write.

    manifests --piles of one spec, up to the target size--> each: entries --ManifestWriter.existing--> one manifest
                                                                    status "existing", and with it, as they were:
                                                                    snapshot, data and file sequence number

Which rows a delete reaches follows from its data sequence number, so an entry that is moved keeps it. A file tells its
sequence numbers; which snapshot added it is told by the table of entries alone. Everything runs inside the JVM; a new
manifest is named as those of Iceberg's own action are, so that the sweep knows it if its commit does not land. That
action, on Spark, reads the entries of the whole table each time: decision 16.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.jvm.bridge import java_list, java_map
from frazil.iceberg.jvm.method_handles import Handles, handles_of, lines, made_once
from frazil.iceberg.tables.head import Base
from frazil.iceberg.tables.reachability import to_stream

_TARGET = "commit.manifest.target-size-bytes"
_TARGET_LEAST = 8 << 20
"""However small manifests are to be: what is called small because of it always finds room beside another one."""
_DELETED = 2


def rewrite_manifests(catalog: Catalog, base: Base, operation: Any, paths: Sequence[str]) -> None:
    """Puts exactly these manifests of the base together, in a RewriteManifests operation. Raises what Java raises."""
    if _merge_deletes(catalog, base, operation, frozenset(paths)) < len(paths):
        chosen = made_once(catalog, "manifest among", _among)
        handles = chosen.handles
        operation.clusterBy(handles.as_function(made_once(catalog, "spec id of file", _spec_id)))
        wanted = catalog.spark._jvm.java.util.HashSet(java_list(catalog, paths))
        operation.rewriteIf(handles.as_function(chosen.contains.bindTo(wanted), "java.util.function.Predicate"))


def _merge_deletes(catalog: Catalog, base: Base, operation: Any, wanted: Collection[str]) -> int:
    """Replaces those of the base's delete manifests that are wanted, in a RewriteManifests operation; a manifest that
    has no neighbour to go with stays, and one without a live entry goes. Says how many are replaced. Raises what Java
    raises."""
    found = base.metadata.snapshot(base.parent_id).deleteManifests(base.table.io())
    chosen = [one for place in range(found.size()) if (one := found.get(place)).path() in wanted]
    empty = [one for one in chosen if not one.hasExistingFiles() and not one.hasAddedFiles()]
    for one in empty:
        operation.deleteManifest(one)
    piles = [pile for pile in _piles(base, [one for one in chosen if one not in empty]) if len(pile) > 1]
    if not piles:
        return len(empty)
    added_by = _added_by(catalog, base, {one.path() for pile in piles for one in pile})
    for pile in piles:
        operation.addManifest(_written(catalog, base, pile, added_by))
        for one in pile:
            operation.deleteManifest(one)
    return len(empty) + sum(map(len, piles))


def _piles(base: Base, manifests: Sequence[Any]) -> list[list[Any]]:
    target = max(base.metadata.propertyAsLong(_TARGET, _TARGET_LEAST), _TARGET_LEAST)
    piles: list[list[Any]] = []
    size: dict[int, int] = {}
    open_: dict[int, list[Any]] = {}
    for one in manifests:
        spec, length = one.partitionSpecId(), one.length()
        if spec not in open_ or size[spec] + length > target:
            open_[spec], size[spec] = [], 0
            piles.append(open_[spec])
        open_[spec].append(one)
        size[spec] += length
    return piles


def _added_by(catalog: Catalog, base: Base, paths: Collection[str]) -> dict[str, str]:
    """The snapshot that added the files of each file sequence number: no two snapshots of a table share one."""
    handles, iceberg = handles_of(catalog), catalog.iceberg
    entries = iceberg.MetadataTableUtils.createMetadataTableInstance(base.table, iceberg.MetadataTableType.ENTRIES)
    columns = catalog.spark._jvm.java.util.ArrayList()
    for column in ("status", "snapshot_id", "file_sequence_number"):
        columns.add(column)
    tasks = entries.newScan().useSnapshot(base.parent_id).select(columns).planFiles()
    line, stream = made_once(catalog, "entry numbers", _entry_numbers), made_once(catalog, "stream", to_stream)
    found: dict[str, str] = {}
    try:
        iterator = tasks.iterator()
        while iterator.hasNext():
            task = iterator.next()
            if task.file().location() in paths:
                rows = task.asDataTask().rows()
                for text in lines(catalog, handles.call(stream, rows).map(line)):
                    status, snapshot_id, number = text.split()
                    if int(status) != _DELETED:
                        found[number] = snapshot_id
                rows.close()
    finally:
        tasks.close()
    return found


def _written(catalog: Catalog, base: Base, pile: Sequence[Any], added_by: dict[str, str]) -> Any:
    """The manifest of all live entries of the pile."""
    table, specs = base.table, base.metadata.specsById()
    name = f"optimized-m-{catalog.spark._jvm.java.util.UUID.randomUUID().toString()}.avro"
    output = table.encryption().encrypt(table.io().newOutputFile(table.operations().metadataFileLocation(name)))
    files, handles = catalog.iceberg.ManifestFiles, handles_of(catalog)
    spec = specs.get(pile[0].partitionSpecId())
    # Without a snapshot's id, which the commit gives it.
    writer = files.writeDeleteManifest(base.metadata.formatVersion(), spec, output, None)
    add, stream = _adder(catalog, handles, writer, added_by), made_once(catalog, "stream", to_stream)
    try:
        for manifest in pile:
            reader = files.readDeleteManifest(manifest, table.io(), specs)
            try:
                handles.call(stream, reader).forEach(add)
            finally:
                reader.close()
    finally:
        writer.close()
    return writer.toManifestFile()


def _adder(catalog: Catalog, handles: Handles, writer: Any, added_by: dict[str, str]) -> Any:
    """A consumer of files that writes each as an existing entry, with the numbers it had."""
    thing, text = handles.kind("java.lang.Object"), handles.kind("java.lang.String")
    file, number = handles.iceberg("ContentFile"), handles.kind("java.lang.Long")
    nothing, mapping = catalog.spark._jvm.java.lang.Void.TYPE, handles.kind("java.util.Map")
    file_number = handles.virtual(file, "fileSequenceNumber", number)
    data_number = handles.virtual(file, "dataSequenceNumber", number).asType(handles.type(handles.long, file))
    # file -> its number as text -> the snapshot's id as text -> the snapshot's id
    as_text = handles.static(text, "valueOf", text, thing).asType(handles.type(text, number))
    number_text = handles.all.filterReturnValue(file_number, as_text).asType(handles.type(thing, file))
    known = handles.virtual(mapping, "get", thing, thing).bindTo(java_map(catalog, added_by))
    snapshot_text = handles.filtered(known, 0, number_text).asType(handles.type(text, file))
    parse = handles.static(number, "parseLong", handles.long, text)
    snapshot_id = handles.all.filterReturnValue(snapshot_text, parse)
    taken = (file, handles.long, handles.long, number)
    existing = handles.virtual(handles.iceberg("ManifestWriter"), "existing", nothing, *taken).bindTo(writer)
    whole = handles.filtered(existing, 1, snapshot_id, data_number, file_number)
    add = handles.permuted(whole, handles.type(nothing, file), 0, 0, 0, 0)
    return handles.as_function(add, "java.util.function.Consumer")


def _entry_numbers(handles: Handles) -> Any:
    """(row of the table of entries) -> its status, snapshot's id and file sequence number, as one text."""
    thing, text = handles.kind("java.lang.Object"), handles.kind("java.lang.String")
    row, kind = handles.iceberg("StructLike"), handles.kind("java.lang.Class")
    get = handles.virtual(row, "get", thing, handles.int, kind)
    as_text, concat = handles.static(text, "valueOf", text, thing), handles.virtual(text, "concat", text, text)

    def column(place: int, type_: str) -> Any:
        return handles.all.filterReturnValue(handles.bound(get, 1, place, handles.kind(f"java.lang.{type_}")), as_text)

    line = column(0, "Integer")
    for place in (1, 2):
        spaced = handles.all.filterReturnValue(line, handles.bound(concat, 1, " "))
        joined = handles.filtered(concat, 0, spaced, column(place, "Long"))
        line = handles.permuted(joined, handles.type(text, row), 0, 0)
    return handles.as_function(line)


class _Among:
    """(set of paths, manifest) -> whether its path is one of them."""

    def __init__(self, handles: Handles) -> None:
        self.handles = handles
        thing, manifest = handles.kind("java.lang.Object"), handles.iceberg("ManifestFile")
        path = handles.virtual(manifest, "path", handles.kind("java.lang.String"))
        contains = handles.virtual(handles.kind("java.util.Set"), "contains", handles.boolean, thing)
        self.contains = handles.filtered(contains, 1, path.asType(handles.type(thing, manifest)))


def _among(handles: Handles) -> _Among:
    return _Among(handles)


def _spec_id(handles: Handles) -> Any:
    """Entries of one spec may share a manifest."""
    file = handles.iceberg("ContentFile")
    whole = handles.type(handles.kind("java.lang.Integer"), file)
    return handles.virtual(file, "specId", handles.int).asType(whole)
