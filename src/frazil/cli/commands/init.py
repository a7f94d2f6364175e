"""`frazil init`: a commented configuration to start from."""

from __future__ import annotations

from pathlib import Path

import click

from frazil.cli.exit_codes import EPILOG
from frazil.cli.template import template
from frazil.errors import ConfigError
from frazil.sources.registry import kind_names


@click.command(epilog=EPILOG)
@click.option("--source", type=click.Choice(kind_names()), required=True, help="The kind of source.")
@click.option("--sinkless", is_flag=True, help="For a changefeed over SQL, without cloud storage in between.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.  [default: stdout]"
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(source: str, sinkless: bool, output: Path | None, force: bool) -> None:
    """Write a configuration with every key, its meaning and its default.

    \b
    Examples:
      frazil init --source cockroachdb
      frazil init --source cockroachdb --sinkless -o shop.yaml
      frazil init --source mongodb -o shop.yaml
    """
    text = template(source, sinkless=sinkless)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(
            f"{output} is already there", hint="choose another name, or overwrite with --force"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot write {output}: {(error.strerror or str(error)).lower()}", hint="choose a place you may write to"
        ) from error
    click.echo(f"wrote {output}; edit it, then: frazil check {output}", err=True)
