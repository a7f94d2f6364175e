"""The registry and its bounds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from unit.serve.observability_builders import NOON, SetClock

from frazil.errors import BadInput, SourceUnavailable
from frazil.model.state import TableState
from frazil.observability.metrics import EPOCHS_KEPT, METRICS, Metrics


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, frozenset(labels.items())))


def everything_happened() -> Metrics:
    metrics = Metrics(SetClock())
    metrics.file_closed("s.t", "data", "1.0")
    metrics.manifest_entries("s.t", "1.0", 512)
    metrics.commit_took("s.t", 0.2)
    metrics.commit_conflicted("s.t")
    metrics.duplicate_epoch_skipped("s.t")
    metrics.epoch_published("s.t")
    metrics.table_is("s.t", TableState.INITIAL_SYNC)
    metrics.rows_published("s.t", "upsert", 20)
    metrics.table_is("s.t", TableState.STEADY_STATE)
    metrics.rows_published("s.t", "upsert", 7)
    metrics.rows_published("s.t", "delete", 2)
    metrics.changes_dropped("s.t", 3)
    metrics.values_left_out("s.t", 4)
    metrics.quarantined("s.t", 2)
    metrics.resolved_at("s.t", NOON)
    metrics.table_is("s.t", TableState.STEADY_STATE)
    metrics.failed("s.t", SourceUnavailable("gone"))
    metrics.table_holds("s.t", data_files=9, delete_files=4, snapshots=30)
    metrics.unmaintained("s.t", 12, finished=False)
    metrics.maintained("s.t", "compact", 1.5, failed=False)
    return metrics


def test_every_documented_metric_is_exposed_under_its_exact_name_and_labels() -> None:
    found = {
        (name.removesuffix("_count"), frozenset(label for label, _ in labels))
        for name, labels in samples(everything_happened())
    }
    for spec in METRICS:
        assert (spec.name, frozenset(spec.labels)) in found, spec.name


def test_what_maintenance_did_and_what_waits_for_it_is_told() -> None:
    metrics = everything_happened()
    metrics.maintained("s.t", "compact", 2.0, failed=True)
    metrics.unmaintained("s.t", 0, finished=True)
    assert value(metrics, "frazil_data_files", table="s.t") == 9
    assert value(metrics, "frazil_delete_files", table="s.t") == 4
    assert value(metrics, "frazil_snapshots", table="s.t") == 30
    assert value(metrics, "frazil_maintenance_debt_commits", table="s.t") == 0
    assert value(metrics, "frazil_maintenance_finished", table="s.t") == 1
    assert value(metrics, "frazil_maintenance_runs_total", table="s.t", action="compact", outcome="done") == 1
    assert value(metrics, "frazil_maintenance_runs_total", table="s.t", action="compact", outcome="failed") == 1
    assert value(metrics, "frazil_maintenance_seconds_total", table="s.t", action="compact") == 3.5


def test_what_happened_is_counted() -> None:
    metrics = everything_happened()
    metrics.file_closed("s.t", "equality-deletes", "1.0")
    assert value(metrics, "iceberg_files_closed_total", table="s.t", kind="data") == 1
    assert value(metrics, "iceberg_epoch_files_total", table="s.t", epoch="1.0") == 2
    assert value(metrics, "iceberg_manifest_entries_bytes", table="s.t", epoch="1.0") == 512
    assert value(metrics, "iceberg_commit_latency_seconds_sum", table="s.t") == 0.2
    assert value(metrics, "frazil_rows_total", table="s.t", kind="upsert") == 27
    assert value(metrics, "frazil_dropped_changes_total", table="s.t") == 3


def test_no_series_tells_when_it_was_created() -> None:
    assert "_created" not in everything_happened().text()


def test_only_the_newest_epochs_of_each_table_are_kept() -> None:
    metrics = Metrics(SetClock())
    metrics.file_closed("s.other", "data", "0")
    for epoch in range(EPOCHS_KEPT + 5):
        metrics.file_closed("s.t", "data", str(epoch))
        if epoch % 2:
            metrics.manifest_entries("s.t", str(epoch), epoch)
    ours = [dict(labels) for _, labels in samples(metrics) if ("table", "s.t") in labels]
    kept = {labels["epoch"] for labels in ours if "epoch" in labels}
    assert kept == {str(epoch) for epoch in range(5, EPOCHS_KEPT + 5)}
    assert value(metrics, "iceberg_manifest_entries_bytes", table="s.t", epoch="3") is None
    assert value(metrics, "iceberg_manifest_entries_bytes", table="s.t", epoch="5") == 5
    assert value(metrics, "iceberg_epoch_files_total", table="s.other", epoch="0") == 1


def test_the_lag_grows_while_nothing_happens() -> None:
    clock = SetClock()
    metrics = Metrics(clock)
    metrics.resolved_at("s.t", NOON - timedelta(seconds=2))
    assert value(metrics, "frazil_lag_seconds", table="s.t") == 2
    clock.time += timedelta(minutes=1)
    assert value(metrics, "frazil_lag_seconds", table="s.t") == 62
    metrics.resolved_at("s.t", NOON + timedelta(minutes=2))
    assert value(metrics, "frazil_lag_seconds", table="s.t") == 0


def test_a_source_without_time_has_no_lag() -> None:
    metrics = Metrics(SetClock())
    metrics.resolved_at("s.t", None)
    assert value(metrics, "frazil_lag_seconds", table="s.t") is None


def test_a_table_is_in_exactly_one_state() -> None:
    metrics = Metrics(SetClock())
    metrics.table_is("s.t", TableState.INITIAL_SYNC)
    metrics.table_is("s.t", TableState.BACKOFF)
    found = samples(metrics).items()
    states = {dict(labels)["state"]: v for (name, labels), v in found if name == "frazil_table_state"}
    assert states == {state.value: float(state is TableState.BACKOFF) for state in TableState}


def test_two_pipelines_in_one_process_share_nothing() -> None:
    one, other = Metrics(SetClock()), Metrics(SetClock())
    one.epoch_published("s.t")
    assert value(other, "frazil_epochs_published_total", table="s.t") is None
    assert not any(family.name.startswith(("frazil", "iceberg")) for family in REGISTRY.collect())


def test_first_loads_and_changes_are_counted_apart() -> None:
    metrics = everything_happened()
    assert value(metrics, "sync_initial_documents_processed_total", table="s.t") == 20
    assert value(metrics, "sync_changestream_events_processed_total", table="s.t") == 9


def test_commits_of_all_tables_share_one_histogram() -> None:
    metrics = everything_happened()
    metrics.commit_took("s.other", 0.3)
    assert value(metrics, "sync_iceberg_commit_latency_seconds_count") == 2
    assert value(metrics, "sync_iceberg_commit_latency_seconds_sum") == pytest.approx(0.5)
    assert value(metrics, "sync_iceberg_commits_total", table="s.t") == 1


def test_errors_are_counted_by_type() -> None:
    metrics = everything_happened()
    metrics.failed("s.t", SourceUnavailable("again"))
    metrics.failed("s.t", BadInput("worse"))
    assert value(metrics, "sync_errors_total", table="s.t", type="SourceUnavailable") == 2
    assert value(metrics, "sync_errors_total", table="s.t", type="BadInput") == 1


def test_the_state_is_told_as_a_number_whose_meaning_the_help_tells() -> None:
    metrics = Metrics(SetClock())
    spec = next(spec for spec in METRICS if spec.name == "sync_state")
    for state in TableState:
        metrics.table_is("s.t", state)
        number = value(metrics, "sync_state", table="s.t")
        assert f"{number:.0f} {state.value}" in spec.help


def test_a_table_that_left_takes_its_series_along_and_no_others() -> None:
    metrics = everything_happened()
    before = metrics.text()
    metrics.table_is("s.other", TableState.STEADY_STATE)
    metrics.tables_removed({"s.t", "s.never"})
    assert 'table="s.t"' not in metrics.text()
    assert value(metrics, "sync_state", table="s.other") == 2
    assert 'table="s.t"' in before
    metrics.file_closed("s.t", "data", "1.0")
    assert value(metrics, "iceberg_epoch_files_total", table="s.t", epoch="1.0") == 1
