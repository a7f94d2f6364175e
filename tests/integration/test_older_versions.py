"""The oldest versions that Frazil runs with: PySpark 4.1.1, and the runtime jar of Iceberg 1.11."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from releases import LOCK, ROOT, UV, build, clean_environment, shell

pytestmark = pytest.mark.more_servers
LOWEST_PYSPARK = "4.1.1"
ICEBERG_1_11 = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242",
)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment as the lock has it, but for PySpark."""
    root = tmp_path_factory.mktemp("older")
    wheel = build(ROOT, root / "dist")
    pins = re.findall(r"^[A-Za-z0-9][^\\\n]*==[^\\\n]*", LOCK.read_text(), re.MULTILINE)
    others = [pin for pin in pins if not pin.startswith("pyspark==")]
    (root / "pins.txt").write_text("\n".join([*others, f"pyspark=={LOWEST_PYSPARK}"]))
    environment = root / "environment"
    shell(f"'{UV}' venv --quiet --python '{sys.executable}' '{environment}'", root)
    shell(f"'{UV}' pip install --quiet --python '{environment}' --constraints pins.txt '{wheel}'", root)
    return environment


def run(call: list[str], directory: Path) -> str:
    done = subprocess.run(
        call, cwd=directory, env=clean_environment(), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_the_oldest_pyspark_is_the_one_that_pyproject_names() -> None:
    assert f'"pyspark>={LOWEST_PYSPARK},<4.2"' in (ROOT / "pyproject.toml").read_text()


def test_the_demo_runs_on_the_oldest_pyspark(older: Path, tmp_path: Path) -> None:
    python = older / "bin" / "python"
    assert run([str(python), "-c", "import pyspark; print(pyspark.__version__)"], tmp_path).strip() == LOWEST_PYSPARK
    assert run([str(older / "bin" / "frazil"), "demo"], tmp_path).count("equal, row by row") == 3


def test_the_demo_runs_on_the_oldest_pyspark_and_iceberg(older: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("older_iceberg.py")
    printed = run([str(older / "bin" / "python"), str(script), *ICEBERG_1_11, "demo"], tmp_path)
    metadata = sorted(tmp_path.glob("demo-out/warehouse/shop/orders/metadata/*.metadata.json"))
    assert metadata
    assert all('"iceberg-version":"Apache Iceberg 1.11.0 ' in path.read_text() for path in metadata[1:])
    assert printed.count("equal, row by row") == 3
