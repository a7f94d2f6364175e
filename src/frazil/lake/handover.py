"""Gives files to an iceberg-java operation, in few crossings between Python and Java.

    few files    each: JSON --> Jackson tree --> ContentFileParser --> operation.add        three crossings a file
    many files   one JSON array --> Jackson tree --forEach--> (parse the entry, add it)     a fixed number
                                                               one method handle, runs inside the JVM

Measured on two busy cores: 0.35 ms a file one by one; 6.5 ms for the handle and then 0.02 ms a file. 500 files take
165 ms one by one and 15 ms with the handle; they cost the same at about 18.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.lake.catalogs import Catalog

_ICEBERG = "org.apache.iceberg."
_MANY = 18
_JACKSON_NODE = _ICEBERG + "shaded.com.fasterxml.jackson.databind.JsonNode"


@dataclass(frozen=True, slots=True)
class Adder:
    """A method of an operation's interface that takes one file."""

    interface: str
    method: str
    takes: str


APPEND_FILE = Adder("AppendFiles", "appendFile", "DataFile")
ADD_ROWS = Adder("RowDelta", "addRows", "DataFile")
ADD_DELETES = Adder("RowDelta", "addDeletes", "DeleteFile")


def hand_over(catalog: Catalog, adder: Adder, operation: Any, files: Sequence[Mapping[str, Any]], specs: Any) -> None:
    """Adds the files, each in the form of ContentFileParser, to the operation. Raises what Java raises."""
    if len(files) < _MANY:
        _one_by_one(catalog, adder, operation, files, specs)
        return
    jvm = catalog.spark._jvm
    parse_and_add = _parse_and_add(catalog, adder)
    specs_given = _array(catalog, jvm.java.lang.Object, specs)
    accept = jvm.java.lang.invoke.MethodHandles.insertArguments(parse_and_add.bindTo(operation), 1, specs_given)
    consumer = jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
        jvm.java.lang.Class.forName("java.util.function.Consumer"), accept
    )
    catalog.iceberg.util.JsonUtil.mapper().readTree(json.dumps(list(files))).forEach(consumer)


def _one_by_one(catalog: Catalog, adder: Adder, operation: Any, files: Sequence[Mapping[str, Any]], specs: Any) -> None:
    if not files:
        return
    tree = catalog.iceberg.util.JsonUtil.mapper().readTree
    parse = catalog.iceberg.ContentFileParser.fromJson
    add = getattr(operation, adder.method)
    for file in files:
        add(parse(tree(json.dumps(file)), specs))


_handles: dict[tuple[str, Adder], Any] = {}


def _parse_and_add(catalog: Catalog, adder: Adder) -> Any:
    """A handle (operation, entry, specs) that parses the entry and adds it; made once per session."""
    key = catalog.spark.sparkContext.applicationId, adder
    if key not in _handles:
        _handles[key] = _compose(catalog, adder)
    return _handles[key]


def _compose(catalog: Catalog, adder: Adder) -> Any:
    jvm = catalog.spark._jvm
    handles = jvm.java.lang.invoke.MethodHandles
    class_of, loader = jvm.java.lang.Class.forName, catalog.java.getClass().getClassLoader()
    content, taken = (class_of(_ICEBERG + name, True, loader) for name in ("ContentFile", adder.takes))
    interface = class_of(_ICEBERG + adder.interface, True, loader)
    node, specs = class_of(_JACKSON_NODE, True, loader), class_of("java.util.Map")

    lookup = handles.publicLookup()
    parse = lookup.findStatic(
        class_of(_ICEBERG + "ContentFileParser", True, loader),
        "fromJson",
        _method_type(catalog, content, node, specs),
    )
    add = lookup.findVirtual(interface, adder.method, _method_type(catalog, interface, taken))
    add = add.asType(_method_type(catalog, interface, interface, content))
    return handles.collectArguments(add, 1, parse)


def _method_type(catalog: Catalog, returned: Any, *taken: Any) -> Any:
    jvm = catalog.spark._jvm
    parameters = jvm.java.util.ArrayList()
    for kind in taken:
        parameters.add(kind)
    return jvm.java.lang.invoke.MethodType.methodType(returned, parameters)


def _array(catalog: Catalog, kind: Any, *values: Any) -> Any:
    array = catalog.spark.sparkContext._gateway.new_array(kind, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array
