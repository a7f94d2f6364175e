"""The one-line form of a catalog and a table, as changefeed sinks write it. Pure.

    iceberg://<rest-endpoint>/<namespace>/<table>?warehouse=s3://lake&equality_delete_by=id,region
              |               |           |        |                  `-- key columns
              |               |           |        `-- catalog
              |               |           `-- table
              |               `-- levels separated by dots
              `-- host, port and, if there is one, the path of the REST server

https, unless the host is loopback or the URL says `insecure=true`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from frazil.errors import ConfigError
from frazil.lake.catalogs import DEFAULT_NAME, CatalogSettings, CatalogType
from frazil.model.names import BadName, TableName

SCHEME = "iceberg"
_FORM = "iceberg://<rest-endpoint>/<namespace>/<table>?warehouse=...&equality_delete_by=..."
_CATALOG_KEYS = frozenset(["credential", "token", "scope", "oauth2-server-uri", "io-impl", "prefix"])
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkUrl:
    """What the URL says. `options` are the query's keys that mean nothing to a catalog."""

    settings: CatalogSettings
    table: TableName
    key: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)


def parse_sink_url(url: str, name: str = DEFAULT_NAME) -> SinkUrl:
    """Raises ConfigError naming the part that is wrong, never showing a credential."""
    parts = urlsplit(url)
    if parts.scheme != SCHEME or not parts.hostname:
        raise _wrong("it must name a REST endpoint after iceberg://")
    path = [unquote(segment) for segment in parts.path.split("/") if segment]
    if len(path) < 2:
        raise _wrong(f"after {_endpoint(parts.netloc)} it must name a namespace and a table")
    query: dict[str, str] = {}
    for option, value in parse_qsl(parts.query, keep_blank_values=True):
        if option in query:
            raise _wrong(f"the option {option!r} is given twice")
        query[option] = value
    insecure = _truth("insecure", query.pop("insecure", "false"))
    warehouse = query.pop("warehouse", "") or None
    key = tuple(column.strip() for column in query.pop("equality_delete_by", "").split(",") if column.strip())
    properties = {option: value for option, value in query.items() if option in _CATALOG_KEYS or "." in option}
    if parts.username is not None:
        properties.setdefault("credential", f"{unquote(parts.username)}:{unquote(parts.password or '')}")
    scheme = "http" if insecure or _is_loopback(parts.hostname) else "https"
    uri = "/".join([f"{scheme}://{_endpoint(parts.netloc)}", *path[:-2]])
    try:
        table = TableName(tuple(path[-2].split(".")), path[-1])
    except BadName as error:
        raise _wrong(str(error)) from error
    return SinkUrl(
        settings=CatalogSettings(name=name, type=CatalogType.REST, uri=uri, warehouse=warehouse, properties=properties),
        table=table,
        key=key,
        options={option: value for option, value in query.items() if option not in properties},
    )


def _endpoint(netloc: str) -> str:
    return netloc.rpartition("@")[2]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _truth(option: str, text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise _wrong(f"{option}={text} is neither true nor false")
    return _TRUTHS[text.lower()]


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"the sink URL cannot be used: {what}", hint=f"write it as {_FORM}")
