"""Key columns and rows are read from any writer's file, bound by field id; what cannot be read says why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookup_builders import LONG_ID, KeyColumns, key_columns, long_keys, numbered, patient, positions_of, write_parquet
from unit.storage.ordinary_user import refusal_of

from frazil.data.keys.codec import KeyCodec
from frazil.data.read.parquet import UnreadableFile, index_file, read_keys, read_rows
from frazil.errors import CatalogRefused, ConfigError, TableChanged
from frazil.model import schema as c
from frazil.model.schema import Field, ListOf, MapOf, StructOf
from frazil.storage.files.open_file import open_input

NAME = Field(2, "name", c.STRING)


def keys_of(path: Path, fields: Sequence[Field] = (LONG_ID,), mapping: str | None = None) -> dict[str, list[Any]]:
    batches = list(read_keys(str(path), path.stat().st_size, fields, {}, mapping))
    return pa.Table.from_batches(batches).to_pydict()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.parquet"


def test_columns_are_bound_by_id_and_not_by_name_or_order(path: Path) -> None:
    """H30."""
    write_parquet(
        path,
        [
            (numbered("name", pa.int64(), 1), [1, 2]),
            (numbered("id", pa.string(), 2), ["x", "y"]),
        ],
    )
    assert keys_of(path, (NAME, LONG_ID)) == {"name": ["x", "y"], "id": [1, 2]}


def test_a_file_without_ids_is_bound_by_the_name_mapping(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.int64(), None), [0, 0]), (numbered("old_id", pa.int64(), None), [1, 2])])
    mapping = json.dumps([{"field-id": 1, "names": ["old_id", "older_id"]}, {"field-id": 9, "names": ["id"]}])
    assert keys_of(path, mapping=mapping) == {"id": [1, 2]}


def test_a_file_without_ids_and_mapping_is_bound_by_name(path: Path) -> None:
    write_parquet(path, [(numbered("x", pa.int64(), None), [0, 0]), (numbered("id", pa.int64(), None), [1, 2])])
    assert keys_of(path) == {"id": [1, 2]}


def test_a_name_means_nothing_in_a_file_with_ids(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.int64(), 5), [1])])
    with pytest.raises(UnreadableFile, match=r"no key column 'id' \(id 1\)"):
        keys_of(path)


def test_ids_in_nested_columns_alone_are_ids_too(path: Path) -> None:
    inner = pa.struct([numbered("x", pa.int64(), 7)])
    write_parquet(path, [(numbered("id", pa.int64(), None), [1]), (numbered("s", inner, None), [{"x": 1}])])
    with pytest.raises(UnreadableFile, match="no key column"):
        keys_of(path)


def test_a_key_inside_a_struct_is_refused_by_name(path: Path) -> None:
    inner = pa.struct([numbered("id", pa.int64(), 1)])
    write_parquet(path, [(numbered("s", inner, 7), [{"id": 1}])])
    with pytest.raises(UnreadableFile, match=r"'id' .*inside a struct"):
        keys_of(path)


def test_a_column_with_a_dot_in_its_name_is_not_taken_for_a_member(path: Path) -> None:
    inner = pa.struct([numbered("b", pa.int64(), 8)])
    write_parquet(path, [(numbered("a", inner, 7), [{"b": 5}]), (numbered("a.b", pa.int64(), 1), [1])])
    assert keys_of(path) == {"id": [1]}


def test_two_columns_of_one_id_are_refused(path: Path) -> None:
    write_parquet(path, [(numbered("a", pa.int64(), 1), [1]), (numbered("b", pa.int64(), 1), [1])])
    with pytest.raises(UnreadableFile, match="all claim to be 'id'"):
        keys_of(path)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"Obj\x01 an avro file of some length", b"PAR1" + bytes(100) + b"PAR1"]
)
def test_a_file_that_is_not_parquet_is_refused_by_name(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(UnreadableFile) as caught:
        keys_of(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_damaged_page_is_an_error_and_no_answer(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.int64(), 1), list(range(1000)))], row_group_size=1000)
    whole = bytearray(path.read_bytes())
    whole[8:400] = bytes(392)
    path.write_bytes(bytes(whole))
    with pytest.raises(UnreadableFile):
        keys_of(path)


def test_a_mapping_that_is_no_mapping_is_refused(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.int64(), None), [1])])
    with pytest.raises(UnreadableFile):
        keys_of(path, mapping="{not json")


def test_a_file_that_is_gone_says_that_a_live_snapshot_needs_it(path: Path) -> None:
    with pytest.raises(TableChanged, match="is gone, and a live snapshot") as caught:
        list(read_keys(str(path), 10, [LONG_ID], {}))
    assert caught.value.facts["path"] == str(path)


def test_a_file_of_another_size_is_not_the_manifests_file(path: Path) -> None:
    size = write_parquet(path, [(numbered("id", pa.int64(), 1), [1])])
    with pytest.raises(TableChanged, match=f"has {size} bytes, and {size + 1} in the table's manifest"):
        list(read_keys(str(path), size + 1, [LONG_ID], {}))


def test_a_file_that_may_not_be_read_is_refused(path: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0)
    refused = refusal_of(lambda: open_input(str(path), {}))
    assert isinstance(refused, CatalogRefused)
    assert f"cannot read {path}" in str(refused)


def test_input_is_local_for_now_and_takes_file_urls(path: Path) -> None:
    path.write_bytes(b"ice")
    with open_input(f"file://{path}", {}) as source:
        assert source.read() == b"ice"
    with pytest.raises(ConfigError, match="s3"):
        open_input("s3://bucket/key", {})


@patient
@given(key_columns(), st.integers(1, 7), st.data())
def test_the_index_of_a_file_finds_the_files_rows(path: Path, key: KeyColumns, group: int, data: st.DataObject) -> None:
    arrays = key.arrays()
    schema = pa.schema([numbered(f"c{i}", array.type, i + 1) for i, array in enumerate(arrays)])
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, row_group_size=group)
    index = index_file(str(path), path.stat().st_size, key.codec, {})
    wanted = data.draw(st.lists(st.sampled_from(key.rows))) if key.rows else []
    assert index.records == len(key.rows)
    assert index.find(key.keys(wanted)).tolist() == positions_of(key.rows, wanted)


def test_a_file_written_before_the_key_was_widened_gives_the_same_keys(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.int32(), 1), [5, -6, 7])])
    index = index_file(str(path), path.stat().st_size, KeyCodec([LONG_ID]), {})
    assert index.find(long_keys(-6, 7)).tolist() == [1, 2]


def test_rows_of_another_writer_that_have_no_key_keep_their_place_and_are_never_found(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.int64(), 1), [5, None, 7, None, 5])], row_group_size=2)
    index = index_file(str(path), path.stat().st_size, KeyCodec([LONG_ID]), {})
    assert index.records == 5
    assert index.find(long_keys(5, 0)).tolist() == [0, 4]


def test_key_values_of_another_type_make_the_file_unreadable(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.string(), 1), ["5"])])
    with pytest.raises(UnreadableFile, match=r"data.parquet.*'id' holds string"):
        index_file(str(path), path.stat().st_size, KeyCodec([LONG_ID]), {})


def test_timestamps_of_twelve_bytes_are_read_as_microseconds(path: Path) -> None:
    moments = pa.array([-62_135_596_800_000_000, 0, 253_402_300_799_999_999]).view(pa.timestamp("us"))
    schema = pa.schema([numbered("at", moments.type, 1)])
    pq.write_table(
        pa.Table.from_arrays([moments.slice(1, 1)], schema=schema), path, use_deprecated_int96_timestamps=True
    )
    codec = KeyCodec([Field(1, "at", c.TIMESTAMP)])
    index = index_file(str(path), path.stat().st_size, codec, {})
    assert index.find(codec.encode([moments])).tolist() == [0]


def test_rows_come_in_the_order_of_the_positions_and_as_often(path: Path) -> None:
    letters = list("abcdefghij")
    write_parquet(path, [(numbered("id", pa.int64(), 1), list(range(10))), (numbered("name", pa.string(), 2), letters)])
    assert read_rows(str(path), [9, 0, 3, 0], [NAME, LONG_ID], {}).to_pydict() == {
        "name": ["j", "a", "d", "a"],
        "id": [9, 0, 3, 0],
    }


def test_row_groups_without_a_wanted_position_are_not_read(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.int64(), 1), list(range(3000)))], row_group_size=1000)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    whole = bytearray(path.read_bytes())
    whole[start : start + 200] = bytes(200)
    path.write_bytes(bytes(whole))
    assert read_rows(str(path), [2999, 0], [LONG_ID], {}).to_pydict() == {"id": [2999, 0]}
    with pytest.raises(UnreadableFile):
        read_rows(str(path), [1500], [LONG_ID], {})


def test_no_positions_are_no_rows_of_the_right_types(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.int32(), 1), [1])])
    rows = read_rows(str(path), [], [LONG_ID, NAME], {})
    assert rows.num_rows == 0
    assert rows.schema.types == [pa.int64(), pa.string()]


@pytest.mark.parametrize("position", [-1, 2])
def test_a_position_beyond_the_file_is_refused(path: Path, position: int) -> None:
    write_parquet(path, [(numbered("id", pa.int64(), 1), [1, 2])])
    with pytest.raises(ValueError, match=f"none at {position}"):
        read_rows(str(path), [0, position], [LONG_ID], {})


def test_rows_have_the_types_the_table_has_now(path: Path) -> None:
    write_parquet(
        path,
        [
            (numbered("id", pa.int32(), 1), [1, 2]),
            (numbered("price", pa.decimal128(5, 2), 3), [D("1.25"), None]),
            (numbered("gone", pa.string(), 4), ["x", "y"]),
            (numbered("ratio", pa.float32(), 5), [0.5, None]),
        ],
    )
    fields = [LONG_ID, Field(3, "cost", c.Decimal(12, 2)), Field(5, "ratio", c.DOUBLE), Field(9, "new", c.UUID)]
    rows = read_rows(str(path), [1, 0], fields, {})
    assert rows.schema.types == [pa.int64(), pa.decimal128(12, 2), pa.float64(), pa.binary(16)]
    assert rows.to_pydict() == {"id": [2, 1], "cost": [None, D("1.25")], "ratio": [None, 0.5], "new": [None, None]}


def test_nested_columns_are_bound_by_id_at_every_level(path: Path) -> None:
    address = pa.struct([numbered("street", pa.string(), 11), numbered("number", pa.int32(), 12)])
    write_parquet(
        path,
        [
            (numbered("home", address, 10), [{"street": "a", "number": 1}, None, {"street": None, "number": 3}]),
            (
                numbered("all", pa.list_(numbered("element", address, 21)), 20),
                [[{"street": "b", "number": 2}, None], [], None],
            ),
            (
                numbered("by", pa.map_(pa.string(), pa.int32()), 30),
                [[("k", 1)], None, []],
            ),
        ],
    )
    changed = StructOf((Field(12, "no", c.LONG), Field(13, "zip", c.STRING), Field(11, "road", c.STRING)))
    fields = [
        Field(10, "home", changed),
        Field(20, "all", ListOf(changed, 21)),
        Field(30, "by", MapOf(c.STRING, c.LONG, 31, 32)),
    ]
    assert read_rows(str(path), [2, 1, 0], fields, {}).to_pylist() == [
        {"home": {"no": 3, "zip": None, "road": None}, "all": None, "by": []},
        {"home": None, "all": [], "by": None},
        {
            "home": {"no": 1, "zip": None, "road": "a"},
            "all": [{"no": 2, "zip": None, "road": "b"}, None],
            "by": [("k", 1)],
        },
    ]


def test_a_value_that_does_not_fit_the_tables_type_is_an_error_and_not_a_null(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.string(), 1), ["seven"])])
    with pytest.raises(UnreadableFile):
        read_rows(str(path), [0], [LONG_ID], {})


def test_rows_of_a_file_without_any_of_the_columns_are_nulls(path: Path) -> None:
    write_parquet(path, [(numbered("id", pa.int64(), 1), [1, 2, 3])])
    rows = read_rows(str(path), [2, 0], [Field(7, "new", c.STRING)], {})
    assert rows.to_pydict() == {"new": [None, None]}
