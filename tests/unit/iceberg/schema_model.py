"""A table's schema as a model: applies planned steps as iceberg-java does, by names as they are before each stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from frazil.iceberg.tables.schema_steps import Add, Drop, MakeOptional, Move, Path, Rename, SchemaChange, Step, Widen
from frazil.model.schema import Field, ListOf, MapOf, Remembered, Schema, StructOf, Type


@dataclass
class ModelTable:
    """`last_id` is never given twice, not even after a drop."""

    schema: Schema
    known: Mapping[int, Remembered] = field(default_factory=dict)
    last_id: int = 0

    def __post_init__(self) -> None:
        self.last_id = max(self.last_id, *(ids(StructOf(self.schema.fields)) or [0]))

    def apply(self, change: SchemaChange) -> None:
        for stage in change.stages:
            for step in sorted(stage, key=lambda step: isinstance(step, Rename)):
                self._take(step)
            self._unveil()
        names = [f.name for f in self.schema]
        assert len(set(names)) == len(names), f"a name appears twice: {names}"
        self.known = change.memory_of(self.schema)

    def _take(self, step: Step) -> None:
        match step:
            case Drop(path):
                self._edit(path[:-1], lambda fields: [f for f in fields if f.name != path[-1]])
            case Widen(path, was, to):
                self._retype(path, lambda found: to if found == was else _unexpected(path, found, was))
            case MakeOptional(path):
                self._change(path, lambda f: replace(f, required=False))
            case Rename(path, to):
                self._change(path, lambda f: replace(f, name=f"\0{to}"))
            case Add(parent, column):
                new = Field(self._next(), column.name, self._numbered(column.type), doc=column.source_type or None)
                self._edit(parent, lambda fields: [*fields, new])
            case Move(name, after):
                moved = self.schema.field(name)
                assert moved is not None, name
                rest = [f for f in self.schema if f is not moved]
                at = 0 if after is None else [f.name for f in rest].index(after) + 1
                self.schema = replace(self.schema, fields=(*rest[:at], moved, *rest[at:]))

    def _unveil(self) -> None:
        """Renames of one stage go by the names before it: the new names are veiled until it is over."""

        def shown(type_: Type) -> Type:
            match type_:
                case StructOf(fields):
                    return StructOf(
                        tuple(replace(f, name=f.name.removeprefix("\0"), type=shown(f.type)) for f in fields)
                    )
                case _:
                    return type_

        unveiled = shown(StructOf(self.schema.fields))
        assert isinstance(unveiled, StructOf)
        self.schema = replace(self.schema, fields=unveiled.fields)

    def _next(self) -> int:
        self.last_id += 1
        return self.last_id

    def _numbered(self, type_: Type) -> Type:
        match type_:
            case ListOf():
                return replace(type_, element_id=self._next(), element=self._numbered(type_.element))
            case MapOf():
                key_id, value_id = self._next(), self._next()
                return replace(type_, key_id=key_id, value_id=value_id, value=self._numbered(type_.value))
            case StructOf(fields):
                return StructOf(tuple(replace(f, id=self._next(), type=self._numbered(f.type)) for f in fields))
            case _:
                return type_

    def _edit(self, parent: Path, edit: Callable[[list[Field]], list[Field]]) -> None:
        if not parent:
            self.schema = replace(self.schema, fields=tuple(edit(list(self.schema.fields))))
            return

        def in_struct(type_: Type) -> Type:
            assert isinstance(type_, StructOf), parent
            return StructOf(tuple(edit(list(type_.fields))))

        self._retype(parent, in_struct)

    def _change(self, path: Path, change: Callable[[Field], Field]) -> None:
        def one(fields: list[Field]) -> list[Field]:
            assert path[-1] in [f.name for f in fields], path
            return [change(f) if f.name == path[-1] else f for f in fields]

        self._edit(path[:-1], one)

    def _retype(self, path: Path, to: Callable[[Type], Type]) -> None:
        root = _at(StructOf(self.schema.fields), path, to)
        assert isinstance(root, StructOf)
        self.schema = replace(self.schema, fields=root.fields)


def _at(type_: Type, path: Path, to: Callable[[Type], Type]) -> Type:
    if not path:
        return to(type_)
    head, rest = path[0], path[1:]
    match type_:
        case ListOf() if head == "element":
            return replace(type_, element=_at(type_.element, rest, to))
        case MapOf() if head == "value":
            return replace(type_, value=_at(type_.value, rest, to))
        case StructOf(fields) if type_.field(head) is not None:
            return StructOf(tuple(replace(f, type=_at(f.type, rest, to)) if f.name == head else f for f in fields))
    raise AssertionError(f"no {path} in {type_}")


def _unexpected(path: Path, found: Type, was: Type) -> Type:
    raise AssertionError(f"{path} is {found}, not {was}")


def ids(type_: Type) -> list[int]:
    match type_:
        case ListOf():
            return [type_.element_id, *ids(type_.element)]
        case MapOf():
            return [type_.key_id, type_.value_id, *ids(type_.key), *ids(type_.value)]
        case StructOf(fields):
            return [i for f in fields for i in (f.id, *ids(f.type))]
        case _:
            return []
