"""Turns what validation found into sentences: key path, what is wrong, and the key that was probably meant."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from frazil.config.block import Settings
from frazil.config.document import Path, Problem, YamlDocument
from frazil.config.secrets import is_secret_name, mask_text


def explain(error: ValidationError, model: type[BaseModel], document: YamlDocument) -> list[Problem]:
    """Every problem of a validation, in the order of the file."""
    found = [one for details in error.errors(include_url=False) for one in _explain(details, model, document)]
    return sorted(found, key=lambda problem: (problem.line is None, problem.line or 0))


def _explain(details: ErrorDetails, model: type[BaseModel], document: YamlDocument) -> Iterator[Problem]:
    context: Mapping[str, Any] = details.get("ctx", {})
    if "problems" in context:
        yield from (document.problem(mask_text(text), (*details["loc"], *path)) for text, path in context["problems"])
        return
    path = _with_kind((*details["loc"], *context.get("path", ())), model, document.values)
    yield document.problem(_sentence(details, path, model), _as_written(path, model))


def _with_kind(path: Path, model: type[BaseModel], values: Any) -> Path:
    """With the kind of block that stands at the top, which is validated by the rules of that kind alone."""
    name, *rest = path or ("",)
    kinds = _kinds(model.model_fields[str(name)]) if name in model.model_fields else {}
    block = values.get(name) if isinstance(values, Mapping) else None
    kind = block.get("type") if isinstance(block, Mapping) else None
    return (name, kind, *rest) if rest and rest[0] not in kinds and kind in kinds else path


def _as_written(path: Path, model: type[BaseModel]) -> Path:
    """Without the kind of block that validation has chosen among several, which no file names as a key."""
    for at, part in enumerate(path[:-1] if len(path) > 1 else ()):
        if part in model.model_fields and len(kinds := _kinds(model.model_fields[str(part)])) > 1:
            return (*path[: at + 1], *(path[at + 2 :] if path[at + 1] in kinds else path[at + 1 :]))
    return path


def _sentence(details: ErrorDetails, path: Path, model: type[BaseModel]) -> str:
    given = details["input"]
    match details["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return _unknown_key(path, model)
        case "string_type":
            return f"must be text, not {_kind(given)}" + ("; put it in quotes" if _is_scalar(given) else "")
        case "bool_type" | "bool_parsing":
            return f"must be true or false, not {_shown(path, given)}"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"must be a whole number, not {_shown(path, given)}"
        case "tuple_type" | "list_type":
            return f"must be a list, not {_kind(given)}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"must be a mapping, not {_kind(given)}"
        case "literal_error" | "enum":
            return _not_one_of(str(details.get("ctx", {}).get("expected", "")), given, path)
        case "string_too_short":
            return "must not be empty"
        case "string_pattern_mismatch":
            return f"{_shown(path, given)} is not written as it must be"
        case _:
            text = details["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            return mask_text(f"must be {text}" if details["msg"].startswith("Input should be ") else text)


def _not_one_of(expected: str, given: Any, path: Path) -> str:
    choices = [choice.strip(" '") for choice in expected.replace(" or ", ", ").split(",")]
    nearest = get_close_matches(str(given), choices, n=1)
    meant = f"; did you mean {nearest[0]!r}?" if nearest else ""
    if len(choices) == 1:
        return f"must be {choices[0]}, not {_shown(path, given)}{meant}"
    return f"must be one of {', '.join(choices)}, not {_shown(path, given)}{meant}"


def _unknown_key(path: Path, model: type[BaseModel]) -> str:
    key = str(path[-1])
    owner = _model_at(model, path[:-1])
    known = list(owner.model_fields) if owner else []
    if nearest := get_close_matches(key, known, n=1):
        return f"unknown key; did you mean {nearest[0]!r}?"
    homes = [home for home, block in _blocks(model) if key in block.model_fields]
    if homes:
        return f"unknown key here; {key!r} belongs {'under ' + homes[0] if homes[0] else 'at the top level'}"
    return f"unknown key; known here: {', '.join(known)}"


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    found: type[BaseModel] | None = model
    kinds: Mapping[str, type[BaseModel]] = {}
    for part in path:
        if isinstance(part, str) and part in kinds:
            found, kinds = kinds[part], {}
        elif isinstance(part, str):
            info = found.model_fields.get(part) if found else None
            kinds = {} if info is None else _kinds(info)
            found = next(models_in(info.annotation), None) if info else None
    return found


def _kinds(info: FieldInfo) -> dict[str, type[BaseModel]]:
    """The blocks that a key may hold, by the `type` that each of them has."""
    blocks = list(models_in(info.annotation))
    if len(blocks) < 2 or not all("type" in block.model_fields for block in blocks):
        return {}
    return {str(name): block for block in blocks for name in get_args(block.model_fields["type"].annotation)}


def _blocks(model: type[BaseModel], home: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    yield home, model
    for name, info in model.model_fields.items():
        for inner in models_in(info.annotation):
            yield from _blocks(inner, f"{home}.{name}" if home else name)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The blocks an annotation speaks of: itself, or what its list or union holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from annotation.variants() if issubclass(annotation, Settings) else (annotation,)
    elif get_origin(annotation) in (tuple, list, dict, Annotated, Union, types.UnionType):
        for inner in get_args(annotation):
            yield from models_in(inner)


def _shown(path: Path, given: Any) -> str:
    secret = any(is_secret_name(str(part)) for part in path)
    return _kind(given) if secret or not _is_scalar(given) else repr(mask_text(str(given)))


def _is_scalar(given: Any) -> bool:
    return isinstance(given, str | int | float | bool)


def _kind(given: Any) -> str:
    match given:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case Mapping():
            return "a mapping"
        case _:
            return "a list"
