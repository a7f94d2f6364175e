"""The wheel is whole, and an environment that has nothing else runs Frazil from it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from releases import ROOT, build, clean_environment, run_first_stage, shell

pytestmark = pytest.mark.slow
GIT = "git -c user.name=t -c user.email= -c commit.gpgsign=false -c tag.gpgsign=false"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_first_stage(wheel, tmp_path_factory.mktemp("image"))


def version_of(distribution: Path) -> str:
    found = re.match(r"frazil-(.+?)(-py3-none-any\.whl|\.tar\.gz)$", distribution.name)
    assert found is not None, distribution.name
    return found[1]


def test_the_wheel_has_every_file_of_the_package_the_licence_and_nothing_else(wheel: Path) -> None:
    package = ROOT / "src" / "frazil"
    expected = {
        f"frazil/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    info = f"frazil-{version_of(wheel)}.dist-info"
    expected |= {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    expected |= {f"{info}/licenses/{name}" for name in ("LICENSE", "NOTICE")}
    assert set(zipfile.ZipFile(wheel).namelist()) == expected
    assert "frazil/py.typed" in expected


def test_the_source_distribution_has_what_builds_and_explains_it(wheel: Path) -> None:
    (source,) = wheel.parent.glob("*.tar.gz")
    assert version_of(source) == version_of(wheel)
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    assert {*pages, "LICENSE", "NOTICE", "pyproject.toml", "docs/licences.md", "src/frazil/py.typed"} <= names
    others = {name.partition("/")[0] for name in names} - pages
    assert others <= {"LICENSE", "NOTICE", "pyproject.toml", "docs", "src", "PKG-INFO", ".gitignore"}


def test_an_empty_environment_runs_the_program_from_the_wheel(environment: Path, wheel: Path, tmp_path: Path) -> None:
    frazil = environment / "bin" / "frazil"
    assert shell(f"'{frazil}' --version", tmp_path).strip() == f"frazil, version {version_of(wheel)}"
    assert "pipeline:" in shell(f"'{frazil}' init --source mongodb", tmp_path)
    modules = "frazil.app.pipeline, frazil.sources.mongodb.opening"
    where = f"import {modules}, pathlib, frazil; print(pathlib.Path(frazil.__file__).parent)"
    printed = shell(f"'{environment}/bin/python' -c '{where}'", tmp_path).strip()
    assert Path(printed).is_relative_to(environment)


@pytest.mark.more_servers
def test_the_demo_runs_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    call = [str(environment / "bin" / "frazil"), "demo"]
    done = subprocess.run(
        call, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("equal, row by row") == 3


def test_the_version_is_the_newest_tag_and_a_copy_without_git_has_one_too(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src" / "frazil").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", ".gitignore"):
        shutil.copy(ROOT / name, project)
    (project / "src" / "frazil" / "__init__.py").touch()

    def built(name: str) -> str:
        return version_of(build(project, tmp_path / name, "--wheel"))

    assert built("copy") == "0.1.dev0"
    shell(f"git init -q && git add . && {GIT} commit -qm one && {GIT} tag nightly-7", project)
    assert re.fullmatch(r"0\.1\.dev1\+g[0-9a-f]+", built("untagged"))
    shell(f"{GIT} tag v1.2.3", project)
    assert built("tagged") == "1.2.3"
    shell(f"{GIT} commit -q --allow-empty -m two && {GIT} tag nightly-8", project)
    assert re.fullmatch(r"1\.2\.4\.dev1\+g[0-9a-f]+", built("after"))
