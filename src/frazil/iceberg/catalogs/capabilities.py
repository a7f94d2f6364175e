"""What a catalog can do: known of its type, refined by asking the server.

    type --by_type--> what iceberg-java's implementation can
      |  REST: GET /v1/config --refined--> rename, views, several tables at once, by the server's own list
      |  a table just made --learn--> v3: asked for, and given?
      v
    a table is made as version 2 where 3 is not to be had: position deletes instead of vectors; unless 3 was asked for

A missing ability changes a default or refuses with the reason; `notes` say which and why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.catalogs.rest import COMMIT_TRANSACTION, CREATE_VIEW, RENAME_TABLE, endpoints
from frazil.iceberg.catalogs.settings import CatalogSettings, CatalogType
from frazil.model.ids import TableName
from frazil.model.write import DeleteMode, TableOptions
from frazil.storage.url import scheme_of

WITHOUT_V3 = 2
_DELETES_FROM_VERSION = 2
_V3_MISSING = "no format version 3: tables are made as version 2, with position deletes instead of deletion vectors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """`several_writers`: processes at once, on one table. `multi_table`: one atomic commit of several tables.
    `nested_namespaces`: namespaces of more than one level. `notes` are sentences for people."""

    rename: bool = True
    v3: bool = True
    multi_table: bool = False
    several_writers: bool = True
    nested_namespaces: bool = True
    views: bool = False
    notes: tuple[str, ...] = ()

    def as_table(self) -> tuple[tuple[str, bool], ...]:
        """Each ability by the name people know it by."""
        return (
            ("rename", self.rename),
            ("format version 3", self.v3),
            ("one commit for several tables", self.multi_table),
            ("several writer processes", self.several_writers),
            ("nested namespaces", self.nested_namespaces),
            ("views", self.views),
        )


def capabilities(catalog: Catalog) -> Capabilities:
    """What this catalog can do, by its type, by its own word, and by what was learned of it. Raises
    CatalogUnavailable or CatalogRefused if it must be asked and does not answer."""
    found = by_type(catalog.settings)
    if catalog.settings.type.speaks_rest:
        found = refined(found, endpoints(catalog))
    return without_v3(found) if has_learned(catalog.settings) else found


def by_type(settings: CatalogSettings) -> Capabilities:
    """What is known before anything is asked. Pure."""
    match settings.type:
        case CatalogType.BUILTIN:
            return Capabilities(views=True, notes=("one SQLite file: all writers must be on one machine",))
        case CatalogType.MEMORY:
            return Capabilities(views=True, several_writers=False, notes=("gone when this process ends",))
        case CatalogType.JDBC:
            return Capabilities(views=True)
        case CatalogType.HADOOP:
            on_hdfs = scheme_of(settings.warehouse or "") in ("hdfs", "viewfs", "webhdfs")
            note = "a table is a directory and cannot be renamed"
            if on_hdfs:
                return Capabilities(rename=False, notes=(note,))
            only_one = "only HDFS renames files atomically: one writer process"
            return Capabilities(rename=False, several_writers=False, notes=(note, only_one))
        case CatalogType.HIVE:
            return Capabilities(nested_namespaces=False, views=True)
        case CatalogType.GLUE:
            return Capabilities(nested_namespaces=False, notes=("a rename is a copy and a drop, not one step",))
        case CatalogType.S3TABLES:
            return Capabilities(nested_namespaces=False)
        case CatalogType.NESSIE:
            return Capabilities(views=True)
        case CatalogType.REST:
            return Capabilities()


def refined(known: Capabilities, declared: Iterable[str]) -> Capabilities:
    """By a REST server's own list of endpoints. A server without a list is one from before there were lists: it is
    believed to have what was in the protocol then, and to commit table by table. Pure."""
    offered = frozenset(declared)
    if not offered:
        note = "the server does not say what it offers: tables are committed one by one"
        return replace(known, multi_table=False, notes=(*known.notes, note))
    return replace(
        known,
        rename=RENAME_TABLE in offered,
        views=CREATE_VIEW in offered,
        multi_table=COMMIT_TRANSACTION in offered,
    )


def without_v3(known: Capabilities) -> Capabilities:
    return replace(known, v3=False, notes=(*known.notes, _V3_MISSING))


def learn(settings: CatalogSettings, asked: int, given: int) -> None:
    """Remembers, for this process, a catalog that gave an older format version than it was asked for."""
    if given < asked:
        _made_v2_of_v3.add(_key(settings))


def has_learned(settings: CatalogSettings) -> bool:
    """Whether a table of this catalog turned out not to be of version 3."""
    return _key(settings) in _made_v2_of_v3


def check_version(table: TableName, options: TableOptions, given: int) -> None:
    """Raises ConfigError if a version of the format was asked for, and the catalog made an older one. Pure."""
    if options.insists_on_version and given < options.format_version:
        raise ConfigError(
            f"{table}: format_version is {options.format_version}, and this catalog has {_V3_MISSING}",
            hint="remove format_version from the table's entry, or set it to 2",
            table=table.text,
        )


def check_deletes(table: TableName, options: TableOptions, given: int) -> None:
    """Raises ConfigError if rows of an existing table are to be replaced, and its version of the format knows no
    deletes. Pure."""
    if options.mode is not DeleteMode.APPEND_ONLY and given < _DELETES_FROM_VERSION:
        raise ConfigError(
            f"{table} is a table of format version {given}, which has no row-level deletes",
            hint=f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '2'), or set deletes: append-only",
            table=table.text,
        )


_made_v2_of_v3: set[tuple[str, str]] = set()


def _key(settings: CatalogSettings) -> tuple[str, str]:
    return settings.type.value, settings.endpoint
