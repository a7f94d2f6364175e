"""Writes docs/reference from the code: python -m frazil.cli.reference docs/reference

config models' descriptions -> configuration.md
commands' help              -> cli.md
metric specs                -> metrics.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

import click

from frazil.cli.exit_codes import EXIT_CODES
from frazil.cli.main import LateCommand, cli
from frazil.config.block import Settings
from frazil.config.describe import Option, options_of, summary_of
from frazil.config.pipeline_config import PipelineConfig
from frazil.observability.metrics import METRICS

_WIDTH = 100
_GENERATED = "<!-- Written by `make docs`; edit the code it is made from. -->\n"


def configuration_page() -> str:
    lines = [
        "# Configuration",
        "",
        _GENERATED,
        "A pipeline is one YAML file. `frazil init` writes one with every key; `frazil check FILE` validates it.",
        "",
        "- `${NAME}` is taken from the environment, `${NAME:-default}` with a default; `$${` is a literal `${`.",
        "- `--set key.0.key=value` overrides one key on the command line. The value is read as YAML.",
        "- Relative paths are relative to the file. An unknown or doubled key is an error.",
        "- Durations: `500ms`, `10s`, `10m`, `1h`, `1d`. Sizes: `64KB`, `256MB`, `1GB`, in powers of 1024.",
        "- Passwords and keys are masked wherever configuration is shown.",
        *_blocks(PipelineConfig, ""),
    ]
    return "\n".join(lines) + "\n"


def _blocks(model: type[Settings], path: str) -> Iterator[str]:
    yield from ["", f"## {'`' + path + '`' if path else 'Top level'}", "", summary_of(model), ""]
    options = list(options_of(model))
    yield from _table(("key", "type", "default", "meaning"), [_option_row(option) for option in options])
    told = {option.block for option in options if not option.named}
    for option in options:
        if option.block is not None and not (option.named and option.block in told):
            name = f"{path}.{option.name}" if path else option.name
            yield from _blocks(option.block, f"{name}{'[]' if option.listed else '.<name>' if option.named else ''}")
            for other in option.others:
                yield from _blocks(other, f"{name}: {_type_of(other)}")


def _option_row(option: Option) -> Sequence[str]:
    kind = option.type_text
    if option.block is not None:
        kind = "list of blocks" if option.listed else "blocks by name" if option.named else "block"
    default = "**required**" if option.required else f"`{option.default_text}`" if option.default_text else ""
    return f"`{option.name}`", kind, default, option.description


def _type_of(block: type[Settings]) -> str:
    return f"{{type: {get_args(block.model_fields['type'].annotation)[0]}}}"


def cli_page() -> str:
    settings = {**cli.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    program = click.Context(cli, info_name="frazil", **settings)
    lines = ["# Command line", "", _GENERATED.strip(), *_help(program)]
    for name in cli.list_commands(program):
        command = cli.commands[name]
        loaded = command.load() if isinstance(command, LateCommand) else command
        context = click.Context(loaded, info_name=name, parent=program)
        lines += _help(context)
        for inner, part in loaded.commands.items() if isinstance(loaded, click.Group) else ():
            lines += _help(click.Context(part, info_name=inner, parent=context))
    lines += ["", "## Exit codes", "", *_table(("code", "meaning"), [(str(code), text) for code, text in EXIT_CODES])]
    return "\n".join(lines) + "\n"


def _help(context: click.Context) -> list[str]:
    text = context.command.get_help(context)
    return ["", f"## {context.command_path}", "", "```", *(line.rstrip() for line in text.splitlines()), "```"]


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        _GENERATED,
        "The daemon serves these at `/metrics` in Prometheus' text format (see `http` in the configuration).",
        "",
        *_table(
            ("metric", "kind", "labels", "meaning"),
            [(f"`{m.name}`", m.kind, ", ".join(f"`{label}`" for label in m.labels), m.help) for m in METRICS],
        ),
    ]
    return "\n".join(lines) + "\n"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "---|" * len(headings)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


PAGES: Mapping[str, Callable[[], str]] = {
    "configuration.md": configuration_page,
    "cli.md": cli_page,
    "metrics.md": metrics_page,
}
"""By file name."""


def main(arguments: Sequence[str]) -> None:
    directory = Path(arguments[0] if arguments else "docs/reference")
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (directory / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
