"""What is released, made as its users make it: the wheel, and an environment that has it and nothing of this checkout.

    the checkout --uv build--> source distribution --> wheel --first stage of the Dockerfile--> an environment

uv has in its cache what `make setup` installed: the network is asked only if that is not enough.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"
LOCK = ROOT / "requirements.lock"
UV = Path(sys.executable).with_name("uv")
_OF_THIS_PROCESS = re.compile("PYTHON|PYSPARK|SPARK_|VIRTUAL_ENV|UV_|GIT_|SETUPTOOLS_SCM")


def clean_environment() -> dict[str, str]:
    """The environment of this process without what would lead a program to this checkout."""
    return {name: value for name, value in os.environ.items() if not _OF_THIS_PROCESS.match(name)}


def shell(command: str, directory: Path, environment: Mapping[str, str] | None = None) -> str:
    """What it prints. A command that fails in the cache alone is tried with the network."""
    for offline in ("1", "0"):
        done = subprocess.run(
            ["sh", "-euc", command],
            cwd=directory,
            env={**clean_environment(), **(environment or {}), "UV_OFFLINE": offline},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
    raise AssertionError(f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")


def build(project: Path, out: Path, options: str = "") -> Path:
    """The wheel, from the source distribution that lies beside it then."""
    shell(f"'{UV}' build {options} --quiet --python '{sys.executable}' --out-dir '{out}'", project)
    (wheel,) = out.glob("*.whl")
    return wheel


def steps(stage: int) -> list[tuple[str, str]]:
    """The instructions of one stage of the Dockerfile, each with its argument."""
    stages = re.split(r"^FROM .*$", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]
    lines = [line for line in stages[stage].splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def run_first_stage(wheel: Path, root: Path) -> Path:
    """Does what the Dockerfile's first stage does, with `root` in place of `/`. Gives the environment it makes.

    Only the step that installs uv is left out: the one of this machine is put in its place.
    """
    context = root / "context"
    (context / "dist").mkdir(parents=True)
    shutil.copy(LOCK, context)
    shutil.copy(wheel, context / "dist")
    tools = root / "opt" / "tools" / "bin"
    tools.mkdir(parents=True)
    (tools / "uv").symlink_to(UV)
    directory, variables = root, {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for instruction, argument in steps(0):
        argument = argument.replace("/opt/", f"{root}/opt/")
        match instruction:
            case "ARG":
                name, _, value = argument.partition("=")
                variables[name] = value
            case "WORKDIR":
                directory = root / argument.lstrip("/")
                directory.mkdir()
            case "COPY":
                shell(f"cp {argument.removesuffix(' ./')} '{directory}'", context)
            case "RUN" if not argument.startswith(f"python -m venv {root}/opt/tools "):
                shell(argument, directory, variables)
    return root / "opt" / "frazil"
