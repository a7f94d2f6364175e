"""FileClosed and Resolved, and their wire form."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import frazil.model
from frazil.model import messages_pb2 as pb
from frazil.model.files import ColumnMetrics, FileClosed, FileKind, Resolved
from frazil.model.ids import TableName
from frazil.model.position import BatchNumber
from frazil.model.wire import VERSION, BadMessage, decode, encode
from frazil.sources.cockroachdb.position import Hlc

MODEL = Path(frazil.model.__file__).parent
counts = st.none() | st.integers(0, 2**63 - 1)
metrics = st.builds(
    ColumnMetrics,
    field_id=st.integers(1, 1000),
    size=counts,
    values=counts,
    nulls=counts,
    nans=counts,
    lower=st.none() | st.binary(max_size=8),
    upper=st.none() | st.binary(max_size=8),
)
partitions = st.lists(st.none() | st.integers() | st.text(max_size=5) | st.booleans(), max_size=3).map(tuple)


def closed(**changed: Any) -> FileClosed:
    facts: dict[str, Any] = {
        "table": TableName.parse("shop.orders"),
        "epoch": Hlc(1701102296662969433, 1),
        "batch_id": UUID(int=7),
        "worker": 2,
        "schema_id": 3,
        "spec_id": 1,
        "path": "s3://lake/data-1.parquet",
        "kind": FileKind.DATA,
        "records": 10,
        "size": 1234,
        "digest": "ab",
    }
    return FileClosed(**{**facts, **changed})


@given(
    st.lists(metrics, max_size=4, unique_by=lambda m: m.field_id).map(tuple), partitions, st.lists(counts.filter(bool))
)
def test_a_closed_file_survives_the_wire(
    found: tuple[ColumnMetrics, ...], partition: tuple[Any, ...], at: list[int]
) -> None:
    message = closed(metrics=found, partition=partition, split_offsets=tuple(at))
    assert decode(encode(message)) == message


def test_an_equality_delete_survives_the_wire() -> None:
    message = closed(kind=FileKind.EQUALITY_DELETE, equality_ids=(1, 2), epoch=BatchNumber(4))
    assert decode(encode(message)) == message


def test_partial_rows_survive_the_wire() -> None:
    message = closed(kind=FileKind.PARTIAL, partition=())
    assert decode(encode(message)) == message
    assert not message.kind.deletes


def test_a_count_of_zero_is_not_a_missing_count() -> None:
    message = closed(metrics=(ColumnMetrics(field_id=1, nulls=0, lower=b""),))
    back = decode(encode(message))
    assert isinstance(back, FileClosed)
    assert (back.metrics[0].nulls, back.metrics[0].values, back.metrics[0].lower) == (0, None, b"")


def test_resolved_survives_the_wire() -> None:
    message = Resolved(Hlc(5, 1), 1, 3)
    assert decode(encode(message)) == message


def test_equal_messages_have_equal_bytes() -> None:
    assert encode(closed()) == encode(closed())


def test_an_unknown_version_is_refused() -> None:
    envelope = pb.Envelope()
    envelope.ParseFromString(encode(Resolved(Hlc(5), 0, 1)))
    envelope.version = VERSION + 1
    with pytest.raises(BadMessage, match=f"version {VERSION + 1}"):
        decode(envelope.SerializeToString())


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(BadMessage):
        decode(b"\xff\xff\xff")
    with pytest.raises(BadMessage):
        decode(b"")
    with pytest.raises(BadMessage, match="unknown message"):
        decode(pb.Envelope(version=VERSION).SerializeToString())


def test_a_message_altered_on_its_way_is_refused() -> None:
    envelope = pb.Envelope()
    envelope.ParseFromString(encode(closed()))
    envelope.file_closed.records += 1
    with pytest.raises(ValueError, match="altered"):
        decode(envelope.SerializeToString())


@pytest.mark.parametrize(
    "changed", [{"records": 0}, {"size": 0}, {"equality_ids": (1,)}, {"kind": FileKind.EQUALITY_DELETE}]
)
def test_a_file_that_cannot_be_true_cannot_exist(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"data-1\.parquet"):
        closed(**changed)


def test_the_hash_covers_what_the_manifest_says() -> None:
    one = closed(metrics=(ColumnMetrics(field_id=1, nulls=0), ColumnMetrics(field_id=2)))
    for changed in ({"path": "x"}, {"size": 9}, {"records": 9}, {"partition": (1,)}, {"metrics": ()}):
        assert replace(one, file_hash="", **changed).file_hash != one.file_hash
    swapped = replace(one, file_hash="", metrics=one.metrics[::-1])
    assert swapped.file_hash == one.file_hash


def test_the_manifest_form_of_a_file() -> None:
    message = closed(
        partition=("2024-01-01", None),
        metrics=(
            ColumnMetrics(field_id=1, values=10, nulls=0, lower=b"\x01\xff", upper=b"\x02"),
            ColumnMetrics(field_id=2, values=10),
        ),
        split_offsets=(4,),
    )
    assert message.manifest_json() == {
        "spec-id": 1,
        "content": "data",
        "file-path": "s3://lake/data-1.parquet",
        "file-format": "parquet",
        "partition": ["2024-01-01", None],
        "file-size-in-bytes": 1234,
        "record-count": 10,
        "value-counts": {"keys": [1, 2], "values": [10, 10]},
        "null-value-counts": {"keys": [1], "values": [0]},
        "lower-bounds": {"keys": [1], "values": ["01FF"]},
        "upper-bounds": {"keys": [1], "values": ["02"]},
        "split-offsets": [4],
    }


def test_the_generated_code_is_what_the_proto_file_says(tmp_path: Path) -> None:
    source = MODEL.parents[1]
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        "-I",
        str(source),
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
    ]
    subprocess.run([*command, str(MODEL / "messages.proto")], check=True, capture_output=True)
    for name in ("messages_pb2.py", "messages_pb2.pyi"):
        generated = (tmp_path / "frazil" / "model" / name).read_text(encoding="utf-8")
        assert generated == (MODEL / name).read_text(encoding="utf-8"), f"{name} is stale: run `make proto`"
