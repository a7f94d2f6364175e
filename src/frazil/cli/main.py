"""The command line: one module a command, one place where errors become exit codes.

command raises FrazilError   -> error: what happened / hint: what to do   -> exit code of its class
        raises anything else -> error: unexpected ...                     -> 1, traceback with --debug
"""

from __future__ import annotations

import importlib
import importlib.util
import traceback
from importlib.metadata import version
from typing import Any

import click

from frazil.cli.commands.as_of import as_of
from frazil.cli.commands.check import check
from frazil.cli.commands.doctor import doctor
from frazil.cli.commands.drop import drop
from frazil.cli.commands.epochs import epochs
from frazil.cli.commands.init import init
from frazil.cli.commands.maintain import maintain
from frazil.cli.commands.quarantine import quarantine
from frazil.cli.commands.reload import reload
from frazil.cli.commands.resync import resync
from frazil.cli.commands.rewind import rewind
from frazil.cli.commands.run import run
from frazil.cli.commands.status import status
from frazil.cli.exit_codes import EPILOG
from frazil.cli.seam import Session
from frazil.errors import FrazilError

_REPORT_BUG = "run again with --debug for the traceback; it may be a defect of Frazil"


class LateCommand(click.Command):
    """Stands for a command whose module is imported only when it is called: importing Spark takes a second."""

    def __init__(self, name: str, module: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self._module = module

    def load(self) -> click.Command:
        command: click.Command = getattr(importlib.import_module(self._module), str(self.name))
        return command


class _Program(click.Group):
    """Shows commands in the order a user meets them, and turns errors into words and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LateCommand) else command, rest

    def invoke(self, ctx: click.Context) -> Any:
        session = ctx.ensure_object(Session)
        try:
            return super().invoke(ctx)
        except FrazilError as error:
            _say(session, error, error.message, error.hint)
            ctx.exit(error.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            _say(session, error, f"unexpected {type(error).__name__}: {error}", _REPORT_BUG)
            ctx.exit(1)


def _say(session: Session, error: Exception, message: str, hint: str) -> None:
    if session.debug:
        click.echo(session.redact("".join(traceback.format_exception(error))), err=True)
    click.echo(f"error: {session.redact(message)}", err=True)
    if hint:
        click.echo(f"hint: {session.redact(hint)}", err=True)


@click.group(cls=_Program, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("frazil"), prog_name="frazil")
def cli() -> None:
    """Database changefeeds to Apache Iceberg tables: one snapshot per resolved timestamp, exactly once.

    \b
    Start here:
      frazil init --source cockroachdb -o shop.yaml
      frazil check shop.yaml
      frazil run shop.yaml
    """


if importlib.util.find_spec("frazil.cli.commands.demo") is not None:
    cli.add_command(LateCommand("demo", "frazil.cli.commands.demo", "Show Frazil at work: no database, no cloud."))
for _command in (run, check, status, epochs, as_of, quarantine, rewind, resync, reload, maintain, doctor, drop, init):
    cli.add_command(_command)


def main() -> None:
    """The entry point of the program `frazil`."""
    cli.main(prog_name="frazil")


if __name__ == "__main__":
    main()
