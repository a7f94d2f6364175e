"""`frazil maintain`: convert, compact, expire, sweep, delete; now."""

from __future__ import annotations

from collections.abc import Mapping

import click

from frazil.cli.exit_codes import EPILOG, error_of
from frazil.cli.output import print_json, stdout_kept_clean
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import FrazilError
from frazil.model.results import MaintenanceStep


@click.command(epilog=EPILOG)
@on_pipeline
@click.argument("table", required=False)
@click.option("--dry-run", "dry", is_flag=True, help="Show what would be done, and do nothing.")
@json_option
def maintain(session: Session, config: PipelineConfig, *, table: str | None, dry: bool, as_json: bool) -> None:
    """Keep TABLE (a target, namespace.table), or all tables of the pipeline, small and fast to read.

    Equality deletes become vectors, small files become large ones, old snapshots go, and so do files that nothing
    refers to any more, after a grace period. May be run beside the pipeline and beside other engines that write the
    same tables; nothing that a reader of a kept snapshot needs is ever deleted.

    \b
    Examples:
      frazil maintain shop.yaml --dry-run
      frazil maintain shop.yaml analytics.orders
      frazil maintain shop.yaml --json
    """
    steps: list[MaintenanceStep] = []
    with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline:
        for step in pipeline.maintain(table, dry=dry):
            steps.append(step)
            if not as_json:
                click.echo(session.redact(_sentence(step)))
    if as_json:
        print_json(steps)
    elif not steps:
        click.echo("nothing to do")
    failed = [step for step in steps if step.error]
    if failed:
        # What a person must do something about comes before what only needs another try.
        worst = max(failed, key=lambda step: step.exit_code != FrazilError.exit_code)
        raise error_of(worst.exit_code, f"{worst.table}: {worst.action}: {worst.error}", hint=worst.hint)


def _sentence(step: MaintenanceStep) -> str:
    if step.error:
        return f"{step.table}: {step.action} failed"
    todo = "" if step.done else " is due"
    return f"{step.table}: {step.action}{todo}: {step.reason} ({_shown(step.counts)})"


def _shown(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in counts.items() if value) or "nothing"
