"""SQL text of values, as CSV and Parquet files hold it, to the JSON that a JSON feed would hold.

    1.50        DECIMAL      ->  1.50
    +Inf        FLOAT        ->  "Infinity"
    2020-01-02 03:04:05+00   ->  "2020-01-02T03:04:05Z"
    ARRAY[1,NULL,'it''s']    ->  [1, null, "it's"]

So that one decoder serves all formats, and a first load reads a value as the stream does (H29).
"""

from __future__ import annotations

import re

from frazil.sources.cockroachdb.decode.exact_json import Json, NotJson, Number, is_number, loads
from frazil.sources.cockroachdb.decode.values import Misfit
from frazil.sources.cockroachdb.schema.types import Family, SourceType

_NON_FINITE = {
    "NaN": "NaN",
    "Inf": "Infinity",
    "+Inf": "Infinity",
    "Infinity": "Infinity",
    "-Inf": "-Infinity",
    "-Infinity": "-Infinity",
}
_ZONE = re.compile(r"(.*\d)([+-])(\d\d)(?::?(\d\d))?")
_ITEM = re.compile(r"\s*(?:(e?'(?:[^'\\]|''|\\.)*')|([^',\[\]]+))\s*", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def json_of(text: str, source: SourceType) -> Json:
    """Raises Misfit for a text that is no value of the type."""
    match source.family:
        case Family.INT | Family.FLOAT | Family.DECIMAL:
            if is_number(text):
                return Number(text)
            if text in _NON_FINITE:
                return _NON_FINITE[text]
            raise Misfit("a number is expected")
        case Family.BOOL:
            if text not in ("true", "false", "t", "f"):
                raise Misfit("true or false is expected")
            return text in ("true", "t")
        case Family.TIMESTAMP:
            return text.replace(" ", "T", 1)
        case Family.TIMESTAMPTZ:
            return _utc_if_it_is(text.replace(" ", "T", 1))
        case Family.JSON:
            try:
                return loads(text)
            except NotJson as error:
                raise Misfit(f"JSON is expected: {error}") from error
        case Family.GEO:
            raise Misfit("csv and parquet files hold shapes as EWKB, JSON files as GeoJSON: use format=json")
        case Family.ARRAY:
            assert source.element is not None
            return [None if item is None else json_of(item, source.element) for item in array_items(text)]
        case _:
            return text


def array_items(text: str) -> list[str | None]:
    """The elements of ARRAY[...]; an unquoted NULL is None. Raises Misfit."""
    if not (text.startswith("ARRAY[") and text.endswith("]")):
        raise Misfit("ARRAY[...] is expected")
    body = text[len("ARRAY[") : -1]
    items: list[str | None] = []
    at = 0
    while body.strip() and at <= len(body):
        match = _ITEM.match(body, at)
        if match is None or (match.end() < len(body) and body[match.end()] != ","):
            raise Misfit(f"an array element is expected at character {at} of the array")
        quoted, plain = match.groups()
        items.append(_unquoted(quoted) if quoted else None if plain.strip() == "NULL" else plain.strip())
        at = match.end() + 1
        if match.end() == len(body):
            break
        if at == len(body):
            raise Misfit("the array ends with a comma")
    return items


def _unquoted(text: str) -> str:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return _ESCAPE.sub(_escaped, text[2:-1])


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    return _NAMED.get(code, code)


def _utc_if_it_is(text: str) -> str:
    match = _ZONE.fullmatch(text)
    if match is None:
        return text
    body, sign, hours, minutes = match.groups()
    if int(hours) == 0 and int(minutes or 0) == 0:
        return body + "Z"
    return f"{body}{sign}{hours}:{minutes or '00'}"
