"""What commands print for people and for scripts."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_builders import RESOLVED, FakePipeline, change_of, config_file, frazil, progress_of, status_of
from click.testing import CliRunner
from rich.console import Console

from frazil.cli.commands import demo
from frazil.cli.commands.run import LoadPace, progress_table
from frazil.cli.main import cli
from frazil.cli.output import moment_text
from frazil.model.frontier import LoadProgress
from frazil.model.results import RunProgress, TableProgress
from frazil.model.state import TableState

SHOWN = "2023-11-27 16:24:56.662 Z"
"""RESOLVED, for people."""


def test_run_tells_what_it_published(tmp_path: Path) -> None:
    pipeline = FakePipeline()
    result = frazil("run", config_file(tmp_path), pipeline=pipeline)
    assert result.exit_code == 0
    assert result.stdout == (
        "3 epochs published to 1 table: 1,200 rows, 1 delete, 2 duplicate or late changes dropped, "
        f"resolved at {SHOWN}\n"
    )
    assert pipeline.calls == ["open", "run once=False", "close"]


def test_run_once_drains_and_json_is_one_array_and_nothing_else(tmp_path: Path) -> None:
    pipeline = FakePipeline(progress=[progress_of(1)], while_running=lambda stop: print("a library speaks"))
    result = frazil("run", config_file(tmp_path), "--once", "--json", pipeline=pipeline)
    assert json.loads(result.stdout) == [
        {"epochs": 3, "rows": 1200, "deletes": 1, "dropped": 2, "tables": 1, "resolved": RESOLVED, "source_time": None}
    ]
    assert pipeline.calls[1] == "run once=True"
    assert "a library speaks" in result.stderr


def test_progress_is_logged_when_the_state_or_the_first_load_changed(tmp_path: Path) -> None:
    """Every epoch is logged as published, with its rows: a second line of it would say the same again."""
    loading = [
        RunProgress((replace(progress_of(1).tables[0], state=TableState.INITIAL_SYNC, load=LoadProgress(done, 100)),))
        for done in (10, 10, 50)
    ]
    pipeline = FakePipeline(progress=[*loading, progress_of(1), progress_of(1, lag=9.0), progress_of(2)])
    result = frazil("run", config_file(tmp_path), pipeline=pipeline)
    lines = [line.partition("event=progress ")[2] for line in result.stderr.splitlines() if "event=progress" in line]
    assert lines == [
        "table=analytics.orders state=INITIAL_SYNC lag_seconds=0.5 loaded=10 to_load=100",
        "table=analytics.orders state=INITIAL_SYNC lag_seconds=0.5 loaded=50 to_load=100",
        "table=analytics.orders state=STEADY_STATE lag_seconds=0.5",
    ]


def test_logs_can_be_json_and_can_be_less(tmp_path: Path) -> None:
    pipeline = FakePipeline(progress=[progress_of(1)])
    result = frazil("run", config_file(tmp_path), "--log-format", "json", pipeline=pipeline)
    assert json.loads(result.stderr)["table"] == "analytics.orders"
    assert frazil("run", config_file(tmp_path), "--log-level", "error", pipeline=pipeline).stderr == ""


def test_the_live_view_shows_a_line_for_each_table() -> None:
    console = Console(width=120, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(progress_table(progress_of(7, lag=200)))
    assert all(word in captured.get() for word in ("analytics.orders", "STEADY_STATE", "7", "70", "3m 20s", SHOWN))


def test_the_demo_says_what_it_counts() -> None:
    """Rows written are no rows of a table: a row that is updated twice is written three times."""
    console = Console(width=120, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(demo.progress_table(progress_of(7), 1_000))
    assert "1,000 changes made" in captured.get()
    assert "rows written" in captured.get()
    assert "one for each insert and each update" in captured.get()


def test_status_prints_a_table_and_dashes_for_what_is_not_known(tmp_path: Path) -> None:
    pipeline = FakePipeline(statuses=[status_of(), status_of("analytics.items", None, None)])
    result = frazil("status", config_file(tmp_path), pipeline=pipeline)
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if "analytics" in line}
    assert lines["analytics.orders"] == ["analytics.orders", "STEADY_STATE", "1.2s", *SHOWN.split(), str(2**62)]
    assert lines["analytics.items"] == ["analytics.items", "STEADY_STATE", *["-"] * 3]


def test_status_tells_what_a_table_holds_and_when_it_was_maintained(tmp_path: Path) -> None:
    at = datetime(2026, 3, 1, 12, 0, 0, 0, UTC)
    kept = replace(status_of(), data_files=12, delete_files=3, snapshots=40, maintenance="compact", maintained_at=at)
    (line,) = [
        line.split()
        for line in frazil("status", config_file(tmp_path), pipeline=FakePipeline(statuses=[kept])).stdout.splitlines()
        if "analytics" in line
    ]
    assert line[-7:] == ["12", "3", str(2**62), "2026-03-01", "12:00:00.000", "Z", "compact"]
    (told,) = json.loads(
        frazil("status", config_file(tmp_path), "--json", pipeline=FakePipeline(statuses=[kept])).stdout
    )
    assert (told["data_files"], told["delete_files"], told["snapshots"]) == (12, 3, 40)
    assert (told["maintenance"], told["maintained_at"]) == ("compact", moment_text(at))


def test_status_tells_the_size_and_the_hit_rate_of_the_key_index_once(tmp_path: Path) -> None:
    indexed = replace(status_of(), index_bytes=3 << 20, index_hit_rate=0.75)
    pipeline = FakePipeline(statuses=[status_of("analytics.items"), indexed, indexed])
    told = frazil("status", config_file(tmp_path), pipeline=pipeline).stdout
    assert told.count("key index") == 1
    assert "key index: 3.0 MB, 75% of lookups hit it" in told
    assert "key index" not in frazil("status", config_file(tmp_path), pipeline=FakePipeline()).stdout


def test_status_json_has_the_promised_fields(tmp_path: Path) -> None:
    pipeline = FakePipeline(statuses=[status_of(), status_of("analytics.items", None, None)])
    first, second = json.loads(frazil("status", config_file(tmp_path), "--json", pipeline=pipeline).stdout)
    assert {name: first[name] for name in ("table", "state", "resolved", "snapshot_id", "lag_seconds")} == {
        "table": "analytics.orders", "state": "STEADY_STATE", "resolved": RESOLVED, "snapshot_id": 2**62,
        "lag_seconds": 1.25,
    }  # fmt: skip
    assert (second["resolved"], second["snapshot_id"], second["lag_seconds"]) == (None, None, None)


def test_as_of_tells_the_snapshot_and_how_to_read_it(tmp_path: Path) -> None:
    call = ("as-of", config_file(tmp_path), "analytics.orders", "2026-03-01T12:00:00Z")
    result = frazil(*call, pipeline=FakePipeline())
    assert f"SELECT * FROM frazil.analytics.orders VERSION AS OF {2**62}" in result.stdout
    assert "not published up to" not in result.stderr
    early = frazil(*call, pipeline=FakePipeline(reached=False))
    assert "not published up to 2026-03-01T12:00:00Z yet" in early.stderr
    (told,) = json.loads(frazil(*call, "--json", pipeline=FakePipeline(reached=False)).stdout)
    assert (told["snapshot_id"], told["reached"]) == (2**62, False)


def test_epochs_are_of_one_table_or_of_all_of_them(tmp_path: Path) -> None:
    config = config_file(tmp_path)
    told = frazil("epochs", config, "--consistent", pipeline=FakePipeline()).stdout
    assert all(word in told for word in (RESOLVED, "analytics.orders", str(2**62), "analytics.items"))
    (epoch,) = json.loads(frazil("epochs", config, "--consistent", "--json", pipeline=FakePipeline()).stdout)
    assert epoch["snapshots"] == {"analytics.orders": 2**62, "analytics.items": None}
    for wrong in ([], ["analytics.orders", "--consistent"]):
        result = frazil("epochs", config, *wrong, pipeline=FakePipeline())
        assert result.exit_code == 2
        assert "give a TABLE, or --consistent" in result.stderr


def test_check_tells_what_the_catalog_can_and_cannot_do(tmp_path: Path) -> None:
    told = frazil("check", config_file(tmp_path), pipeline=FakePipeline()).stdout
    assert "can: rename; cannot: one commit for several tables" in told
    assert "note: all writers must be on one machine" in told


def test_status_json_of_no_tables_is_an_empty_array(tmp_path: Path) -> None:
    result = frazil("status", config_file(tmp_path), "--json", pipeline=FakePipeline(statuses=[]))
    assert json.loads(result.stdout) == []


def test_epochs_json_has_the_promised_fields(tmp_path: Path) -> None:
    pipeline = FakePipeline()
    (epoch,) = json.loads(
        frazil("epochs", config_file(tmp_path), "analytics.orders", "--json", pipeline=pipeline).stdout
    )
    assert epoch == {
        "table": "analytics.orders", "resolved": RESOLVED, "snapshot_id": 2**62, "batch_id": "6d1f",
        "committed_at": "2026-03-01T12:00:00.123Z", "data_files": 2, "delete_files": 1, "rows": 5, "deletes": 1,
        "source_time": None,
    }  # fmt: skip
    assert pipeline.calls == ["open", "epochs analytics.orders", "close"]


def test_epochs_prints_whole_positions_into_a_pipe(tmp_path: Path) -> None:
    result = frazil("epochs", config_file(tmp_path), "analytics.orders")
    (line,) = [line for line in result.stdout.splitlines() if RESOLVED in line]
    committed = ["2026-03-01", "12:00:00.123", "Z"]
    assert line.split() == [*SHOWN.split(), str(2**62), "5", "1", *committed, "2", "1", RESOLVED, "6d1f"]
    assert line == line.rstrip()
    nothing = frazil("epochs", config_file(tmp_path), "analytics.orders", pipeline=FakePipeline(published=[]))
    assert nothing.stdout == "nothing published to analytics.orders yet\n"


def test_check_shows_types_with_their_origin_and_a_block_to_pin_them(tmp_path: Path) -> None:
    result = frazil("check", config_file(tmp_path))
    assert "shop.public.orders -> analytics.orders: create; key: id (from configuration)" in result.stdout
    assert (
        "deletes: vectors; format version 3; partitioned by day(at); beside it: analytics.orders__changelog\n"
        in result.stdout
    )
    assert [line.split() for line in result.stdout.splitlines() if "STRING[]" in line] == [
        ["tags", "list<string>", "STRING[]", "sql"]
    ]
    assert "note: amount was inferred" in result.stdout
    assert result.stdout.endswith("tables:\n  - a\n")
    assert "pass4word" not in result.output


def test_check_json_is_an_array_of_tables(tmp_path: Path) -> None:
    (table,) = json.loads(frazil("check", config_file(tmp_path), "--json").stdout)
    assert (table["target"], table["action"], table["columns"][0]["type"]) == ("analytics.orders", "create", "long")


def test_rewind_says_where_it_goes_on_and_does_not_ask_a_script(tmp_path: Path) -> None:
    pipeline = FakePipeline()
    result = frazil("rewind", config_file(tmp_path), "analytics.orders", pipeline=pipeline)
    assert result.stdout == f"analytics.orders goes on from {RESOLVED}\n"
    assert pipeline.calls == ["open", "rewind analytics.orders", "close"]


def test_drop_needs_a_word_from_a_script(tmp_path: Path) -> None:
    pipeline = FakePipeline()
    config = config_file(tmp_path)
    silent = frazil("drop", config, "analytics.old", pipeline=pipeline)
    assert silent.exit_code == 2
    assert "--yes" in silent.stderr
    assert pipeline.calls == []
    result = frazil("drop", config, "analytics.old", "--yes", "--catalog", "cold", pipeline=pipeline)
    assert result.stdout == "analytics.old is dropped\n"
    assert pipeline.calls == ["open", "drop analytics.old from cold, force=False", "close"]


@pytest.mark.parametrize("command", [["run"], ["check"], ["status"], ["epochs", "t"], ["rewind", "t"]])
def test_every_command_takes_overrides(tmp_path: Path, command: list[str]) -> None:
    pipeline = FakePipeline()
    name, *rest = command
    result = frazil(
        name, config_file(tmp_path), *rest, "--set", "heartbeat=7s", "--set", "spark.master=local[1]", pipeline=pipeline
    )
    assert result.exit_code == 0, result.output
    assert pipeline.config is not None
    assert (pipeline.config.heartbeat, pipeline.config.spark.master) == (7.0, "local[1]")


@pytest.mark.parametrize("command", [name for name in cli.commands if name != "demo"])
def test_help_has_examples_and_exit_codes(command: str) -> None:
    result = CliRunner().invoke(cli, [command, "--help"])
    assert result.exit_code == 0
    assert f"  frazil {command} " in result.output
    assert "6  a newer run of this pipeline has taken over" in result.output


def test_the_program_tells_its_version_and_its_commands_in_the_order_one_meets_them() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output.startswith("frazil, version 0.")
    names = [name for name in cli.list_commands(None) if name != "demo"]  # type: ignore[arg-type]
    assert names == [
        "run",
        "check",
        "status",
        "epochs",
        "as-of",
        "quarantine",
        "rewind",
        "resync",
        "reload",
        "maintain",
        "doctor",
        "drop",
        "init",
    ]


def test_a_command_leaves_no_logging_behind(tmp_path: Path) -> None:
    before = list(logging.getLogger().handlers)
    frazil("run", config_file(tmp_path))
    assert logging.getLogger().handlers == before


def test_quarantine_list_shows_why_and_where(tmp_path: Path) -> None:
    pipeline = FakePipeline(put_away=[change_of(line=12), change_of("waits for another", captured=True)])
    shown = frazil("quarantine", "list", config_file(tmp_path), pipeline=pipeline).stdout
    assert all(told in shown for told in ("1 does not fit", "feed/f.ndjson:12", "[7]", "amount", RESOLVED))
    assert pipeline.calls == ["open", "quarantine None", "close"]
    of_one = frazil("quarantine", "list", config_file(tmp_path), "analytics.orders", "--json", pipeline=pipeline)
    assert [line["captured"] for line in json.loads(of_one.stdout)] == [False, True]


def test_an_empty_quarantine_is_said_to_be_empty(tmp_path: Path) -> None:
    assert frazil("quarantine", "list", config_file(tmp_path)).stdout == "nothing in quarantine\n"
    assert json.loads(frazil("quarantine", "list", config_file(tmp_path), "--json").stdout) == []


def test_quarantine_replay_tells_what_was_taken_and_what_was_left(tmp_path: Path) -> None:
    pipeline = FakePipeline(put_away=[change_of("still does not fit")])
    told = frazil("quarantine", "replay", config_file(tmp_path), "analytics.orders", pipeline=pipeline).stdout
    assert told.startswith("analytics.orders: 3 changes replayed, 1 left in quarantine")
    assert "still does not fit" in told
    as_json = frazil("quarantine", "replay", config_file(tmp_path), "analytics.orders", "--json", pipeline=pipeline)
    (report,) = json.loads(as_json.stdout)
    assert (report["replayed"], report["left"][0]["reason"]) == (3, "still does not fit")


def test_the_live_view_shows_how_far_first_loads_are_and_what_is_held_up() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    pace = LoadPace()

    def shown(done: int, seconds: int) -> str:
        tables = (
            TableProgress("s.big", TableState.INITIAL_SYNC, None, 1, done, None, load=LoadProgress(done, 4000)),
            TableProgress("s.bad", TableState.STOPPED, None, 0, 0, None, error="total is no number", hint="mend it"),
        )
        console = Console(width=160, force_terminal=False)
        with console.capture() as captured:
            console.print(progress_table(RunProgress(tables), pace, noon + timedelta(seconds=seconds)))
        return captured.get()

    assert " 0%" in shown(0, 0)
    later = shown(1000, 20)
    assert "███░░░░░░░░░ 25%, 1m 0s left" in later
    assert "s.bad: total is no number" in later


def test_resync_asks_for_the_table_and_says_when_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path))
    pipeline = FakePipeline()
    result = frazil("resync", config_file(tmp_path), "analytics.orders", "--yes", pipeline=pipeline)
    assert result.exit_code == 0
    assert result.stdout == "analytics.orders will be loaded anew when the pipeline runs, or reloads\n"
    assert pipeline.calls == ["open", "resync analytics.orders", "close"]


def test_a_load_that_was_asked_for_by_mistake_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path))
    pipeline = FakePipeline()
    result = frazil("resync", config_file(tmp_path), "analytics.orders", "--cancel", pipeline=pipeline)
    assert result.stdout == "analytics.orders: its load is given up when the pipeline runs, or reloads\n"
    assert pipeline.calls == ["open", "resync analytics.orders --cancel", "close"]


def test_reload_without_a_daemon_says_what_else_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path))
    result = frazil("reload", config_file(tmp_path))
    assert result.exit_code == 2
    assert "no daemon of the pipeline" in result.stderr
    assert "SIGHUP" in result.stderr
