"""The sink URL: a REST catalog, a target table and its key in one line.

    iceberg://[client:secret@]host[:port][/prefix]/namespace/table?warehouse=s3://lake&equality_delete_by=id
              `-- credential --' `- catalog.uri -' `- target of entries without one    `- their key

Further parameters are catalog properties: `credential`, `token`, `s3.endpoint`. The catalog is reached by https, on
loopback or with `insecure=true` by http.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import parse_qsl, unquote, urlsplit

from frazil.model.ids import TableName

SCHEME = "iceberg"
_OWN = ("warehouse", "equality_delete_by", "insecure")
_PLAIN_PROPERTIES = ("credential", "token", "scope", "prefix")


@dataclass(frozen=True, slots=True)
class SinkUrl:
    uri: str
    target: str
    key: tuple[str, ...]
    warehouse: str | None
    properties: dict[str, str] = field(default_factory=dict)


def parse_sink_url(text: str) -> SinkUrl:
    """Raises ValueError saying which part is wrong; never repeats a credential."""
    parts = urlsplit(text)
    if parts.scheme != SCHEME or not parts.hostname:
        raise ValueError("must be a block of settings, or a sink URL iceberg://<rest-endpoint>/<namespace>/<table>?...")
    segments = [unquote(segment) for segment in parts.path.split("/") if segment]
    if len(segments) < 2:
        raise ValueError("the sink URL must end in /<namespace>/<table>")
    *prefix, namespace, table = segments
    given = _parameters(parts.query)
    insecure = given.pop("insecure", "false")
    if insecure not in ("true", "false"):
        raise ValueError(f"insecure={insecure} in the sink URL must be true or false")
    key = tuple(name.strip() for name in given.pop("equality_delete_by", "").split(",") if name.strip())
    warehouse = given.pop("warehouse", "") or None
    if parts.username is not None:
        given.setdefault("credential", f"{unquote(parts.username)}:{unquote(parts.password or '')}")
    scheme = "http" if insecure == "true" or _is_loopback(parts.hostname) else "https"
    host = parts.netloc.rpartition("@")[2]
    target = TableName(tuple(namespace.split(".")), table).text
    return SinkUrl("/".join((f"{scheme}://{host}", *prefix)), target, key, warehouse, given)


def _parameters(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in found:
            raise ValueError(f"the sink URL names {name} twice")
        # Iceberg's own properties have dots or dashes in their names; anything else may be a misspelling.
        if name not in (*_OWN, *_PLAIN_PROPERTIES) and "." not in name and "-" not in name:
            nearest = get_close_matches(name, (*_OWN, *_PLAIN_PROPERTIES), n=1)
            raise ValueError(f"unknown {name} in the sink URL" + (f"; did you mean {nearest[0]}?" if nearest else ""))
        found[name] = value
    return found


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
