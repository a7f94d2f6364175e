"""How documents become rows: the block `mapping` of an entry under `tables:`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from frazil.config.block import Settings, problem
from frazil.config.parse_values import Shown


class FieldConfig(Settings):
    """One field of a document, and the column it becomes."""

    source: str = Field(min_length=1, description="The path of the field: `total`, `customer.name`.")
    target: str | None = Field(
        default=None, min_length=1, description="The column. Default: the path, with `_` between its parts."
    )
    type: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "The column's type: string, int, long, double, decimal(p, s), boolean, timestamp, date, binary, uuid, "
            "json; list, struct and decimal are inferred inside, as is a field without type. Values are cast where "
            "that is exact."
        ),
        examples=["decimal(12, 2)"],
    )

    @property
    def column(self) -> str:
        return self.target or self.source.replace(".", "_")


class MappingConfig(Settings):
    """How the documents of a collection become rows."""

    mode: Literal["auto", "explicit"] = Field(
        default="auto",
        description=(
            "auto: every field becomes a column, new fields too. explicit: the listed fields do; others are left out."
        ),
    )
    fields: Annotated[tuple[FieldConfig, ...], Shown("list of fields")] = Field(
        default=(),
        description="explicit: the fields, each with its path, column and type.",
        examples=[[{"source": "customer.name", "target": "customer_name", "type": "string"}]],
    )

    @model_validator(mode="after")
    def _fits_together(self) -> MappingConfig:
        if (self.mode == "explicit") != bool(self.fields):
            raise problem("explicit needs fields, and auto takes none", "fields")
        columns = [field.column for field in self.fields]
        for index, column in enumerate(columns):
            if column in columns[:index]:
                raise problem(f"two fields become the column {column!r}", "fields", index, "target")
        return self
