"""The canonical text of any `_id`, by which it travels: one text for each key, and another one for every other key.

    ObjectId                       its 24 hex digits
    string                         itself; in JSON's quotes if it could be taken for something else
    1, 1.0, NumberLong(1), 1.00    {"$numberLong":"1"}: numbers are one key if MongoDB's index says that they are equal
    1.5                            {"$numberDouble":"1.5"}
    anything else                  extended JSON, with the numbers in it likewise

MongoDB sorts and compares numbers by value whatever their type, also inside a document that is an `_id`.

The key column of a table is spelled by its doc, which stays as long as the table:

    text                strings as they are, and nothing else: there is no text left that is not some string's
    json                extended JSON of everything
    objectId, string    canonical texts. Tables of strings that were made before there was `text` have `string`
    long, uuid, date    values of that type, and nothing else
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import bson
import pyarrow as pa
import pyarrow.compute as pc
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from frazil.model.schema import LONG, STRING, TIMESTAMPTZ, Type
from frazil.model.schema import UUID as UUID_TYPE
from frazil.sources.mongodb.schema.bson_types import JSON
from frazil.sources.mongodb.schema.types import TEXT

OBJECT_ID, CANONICAL = "objectId", "string"
SUSPECT = r'^(?:["{\[]|true|false|null|[0-9a-f]{24})'
"""Whatever `id_text` might write in quotes, and a little more; for RE2 as well."""
_AMBIGUOUS = re.compile(r'[0-9a-f]{24}|["{\[].*|true|false|null', re.DOTALL)
_DIGITS = re.compile(r"[0-9a-f]{24}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
# Decimal128 has 34 digits; a double's exact decimal form has up to 767.
_EXACT = Context(prec=800)
_WRAPPED: Mapping[Type, tuple[str, str]] = {
    LONG: ('{"$numberLong":"', '"}'),
    UUID_TYPE: ('{"$uuid":"', '"}'),
    TIMESTAMPTZ: ('{"$date":{"$numberLong":"', '"}}'),
}


class NotOfType(ValueError):
    """A key that the key column's type has no place for."""


def id_text(value: Any) -> str:
    """Raises TypeError for what no BSON document can have as its `_id`."""
    if isinstance(value, ObjectId):
        return str(value)
    if isinstance(value, str) and not isinstance(value, Code):
        return json.dumps(value, ensure_ascii=False) if _AMBIGUOUS.fullmatch(value) else value
    return json.dumps(_canonical(value), ensure_ascii=False, separators=(",", ":"))


def json_of(text: str) -> str:
    """The canonical text as JSON, for a column in which keys of several types are to be told apart by any reader."""
    if _DIGITS.fullmatch(text):
        return f'{{"$oid":"{text}"}}'
    return text if _AMBIGUOUS.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def id_type(first: Any, last: Any, others: Iterable[Any]) -> tuple[Type, str]:
    """The type of a key column, and what its texts are. `first` and `last` are the ends of the index: keys of one type
    lie together in it, so what both ends are everything between them is. Only numbers of several types share a place,
    hence `others`."""
    ends = {type(first), type(last)}
    if ends == {ObjectId}:
        return STRING, OBJECT_ID
    if ends == {str}:
        return STRING, TEXT
    if ends == {UUID}:
        return UUID_TYPE, "uuid"
    if ends <= {datetime, DatetimeMS}:
        return TIMESTAMPTZ, "date"
    if ends <= {int, Int64} and all(type(other) in (int, Int64) for other in others):
        return LONG, "long"
    return STRING, JSON


def pinned_type(pin: tuple[Type, str], found: tuple[Type, str] | None) -> tuple[Type, str] | None:
    """The type of a key column that somebody wants to be of type `pin`; None if documents have to tell more.

    `string` is what ids are written as, so they tell which of the spellings. Raises NotOfType for a type that holds no
    key."""
    if pin[0] != STRING and pin[0] not in _WRAPPED:
        raise NotOfType(str(pin[0]))
    if pin != (STRING, CANONICAL):
        return pin
    return found if found is None or found[1] in (OBJECT_ID, TEXT) else pin


def key_array(texts: pa.Array, type_: Type, doc: str) -> pa.Array:
    """The key column of canonical texts. Raises NotOfType naming a text that it has no place for."""
    if type_ == STRING:
        if doc == JSON:
            return pa.array([json_of(text) for text in texts.to_pylist()], pa.string())
        return _strings(texts.cast(pa.string())) if doc == TEXT else texts.cast(pa.string())
    before, after = _WRAPPED[type_]
    fitting = pc.and_(pc.starts_with(texts, before), pc.ends_with(texts, after))
    if not pc.all(fitting, min_count=0).as_py():
        raise NotOfType(texts.filter(pc.invert(fitting))[0].as_py())
    inner = pc.utf8_slice_codeunits(texts, len(before), -len(after))
    if type_ == UUID_TYPE:
        return pa.array([UUID(text).bytes for text in inner.to_pylist()], pa.binary(16))
    numbers = inner.cast(pa.int64())
    return numbers if type_ == LONG else pc.multiply_checked(numbers, 1000).cast(pa.timestamp("us", tz="UTC"))


