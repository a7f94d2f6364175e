"""What every block of a configuration shares: the base model, and the checks of single values.

value --not_yet--> refused by name --type--> --from_file, named_once, ...--> value
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from frazil.config.parse_values import Shown
from frazil.config.secrets import mask_value
from frazil.model.ids import JobId
from frazil.model.partition import parse_partition
from frazil.model.sort import parse_sort

BASE_DIRECTORY = "base_directory"
"""Validation context: what relative paths are relative to."""


def problem(text: str, *path: str | int) -> PydanticCustomError:
    """A problem found above the key it belongs to; `path` leads there."""
    return PydanticCustomError("frazil", "{text}", {"text": text, "path": path})


def problems(found: Sequence[tuple[str, tuple[str | int, ...]]]) -> PydanticCustomError:
    """Several problems at once: each a text, and the path that leads to its key."""
    return PydanticCustomError("frazil", "{text}", {"text": "; ".join(text for text, _ in found), "problems": found})


def not_yet(*values: str, instead: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, str) and value in values:
            raise problem(f"{value!r} is not available in this version; use {instead}")
        return value

    return BeforeValidator(check)


def from_file(value: str, info: ValidationInfo) -> str:
    """A local path is meant relative to the file that names it, not to where the command was started."""
    if "://" in value or value.startswith("jdbc:"):
        return value
    base = (info.context or {}).get(BASE_DIRECTORY)
    path = os.path.expanduser(value)
    return path if base is None else os.path.normpath(os.path.join(base, path))


def job_name(value: str) -> str:
    return JobId(value).text


def whole_number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


def named_once(names: Iterable[str]) -> Any:
    seen = list(names)
    twice = sorted({name for name in seen if seen.count(name) > 1})
    if twice:
        raise ValueError(f"names {twice[0]!r} twice")
    return tuple(seen)


def at_least_one(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    if not entries:
        raise ValueError("needs at least one entry")
    return entries


def is_cloud(place: str) -> bool:
    return "://" in place and not place.startswith("file:")


def starts_with(prefixes: tuple[str, ...], what: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not value.startswith(prefixes):
            raise ValueError(f"must be {what}")
        return value

    return check


LocalOrCloud = Annotated[str, AfterValidator(from_file), Shown("path or URL")]


def partition_fields(texts: tuple[str, ...]) -> tuple[str, ...]:
    names = [parse_partition(text).name for text in texts]
    named_once(names)
    return texts


def engines_text(engines: Iterable[str]) -> str:
    return f"[{', '.join(str(engine) for engine in engines)}]"


def sort_fields(texts: tuple[str, ...]) -> tuple[str, ...]:
    named_once(parse_sort(text).column for text in texts)
    return texts


PartitionFields = Annotated[tuple[str, ...], AfterValidator(partition_fields), Shown("list of partition fields")]
SortFields = Annotated[tuple[str, ...], AfterValidator(sort_fields), Shown("list of columns")]
ColumnNames = Annotated[tuple[str, ...], AfterValidator(named_once), Shown("list of columns")]


class Settings(BaseModel):
    """One block of a configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def variants(cls) -> tuple[type[Settings], ...]:
        """The blocks that may stand where this one is asked for."""
        return (cls,)

    @model_validator(mode="before")
    @classmethod
    def _a_key_with_nothing_after_it_means_its_default(cls, data: Any) -> Any:
        """Also an empty text, where the default is nothing: `schema_from: ${SHOP_SQL_URL:-}`."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if not cls._means_default(key, value)}

    @classmethod
    def _means_default(cls, key: str, value: Any) -> bool:
        field = cls.model_fields.get(key)
        return field is not None and (value is None or (value == "" and field.default is None))

    def __repr_args__(self) -> Any:
        for name, value in super().__repr_args__():
            yield name, mask_value(name or "", value)
