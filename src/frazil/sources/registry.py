"""The kinds of source: what each of them brings, and how one becomes the source of a pipeline.

    entry point of `frazil.sources` --> SourceKind --config--> a block `source:` --opened_by--> Source
                                            |-- position: what its positions are, so that any ledger can be read
                                            |-- template: what `frazil init` writes
                                            `-- preloaded: what Spark's Python workers import before the first task

A kind is a module that imports fast and needs no library that may be missing: it is loaded to read a configuration.
What reads the source is named in it as a text, and loaded where a pipeline runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

from frazil.clock import Clock
from frazil.config.block import Settings, problem
from frazil.config.entry_checks import Judgement
from frazil.config.parse_values import Duration
from frazil.config.routing import Entries
from frazil.config.table_entries import TableEntry
from frazil.errors import ConfigError
from frazil.model.position import PositionKind
from frazil.model.schema import Column
from frazil.plugins import installed, source_kinds
from frazil.sources.base import InputPartition, Memory, Source

T = TypeVar("T")
Blocks = tuple[type[Settings], ...]


class SourceConfig(Settings):
    """The block `source:` of one kind; `type` is a Literal of its name."""

    if TYPE_CHECKING:
        type: str
        poll_interval: Duration

    decides_content: ClassVar[frozenset[str]] = frozenset()
    """Its keys that decide, beside the type, what the tables hold."""
    has_documents: ClassVar[bool] = False
    """Whether rows are documents, so that entries may have a `mapping`."""
    can_reload: ClassVar[bool] = False
    """Whether a table can be loaded anew from it: `frazil resync`."""

    @property
    def address(self) -> str:
        """Where the source is, for people; a kind that has no better name for it is called by its own."""
        return self.type

    @classmethod
    def fitted(cls, data: dict[str, Any]) -> dict[str, Any]:
        """The whole document, with what follows for its tables from the source."""
        return data

    def judge(self, entry: TableEntry, *, spark_reads: bool) -> Iterator[Judgement]:
        """What an entry of `tables:` says that does not fit the source."""
        return iter(())

    @classmethod
    def variants(cls) -> Blocks:
        return tuple(kind.config for kind in source_kinds()) if cls is SourceConfig else (cls,)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitTemplate:
    """What `frazil init` writes for a kind of source: keys that are `on` with their values, by their path; keys that
    it has no use for; and `examples` that fit it better than those of the models."""

    on: Mapping[str, Any]
    left_out: frozenset[str] = frozenset()
    examples: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """What a source may know of the pipeline that it is opened for. `look` applies a function to partitions, in tasks
    if there is much to look at."""

    pipeline: str
    entries: Entries
    tables: Sequence[TableEntry]
    spark_reads: bool
    quarantines: bool
    clock: Clock
    memory: Memory
    look: Callable[[Callable[[InputPartition], T], Sequence[InputPartition]], Iterable[T]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """`opened_by` is `module:function`, which takes the block and `PipelineFacts` and returns the Source; `needs` says
    how to install what that module imports. `type_name` is the name under which a configuration pins a column's type;
    None if there is none. `sinkless` is the template of `frazil init --sinkless`."""

    config: type[SourceConfig]
    position: PositionKind
    opened_by: str
    template: InitTemplate
    sinkless: InitTemplate | None = None
    preloaded: tuple[str, ...] = ()
    needs: str = ""
    type_name: Callable[[Column], str | None] = lambda column: column.source_type

    @property
    def name(self) -> str:
        return str(get_args(self.config.model_fields["type"].annotation)[0])

    def open(self, config: SourceConfig, facts: PipelineFacts) -> Source:
        """Raises ConfigError if a library is missing, and what opening it raises."""
        module, _, function = self.opened_by.partition(":")
        try:
            opening = import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"the source {self.name} needs a library that is not installed: {error.name}", hint=self.needs
            ) from error
        opened: Source = getattr(opening, function)(config, facts)
        return opened


def kind_names() -> tuple[str, ...]:
    return tuple(installed())


def kind_named(name: str) -> SourceKind:
    """Raises KeyError if no such kind is installed."""
    found: SourceKind = installed()[name].load()
    return found


def kind_of(config: SourceConfig) -> SourceKind:
    return kind_named(config.type)


def parse_source(value: Any, context: Any) -> SourceConfig:
    """The block, by the rules of its own kind. Raises pydantic's errors."""
    if isinstance(value, SourceConfig):
        return value
    if not isinstance(value, Mapping):
        raise problem("must be a mapping")
    name = value.get("type")
    if name not in installed():
        near = get_close_matches(str(name), kind_names(), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else f"; use {' or '.join(kind_names())}"
        raise problem("is required" if name is None else f"{name!r} is not available in this version{meant}", "type")
    return kind_named(str(name)).config.model_validate(dict(value), context=context)