def _strings(texts: pa.Array) -> pa.Array:
    """The strings that have these canonical texts. Raises NotOfType."""
    if not pc.any(pc.match_substring_regex(texts, SUSPECT), min_count=0).as_py():
        return texts
    return pa.array([_string(text) for text in texts.to_pylist()], pa.string())


def _string(text: str) -> str:
    if not _AMBIGUOUS.fullmatch(text):
        return text
    if not text.startswith('"'):
        raise NotOfType(text)
    return str(json.loads(text))


def _canonical(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case int() | float() | Decimal128():
            return _number(value)
        case Code():
            scope = {} if value.scope is None else {"$scope": _canonical(value.scope)}
            return {"$code": str(value), **scope}
        case str():
            return value
        case ObjectId():
            return {"$oid": str(value)}
        case UUID():
            return {"$uuid": str(value)}
        case datetime():
            moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return {"$date": {"$numberLong": str((moment - _EPOCH) // timedelta(milliseconds=1))}}
        case DatetimeMS():
            return {"$date": {"$numberLong": str(int(value))}}
        case bytes():
            subtype = value.subtype if isinstance(value, Binary) else 0
            return {"$binary": {"base64": base64.b64encode(value).decode(), "subType": f"{subtype:02x}"}}
        case Timestamp():
            return {"$timestamp": {"t": value.time, "i": value.inc}}
        case Regex():
            return {"$regularExpression": {"pattern": _text(value.pattern), "options": _flags(value)}}
        case MinKey():
            return {"$minKey": 1}
        case MaxKey():
            return {"$maxKey": 1}
        case DBRef():
            return _canonical(dict(value.as_doc()))
        case dict():
            # As pairs where names could be taken for one of the forms above.
            pairs = [[name, _canonical(inner)] for name, inner in value.items()]
            return {"$document": pairs} if any(name.startswith("$") for name, _ in pairs) else dict(pairs)
        case list():
            return [_canonical(inner) for inner in value]
    raise TypeError(f"{type(value).__name__} cannot be an _id")


def _number(value: int | float | Decimal128) -> dict[str, str]:
    exact = value.to_decimal() if isinstance(value, Decimal128) else Decimal(value)
    if exact.is_nan():
        return {"$numberDouble": "NaN"}
    if exact.is_infinite():
        return {"$numberDouble": "Infinity" if exact > 0 else "-Infinity"}
    if exact == exact.to_integral_value(context=_EXACT) and _LONG_MIN <= exact <= _LONG_MAX:
        return {"$numberLong": str(int(exact))}
    if (as_double := _double(exact)) is not None:
        return {"$numberDouble": repr(as_double)}
    return {"$numberDecimal": str(exact.normalize(_EXACT))}


def _double(exact: Decimal) -> float | None:
    near = float(exact)
    return near if near not in (float("inf"), float("-inf")) and Decimal(near) == exact else None


def _text(pattern: str | bytes) -> str:
    return pattern if isinstance(pattern, str) else pattern.decode("utf-8", "replace")


def _flags(value: Regex[Any]) -> str:
    bits = {re.IGNORECASE: "i", re.LOCALE: "l", re.MULTILINE: "m", re.DOTALL: "s", re.UNICODE: "u", re.VERBOSE: "x"}
    return "".join(letter for flag, letter in bits.items() if value.flags & flag)


def regex_text(value: Regex[Any]) -> str:
    """`/pattern/flags`."""
    return f"/{_text(value.pattern)}/{_flags(value)}"


def bound_text(value: Any) -> str:
    """An `_id` in a form that gives exactly it back."""
    return base64.b64encode(bson.encode({"_id": value}, codec_options=CODEC)).decode()


def bound_of(text: str) -> Any:
    return bson.decode(base64.b64decode(text), codec_options=CODEC)["_id"]


CODEC: bson.CodecOptions[dict[str, Any]] = bson.CodecOptions(
    uuid_representation=bson.binary.UuidRepresentation.STANDARD,
    datetime_conversion=bson.codec_options.DatetimeConversion.DATETIME_AUTO,
)
"""How documents are decoded everywhere: UUIDs as such, dates beyond Python's as milliseconds, no damaged text."""
