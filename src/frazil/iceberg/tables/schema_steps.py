"""The steps by which a table's schema changes, as values with a text for people.

    SchemaChange   Add x long, Widen n to long, Rename b to c, ...   + what the table then remembers of the columns

Paths are the table's own names before the change (`tags.element`, `m.value`), parents of additions those after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.model.schema import Column, Remembered, Schema, Type

Path = tuple[str, ...]


def dotted(path: Path) -> str:
    """As iceberg-java names a nested field."""
    return ".".join(path)


@dataclass(frozen=True, slots=True)
class Add:
    """`beside` tells the column whose values go on in this one from now on, with its type."""

    parent: Path
    column: Column
    beside: str | None = None

    @property
    def text(self) -> str:
        name = dotted((*self.parent, self.column.name))
        if self.beside is not None:
            return f"starts {name} {self.column.type} beside {self.beside}"
        return f"adds column {name} {self.column.type}"


@dataclass(frozen=True, slots=True)
class Widen:
    path: Path
    was: Type
    to: Type

    @property
    def text(self) -> str:
        return f"widens {dotted(self.path)} from {self.was} to {self.to}"


@dataclass(frozen=True, slots=True)
class MakeOptional:
    path: Path

    @property
    def text(self) -> str:
        return f"makes {dotted(self.path)} optional"


@dataclass(frozen=True, slots=True)
class Rename:
    path: Path
    to: str

    @property
    def text(self) -> str:
        return f"renames {dotted(self.path)} to {dotted((*self.path[:-1], self.to))}"


@dataclass(frozen=True, slots=True)
class Drop:
    path: Path

    @property
    def text(self) -> str:
        return f"drops {dotted(self.path)}, which the source has dropped"


@dataclass(frozen=True, slots=True)
class Move:
    """To the place behind `after`, or to the first; both by their names after the change."""

    name: str
    after: str | None

    @property
    def text(self) -> str:
        return f"moves {self.name} " + ("to the front" if self.after is None else f"behind {self.after}")


Step = Add | Widen | MakeOptional | Rename | Drop | Move


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """`columns` are the wanted ones under the names they have in the table then; `memory` is what it remembers then, by
    the name of the field; `notes` tell what is left undone, and why."""

    steps: tuple[Step, ...] = ()
    columns: tuple[Column, ...] = ()
    memory: Mapping[str, Remembered] = field(default_factory=dict)
    remembers_more: bool = False
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps) or self.remembers_more

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(step.text for step in self.steps)

    @property
    def stages(self) -> tuple[tuple[Step, ...], ...]:
        """Steps that may be taken at once, by names that hold before each stage."""
        drops = tuple(step for step in self.steps if isinstance(step, Drop))
        within = tuple(step for step in self.steps if isinstance(step, (Widen, MakeOptional, Rename)))
        after = tuple(step for step in self.steps if isinstance(step, (Add, Move)))
        return tuple(stage for stage in (drops, within, after) if stage)

    @property
    def added(self) -> tuple[Add, ...]:
        return tuple(step for step in self.steps if isinstance(step, Add))

    def memory_of(self, schema: Schema) -> dict[int, Remembered]:
        """By the ids of the schema after the change."""
        return {f.id: self.memory[f.name] for f in schema if f.name in self.memory}
