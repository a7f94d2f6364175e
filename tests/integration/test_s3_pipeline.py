"""The whole road on S3: a changefeed in a bucket, tables in a bucket, an OAuth2 REST catalog; real servers all of them.

The executors of the second test are processes of their own, which know nothing of the driver's disk or environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import obstore
import pytest
from feed_builders import Lab, at, delete, read_rows, table, upsert
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession
from servers.seaweedfs import SeaweedFS

from frazil.storage.client import store_for
from frazil.storage.url import parse_place

pytestmark = [pytest.mark.spark, pytest.mark.servers]
NAME = "weed_pipeline"


class Shipped:
    """A feed that is written here and brought to a bucket file by file, data before its resolved mark."""

    def __init__(self, lab: Lab, url: str, server: SeaweedFS) -> None:
        self._root, place = lab.feed.root, parse_place(url)
        self._store = store_for(place, server.fileio, below=place.key).listed
        self._sent: set[Path] = set()

    def ship(self) -> None:
        fresh = sorted((path for path in self._root.rglob("*") if path.is_file()), key=lambda path: path.name)
        for path in sorted(fresh, key=lambda path: path.name.endswith(".RESOLVED")):
            if path not in self._sent:
                obstore.put(self._store, str(path.relative_to(self._root)), path.read_bytes())
                self._sent.add(path)


def options(server: SeaweedFS, secret: str | None = None) -> dict[str, str]:
    return {
        "endpoint": server.endpoint,
        "region": "us-east-1",
        "access_key_id": server.access_key_id,
        "secret_access_key": secret or server.secret_access_key,
    }


def catalog_block(server: SeaweedFS, *, vended: bool) -> dict[str, Any]:
    block: dict[str, Any] = {
        "type": "rest",
        "name": NAME,
        "uri": server.catalog_uri,
        "warehouse": server.warehouse,
        "auth": {
            "type": "oauth2",
            "client_id": server.access_key_id,
            "client_secret": server.secret_access_key,
            "scope": "catalog",
        },
    }
    if vended:
        where = {name: server.fileio[name] for name in ("s3.endpoint", "s3.path-style-access", "client.region")}
        return {**block, "delegation": "vended-credentials", "properties": where}
    return {**block, "properties": server.fileio}


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, seaweedfs: SeaweedFS, bucket: str) -> Lab:
    made = Lab(spark, warehouse, namespace, tmp_path, tables=[table("t"), table("u", key=(), columns={})])
    made.source = {"feed": f"{bucket}/feeds/shop", "options": options(seaweedfs)}
    made.catalog = catalog_block(seaweedfs, vended=False)
    return made


def first_epoch(lab: Lab) -> None:
    lab.feed.data(at(1), [upsert([n], at(1), a=n, b="x") for n in range(50)])
    lab.feed.data(at(1), [upsert([n], at(1), id=n, price=n + 0.25) for n in range(5)], topic="u")
    lab.feed.resolved(at(2))


def second_epoch(lab: Lab) -> None:
    lab.feed.data(at(3), [delete([0], at(3)), upsert([1], at(4), a=1, b="y"), upsert([9], at(9), a=9, b="later")])
    lab.feed.data(at(3), [upsert([1], at(3), id=1, price=9, added="new")], topic="u", schema="2")
    lab.feed.resolved(at(5))


EXPECTED = [(1, "y"), *((n, "x") for n in range(2, 50))]


@pytest.mark.parametrize("vended", [False, True], ids=["own credentials", "vended credentials"])
def test_a_feed_on_s3_becomes_tables_on_s3(lab: Lab, seaweedfs: SeaweedFS, vended: bool) -> None:
    lab.catalog = catalog_block(seaweedfs, vended=vended)
    lab.settings = {"atomic": "pipeline", "limits": {"small_epoch_bytes": 0 if vended else 1 << 20}}
    shipped = Shipped(lab, lab.source["feed"], seaweedfs)
    for write in (first_epoch, second_epoch):
        write(lab)
        shipped.ship()
        lab.run()
    rows = lab.rows("t")
    assert [tuple(row.values()) for row in rows] == EXPECTED
    assert [tuple(row.values()) for row in lab.rows("t", at(2))] == [(n, "x") for n in range(50)]
    assert [row["added"] for row in lab.rows("u", order="id")] == [None, "new", None, None, None]
    assert lab.run().epochs == 0
    second = load_catalog("second", uri=seaweedfs.catalog_uri, type="rest", **seaweedfs.catalog_properties)
    found = second.load_table(f"{lab.namespace}.t").scan().to_arrow().sort_by("a").to_pylist()
    assert found == rows, "another engine reads the same"


def test_executors_need_nothing_of_the_drivers_machine(lab: Lab, seaweedfs: SeaweedFS, spark: SparkSession) -> None:
    lab.settings = {
        "spark": {"master": "local-cluster[2,1,1024]", "jvm_memory": "1g"},
        "limits": {"small_epoch_bytes": 0},
        "parquet": {"target_file_size": "1MB"},
    }
    lab.source["options"] = {**options(seaweedfs), "secret_access_key": "${FEED_SECRET}"}
    del lab.catalog["properties"]["s3.secret-access-key"], lab.catalog["properties"]["s3.access-key-id"]
    first_epoch(lab)
    second_epoch(lab)
    Shipped(lab, lab.source["feed"], seaweedfs).ship()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {
        "FEED_SECRET": seaweedfs.secret_access_key,
        "AWS_ACCESS_KEY_ID": seaweedfs.access_key_id,
        "AWS_SECRET_ACCESS_KEY": seaweedfs.secret_access_key,
    }
    call = [sys.executable, "-m", "frazil.cli.main", "run", str(lab.config), "--once"]
    done = subprocess.run(call, cwd=lab.root, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert seaweedfs.secret_access_key not in done.stdout + done.stderr
    lab.catalog = catalog_block(seaweedfs, vended=False)
    del lab.settings["spark"]
    lab.source["options"] = options(seaweedfs)
    with lab.open():
        assert [tuple(row.values()) for row in read_rows(spark, lab.sql_name("t"))] == EXPECTED


@pytest.mark.parametrize(
    ("change", "code", "complaint"),
    [
        (lambda lab, s: lab.source.update(options=options(s, "wrong")), 2, "feed"),
        (lambda lab, s: lab.source.update(feed="s3://no-such-bucket/feeds"), 2, "no-such-bucket"),
        (lambda lab, s: lab.catalog["auth"].update(client_secret="wrong"), 7, "catalog"),
        (lambda lab, s: lab.catalog.update(uri="http://127.0.0.1:9"), 1, "127.0.0.1:9"),
    ],
    ids=["wrong secret of the feed", "missing bucket", "wrong secret of the catalog", "wrong endpoint"],
)
def test_what_cannot_be_reached_is_named_and_no_secret_is_told(
    lab: Lab, seaweedfs: SeaweedFS, change: Any, code: int, complaint: str
) -> None:
    first_epoch(lab)
    Shipped(lab, lab.source["feed"], seaweedfs).ship()
    lab.catalog["name"] = f"bad_{lab.namespace}"
    change(lab, seaweedfs)
    told = lab.cli("check")
    assert told.exit_code == code, told.output
    assert complaint in told.stderr
    assert "hint:" in told.stderr
    assert seaweedfs.secret_access_key not in told.output


def test_a_format_that_this_storage_cannot_hold_is_refused_if_it_was_asked_for(lab: Lab, seaweedfs: SeaweedFS) -> None:
    """The table buckets of this server take no Puffin files, so there are no deletion vectors."""
    first_epoch(lab)
    Shipped(lab, lab.source["feed"], seaweedfs).ship()
    lab.tables[0]["format_version"] = 3
    told = lab.cli("run", "--once")
    assert told.exit_code == 2
    assert "position deletes instead of deletion vectors" in told.stderr
    del lab.tables[0]["format_version"]
    lab.run()
    assert len(lab.rows("t")) == 50
