"""Values that people write with units, and maps that are passed on untouched.

    "500ms" "10s" "10m" "1h"  --seconds_of-->  float seconds  --duration_text-->  the same text
    "64KB" "256MB" "1GB"      --bytes_of-->    int bytes      --bytes_text-->     the same text
    {a: 1, b: true}           --texts_of-->    {"a": "1", "b": "true"}

A number without a unit is refused where its unit could be guessed wrongly (is `5` seconds or minutes?).
Byte units are powers of 1024, as in PostgreSQL's settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def seconds_of(value: Any) -> float:
    """Raises ValueError for anything but 0 or a number with one of the units ms, s, m, h, d."""
    match = _NUMBER_AND_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match and match[2] in _SECONDS:
        # Through milliseconds, so that 300ms is 0.3 and not 0.30000000000000004.
        return round(float(match[1]) * _SECONDS[match[2]] * 1000) / 1000
    if (_is_number(value) and value == 0) or value == "0":
        return 0.0
    if _is_number(value) or (match and not match[2]):
        raise ValueError(f"a duration needs a unit: {value}s or {value}m, for example")
    raise ValueError("must be a duration such as 500ms, 10s, 10m or 1h")


def duration_text(seconds: float) -> str:
    """The shortest text that `seconds_of` reads back as this."""
    millis = round(seconds * 1000)
    if millis == 0:
        return "0s"
    for unit in ("d", "h", "m", "s"):
        size = round(_SECONDS[unit] * 1000)
        if millis % size == 0:
            return f"{millis // size}{unit}"
    return f"{millis}ms"


def bytes_of(value: Any) -> int:
    """Raises ValueError for anything but whole bytes, or a number with one of the units KB, MB, GB, TB."""
    if _is_number(value) and float(value).is_integer() and value >= 0:
        return int(value)
    if isinstance(value, str) and (match := _NUMBER_AND_UNIT.fullmatch(value.strip())):
        unit = match[2].upper().replace("IB", "B") or "B"
        if unit in _BYTES:
            return int(float(match[1]) * _BYTES[unit])
    raise ValueError("must be a size such as 64KB, 256MB or 1GB")


def bytes_text(size: int) -> str:
    for unit in ("TB", "GB", "MB", "KB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def texts_of(value: Any) -> Any:
    """A map whose values YAML read as numbers or booleans becomes the map of texts the other side expects."""
    if not isinstance(value, Mapping):
        return value
    return {str(key): _text_of(item) for key, item in value.items()}


def _text_of(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Shown:
    """How the reference names a type, and writes its values."""

    type_text: str
    write: Callable[[Any], str] = str


Duration = Annotated[float, BeforeValidator(seconds_of), Shown("duration", duration_text)]
ByteSize = Annotated[int, BeforeValidator(bytes_of), Shown("size", bytes_text)]
TextMap = Annotated[dict[str, str], BeforeValidator(texts_of), Shown("map of text")]
