"""Partition values are those that iceberg-java computes, on many random values of each type."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as D
from typing import Any
from uuid import UUID as Uuid

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from frazil.data.transforms import apply, hashes
from frazil.model import schema as c
from frazil.model.arrow import value_type
from frazil.model.partition import Transform, takes
from frazil.model.schema import Decimal, Type

pytestmark = pytest.mark.spark

CHANCE = random.Random(20)
COUNT = 400
TEXT = "abcdefghijé中\U0001f600 "
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment() -> datetime:
    return EPOCH + timedelta(
        microseconds=CHANCE.choice((1, 10**6, 10**9, 10**13, 10**16)) * CHANCE.randint(-5, 5) + CHANCE.randint(-3, 3)
    )


def _unscaled(digits: int) -> int:
    return CHANCE.randint(-(10**digits) + 1, 10**digits - 1) // CHANCE.choice((1, 10**3, 10 ** (digits - 1)))


VALUES: dict[str, tuple[Type, Callable[[], Any]]] = {
    "int": (c.INT, lambda: CHANCE.choice((CHANCE.randint(-(2**31), 2**31 - 1), CHANCE.randint(-200, 200)))),
    "bigint": (c.LONG, lambda: CHANCE.choice((CHANCE.randint(-(2**63), 2**63 - 1), CHANCE.randint(-200, 200)))),
    "decimal(9,2)": (Decimal(9, 2), lambda: D(f"{_unscaled(8)}e-2")),
    "decimal(18,4)": (Decimal(18, 4), lambda: D(f"{_unscaled(17)}e-4")),
    "decimal(38,10)": (Decimal(38, 10), lambda: D(f"{_unscaled(37)}e-10")),
    "date": (c.DATE, lambda: date(1970, 1, 1) + timedelta(days=CHANCE.randint(-700_000, 2_000_000))),
    "timestamp": (c.TIMESTAMPTZ, _moment),
    "timestamp_ntz": (c.TIMESTAMP, lambda: _moment().replace(tzinfo=None)),
    "string": (c.STRING, lambda: "".join(CHANCE.choices(TEXT, k=CHANCE.randint(0, 40)))),
    "binary": (c.BINARY, lambda: CHANCE.randbytes(CHANCE.randint(0, 40))),
}
FUNCTIONS = {
    "bucket": lambda w: f"frazil.system.bucket({w}, v)",
    "truncate": lambda w: f"frazil.system.truncate({w}, v)",
    "year": lambda _: "frazil.system.years(v)",
    "month": lambda _: "frazil.system.months(v)",
    "day": lambda _: "frazil.system.days(v)",
    "hour": lambda _: "frazil.system.hours(v)",
}
WIDTHS = {"bucket": (2, 7, 16, 2**31 - 1), "truncate": (1, 3, 10, 1_000_003)}


@pytest.mark.parametrize("name", VALUES)
def test_random_values_get_icebergs_partition_values(spark: SparkSession, name: str) -> None:
    type_, make = VALUES[name]
    values = [None, *(make() for _ in range(COUNT))]
    column = pa.array(values, value_type(type_))
    frame = spark.createDataFrame(list(enumerate(values)), f"n int, v {name}")
    for transform, function in FUNCTIONS.items():
        for width in WIDTHS.get(transform, (None,)):
            wanted = Transform(transform, width)
            if not takes(wanted, type_):
                continue
            rows = frame.selectExpr("n", f"{function(width)} AS p").orderBy("n").collect()
            expected = [bytes(row.p) if isinstance(row.p, bytearray) else row.p for row in rows]
            assert len(set(expected)) > 1
            assert apply(wanted, type_, column).to_pylist() == expected, wanted


def test_uuids_and_times_hash_like_icebergs(spark: SparkSession) -> None:
    """Spark has no such types, so iceberg-java's functions are asked one by one."""
    jvm = spark._jvm
    iceberg = jvm.org.apache.iceberg
    types = "org.apache.iceberg.types.Types$"
    bucket = iceberg.transforms.Transforms.bucket(1_000_003)
    of_uuid = bucket.bind(getattr(jvm, f"{types}UUIDType").get())
    uuids = [Uuid(int=CHANCE.getrandbits(128)) for _ in range(100)]
    ours = apply(Transform("bucket", 1_000_003), c.UUID, pa.array([u.bytes for u in uuids], pa.binary(16)))
    assert ours.to_pylist() == [of_uuid.apply(jvm.java.util.UUID.fromString(str(u))) for u in uuids]

    of_time = bucket.bind(getattr(jvm, f"{types}TimeType").get())
    # Beyond 32 bits, so that Py4J hands over a long.
    times = [CHANCE.randint(3_600_000_000, 86_399_999_999) for _ in range(100)]
    column = pa.array(times, pa.int64()).cast(pa.time64("us"))
    assert apply(Transform("bucket", 1_000_003), c.TIME, column).to_pylist() == [of_time.apply(t) for t in times]
    assert hashes(column).dtype == np.uint32
