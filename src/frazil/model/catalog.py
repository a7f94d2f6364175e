"""The kinds of Iceberg catalogs."""

from __future__ import annotations

from enum import StrEnum


class CatalogType(StrEnum):
    BUILTIN = "builtin"
    MEMORY = "memory"
    HADOOP = "hadoop"
    REST = "rest"
    HIVE = "hive"
    GLUE = "glue"
    S3TABLES = "s3tables"
    JDBC = "jdbc"
    NESSIE = "nessie"

    @property
    def speaks_rest(self) -> bool:
        return self in (CatalogType.REST, CatalogType.S3TABLES)
