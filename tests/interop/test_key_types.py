"""Keys of every type, alone and together: an update replaces the row, a delete removes it, whatever the spelling.

    epoch 2: the row under its first spelling, and a neighbour      epoch 4: updated under its second spelling
    epoch 6: deleted                                                 epoch 8: inserted again; the neighbour never moves

Each key type is a table of one feed, so that one run of a pipeline serves all of them.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from integration.feed_builders import Lab, at, table
from pyspark.sql import SparkSession

from frazil.errors import BadInput, ConfigError, FrazilError

pytestmark = pytest.mark.spark

MODES = ["equality", "vectors"]
U = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
# name: key columns, one key in two spellings, and the key of a neighbour
KEYS = {
    "i2": (["INT2"], ["-7"], ["-7"], ["8"]),
    "i8": (["INT8"], ["9223372036854775807"], ["9223372036854775807"], ["-9223372036854775808"]),
    "t": (["BOOL"], ["true"], ["true"], ["false"]),
    "s": (["STRING"], ['"Zoë 😀"'], ['"Zo\\u00eb \\ud83d\\ude00"'], ['""']),
    "en": (["ENUM"], ['"open"'], ['"open"'], ['"shut"']),
    "co": (["STRING COLLATE de"], ['"Straße"'], ['"Stra\\u00dfe"'], ['"straße"']),
    "ip": (["INET"], ['"10.1.0.0/16"'], ['"10.1.0.0/16"'], ['"::1"']),
    "u": (["UUID"], [f'"{U}"'], [f'"{U.upper()}"'], [f'"{UUID(int=5)}"']),
    "d2": (["DECIMAL(10,2)"], ["1.0"], ["1.00"], ["-1.00"]),
    "d38": (["DECIMAL(38,10)"], ["9" * 28 + ".1"], ["9" * 28 + ".1000000000"], ["9" * 28 + ".1000000001"]),
    "free": (["DECIMAL"], ["10"], ["1E+1"], ["10.1"]),
    "zeros": (["DECIMAL"], ["1.5"], ["1.50"], ["15"]),
    "by": (["BYTES"], ['"\\\\x00ff"'], ['"\\\\x00FF"'], ['"\\\\x00"']),
    "day": (["DATE"], ['"2024-02-29"'], ['"2024-02-29"'], ['"0001-01-01"']),
    "clock": (["TIME"], ['"01:02:03.5"'], ['"01:02:03.500"'], ['"24:00:00"']),
    "ts": (["TIMESTAMP"], ['"2024-02-29T01:02:03.5"'], ['"2024-02-29T01:02:03.50"'], ['"9999-12-31T23:59:59.999999"']),
    "tz": (["TIMESTAMPTZ"], ['"2024-02-29T01:02:03Z"'], ['"2024-02-29T02:02:03+01"'], ['"0001-01-01T00:00:00Z"']),
    "two": (["INT8", "STRING"], ["1", '"a, b"'], ["1", '"\\u0061, b"'], ["1", '"a"']),
    "many": (
        ["DECIMAL(10,2)", "UUID", "DATE", "BYTES"],
        ["1.5", f'"{U}"', '"2024-02-29"', '"\\\\x5c22"'],
        ["1.50", f'"{U.upper()}"', '"2024-02-29"', '"\\\\x5C22"'],
        ["1.51", f'"{U}"', '"2024-02-29"', '"\\\\x5c22"'],
    ),
}  # fmt: skip


def change(key: list[str], second: int, value: int | None) -> str:
    columns = ", ".join(f'"k{i}": {part}' for i, part in enumerate(key))
    after = "null" if value is None else f'{{{columns}, "v": {value}}}'
    return f'{{"after": {after}, "key": [{", ".join(key)}], "updated": "{at(second)}"}}'


def keyed(name: str, types: list[str], mode: str) -> object:
    names = [f"k{i}" for i in range(len(types))]
    return table(name, key=names, columns={**dict(zip(names, types, strict=True)), "v": "INT8"}, deletes=mode)


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(spark, warehouse, namespace, tmp_path)


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_every_key_type_are_updated_deleted_and_inserted_again(lab: Lab, mode: str) -> None:
    """H51, H13."""
    lab.tables = [keyed(name, types, mode) for name, (types, *_) in KEYS.items()]
    for name, (_, first, second, neighbour) in KEYS.items():
        lab.feed.data(at(1), [change(first, 1, 1), change(neighbour, 1, 10)], topic=name)
        lab.feed.data(at(3), [change(second, 3, 2)], topic=name)
        lab.feed.data(at(5), [change(first, 5, None)], topic=name)
        lab.feed.data(at(7), [change(second, 7, 4)], topic=name)
    for resolved in (2, 4, 6, 8):
        lab.feed.resolved(at(resolved))
    lab.run()
    for name in KEYS:
        found = [sorted(row["v"] for row in lab.rows(name, at(resolved), order="v")) for resolved in (2, 4, 6, 8)]
        assert found == [[1, 10], [2, 10], [10], [4, 10]], name


@pytest.mark.parametrize("mode", MODES)
def test_versions_of_one_key_in_one_epoch_fold_to_the_newest(lab: Lab, mode: str) -> None:
    """H2, H51: in whatever spelling they come."""
    lab.tables = [keyed(name, types, mode) for name, (types, *_) in KEYS.items()]
    for name, (_, first, second, neighbour) in KEYS.items():
        lines = [change(first, 1, 1), change(second, 3, 3), change(first, 2, 2), change(neighbour, 2, None)]
        lab.feed.data(at(1), lines, topic=name)
    lab.feed.resolved(at(4))
    lab.run()
    for name in KEYS:
        assert [row["v"] for row in lab.rows(name)] == [3], name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("delete_first", [True, False])
def test_a_changed_primary_key_is_a_delete_and_an_insert_at_one_time(lab: Lab, mode: str, delete_first: bool) -> None:
    lab.tables = [keyed("t", ["DECIMAL(10,2)", "STRING"], mode)]
    lab.feed.data(at(1), [change(["1.00", '"x"'], 1, 1)])
    lab.feed.resolved(at(2))
    pair = [change(["1.0", '"x"'], 3, None), change(["2.00", '"x"'], 3, 1)]
    lab.feed.data(at(3), pair if delete_first else pair[::-1])
    lab.feed.resolved(at(4))
    lab.run()
    assert [str(row["k0"]) for row in lab.rows()] == ["2.00"]


@pytest.mark.parametrize("place", ["key and row", "row", "delete"])
def test_a_null_key_is_refused_and_nothing_is_published(lab: Lab, place: str) -> None:
    """H20."""
    lab.tables = [keyed("t", ["STRING", "INT8"], "equality")]
    lab.feed.data(at(1), [change(['"x"', "1"], 1, 1)])
    lab.feed.resolved(at(2))
    lab.run()
    bad = {
        "key and row": change(['"y"', "null"], 3, 2),
        "row": f'{{"after": {{"k0": "y", "k1": null, "v": 1}}, "key": ["y", 5], "updated": "{at(3)}"}}',
        "delete": change(['"y"', "null"], 3, None),
    }[place]
    lab.feed.data(at(3), [change(['"z"', "2"], 3, 2), bad])
    lab.feed.resolved(at(4))
    with pytest.raises(BadInput) as caught:
        lab.run()
    assert "k1" in caught.value.message
    assert [row["k0"] for row in lab.rows()] == ["x"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("FLOAT8", "cannot identify a row"),
        ("FLOAT4", "cannot identify a row"),
        ("STRING COLLATE en-u-ks-level2", "collation"),
        ("CITEXT", "collation"),
        ("JSONB", "spellings"),
        ("INT8[]", "cannot identify a row"),
        ("VECTOR(2)", "cannot identify a row"),
    ],
)
def test_a_key_that_cannot_identify_a_row_is_refused_before_anything_is_made(
    lab: Lab, source: str, reason: str
) -> None:
    """H21."""
    lab.tables = [keyed("t", [source], "equality")]
    lab.feed.data(at(1), [change(["1"], 1, 1)])
    lab.feed.resolved(at(2))
    with pytest.raises((ConfigError, BadInput), match=reason) as caught:
        lab.run()
    assert "k0" in caught.value.message
    assert isinstance(caught.value, FrazilError)
    assert caught.value.hint


@pytest.mark.parametrize("text", ['"Stra\\u00dfe\\u00ad"', '"Zoe\\u0308"', '"a\\u0000"'])
def test_a_collated_key_that_may_equal_another_spelling_is_refused(lab: Lab, text: str) -> None:
    """H51: with a soft hyphen, not composed, with a control character."""
    lab.tables = [keyed("t", ["STRING COLLATE de"], "equality")]
    lab.feed.data(at(1), [change([text], 1, 1)])
    lab.feed.resolved(at(2))
    with pytest.raises(BadInput, match="collated key") as caught:
        lab.run()
    assert caught.value.facts["column"] == "k0"
