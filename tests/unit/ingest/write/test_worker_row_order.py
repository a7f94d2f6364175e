"""Rows of a row group lie in Iceberg's order."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from frazil.data.row_sort import sorter
from frazil.model.ids import TableName
from frazil.model.schema import DOUBLE, Field, Schema
from frazil.model.sort import SortField


def test_every_nan_comes_after_every_number_whatever_its_sign() -> None:
    schema = Schema(0, (Field(1, "x", DOUBLE),))
    sort = sorter(TableName.parse("a.b"), schema, [SortField("x")])
    assert sort is not None
    negative_nan = np.array([0xFFF8_0000_0000_0000], np.uint64).view(np.float64)[0]
    values = pa.array([math.nan, 1.0, negative_nan, -math.inf, math.inf, 0.0, -0.0], pa.float64())
    found = sort(pa.table({"x": values})).column("x").to_pylist()
    assert str(found[:5]) == "[-inf, -0.0, 0.0, 1.0, inf]"
    assert all(math.isnan(value) for value in found[5:])
