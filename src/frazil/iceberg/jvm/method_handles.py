"""Small functions that run inside the JVM, made of method handles: what spares a crossing for every element.

    find a static or virtual method --filter, permute, bind--> MethodHandle --as_function--> java.util.function.*
                                                                            `-text--> Python, piece by piece

Python cannot hand a lambda to Java without Java calling back for each element. A composed handle is Java's own: a
stream of ten thousand entries is mapped and collected in one crossing. Handles are made once per session.

A long text comes in pieces: Py4J answers in writes of 8 KiB, and the last of several waits for an acknowledgement that
the operating system holds back for 40 ms. One write is never held back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog

_ICEBERG = "org.apache.iceberg."
PIECE = 7_900
_LINE_END = "\n"
_made: dict[tuple[str, str], Any] = {}


class Handles:
    """Finds and composes method handles of one session's JVM."""

    def __init__(self, catalog: Catalog) -> None:
        jvm = catalog.spark._jvm
        self._gateway = catalog.spark.sparkContext._gateway
        self._loader = catalog.java.getClass().getClassLoader()
        self._class, self._class_of = jvm.java.lang.Class, jvm.java.lang.Class.forName
        self._method_type = jvm.java.lang.invoke.MethodType.methodType
        self._as_interface = jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance
        self._list = jvm.java.util.ArrayList
        self._handle, self._object, self._int = jvm.java.lang.invoke.MethodHandle, jvm.java.lang.Object, jvm.int
        self._kinds: dict[str, Any] = {}
        self.all = jvm.java.lang.invoke.MethodHandles
        self.int, self.boolean = jvm.java.lang.Integer.TYPE, jvm.java.lang.Boolean.TYPE
        self.long = jvm.java.lang.Long.TYPE
        self._lookup = self.all.publicLookup()
        builder, text = self.kind("java.lang.StringBuilder"), self.kind("java.lang.String")
        void = self._method_type(jvm.java.lang.Void.TYPE, text)
        self.to_builder = self._lookup.findConstructor(builder, void)

    def iceberg(self, name: str) -> Any:
        """A class of iceberg-java, by its name below the root package."""
        return self.kind(_ICEBERG + name)

    def kind(self, name: str) -> Any:
        if name not in self._kinds:
            self._kinds[name] = self._class_of(name, True, self._loader)
        return self._kinds[name]

    def static(self, owner: Any, name: str, returned: Any, *taken: Any) -> Any:
        return self._lookup.findStatic(owner, name, self.type(returned, *taken))

    def virtual(self, owner: Any, name: str, returned: Any, *taken: Any) -> Any:
        return self._lookup.findVirtual(owner, name, self.type(returned, *taken))

    def hidden(self, owner: Any, name: str, *taken: Any) -> Any:
        """A method that is not public."""
        method = owner.getDeclaredMethod(name, self._array(self._class, *taken))
        method.setAccessible(True)
        return self._lookup.unreflect(method)

    def type(self, returned: Any, *taken: Any) -> Any:
        parameters = self._list()
        for kind in taken:
            parameters.add(kind)
        return self._method_type(returned, parameters)

    def filtered(self, handle: Any, position: int, *filters: Any) -> Any:
        """`handle` with each argument from `position` on passed through a filter first."""
        return self.all.filterArguments(handle, position, self._array(self._handle, *filters))

    def permuted(self, handle: Any, type_: Any, *order: int) -> Any:
        return self.all.permuteArguments(handle, type_, self._array(self._int, *order))

    def bound(self, handle: Any, position: int, *values: Any) -> Any:
        return self.all.insertArguments(handle, position, self._array(self._object, *values))

    def as_function(self, handle: Any, interface: str = "java.util.function.Function") -> Any:
        return self._as_interface(self.kind(interface), handle)

    def call(self, handle: Any, *arguments: Any) -> Any:
        return handle.invokeWithArguments(self._array(self._object, *arguments))

    def in_java(self, handle: Any) -> Any:
        """A handle that returns a String, so that its text stays in the JVM; `text` brings it over."""
        return self.all.filterReturnValue(handle, self.to_builder)

    def _array(self, kind: Any, *values: Any) -> Any:
        array = self._gateway.new_array(kind, len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array


def text(builder: Any) -> str:
    """The content of a java.lang.StringBuilder."""
    length = builder.length()
    return "".join(builder.substring(start, min(start + PIECE, length)) for start in range(0, length, PIECE))


def made_once(catalog: Catalog, name: str, make: Callable[[Handles], Any]) -> Any:
    """What `make` composes, once per session and name."""
    key = catalog.spark.sparkContext.applicationId, name
    found = _made.get(key)
    if found is None:
        found = make(Handles(catalog) if name == _HANDLES else made_once(catalog, _HANDLES, _itself))
        _made[key] = found
    return found


def forget_handles() -> None:
    """Of a session that is gone."""
    _made.clear()


def handles_of(catalog: Catalog) -> Handles:
    found = made_once(catalog, _HANDLES, _itself)
    assert isinstance(found, Handles)
    return found


_HANDLES = "handles"


def _itself(handles: Handles) -> Handles:
    return handles


def lines(catalog: Catalog, stream: Any) -> list[str]:
    """A stream of texts, in one crossing; none of them may hold a line's end."""
    joined = text(stream.collect(made_once(catalog, "joining", _joining)))
    return joined.split(_LINE_END) if joined else []


def _joining(handles: Handles) -> Any:
    """A collector of lines into one text that stays in the JVM."""
    collectors, collector = handles.kind("java.util.stream.Collectors"), handles.kind("java.util.stream.Collector")
    sequence, function = handles.kind("java.lang.CharSequence"), handles.kind("java.util.function.Function")
    joining = handles.call(handles.static(collectors, "joining", collector, sequence), _LINE_END)
    keep = handles.as_function(handles.to_builder)
    then = handles.static(collectors, "collectingAndThen", collector, collector, function)
    return handles.call(then, joining, keep)
