"""What `frazil doctor` prints for people and for scripts, and with which code it exits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cli_builders import FakePipeline, config_file, frazil

from frazil.doctor.diagnosis import Diagnosis, ExaminationProgress
from frazil.doctor.examination import Finding, Severity, Trouble
from frazil.errors import ConfigError

FOUND = Finding(
    trouble=Trouble.REGISTERED_TWICE,
    severity=Severity.ERROR,
    what="2 data files registered more than once",
    where=("s3://lake/a.parquet: 2 times", "s3://lake/b.parquet: 2 times"),
    means="Readers see rows twice.",
    next="Run it again with --fix.",
    fixable=True,
)
BY_HAND = replace(FOUND, trouble=Trouble.MISSING_FILES, what="1 file is gone", fixable=False)


def diagnosis(*findings: Finding, table: str = "analytics.orders") -> Diagnosis:
    return Diagnosis(
        table=table,
        snapshot_id=2**62,
        data_files=3,
        delete_files=1,
        keys_examined=True,
        seconds=1.25,
        findings=findings,
    )


@dataclass
class Hospital(FakePipeline):
    """Answers with these diagnoses."""

    found: Sequence[Diagnosis] = field(default_factory=list)

    def doctor(
        self,
        tables: Sequence[str] = (),
        *,
        fix: bool = False,
        on_progress: Callable[[ExaminationProgress], None] | None = None,
    ) -> Iterator[Diagnosis]:
        self._called(f"doctor {' '.join(tables)} fix={fix}")
        assert on_progress is not None
        on_progress(ExaminationProgress(table="analytics.orders", step="files", done=1, total=3))
        yield from self.found


def test_a_healthy_table_is_one_line_and_exit_0(tmp_path: Path) -> None:
    pipeline = Hospital(found=[diagnosis()])
    result = frazil("doctor", config_file(tmp_path), pipeline=pipeline)
    assert result.exit_code == 0, result.output
    assert result.stdout == "analytics.orders: healthy (3 data files, 1 delete file, every key, 1.2 s)\n"
    assert pipeline.calls == ["open", "doctor  fix=False", "close"]


def test_before_the_first_run_there_is_nothing_to_examine(tmp_path: Path) -> None:
    result = frazil("doctor", config_file(tmp_path), pipeline=Hospital())
    assert (result.exit_code, result.stdout) == (0, "there is no table yet: `frazil run` makes them\n")


def test_a_finding_is_explained_and_exits_with_5(tmp_path: Path) -> None:
    pipeline = Hospital(found=[diagnosis(FOUND, BY_HAND)])
    result = frazil("doctor", config_file(tmp_path), "analytics.orders", "other.table", pipeline=pipeline)
    assert result.exit_code == 5
    assert pipeline.calls[1] == "doctor analytics.orders other.table fix=False"
    for text in (FOUND.what, *FOUND.where, FOUND.means, FOUND.next, "with --fix", "by hand"):
        assert text in result.stdout
    assert "2 findings in analytics.orders" in result.stderr
    assert "--fix" in result.stderr


def test_what_was_repaired_needs_nobody(tmp_path: Path) -> None:
    pipeline = Hospital(found=[diagnosis(replace(FOUND, fixed=True)), diagnosis(table="analytics.items")])
    result = frazil("doctor", config_file(tmp_path), "--fix", pipeline=pipeline)
    assert result.exit_code == 0
    assert pipeline.calls[1] == "doctor  fix=True"
    assert "repaired" in result.stdout
    assert "means:" not in result.stdout
    assert "analytics.items: healthy" in result.stdout


def test_a_repair_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    failed = replace(FOUND, error="others were faster")
    result = frazil("doctor", config_file(tmp_path), "--fix", pipeline=Hospital(found=[diagnosis(failed)]))
    assert result.exit_code == 1
    assert "the repair failed: others were faster" in result.stdout
    assert "others were faster" in result.stderr


def test_what_is_left_after_a_repair_is_for_a_person(tmp_path: Path) -> None:
    found = [diagnosis(replace(FOUND, fixed=True), BY_HAND)]
    result = frazil("doctor", config_file(tmp_path), "--fix", pipeline=Hospital(found=found))
    assert result.exit_code == 5
    assert "each finding says what to do next" in result.stderr


def test_something_worth_knowing_is_no_failure(tmp_path: Path) -> None:
    known = replace(BY_HAND, severity=Severity.INFO)
    result = frazil("doctor", config_file(tmp_path), pipeline=Hospital(found=[diagnosis(known)]))
    assert result.exit_code == 0
    assert "info" in result.stdout


def test_json_is_one_array_with_every_finding_and_nothing_else(tmp_path: Path) -> None:
    pipeline = Hospital(found=[diagnosis(FOUND), diagnosis(table="analytics.items")])
    result = frazil("doctor", config_file(tmp_path), "--json", pipeline=pipeline)
    assert result.exit_code == 5
    first, second = json.loads(result.stdout)
    assert (first["table"], second["findings"]) == ("analytics.orders", [])
    (finding,) = first["findings"]
    assert finding == {
        "trouble": "registered twice", "severity": "error", "what": FOUND.what, "where": list(FOUND.where),
        "means": FOUND.means, "next": FOUND.next, "fixable": True, "fixed": False, "error": "",
    }  # fmt: skip


def test_a_table_that_does_not_exist_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    error = ConfigError("there is no table analytics.order in frazil", hint="Did you mean analytics.orders?")
    result = frazil("doctor", config_file(tmp_path), "analytics.order", pipeline=Hospital(raises=error))
    assert result.exit_code == 2
    assert "there is no table analytics.order" in result.stderr
    assert "Did you mean analytics.orders?" in result.stderr


def test_help_tells_the_exit_codes_and_examples(tmp_path: Path) -> None:
    told = frazil("doctor", "--help").stdout
    assert "frazil doctor shop.yaml analytics.orders --fix" in told
    assert "with 5 if something remains" in " ".join(told.split())
