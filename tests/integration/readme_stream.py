"""Runs a Python block of a page as it is printed, in a Spark session of the reader's own.

    python readme_stream.py BLOCK JARS     BLOCK: a file with the block; JARS: the jars that the session is started with

The session is made without any help of Frazil. `changes`, which the block takes, is a stream of JSON files: two
versions of one key and a deleted one. Prints the rows of analytics.orders as PyIceberg reads them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import frazil

ROWS = (
    {"id": 1, "version": 1, "op": "c", "name": "old"},
    {"id": 1, "version": 2, "op": "u", "name": "new"},
    {"id": 2, "version": 3, "op": "d", "name": None},
)


def main() -> None:
    block, jars = sys.argv[1:]
    Path("in").mkdir()
    Path("in/0.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    changes = session.readStream.schema("id long, version long, op string, name string").json("in")
    exec(compile(Path(block).read_text(), "README.md", "exec"), {"frazil": frazil, "changes": changes})
    for query in session.streams.active:
        query.processAllAvailable()
        query.stop()
    orders = SqlCatalog("frazil", uri="sqlite:///warehouse/catalog.db", warehouse="warehouse").load_table(
        "analytics.orders"
    )
    print(json.dumps(orders.scan(selected_fields=("id", "name")).to_arrow().to_pylist()))


if __name__ == "__main__":
    main()
