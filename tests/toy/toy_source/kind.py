"""What Frazil reads of the toy source to load a configuration and a ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from frazil.config.block import LocalOrCloud
from frazil.config.entry_checks import Judgement
from frazil.config.parse_values import Duration
from frazil.config.table_entries import TableEntry
from frazil.model.position import NotAPosition
from frazil.sources.registry import InitTemplate, SourceConfig, SourceKind


@dataclass(frozen=True, slots=True)
class Tick:
    number: int
    step: int = 0

    @classmethod
    def parse(cls, text: str) -> Tick:
        if (found := re.fullmatch(r"tick:(\d+)", text)) is None:
            raise NotAPosition(text)
        return cls(int(found[1]))

    @property
    def text(self) -> str:
        return f"tick:{self.number}"

    @property
    def order(self) -> tuple[int, int]:
        return self.number, self.step

    @property
    def source_time(self) -> None:
        return None

    @staticmethod
    def texts(majors: pa.Array, minors: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise("tick", pc.cast(majors, pa.string()), ":")

    def __str__(self) -> str:
        return self.text


class ToyConfig(SourceConfig):
    """A journal of changes."""

    type: Literal["toy"] = Field(description="The kind of source.")
    journal: LocalOrCloud = Field(description="The journal.")
    shout: bool = Field(default=False, description="Whether names come in capitals.")
    poll_interval: Duration = Field(default=0.1, ge=0.01, description="How often an idle journal is looked at again.")

    decides_content: ClassVar[frozenset[str]] = frozenset({"shout"})

    @property
    def address(self) -> str:
        return self.journal

    def judge(self, entry: TableEntry, *, spark_reads: bool) -> Iterator[Judgement]:
        if entry.key not in ((), ("id",)):
            yield "a toy's key is its id", ("key",)


KIND = SourceKind(
    config=ToyConfig,
    position=Tick,
    opened_by="toy_source.source:open_source",
    template=InitTemplate(
        on={"source.journal": "./journal.jsonl", "tables.source": "shop.things"}, left_out=frozenset({"tables.key"})
    ),
    preloaded=("toy_source.source",),
)
