"""Gives files and facts to an iceberg-java operation, in few crossings between Python and Java.

    few files    each: JSON --> Jackson tree --> ContentFileParser --> operation.add        three crossings a file
    many files   one JSON array --> Jackson tree --forEach--> (parse the entry, add it)     a fixed number
                                                               one method handle, runs inside the JVM
    summary      one JSON object --> Map --forEach--> operation.set                         a fixed number

Measured on two busy cores: 0.35 ms a file one by one; 6.5 ms for the handle and then 0.02 ms a file. 500 files take
165 ms one by one and 15 ms with the handle; they cost the same at about 18.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.jvm.method_handles import Handles, handles_of, made_once

_MANY = 18
_JACKSON_NODE = "shaded.com.fasterxml.jackson.databind.JsonNode"
_JACKSON_FEATURE = "org.apache.iceberg.shaded.com.fasterxml.jackson.core.JsonParser$Feature"


@dataclass(frozen=True, slots=True)
class Adder:
    """A method of an operation's interface that takes one file."""

    interface: str
    method: str
    takes: str


APPEND_FILE = Adder("AppendFiles", "appendFile", "DataFile")
OVERWRITE_FILE = Adder("OverwriteFiles", "addFile", "DataFile")
ADD_ROWS = Adder("RowDelta", "addRows", "DataFile")
ADD_DELETES = Adder("RowDelta", "addDeletes", "DeleteFile")
REMOVE_DELETES = Adder("RowDelta", "removeDeletes", "DeleteFile")
REWRITE_ADD_ROWS = Adder("RewriteFiles", "addFile", "DataFile")
REWRITE_REMOVE_ROWS = Adder("RewriteFiles", "deleteFile", "DataFile")
REWRITE_ADD_DELETES = Adder("RewriteFiles", "addFile", "DeleteFile")
REWRITE_REMOVE_DELETES = Adder("RewriteFiles", "deleteFile", "DeleteFile")


def hand_over(catalog: Catalog, adder: Adder, operation: Any, files: Sequence[Mapping[str, Any]], specs: Any) -> None:
    """Gives the files, each in the form of ContentFileParser, to the operation. Raises what Java raises."""
    if not files:
        return
    if len(files) < _MANY:
        _one_by_one(catalog, adder, operation, files, specs)
        return
    handles = handles_of(catalog)
    parse_and_add = made_once(catalog, f"{adder}", lambda made: _parse_and_add(made, adder))
    accept = handles.bound(parse_and_add.bindTo(operation), 1, specs)
    consumer = handles.as_function(accept, "java.util.function.Consumer")
    _mapper(catalog).readTree(json.dumps(list(files))).forEach(consumer)


def add_numbered_deletes(
    catalog: Catalog, operation: Any, deletes: Sequence[tuple[Mapping[str, Any], int]], specs: Any
) -> None:
    """Gives delete files to a RewriteFiles, with their sequence numbers. Raises what Java raises."""
    for entry, sequence_number in deletes:
        operation.addFile(_parsed(catalog, entry, specs), sequence_number)


def add_older_deletes(
    catalog: Catalog, operation: Any, deletes: Sequence[tuple[Mapping[str, Any], int]], specs: Any
) -> None:
    """The same for a RowDelta, whose interface has no such method; what it is made of has. Raises what Java raises."""
    handles, add = handles_of(catalog), made_once(catalog, "older deletes", _older_deletes)
    for entry, sequence_number in deletes:
        handles.call(add, operation, _parsed(catalog, entry, specs), sequence_number)


def set_summary(catalog: Catalog, operation: Any, summary: Mapping[str, str]) -> None:
    handles = handles_of(catalog)
    setter = made_once(catalog, "SnapshotUpdate.set", _setter).bindTo(operation)
    java_map(catalog, summary).forEach(handles.as_function(setter, "java.util.function.BiConsumer"))


def java_map(catalog: Catalog, entries: Mapping[str, str]) -> Any:
    """A java.util.Map, in two crossings whatever its size."""
    return _mapper(catalog).readValue(json.dumps(dict(entries)), made_once(catalog, "class Map", _class_map))


def java_list(catalog: Catalog, entries: Sequence[str]) -> Any:
    return _mapper(catalog).readValue(json.dumps(list(entries)), made_once(catalog, "class List", _class_list))


def _one_by_one(catalog: Catalog, adder: Adder, operation: Any, files: Sequence[Mapping[str, Any]], specs: Any) -> None:
    add = getattr(operation, adder.method)
    for file in files:
        add(_parsed(catalog, file, specs))


def _parsed(catalog: Catalog, file: Mapping[str, Any], specs: Any) -> Any:
    parse = made_once(catalog, "ContentFileParser", lambda _: catalog.iceberg.ContentFileParser).fromJson
    return parse(_mapper(catalog).readTree(json.dumps(file)), specs)


def _parse_and_add(handles: Handles, adder: Adder) -> Any:
    """A handle (operation, entry, specs) that parses the entry and adds it."""
    content, taken, interface = (handles.iceberg(name) for name in ("ContentFile", adder.takes, adder.interface))
    node, specs = handles.iceberg(_JACKSON_NODE), handles.kind("java.util.Map")
    parse = handles.static(handles.iceberg("ContentFileParser"), "fromJson", content, node, specs)
    add = handles.virtual(interface, adder.method, interface, taken)
    add = add.asType(handles.type(interface, interface, content))
    return handles.all.collectArguments(add, 1, parse)


def _older_deletes(handles: Handles) -> Any:
    return handles.hidden(
        handles.iceberg("MergingSnapshotProducer"), "add", handles.iceberg("DeleteFile"), handles.long
    )


def _setter(handles: Handles) -> Any:
    text, update = handles.kind("java.lang.String"), handles.iceberg("SnapshotUpdate")
    return handles.virtual(update, "set", handles.kind("java.lang.Object"), text, text)


def _mapper(catalog: Catalog) -> Any:
    return made_once(catalog, "mapper", lambda _: _tolerant_mapper(catalog))


def _tolerant_mapper(catalog: Catalog) -> Any:
    """Jackson, which also takes NaN and the infinities as Python writes them: a partition value may be one."""
    feature = getattr(catalog.spark._jvm, _JACKSON_FEATURE).ALLOW_NON_NUMERIC_NUMBERS
    return catalog.iceberg.util.JsonUtil.mapper().copy().configure(feature, True)


def _class_map(handles: Handles) -> Any:
    return handles.kind("java.util.HashMap")


def _class_list(handles: Handles) -> Any:
    return handles.kind("java.util.ArrayList")
