"""Where a table lies, and with what the workers reach it.

    table.io() --properties--------------------+--> storage: Iceberg's names, credentials included, never logged
               --credentials for its location--+
    the catalog's own storage properties ------+    (a file system may not repeat what it was made with)
    what is found where Frazil is started -----'    if none of them tells credentials

Read with every head, so that credentials vended by a REST catalog are as fresh as the head they come with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import Catalog, iceberg_properties
from frazil.iceberg.jvm.method_handles import Handles, handles_of, made_once, text
from frazil.storage import credentials

_STORAGE = ("s3.", "client.", "gcs.", "adls.", "hadoop.", "frazil.", "io-impl")
_METADATA_FILE = re.compile(r"(?P<table>.+)/metadata/[^/]+\.metadata\.json(?:\.gz)?")
_SIGNED_REMOTELY = "s3.remote-signing-enabled"
_SESSION = ("s3.session-token", "s3.session-token-expires-at-ms")
_KEYS = ("s3.access-key-id", "client.credentials-provider")


def table_location(reported: str) -> str:
    """The directory of a table. S3 Tables may report the metadata file instead, and files must not go below that."""
    found = _METADATA_FILE.fullmatch(reported)
    return (found["table"] if found else reported).rstrip("/")


def is_local(location: str) -> bool:
    return location.startswith(("/", "file:"))


def storage_of(catalog: Catalog, java_table: Any, location: str) -> Mapping[str, str]:
    """The properties of the table's file system; empty for a local one. Raises what Java raises, and ConfigError if
    only the catalog may sign: the workers have nobody to ask."""
    if is_local(location):
        return {}
    file_io = java_table.io()
    to_json = made_once(catalog, "map to JSON", lambda handles: _to_json(catalog, handles))
    properties = json.loads(text(handles_of(catalog).call(to_json, file_io.properties())))
    own = {key: value for key, value in iceberg_properties(catalog.settings).items() if key.startswith(_STORAGE)}
    found = with_vended({**own, **properties}, _credentials(file_io, location))
    if found.get(_SIGNED_REMOTELY) == "true" and not any(key.startswith(_KEYS) for key in found):
        raise ConfigError(
            f"the catalog at {catalog.settings.endpoint} signs requests to {location} itself and gives no credentials, "
            "which the workers need",
            hint="set catalog.delegation to vended-credentials, or give the workers credentials of a volume",
        )
    return credentials.with_credentials(location, found)


def with_vended(properties: Mapping[str, str], vended: Mapping[str, str]) -> dict[str, str]:
    """Vended credentials in place of others; a key of one and a session token of the other would be neither. Pure."""
    replaced = _SESSION if "s3.access-key-id" in vended else ()
    return {**{key: value for key, value in properties.items() if key not in replaced}, **vended}


def nearest_credentials(credentials: Iterable[tuple[str, Mapping[str, str]]], location: str) -> Mapping[str, str]:
    """Of credentials for prefixes, those of the longest prefix that the location has. Pure."""
    fitting = [(prefix, config) for prefix, config in credentials if location.startswith(prefix)]
    return max(fitting, key=lambda entry: len(entry[0]))[1] if fitting else {}


def _to_json(catalog: Catalog, handles: Handles) -> Any:
    string, anything = handles.kind("java.lang.String"), handles.kind("java.lang.Object")
    mapper = handles.iceberg("shaded.com.fasterxml.jackson.databind.ObjectMapper")
    write = handles.virtual(mapper, "writeValueAsString", string, anything)
    return handles.in_java(write.bindTo(catalog.iceberg.util.JsonUtil.mapper()))


def _credentials(file_io: Any, location: str) -> Mapping[str, str]:
    """What the catalog vended for this table, of a file system that takes such."""
    try:
        vended = file_io.credentials()
    except Py4JJavaError:
        raise
    except Py4JError:
        return {}  # this kind of file system has no such method
    return nearest_credentials([(entry.prefix(), dict(entry.config())) for entry in vended], location)
