"""Which files are a table's own to delete: those that lie in its locations. Pure.

    location             s3://lake/shop/orders
    write.data.path      s3://fast/orders                 and the older names of that property
    write.metadata.path  s3://lake/metadata/orders

    s3a://lake/shop/orders/data/a.parquet   own: s3a, s3n and s3 are one
    s3://lake/shop/orders2/data/a.parquet   not: compared part by part, not as text
    s3://raw/2024/a.parquet                 not: somebody registered it (add_files), and may need it

A former location does not count: what lies there cannot be told from what others have put there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

DATA_PATH = "write.data.path"
METADATA_PATH = "write.metadata.path"
_PATHS = (DATA_PATH, METADATA_PATH, "write.object-storage.path", "write.folder-storage.path")
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
_SAME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs", "file": ""}


def own_locations(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Of a table with this location and these properties."""
    return (location, *(properties[name] for name in _PATHS if properties.get(name)))


def lies_in(path: str, locations: Iterable[str]) -> bool:
    """Whether the path is below one of these."""
    return not outside([path], locations)


def outside(paths: Iterable[str], locations: Iterable[str]) -> list[str]:
    """Of these paths, those that lie below none of the locations."""
    roots = [parts_of(location) for location in locations]
    each = ((path, parts_of(path)) for path in paths)
    return [path for path, own in each if not any(own[: len(root)] == root and own != root for root in roots)]


def parts_of(path: str) -> tuple[str, ...]:
    """Scheme, authority and the names from the root on."""
    found = _URI.fullmatch(path)
    scheme, authority, rest = ("", "", path) if found is None else found.group("scheme", "authority", "path")
    scheme, authority = _SAME.get(scheme.lower(), scheme.lower()), authority or ""
    names: list[str] = []
    for name in rest.split("/"):
        if name == "..":
            names[-1:] = []
        elif name not in ("", "."):
            names.append(name)
    here = not scheme and authority == "localhost"
    return (scheme, "" if here else authority, *names)
