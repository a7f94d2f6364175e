"""Every type's extremes, on the whole way from each format of a changefeed to Parquet, read back by two engines.

    CELLS --> JSON lines, first load   --+--> pipeline --> Spark and PyIceberg --> the expected values, exactly
          --> JSON lines, updates        |
          --> Parquet files, CSV files --+

What does not fit stops its table at its last epoch, naming the column.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from integration.feed_builders import Lab, at, table
from interop.type_matrix import CELLS, REFUSED, ROWS, case, csv_text, parquet_value
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from unit.sources.cockroach_feed import source_schema
from unit.sources.cockroach_parquet import STRING_TYPE, write

from frazil.errors import BadInput
from frazil.sources.cockroachdb.decode.decoder import DecodedTable, exact_columns, fast_columns

pytestmark = pytest.mark.spark

JSON_NAMES = tuple(CELLS)
CSV_NAMES = tuple(name for name, cell in CELLS.items() if cell.csv)
PARQUET_NAMES = tuple(name for name, cell in CELLS.items() if cell.parquet is not None)


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(spark, warehouse, namespace, tmp_path)


def pinned(names: tuple[str, ...]) -> Any:
    return table(columns={"a": "INT8", **{name: CELLS[name].source for name in names}})


def line(row: int, second: int, *, empty: bool = False) -> str:
    """One row of the matrix as a wrapped message, its columns in byte order as CockroachDB prints them."""
    texts = {"a": str(row), **{name: "null" if empty else case(name, row)[0] for name in JSON_NAMES}}
    after = ", ".join(f'"{name}": {texts[name]}' for name in sorted(texts))
    return f'{{"after": {{{after}}}, "key": [{row}], "updated": "{at(second)}"}}'.replace("\x00", "\\u0000").replace(
        "\x01", "\\u0001"
    )


def expected(names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"a": row, **{name: case(name, row)[1] for name in names}} for row in range(ROWS)]


def plain(value: Any) -> Any:
    """One form for the answers of both engines: uuids as text, moments with a zone as UTC wall clocks, NaN as equal
    to itself."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case UUID():
            return str(value)
        case bytearray():
            return bytes(value)
        case list():
            return [plain(item) for item in value]
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) is not None else value


def by_spark(lab: Lab) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in lab.rows(order="a")]


def by_pyiceberg(lab: Lab) -> list[dict[str, Any]]:
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{lab.warehouse}/catalog.db", warehouse=str(lab.warehouse))
    loaded = catalog.load_table(f"{lab.namespace}.t")
    uuids = {name for name, cell in CELLS.items() if cell.source.startswith("UUID")}

    def value(name: str, found: Any) -> Any:
        if name in uuids and isinstance(found, list):
            return [value(name, item) for item in found]
        return str(UUID(bytes=found)) if name in uuids and isinstance(found, bytes) else plain(found)

    rows = loaded.scan().to_arrow().to_pylist()
    return sorted(({name: value(name, found) for name, found in row.items()} for row in rows), key=lambda row: row["a"])


def wanted(names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in expected(names)]


