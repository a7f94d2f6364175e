"""`frazil doctor`: examines tables for damage, explains it, and repairs what it safely can.

a line for each finding --> for each of them: what, where, what it means, what to do next
nothing remains -> exit 0     something remains -> exit 5     a repair failed, and may succeed later -> exit 1
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from frazil.cli.exit_codes import EPILOG
from frazil.cli.output import counted, print_json, print_table, stdout_kept_clean
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.doctor.diagnosis import Diagnosis, ExaminationProgress
from frazil.doctor.examination import Finding
from frazil.errors import TableChanged, Transient


@click.command(epilog=EPILOG)
@on_pipeline
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option("--fix", is_flag=True, help="Repair what can be repaired safely, then look once more.")
@json_option
def doctor(session: Session, config: PipelineConfig, *, tables: Sequence[str], fix: bool, as_json: bool) -> None:
    """Examine TABLE (any table of the configured catalogs, namespace.table), or all tables that the pipeline fills.

    Finds files that are registered twice, rows in a partition that is not theirs, keys with several rows, deletes that
    reach nothing or that a declared reader cannot read, metadata near limits, a ledger that disagrees with itself, and
    files that are missing or not as the manifests say. Explains each in words. Every file is looked at and every key is
    read: it takes as long as a query over those columns. May be run beside the pipeline.

    Exits with 0 if nothing is wrong or all of it was repaired, with 5 if something remains, with 1 if a repair failed
    that may succeed later.

    \b
    Examples:
      frazil doctor shop.yaml
      frazil doctor shop.yaml analytics.orders --fix
      frazil doctor shop.yaml --json
    """
    with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline, _bar(session) as on_progress:
        found = list(pipeline.doctor(tables, fix=fix, on_progress=on_progress))
    if as_json:
        print_json(found)
    else:
        _print(session, found)
    _exit(found, fix)


def _print(session: Session, found: Sequence[Diagnosis]) -> None:
    told = [(diagnosis, finding) for diagnosis in found for finding in diagnosis.findings]
    if told:
        print_table(
            ("table", "severity", "finding", "what", "repair"),
            [
                (diagnosis.table, finding.severity.value, finding.trouble.value, session.redact(finding.what),
                 _repair(finding))
                for diagnosis, finding in told
            ],
            folds=("table", "finding", "what", "repair"),
        )  # fmt: skip
    for diagnosis, finding in told:
        if not finding.fixed:
            click.echo("")
            click.echo(session.redact(_explained(diagnosis, finding)))
    for diagnosis in found:
        if not diagnosis.findings:
            click.echo(f"{diagnosis.table}: healthy ({_looked(diagnosis)})")
    if not found:
        click.echo("there is no table yet: `frazil run` makes them")


def _repair(finding: Finding) -> str:
    if finding.fixed:
        return "repaired"
    if finding.error:
        return "failed"
    return "with --fix" if finding.fixable else "by hand"


def _explained(diagnosis: Diagnosis, finding: Finding) -> str:
    lines = [f"{diagnosis.table}: {finding.what}", *(f"  {where}" for where in finding.where)]
    lines += [f"  means: {finding.means}", f"  next:  {finding.next}"]
    return "\n".join([*lines, f"  the repair failed: {finding.error}"] if finding.error else lines)


def _looked(diagnosis: Diagnosis) -> str:
    keys = ", every key" if diagnosis.keys_examined else ""
    files = f"{counted(diagnosis.data_files, 'data file')}, {counted(diagnosis.delete_files, 'delete file')}"
    return f"{files}{keys}, {diagnosis.seconds:.1f} s"


def _exit(found: Sequence[Diagnosis], fix: bool) -> None:
    remaining = [(diagnosis.table, finding) for diagnosis in found for finding in diagnosis.remaining]
    if not remaining:
        return
    failed = [(table, finding) for table, finding in remaining if finding.error]
    if failed:
        table, finding = failed[0]
        raise Transient(f"{table}: a repair failed: {finding.error}", hint="Run it again; the table is as it was.")
    fixable = any(finding.fixable for _, finding in remaining)
    names = ", ".join(dict.fromkeys(table for table, _ in remaining))
    raise TableChanged(
        f"{counted(len(remaining), 'finding')} in {names}",
        hint="Run it again with --fix to repair what can be repaired safely."
        if fixable and not fix
        else "What is left is not repaired by itself: each finding says what to do next.",
    )


@contextmanager
def _bar(session: Session) -> Iterator[Callable[[ExaminationProgress], None]]:
    """A bar on a terminal; elsewhere nothing, since logs are there for that."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task("opening", total=None)
        before, session.write_line = session.write_line, lambda line: shown.console.print(line, markup=False)

        def tell(progress: ExaminationProgress) -> None:
            what = f"{progress.table}: {progress.step}"
            shown.update(task, description=what, completed=progress.done, total=progress.total or None)

        try:
            yield tell
        finally:
            session.write_line = before
