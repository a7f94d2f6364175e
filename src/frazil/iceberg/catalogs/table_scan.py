"""Which table of a catalog has a uuid, whatever it is called: asked before anything is deleted.

    namespaces, and those inside them --> names of tables --each loaded once--> uuid
    asked again: names are listed anew, and only those that are new are loaded

    holder                  before all files of a table go that is not to be found: every table must have been asked
    other_table_with_uuid   before some files of a table go: one that was registered from its metadata may need them

A table that was renamed, or registered from its last metadata file, keeps its uuid and its files. One whose metadata
file is missing cannot be read by anybody, and has none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from frazil.errors import FrazilError, Transient
from frazil.iceberg.catalogs.capabilities import by_type
from frazil.iceberg.catalogs.open_catalog import Catalog, catalog_error, iceberg_properties
from frazil.iceberg.jvm.errors import JAVA_ERRORS, NO_FILE, NO_SUCH_NAMESPACE, NO_SUCH_TABLE, failure_of
from frazil.model.ids import TableName

_log = logging.getLogger("frazil.maintenance")


class CatalogTableScan:
    """Of one catalog, for one round of whoever asks: a table is not loaded twice, so its uuid is taken for that of its
    name from then on. Implements `frazil.maintenance.queue.TableScan`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._uuids: dict[str, str | FrazilError | None] = {}

    def holder(self, table_uuid: str, beside: str | None = None) -> str | None:
        """The name of a table that has this uuid now, beside the one that is called so; None if there is none. Raises
        CatalogUnavailable, and CatalogRefused or ConfigError if none is known to have it and some cannot be asked."""
        there = {identifier.toString(): identifier for identifier in table_identifiers(self._catalog)}
        self._uuids = {
            name: self._uuids[name] if name in self._uuids else self._uuid(identifier)
            for name, identifier in there.items()
        }
        others = {name: found for name, found in self._uuids.items() if name != beside}
        holder = next((name for name, found in others.items() if found == table_uuid), None)
        unknown = next((found for found in others.values() if isinstance(found, FrazilError)), None)
        if holder is None and unknown is not None:
            raise unknown
        return holder

    def other_table_with_uuid(self, table: TableName, table_uuid: str) -> str | None:
        """Another name under which the catalog has the table; None if there is none among those that can be read: who
        must not see all of a catalog keeps its own tables clean all the same. Raises CatalogUnavailable."""
        try:
            return self.holder(table_uuid, beside=table.text)
        except Transient:
            raise
        except FrazilError as error:
            _log.info("not every table was asked whether it shares the files of %s: %s", table, error)
            return None

    def _uuid(self, identifier: Any) -> str | FrazilError | None:
        try:
            return str(self._catalog.java.loadTable(identifier).operations().current().uuid())
        except JAVA_ERRORS as error:
            failure = failure_of(error, iceberg_properties(self._catalog.settings))
            if failure.is_a(NO_SUCH_TABLE) or failure.has(*NO_FILE):
                return None
            refusal = catalog_error(self._catalog, error, "look at the table", identifier.toString())
            if isinstance(refusal, Transient):
                raise refusal from None
            return refusal


def table_identifiers(catalog: Catalog, levels: tuple[str, ...] = ()) -> Iterator[Any]:
    """Iceberg's names of the tables in a namespace and in all that are inside it; some servers hold none beside
    namespaces. Raises CatalogUnavailable or CatalogRefused."""
    nested = by_type(catalog.settings).nested_namespaces
    try:
        namespace = catalog.namespace(levels)
        inner = list(catalog.java.listNamespaces(namespace)) if not levels or nested else []
        yield from catalog.java.listTables(namespace) if levels else ()
    except JAVA_ERRORS as error:
        if levels and failure_of(error, iceberg_properties(catalog.settings)).is_a(NO_SUCH_NAMESPACE):
            return  # dropped meanwhile
        raise catalog_error(catalog, error, "list the tables of", ".".join(levels) or None) from None
    for one in inner:
        yield from table_identifiers(catalog, tuple(one.levels()))
