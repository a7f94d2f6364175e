"""Another process with a Spark session of its own that commits when it is told to.

    stdin  {"settings": {...}, "table": "ns.name", "resolved": 7, "id": 1}   --> stdout  ready
    stdin  go                                                                --> stdout  Accepted | Conflicted | ...

One process serves all catalogs of a run: a session takes longer to start than a commit.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from catalog_builders import plan

from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.jars import AWS, POSTGRESQL
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import TableName


def main() -> None:
    spark = open_session("rival", master="local[1]", jars=(AWS, POSTGRESQL))
    say("started")
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        settings = CatalogSettings(**{**order["settings"], "type": CatalogType(order["settings"]["type"])})
        catalog = open_catalog(spark, settings)
        table = TableName.parse(order["table"])
        committer = IcebergCommitter(catalog)
        head = committer.head(table)
        prepared = plan(Tables(catalog).load(table), order["resolved"], {order["id"]: "rival"})
        say("ready")
        assert sys.stdin.readline().strip() == "go"
        say(type(committer.commit(table, head, prepared)).__name__)
    spark.stop()


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
