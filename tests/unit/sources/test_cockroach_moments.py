"""Timestamps that are printed as CockroachDB prints them are cast together; all others are looked at one by one."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from frazil.model.schema import TIMESTAMP, TIMESTAMPTZ, Column
from frazil.sources.cockroachdb.decode.fast.casts import TakeExactRoad, read_step


def taken(texts: list[str | None], zone: bool = True) -> list[datetime | None]:
    kind, source = (TIMESTAMPTZ, "TIMESTAMPTZ") if zone else (TIMESTAMP, "TIMESTAMP")
    step = read_step(Column("at", kind, source, "sql"))
    assert step is not None
    found: list[datetime | None] = step.finish(pa.array(texts, pa.string())).to_pylist()
    return found


def test_any_fraction_up_to_microseconds_is_read() -> None:
    texts = ["2026-01-02T03:04:05Z", None, "2026-01-02T03:04:05.1Z", "0001-12-31T23:59:59.000001Z"]
    assert taken([*texts]) == [
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        None,
        datetime(2026, 1, 2, 3, 4, 5, 100_000, tzinfo=UTC),
        datetime(1, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
    ]
    assert taken(["9999-12-31T23:59:59.999999"], zone=False) == [datetime.fromisoformat("9999-12-31T23:59:59.999999")]
    assert taken([]) == []
    assert taken([None]) == [None]


@pytest.mark.parametrize(
    "odd",
    [
        "2026-01-02T03:04:05.1234567Z",
        "0000-01-02T03:04:05Z",
        "2026-01-02T03:04:05.Z",
        "2026-01-02 03:04:05Z",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:05+01",
        "2026-1-02T03:04:05.12Z",
        "x026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.-1Z",
        "2026-01-02T03:04:05.1ZZ",
        "2026-13-02T03:04:05Z",
        "10000-01-02T03:04:05Z",
        "-001-01-02T03:04:05Z",
        "infinity",
        "",
    ],
)
def test_what_is_printed_differently_is_left_to_the_exact_road(odd: str) -> None:
    with pytest.raises((TakeExactRoad, pa.ArrowInvalid)):
        taken(["2026-01-02T03:04:05Z", odd])
