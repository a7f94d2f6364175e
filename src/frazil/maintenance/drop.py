"""Drops a table of a pipeline's catalogs; its files go later, by way of the deletion queue.

listed in the configuration? --without force--> refused: the pipeline would make it again
intent to the queue --> out of the catalog --> confirmed --grace period--> files are deleted, by any maintenance
"""

from __future__ import annotations

from frazil.clock import Clock
from frazil.config.parse_values import duration_text
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import CatalogType
from frazil.iceberg.system.deletion_queue import IcebergDeletionQueue
from frazil.ingest.catalog_handles import CatalogHandle, Catalogs
from frazil.model.ids import BadName, TableName
from frazil.model.write import main_table_of


def drop_table(
    config: PipelineConfig,
    places: Catalogs,
    clock: Clock,
    table: str,
    *,
    catalog: str | None = None,
    force: bool = False,
) -> str:
    """Says what was done. `catalog` by its name, if it is not the one that the configuration gives the table.

    Raises ConfigError if there is no such table or catalog, if the table is one of Frazil's own, or, without `force`,
    if the pipeline would make it again; and what catalogs raise.
    """
    target = _parsed(table)
    entry = config.entries.claiming(main_table_of(target))
    if entry is not None and not force:
        raise ConfigError(
            f"{target} belongs to pipeline {config.pipeline}, which would make it again: the entry {entry.source} of "
            "`tables:` fills it",
            hint="Take it out of `tables:` first and let a running daemon reload, or drop it with --force.",
            table=target.text,
        )
    place = places.of(target) if catalog is None else _named(places, catalog)
    settings = place.catalog.settings
    queue = IcebergDeletionQueue(place.catalog, clock, batch_files=config.maintenance.queue.batch_files)
    if not queue.drop(target):
        raise ConfigError(
            f"there is no table {target} in catalog {settings.name}",
            hint="Name it namespace.table, and another catalog of the configuration with --catalog.",
            table=target.text,
        )
    if settings.type is CatalogType.HADOOP:
        return f"{target} is dropped, and its folder is deleted"
    queue_settings = config.maintenance.queue
    grace = duration_text(queue_settings.grace)
    stays = "" if queue_settings.delete_outside else "; files outside of its own locations stay"
    return f"{target} is dropped; maintenance deletes its files after {grace} (maintenance.queue.grace){stays}"


def _parsed(table: str) -> TableName:
    try:
        target = TableName.parse(table)
    except BadName as error:
        raise ConfigError(str(error), hint="Name it namespace.table.", table=table) from error
    if target.is_reserved:
        raise ConfigError(
            f"{target} is one of Frazil's own tables, which other pipelines may use too",
            hint="Drop it with the catalog's own tools, once no pipeline of this catalog runs any more.",
            table=target.text,
        )
    return target


def _named(places: Catalogs, catalog: str) -> CatalogHandle:
    by_name = {place.catalog.settings.name: place for place in places.all}
    if catalog not in by_name:
        raise ConfigError(
            f"no table of the configuration is in a catalog {catalog}",
            hint=f"Its catalogs are: {', '.join(by_name)}.",
            catalog=catalog,
        )
    return by_name[catalog]
