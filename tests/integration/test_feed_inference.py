"""A feed whose configuration pins nothing: columns and key are found out, shown by `frazil check`, and remembered.

first rows --> inferred types --> table --> restart: the table tells them --> later columns are added
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from feed_builders import Lab, at, column_types, delete, table, upsert
from pyspark.sql import SparkSession

from frazil.config.load import load_config
from frazil.errors import BadInput, ConfigError, DoesNotFit

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(spark, warehouse, namespace, tmp_path, tables=[table(key=(), columns={})])


FIRST = {
    1: {"id": 1, "big": 2**63 - 1, "price": Decimal("22.30"), "name": "Zoë", "ok": True, "doc": {"k": [1, None]},
        "late": None, "when": "2024-01-01T00:00:00Z", "never": None},
    2: {"id": 2, "big": -5, "price": Decimal("-0.01"), "name": None, "ok": False, "doc": [1], "late": None,
        "when": None, "never": None},
}  # fmt: skip


def text(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def change(row: dict[str, Any], second: int) -> str:
    after = ", ".join(f'"{name}": {text(row[name])}' for name in sorted(row))
    return f'{{"after": {{{after}}}, "key": [{row["id"]}], "updated": "{at(second)}"}}'


@pytest.mark.parametrize("runs", [1, 3])
def test_types_are_inferred_and_later_columns_are_added(lab: Lab, runs: int) -> None:
    """With a restart after each epoch, the types come back from the table: JSON stays JSON."""
    lab.feed.data(at(1), [change(row, 1) for row in FIRST.values()])
    lab.feed.resolved(at(2))
    if runs == 3:
        lab.run()
        assert column_types(lab.spark, lab.sql_name("t")) == {
            "id": "bigint", "big": "bigint", "price": "decimal(38,10)", "name": "string", "ok": "boolean",
            "doc": "string", "when": "string",
        }  # fmt: skip
    second = {**FIRST[1], "late": 7, "doc": {"k": 2.5}, "price": Decimal("1E+2")}
    lab.feed.data(at(3), [change(second, 3)])
    lab.feed.resolved(at(4))
    if runs == 3:
        lab.run()
    third = {**FIRST[2], "late": 8, "added": {"x": 1}, "doc": "text", "name": "now known"}
    lab.feed.data(at(5), [change(third, 5)], schema="2")
    lab.feed.resolved(at(6))
    lab.run()
    one, two = lab.rows(order="id")
    assert one == {
        "id": 1, "big": 2**63 - 1, "price": Decimal(100), "name": "Zoë", "ok": True, "doc": '{"k": 2.5}', "late": 7,
        "when": "2024-01-01T00:00:00Z", "added": None,
    }  # fmt: skip
    assert two == {
        "id": 2, "big": -5, "price": Decimal("-0.01"), "name": "now known", "ok": False, "doc": '"text"', "late": 8,
        "when": None, "added": '{"x": 1}',
    }  # fmt: skip
    if runs == 3:
        lab.feed.data(at(7), [change({**third, "added": [2]}, 7)], schema="2")
        lab.feed.resolved(at(8))
        lab.run()
        assert [row["added"] for row in lab.rows(order="id")] == [None, "[2]"]
    before = {row["id"]: row for row in lab.rows(resolved=at(2), order="id")}
    assert (before[1]["doc"], before[1]["price"], before[2]["doc"]) == ('{"k": [1, null]}', Decimal("22.30"), "[1]")


def test_types_pinned_once_are_remembered_by_the_table(lab: Lab) -> None:
    """A pin that is removed later changes nothing: TIME is a long and DECIMAL a string in Iceberg, and both must
    still be read as what they are."""
    lab.tables = [table(columns={"a": "INT8", "clock": "TIME", "free": "DECIMAL", "by": "BYTES", "j": "JSONB"})]
    lab.feed.data(at(1), [upsert([1], at(1), a=1, clock="00:00:01", free=1.5, by="\\x00", j={"k": 1})])
    lab.feed.resolved(at(2))
    lab.run()
    lab.tables = [table(columns={})]
    lab.feed.data(at(3), [upsert([1], at(3), a=1, clock="00:00:02", free=2.25, by="\\xff", j=[2])])
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == [{"a": 1, "clock": 2_000_000, "free": "2.25", "by": bytearray(b"\xff"), "j": "[2]"}]


def test_the_epoch_that_contradicts_an_inferred_type_stops_with_key_and_column(lab: Lab) -> None:
    """An integer column that turns out to be a FLOAT: the table stays as it was, and the hint says what to pin."""
    lab.feed.data(at(1), [upsert([1], at(1), id=1, n=10)])
    lab.feed.resolved(at(2))
    lab.run()
    lab.feed.data(at(3), [upsert([1], at(3), id=1, n=10.5)])
    lab.feed.resolved(at(4))
    with pytest.raises(DoesNotFit) as stopped:
        lab.run()
    assert stopped.value.facts["column"] == "n"
    assert stopped.value.facts["key"] == "[1]"
    assert "Pin" in stopped.value.hint
    assert lab.rows() == [{"id": 1, "n": 10}]


def test_a_key_that_cannot_be_told_is_asked_for(lab: Lab) -> None:
    lab.feed.data(at(1), [upsert([1], at(1), id=1, same=1), upsert([2], at(1), id=2, same=2)])
    lab.feed.resolved(at(2))
    with pytest.raises(BadInput, match="id, same") as asked:
        lab.run()
    assert "key:" in asked.value.hint
    assert not lab.exists()
    lab.tables = [table(key=["id"], columns={})]
    lab.run()
    assert lab.rows() == [{"id": 1, "same": 1}, {"id": 2, "same": 2}]


def test_a_table_known_only_by_deletes_waits_for_its_first_row(lab: Lab) -> None:
    lab.feed.data(at(1), [delete([1], at(1))])
    lab.feed.resolved(at(2))
    assert lab.run().epochs == 0
    assert not lab.exists()
    lab.feed.data(at(3), [upsert([1], at(3), id=1, name="x"), upsert([2], at(3), id=2, name="y")])
    lab.feed.resolved(at(4))
    lab.feed.data(at(5), [delete([1], at(5))])
    lab.feed.resolved(at(6))
    lab.run()
    assert lab.rows(resolved=at(4)) == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    assert lab.rows() == [{"id": 2, "name": "y"}]


def test_a_composite_key_is_inferred_in_key_order(lab: Lab) -> None:
    rows = [("eu", 1, "x"), ("eu", 2, "y"), ("us", 1, "z")]
    lab.feed.data(at(1), [upsert([r, i], at(1), id=i, region=r, v=v) for r, i, v in rows])
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [delete(["eu", 1], at(3)), upsert(["us", 1], at(3), id=1, region="us", v="Z")])
    lab.feed.resolved(at(4))
    lab.run()
    assert sorted(tuple(row.values()) for row in lab.rows(order="v")) == [(1, "us", "Z"), (2, "eu", "y")]


# frazil check


def two_tables(lab: Lab) -> None:
    lab.tables = [
        {"source": "shop.public.orders", "target": f"{lab.namespace}.orders"},
        {"source": "shop.public.my-items", "target": f"{lab.namespace}.items"},
    ]
    orders = [
        upsert([n], at(1), id=n, total=1.25 * n, note=f"n{n}", doc={"k": n}, **{"true": n % 2 == 0, "a b": "x"})
        for n in (1, 2)
    ]
    lab.feed.data(at(1), orders, topic="shop.public.orders")
    items = [upsert([n, "x"], at(1), order_id=n, sku="x", quantity=3) for n in (1, 2)]
    lab.feed.data(at(1), items, topic="shop.public.my-items")
    lab.feed.resolved(at(2))


def test_check_shows_origins_and_a_block_that_pins_them(lab: Lab) -> None:
    two_tables(lab)
    shown = lab.cli("check")
    assert shown.exit_code == 0, shown.stderr
    assert f"shop.public.orders -> {lab.namespace}.orders: create; key: id (from inferred)" in shown.stdout
    assert "decimal(38, 10)" in shown.stdout
    assert "nothing was changed" in shown.stdout
    assert not lab.exists("orders")
    _, _, block = shown.stdout.partition("put this into the configuration:\n")
    pinned = yaml.safe_load(block)
    assert [entry["source"] for entry in pinned["tables"]] == ["shop.public.my-items", "shop.public.orders"]
    document = yaml.safe_load(lab.config.read_text())
    document.update(pinned)
    path = lab.root / "pinned.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    load_config(path)
    before = lab.cli("check", "--json")
    after = lab.cli("check", "--json", config=path)
    assert after.exit_code == 0, after.stderr
    for found, wanted in zip(json.loads(after.stdout), json.loads(before.stdout), strict=True):
        assert {column["origin"] for column in found["columns"]} == {"configuration"}
        assert found["key_origin"] == "configuration"
        assert found["target"] == wanted["target"]
        assert found["key"] == wanted["key"]
        assert {c["name"]: c["type"] for c in found["columns"]} == {c["name"]: c["type"] for c in wanted["columns"]}
    ran = lab.cli("run", "--once", config=path)
    assert ran.exit_code == 0, ran.stderr
    assert [row["total"] for row in lab.rows("orders", order="id")] == [Decimal("1.25"), Decimal("2.5")]
    assert len(lab.rows("items")) == 2


def test_check_tells_what_a_run_would_add(lab: Lab) -> None:
    lab.feed.data(at(1), [upsert([1], at(1), id=1, name="x")])
    lab.feed.resolved(at(2))
    lab.run()
    assert json.loads(lab.cli("check", "--json").stdout)[0]["action"] == "exists"
    lab.feed.data(at(3), [upsert([2], at(3), id=2, name="y", more=1)])
    (checked,) = json.loads(lab.cli("check", "--json").stdout)
    assert checked["action"] == "add columns"
    assert checked["notes"] == ["adds column more long"]
    origins = {column["name"]: column["origin"] for column in checked["columns"]}
    assert origins == {"id": "table", "name": "table", "more": "inferred"}


def test_check_names_an_entry_that_the_feed_does_not_have(lab: Lab) -> None:
    lab.tables = [table("orderz", key=(), columns={})]
    lab.feed.data(at(1), [upsert([1], at(1), id=1, name="x")], topic="orders")
    (checked,) = json.loads(lab.cli("check", "--json").stdout)
    assert checked["source"] == "orderz"
    assert "check the name" in checked["notes"][0]


def test_a_pin_that_contradicts_the_table_is_refused(lab: Lab) -> None:
    lab.feed.data(at(1), [upsert([1], at(1), id=1, name="x")])
    lab.feed.resolved(at(2))
    lab.run()
    lab.tables = [table(key=["id"], columns={"id": "INT8", "name": "UUID"})]
    lab.feed.data(at(3), [upsert([1], at(3), id=1, name="y")])
    lab.feed.resolved(at(4))
    with pytest.raises(ConfigError, match="name"):
        lab.run()
    assert lab.rows() == [{"id": 1, "name": "x"}]
