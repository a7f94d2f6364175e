"""The command line in sessions that start with another Iceberg runtime jar than the one that Frazil brings.

python older_iceberg.py COORDINATE SHA256 ARGUMENT ...     the arguments are those of `frazil`
"""

from __future__ import annotations

import sys

from frazil.cli.main import cli
from frazil.iceberg.jvm import jars


def main() -> None:
    coordinate, sha256, *arguments = sys.argv[1:]
    jars.NEEDED = (jars.Jar(coordinate, sha256), jars.SQLITE)
    cli.main(args=arguments, prog_name="frazil")


if __name__ == "__main__":
    main()
