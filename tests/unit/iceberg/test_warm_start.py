"""The daemon that starts Spark's Python workers."""

from __future__ import annotations

import zipfile
from pathlib import Path

from frazil.iceberg.jvm.warm_start import without_archives


def install(root: Path, folder_version: str, archive_version: str) -> list[str]:
    """A search path as Spark makes it: archives first, then what the interpreter has."""
    packages = root / "site-packages"
    (packages / "pyspark").mkdir(parents=True)
    (packages / "py4j").mkdir()
    (packages / "pyspark" / "version.py").write_text(folder_version)
    with zipfile.ZipFile(root / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/version.py", archive_version)
    with zipfile.ZipFile(root / "mine.zip", "w") as archive:
        archive.writestr("mine.py", "")
    names = ["pyspark.zip", "py4j-0.10-src.zip", "spark-core_2.13.jar", "mine.zip", "site-packages"]
    return [str(root / name) for name in names]


def test_archives_of_the_same_version_are_left_out_and_those_of_the_user_stay(tmp_path: Path) -> None:
    path = install(tmp_path, "4.1.4", "4.1.4")
    assert [Path(entry).name for entry in without_archives(path)] == ["mine.zip", "site-packages"]


def test_another_version_in_the_folder_changes_nothing(tmp_path: Path) -> None:
    path = install(tmp_path, "4.0.0", "4.1.4")
    assert without_archives(path) == path


def test_without_a_folder_the_archives_stay(tmp_path: Path) -> None:
    path = install(tmp_path, "4.1.4", "4.1.4")[:-1]
    assert without_archives(path) == path
