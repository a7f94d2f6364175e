"""The configuration models as a list of options: what the reference and `frazil init` are made of."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from inspect import cleandoc
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from frazil.config.block import Settings
from frazil.config.parse_values import Shown
from frazil.config.problems import models_in


@dataclass(frozen=True, slots=True)
class Option:
    """One key. `block` is the model of what lies below it, `others` are what may lie there instead, `listed` whether it
    is a list of such, `named` whether a mapping of such by name. A block that is `left_out` by default has no keys
    then."""

    name: str
    type_text: str
    required: bool
    default: Any
    default_text: str
    description: str
    example: Any
    block: type[Settings] | None
    others: tuple[type[Settings], ...]
    listed: bool
    named: bool
    left_out: bool


def options_of(model: type[Settings]) -> Iterator[Option]:
    """The keys of one block, in the order they are declared."""
    for name, info in model.model_fields.items():
        blocks = [found for found in models_in(info.annotation) if issubclass(found, Settings)]
        block = blocks[0] if blocks else None
        default = _default(info)
        yield Option(
            name=name,
            type_text=_type_text(info),
            required=info.is_required(),
            default=default,
            default_text="" if info.is_required() or block else _written(info, default),
            description=info.description or "",
            example=info.examples[0] if info.examples else None,
            block=block,
            others=tuple(blocks[1:]),
            listed=block is not None and get_origin(info.annotation) is tuple,
            named=block is not None and get_origin(info.annotation) is dict,
            left_out=block is not None and not info.is_required() and default is None,
        )


def summary_of(model: type[Settings]) -> str:
    return " ".join(cleandoc(model.__doc__ or "").split())


def _default(info: FieldInfo) -> Any:
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return None
    return value.value if isinstance(value, Enum) else value


def _shown(info: FieldInfo) -> Shown | None:
    return next((item for item in _metadata(info) if isinstance(item, Shown)), None)


def _metadata(info: FieldInfo) -> Iterator[Any]:
    """Also what stands inside `X | None`."""
    yield from info.metadata
    for part in get_args(info.annotation):
        if get_origin(part) is Annotated:
            yield from get_args(part)[1:]


def _type_text(info: FieldInfo) -> str:
    shown = _shown(info)
    return shown.type_text if shown else _plain_type(info.annotation)


def _plain_type(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return _plain_type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return " | ".join(str(value) for value in get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return " | ".join(_plain_type(part) for part in get_args(annotation) if part is not type(None))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " | ".join(str(member.value) for member in annotation)
    return {bool: "true | false", int: "number", float: "number", str: "text"}.get(annotation, "block")


def _written(info: FieldInfo, default: Any) -> str:
    shown = _shown(info)
    if default is None or default == {} or default == ():
        return ""
    if isinstance(default, bool):
        return "true" if default else "false"
    return shown.write(default) if shown else str(default)
