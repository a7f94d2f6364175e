"""Secrets never leave: masking of names, URLs and running text.

    configuration --masked------>  shown by check and in logs, `***` for each secret
                  --Redactor---->  a function for text of any origin (driver messages, stack traces)

Two nets: names and URL shapes that give a secret away, and, once a configuration is loaded, its very values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel

MASK = "***"
SHORTEST_SECRET = 4
"""Shorter values are not searched in running text: `a` would turn every message into stars."""

_NAME = (
    r"secret|passw|pwd|token|credential|authorization|signature"
    r"|(?:private|access|account|api|session|encryption|sse)[-_.]?key|key[-_.]?id|(?:^|[-_.])sas(?:$|[-_.])"
    r"|^header\.(?!x-iceberg-access-delegation$)|^sig$"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_USERINFO = re.compile(r"(://[^:/?#\s@]*):(\S*)@")
_TOKEN_OF_WEB = re.compile(r"(https?://)[^:/?#\s@]+@")
_ASSIGNMENT = re.compile(r"(?P<name>[\w.-]+)=(?P<value>\"[^\"]*\"|'[^']*'|[^&;\s\"',)]+)")
_NOT_SECRETS = frozenset({"columns"})
"""Maps whose keys are the user's own names: a column called `token` has a type, not a secret."""


_PLAIN_VALUES = frozenset({"true", "false", "vended-credentials", "remote-signing"})
"""Values that say what is done with secrets, such as `token-refresh-enabled: false`."""
_ALL_SECRETS = frozenset({"headers"})
"""Maps of which nobody can tell by its name what is a secret."""
_SECRETS_IN = {"options": {"key"}}
"""Names that are a secret's in these maps and nowhere else: Azure's account key."""


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def mask_text(text: str) -> str:
    """Hides passwords in URLs and the values of secret-looking `name=value` pairs."""
    text = _TOKEN_OF_WEB.sub(rf"\1{MASK}@", _USERINFO.sub(rf"\1:{MASK}@", text))
    return _ASSIGNMENT.sub(lambda m: f"{m['name']}={MASK}" if is_secret_name(m["name"]) else m[0], text)


def mask_value(name: str, value: Any) -> Any:
    """`value` as it may be shown under `name`: maps and lists of it included."""
    match value:
        case Mapping() if name in _NOT_SECRETS:
            return dict(value)
        case Mapping() if name in _ALL_SECRETS:
            return dict.fromkeys(value, MASK)
        case Mapping():
            hidden = _SECRETS_IN.get(name, ())
            return {key: MASK if key in hidden else mask_value(str(key), item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(mask_value(name, item) for item in value)
        case str():
            return MASK if is_secret_name(name) else mask_text(value)
        case None | BaseModel():
            return value
        case _:
            return MASK if is_secret_name(name) else value


def masked(config: BaseModel) -> dict[str, Any]:
    """A configuration as plain values that may be shown to anybody."""
    shown: dict[str, Any] = mask_value("", config.model_dump(mode="json"))
    return shown


class Redactor:
    """Replaces what must not be shown in text of any origin."""

    def __init__(self, config: BaseModel | Mapping[str, Any] | None = None) -> None:
        """Of a configuration, or of the properties of a catalog."""
        found = set(_secrets("", config.model_dump(mode="json") if isinstance(config, BaseModel) else config))
        found |= {unquote(secret) for secret in found}
        # The longest first: one secret may begin with another.
        self._secrets = sorted(
            (s for s in found if len(s) >= SHORTEST_SECRET and s not in _PLAIN_VALUES), key=len, reverse=True
        )

    def hides(self, name: str) -> bool:
        return is_secret_name(name)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return mask_text(text)


def _secrets(name: str, value: Any) -> Iterator[str]:
    match value:
        case Mapping() if name in _ALL_SECRETS:
            yield from (str(item) for item in value.values())
        case Mapping():
            if name not in _NOT_SECRETS:
                yield from (str(value[key]) for key in _SECRETS_IN.get(name, ()) if value.get(key))
                for key, item in value.items():
                    yield from _secrets(str(key), item)
        case list() | tuple():
            for item in value:
                yield from _secrets(name, item)
        case str():
            if is_secret_name(name):
                # OAuth2 credentials are written client:secret, and the secret may turn up alone.
                yield from (value, value.partition(":")[2])
            yield from (match[2] for match in _USERINFO.finditer(value))
            yield from (m["value"].strip("\"'") for m in _ASSIGNMENT.finditer(value) if is_secret_name(m["name"]))
