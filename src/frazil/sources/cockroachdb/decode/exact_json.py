"""JSON without loss: numbers stay the text they were, and print as CockroachDB prints.

    text --loads--> None | bool | Number | str | list | dict --dumps--> the same text

A Number is its own text, marked by its class: `22.30`, `1E+1` and 9223372036854775807 never pass through a double.
Look for Number before str, since it is one.
"""

from __future__ import annotations

import json
import re
from typing import Any, Never

Json = Any
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_EXCERPT = 80
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class NotJson(ValueError):
    """The text is no JSON value."""


class Number(str):
    """A JSON number, as it was written."""

    __slots__ = ()


def _refuse_constant(name: str) -> Never:
    raise NotJson(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotJson("a field appears twice in one object")
    return found


_DECODER = json.JSONDecoder(
    parse_float=Number, parse_int=Number, parse_constant=_refuse_constant, object_pairs_hook=_unique
)


def loads(text: str | bytes) -> Json:
    """Raises NotJson."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
        value = _DECODER.decode(text)
        if _SURROGATE.search(text):
            as_text(dumps(value))
        return value
    except NotJson:
        raise
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def fields(text: str) -> dict[str, tuple[Json, str]]:
    """The fields of one JSON object, each with the raw text of its value. Raises NotJson."""
    found: dict[str, tuple[Json, str]] = {}
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        raise NotJson("not an object")
    at = _after_space(text, at + 1)
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            try:
                name, end = _DECODER.raw_decode(text, at)
                colon = _after_space(text, end)
                if not isinstance(name, str) or isinstance(name, Number) or text[colon : colon + 1] != ":":
                    raise NotJson(f"a field name is expected at character {at}")
                start = _after_space(text, colon + 1)
                value, end = _DECODER.raw_decode(text, start)
            except NotJson:
                raise
            except (ValueError, RecursionError) as error:
                raise NotJson(str(error)) from error
            if name in found:
                raise NotJson(f"the field {name!r} appears twice")
            found[name] = (value, text[start:end])
            at = _after_space(text, end)
            mark = text[at : at + 1]
            at = _after_space(text, at + 1)
            if mark == "}":
                break
            if mark != ",":
                raise NotJson(f"a comma or a closing brace is expected at character {at}")
    if text[_after_space(text, at) :]:
        raise NotJson("text after the object")
    return found


def as_text(text: str) -> str:
    """The same. Raises NotJson for half a surrogate pair, which JSON can spell and nobody can write."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise NotJson(f"{text[:_EXCERPT]!r} is no text") from error
    return text


def dumps(value: Json) -> str:
    match value:
        case None:
            return "null"
        case True:
            return "true"
        case False:
            return "false"
        case Number():
            return str(value)
        case str():
            return quote(value)
        case int():
            return str(value)
        case list() | tuple():
            return "[" + ", ".join([dumps(item) for item in value]) + "]"
        case dict():
            return "{" + ", ".join([f"{quote(name)}: {dumps(item)}" for name, item in value.items()]) + "}"
    raise TypeError(f"{type(value).__name__} has no JSON form")


def quote(text: str) -> str:
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _ESCAPES.get(char) or f"\\u{ord(char):04x}"


def _after_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\r", "\n"):
        at += 1
    return at