def assert_equal(found: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    for row, should in zip(found, wanted(names), strict=True):
        differing = {name: (row[name], value) for name, value in should.items() if row[name] != value}
        assert not differing, f"row {should['a']}: (found, expected) {differing}"
        signs = {name for name, value in should.items() if value == 0.0 and isinstance(value, float)}
        assert all(math.copysign(1, row[name]) == math.copysign(1, should[name]) for name in signs)


def test_both_roads_of_the_decoder_give_the_matrix() -> None:
    """H29: the pipeline takes the fast road for all of it, so the exact one is asked here."""
    its_schema = source_schema(a="INT8", **{name: CELLS[name].source for name in JSON_NAMES})
    known = DecodedTable("t", its_schema)
    keys = pa.array([f"[{row}]" for row in range(ROWS)])
    payloads = pa.array([line(row, 1).split(', "key": [')[0][len('{"after": ') :].encode() for row in range(ROWS)])
    fast = fast_columns(known, its_schema.columns, payloads)
    exact = exact_columns(known, its_schema.columns, keys, payloads)
    for column, one, other in zip(its_schema.columns, fast, exact, strict=True):
        assert one.type == other.type, column.name
        assert [repr(plain(value)) for value in one.to_pylist()] == [repr(plain(value)) for value in other.to_pylist()]


def test_the_table_has_the_types_of_the_matrix(lab: Lab) -> None:
    lab.tables = [pinned(JSON_NAMES)]
    lab.feed.data(at(1), [line(0, 1)])
    lab.feed.resolved(at(2))
    lab.run()
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{lab.warehouse}/catalog.db", warehouse=str(lab.warehouse))
    schema = catalog.load_table(f"{lab.namespace}.t").schema()
    found = {name: str(schema.find_field(name).field_type) for name in JSON_NAMES}
    assert found == {name: cell.iceberg for name, cell in CELLS.items()}


def test_a_first_load_is_read_back_exactly_by_spark_and_by_pyiceberg(lab: Lab) -> None:
    """H29, H39."""
    lab.tables = [pinned(JSON_NAMES)]
    lab.feed.data(at(1), [line(row, 1) for row in range(ROWS)])
    lab.feed.resolved(at(2))
    lab.run()
    assert_equal(by_spark(lab), JSON_NAMES)
    assert_equal(by_pyiceberg(lab), JSON_NAMES)


def test_updates_of_a_stream_give_what_a_first_load_gives(lab: Lab) -> None:
    """H29: each row is first without values, then is updated one at a time over several epochs."""
    lab.tables = [pinned(JSON_NAMES)]
    lab.feed.data(at(1), [line(row, 1, empty=True) for row in range(ROWS)])
    lab.feed.resolved(at(2))
    for row in range(ROWS):
        lab.feed.data(at(3 + row), [line(row, 3 + row)])
        if row % 3 == 0:
            lab.feed.resolved(at(3 + row))
    lab.feed.resolved(at(50))
    lab.run()
    assert_equal(by_spark(lab), JSON_NAMES)


def test_a_parquet_feed_gives_what_a_json_feed_gives(lab: Lab) -> None:
    """H29."""
    lab.tables = [pinned(PARQUET_NAMES)]
    columns: dict[str, tuple[Any, list[Any]]] = {"a": (CELLS["i8"].parquet[0], list(range(ROWS)))}  # type: ignore[index]
    annotations: dict[str, Any] = {"__crdb__event_type": STRING_TYPE, "__crdb__updated": STRING_TYPE}
    for name in PARQUET_NAMES:
        kind, annotation = CELLS[name].parquet or (None, None)
        columns[name] = (kind, [parquet_value(name, case(name, row)[0]) for row in range(ROWS)])
        if annotation:
            annotations[f"{name}.element" if CELLS[name].source.endswith("[]") else name] = annotation
    text = CELLS["s"].parquet[0]  # type: ignore[index]
    columns["__crdb__event_type"] = (text, [b"c"] * ROWS)
    columns["__crdb__updated"] = (text, [at(1).text.encode()] * ROWS)
    lab.feed.data(at(1), write(columns, annotations), extension="parquet")
    lab.feed.resolved(at(2))
    lab.run()
    assert_equal(by_spark(lab), PARQUET_NAMES)


def test_a_csv_export_gives_what_a_json_feed_gives(lab: Lab) -> None:
    """H29. A line break is the end of a CSV row only outside of quotes."""
    lab.tables = [pinned(CSV_NAMES)]
    lab.source = {"complete": True}
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    for row in range(ROWS):
        rows.writerow([str(row), *(csv_text(name, case(name, row)[0]) for name in CSV_NAMES)])
    lab.feed.data(at(1), out.getvalue().encode(), extension="csv")
    lab.run()
    assert_equal(by_spark(lab), CSV_NAMES)


def test_what_does_not_fit_stops_its_table_at_its_last_epoch(lab: Lab) -> None:
    """H39: every value that its type cannot hold, one after the other in a table of its own; none is rounded."""
    lab.tables = [table(f"t{i}", columns={"a": "INT8", "bad": source}) for i, (source, _, _) in enumerate(REFUSED)]
    for i in range(len(REFUSED)):
        lab.feed.data(at(1), [f'{{"after": {{"a": 1}}, "key": [1], "updated": "{at(1)}"}}'], topic=f"t{i}", number=i)
    lab.feed.resolved(at(2))
    lab.run()
    for i, (source, text, reason) in enumerate(REFUSED):
        only = Lab(lab.spark, lab.warehouse, lab.namespace, lab.root, tables=[lab.tables[i]])
        feed = [f'{{"after": {{"a": 2, "bad": {text}}}, "key": [2], "updated": "{at(3)}"}}']
        path = only.feed.root / only.feed.data(at(3), feed, topic=f"t{i}", number=i)
        resolved = only.feed.root / only.feed.resolved(at(4))
        with pytest.raises(BadInput, match=reason) as caught:
            only.run()
        assert caught.value.facts["column"] == "bad", source
        assert only.rows(f"t{i}") == [{"a": 1, "bad": None}]
        path.unlink()
        resolved.unlink()
