"""The example for clusters, run as it stands: spark-submit, the driver here, executors in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
import yaml
from feed_builders import Feed, at, table, upsert
from pyiceberg.catalog.sql import SqlCatalog

pytestmark = pytest.mark.more_servers

SCRIPT = Path(__file__).parents[2] / "docs" / "deploy" / "spark-submit.sh"


def test_a_pipeline_runs_through_spark_submit(tmp_path: Path) -> None:
    config = {
        "pipeline": "submitted",
        "source": {"type": "cockroachdb", "feed": "./feed"},
        "catalog": {"type": "builtin", "warehouse": "./warehouse"},
        "tables": [table("t", target="lake.t")],
        "limits": {"small_epoch_bytes": 0},
    }
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(config))
    feed = Feed(tmp_path / "feed")
    feed.data(at(1), [upsert([number], at(1), a=number, b="x") for number in range(100)])
    feed.resolved(at(2))
    environment = {
        **os.environ,
        "FRAZIL": sys.prefix,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "MASTER": "local-cluster[2,1,1024]",
    }
    call = ["sh", str(SCRIPT), str(tmp_path / "shop.yaml"), "--once"]
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1 epoch published to 1 table: 100 rows" in done.stdout
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{tmp_path}/warehouse/catalog.db", warehouse=f"{tmp_path}/warehouse")
    assert len(catalog.load_table("lake.t").scan().to_arrow()) == 100
