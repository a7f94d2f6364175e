"""Which deletes apply to which data file, and what one commit makes of a head."""

from __future__ import annotations

import json
import math
import pickle
import struct
from dataclasses import replace
from typing import Any
from uuid import UUID

from frazil.iceberg.tables.file_listing import FILE_PATH_ID, Listing, advanced, applied, changed, parse_entry, reapplied
from frazil.model.commit import CommitPlan
from frazil.model.files import Blob, ColumnMetrics, FileClosed, FileKind, LiveDelete, LiveFile, LiveFiles
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, LedgerEntry
from frazil.model.partition import exact_values
from frazil.sources.cockroachdb.position import Hlc

TABLE = TableName(("shop",), "orders")


def data(path: str, sequence: int = 1, **changed: Any) -> LiveFile:
    facts = {"path": path, "format": "parquet", "size": 10, "records": 5, "sequence_number": sequence, "spec_id": 0}
    return LiveFile(**{**facts, **changed})


def delete(path: str, sequence: int = 2, kind: FileKind = FileKind.POSITION_DELETE, **changed: Any) -> LiveDelete:
    facts = {"path": path, "kind": kind, "format": "parquet", "size": 10, "records": 5, "spec_id": 0}
    return LiveDelete(**{**facts, "sequence_number": sequence, **changed})


def vector(path: str, data_file: str, sequence: int = 2, **changed: Any) -> LiveDelete:
    return delete(path, sequence, format="puffin", data_file=data_file, offset=4, length=9, **changed)


def by_key(path: str, sequence: int = 2, **changed: Any) -> LiveDelete:
    return delete(path, sequence, FileKind.EQUALITY_DELETE, equality_ids=(1,), **changed)


def listing(*entries: LiveFile | LiveDelete, everywhere: frozenset[int] = frozenset([0])) -> Listing:
    return changed(Listing(None, {}, {}), 9, (), entries, everywhere)


def deletes(live: LiveFiles) -> dict[str, list[str]]:
    return {file.path: [one.path for one in file.deletes] for file in live.files}


def test_a_vector_applies_to_its_file_and_hides_position_deletes() -> None:
    found = applied(listing(data("a"), data("b"), vector("v", "a"), delete("p", 3), by_key("e", 4)))
    assert deletes(found) == {"a": ["v", "e"], "b": ["p", "e"]}
    assert found.by_path["a"].vector == vector("v", "a")


def test_two_vectors_of_one_file_are_both_shown() -> None:
    """H23: a broken table is mended by merging them, not by taking one."""
    assert deletes(applied(listing(data("a"), vector("v", "a"), vector("w", "a", 3)))) == {"a": ["v", "w"]}


def test_deletes_apply_by_sequence_number() -> None:
    """H2: position deletes to their own snapshot's rows too, equality deletes to older ones alone."""
    files = [data(f"s{n}", n) for n in (1, 2, 3)]
    found = deletes(applied(listing(*files, delete("p", 2), by_key("e", 2), delete("q", 3), by_key("f", 3))))
    assert found == {"s1": ["p", "q", "e", "f"], "s2": ["p", "q", "f"], "s3": ["q"]}


def test_deletes_apply_within_their_spec_and_partition() -> None:
    """H1: equality deletes of an unpartitioned spec reach everywhere, all others stay in their partition."""
    here = {"spec_id": 1, "partition": ("x",)}
    there = {"spec_id": 1, "partition": ("y",)}
    entries = [data("a", **here), data("b", **there), delete("p", **here), by_key("e", **there), by_key("g")]
    assert deletes(applied(listing(*entries))) == {"a": ["p", "g"], "b": ["e", "g"]}
    assert deletes(applied(listing(*entries, everywhere=frozenset()))) == {"a": ["p"], "b": ["e"]}


def test_a_position_delete_file_of_one_data_file_applies_to_it_alone() -> None:
    found = applied(listing(data("a"), data("b"), delete("p", data_file="a")))
    assert deletes(found) == {"a": ["p"], "b": []}


def test_equal_bounds_of_the_path_column_name_the_one_data_file() -> None:
    def entry(lower: str, upper: str) -> dict[str, Any]:
        return {
            "spec-id": 0,
            "content": "POSITION_DELETES",
            "file-path": "p",
            "file-format": "PARQUET",
            "partition": [],
            "file-size-in-bytes": 5,
            "record-count": 1,
            "lower-bounds": {"keys": [FILE_PATH_ID], "values": [lower.encode().hex()]},
            "upper-bounds": {"keys": [FILE_PATH_ID], "values": [upper.encode().hex()]},
        }

    assert parse_entry(entry("a", "a"), 1).data_file == "a"  # type: ignore[union-attr]
    assert parse_entry(entry("a", "b"), 1).data_file is None  # type: ignore[union-attr]


def test_a_partition_of_floats_is_one_place_however_it_is_spelled() -> None:
    """iceberg-java quotes what is no number, and writes a float with as few digits as tell it from others."""
    floats = {1: {0: "<f", 1: "<d"}}

    def read(*values: object) -> LiveFile:
        entry = {"spec-id": 1, "content": "DATA", "file-path": "a", "file-format": "PARQUET", "partition": list(values)}
        found = parse_entry({**entry, "file-size-in-bytes": 5, "record-count": 1}, 1, floats)
        assert isinstance(found, LiveFile)
        return found

    single = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    told = [(single, math.nan), (math.inf, -0.0), (-0.0, 0.0), (0.0, None), (None, -math.inf)]
    spelled = [(0.1, "NaN"), ("Infinity", -0.0), (-0.0, 0.0), (0.0, None), (None, "-Infinity")]
    assert [read(*values).partition for values in spelled] == [exact_values(values) for values in told]
    assert len({exact_values(values) for values in (*told, *told)}) == len(told)
    assert json.dumps(exact_values(told[0])) == f"[{single!r}, NaN]"
    assert pickle.loads(pickle.dumps(exact_values(told[0]))) == exact_values(told[0])


def test_what_goes_and_comes_in_a_rewritten_manifest_stays() -> None:
    before = listing(data("a"), data("b"))
    after = changed(before, 10, [data("a"), data("b")], [data("a")], frozenset())
    assert list(after.data) == ["a"]
    assert after.snapshot_id == 10


def closed(path: str, kind: FileKind = FileKind.DATA, **changed: Any) -> FileClosed:
    facts = {
        "table": TABLE,
        "epoch": Hlc(10),
        "batch_id": UUID(int=1),
        "worker": 0,
        "schema_id": 0,
        "spec_id": 0,
        "path": path,
        "kind": kind,
        "records": 5,
        "size": 10,
        "digest": "d",
        "equality_ids": (1,) if kind is FileKind.EQUALITY_DELETE else (),
    }
    return FileClosed(**{**facts, **changed})


def plan(*files: FileClosed, removed: tuple[LiveDelete, ...] = ()) -> CommitPlan:
    entry = LedgerEntry(
        job=JobId("shop"),
        batch_id=UUID(int=1),
        lower=None,
        resolved=Hlc(10),
        notes="",
        fence=Fence(1, UUID(int=1)),
        incarnation="",
        config_hash="",
        operation="",
        data_files=0,
        delete_files=0,
        rows=0,
        deletes=0,
    )
    return CommitPlan(entry=entry, files=files, removed_deletes=removed)


def test_our_own_commit_is_derived_from_its_plan() -> None:
    before = listing(data("a"), data("b"), vector("v", "a"))
    bounds = (ColumnMetrics(field_id=1, lower=b"\1", upper=b"\2"), ColumnMetrics(field_id=2, lower=b"\3"))
    new_vector = closed("w", FileKind.POSITION_DELETE, vector=Blob("a", 4, 9))
    ours = plan(closed("c", metrics=bounds), new_vector, removed=(vector("v", "a"),))
    after = advanced(before, ours, 10, 7, (1,))
    assert after is not None
    live = applied(after)
    assert deletes(live) == {"a": ["w"], "b": [], "c": []}
    assert live.by_path["c"] == data("c", 7, bounds={1: (b"\1", b"\2")})
    assert live.by_path["a"].vector == vector("w", "a", 7)
    assert reapplied(after, applied(before), ours) == live


def test_our_own_equality_deletes_reach_every_older_file() -> None:
    before = listing(data("a", 6), everywhere=frozenset())
    ours = plan(closed("c"), closed("e", FileKind.EQUALITY_DELETE))
    after = advanced(before, ours, 10, 7, ())
    assert after is not None
    assert deletes(reapplied(after, applied(before), ours)) == {"a": ["e"], "c": []}


def test_equality_deletes_of_an_unknown_spec_are_not_guessed_about() -> None:
    ours = plan(closed("e", FileKind.EQUALITY_DELETE, spec_id=3, partition=(None,)))
    assert advanced(listing(data("a"), everywhere=frozenset()), ours, 10, 7, ()) is None
    known = advanced(listing(data("a"), everywhere=frozenset([3])), ours, 10, 7, ())
    assert known is not None
    assert deletes(applied(known)) == {"a": ["e"]}


def test_files_keep_their_equality_deletes_when_they_get_a_vector() -> None:
    before = listing(data("a"), by_key("e"), delete("p"))
    ours = plan(closed("w", FileKind.POSITION_DELETE, vector=Blob("a", 4, 9)))
    after = advanced(before, ours, 10, 7, ())
    assert after is not None
    assert deletes(reapplied(after, applied(before), ours)) == {"a": ["w", "e"]} == deletes(applied(after))


def test_files_share_the_lists_of_their_deletes() -> None:
    many = [delete(f"p{n:04}", n + 2) for n in range(1000)]
    found = applied(listing(*(data(f"d{n}") for n in range(50)), *many))
    assert all(len(file.deletes) == 1000 for file in found.files)
    assert replace(found.files[0], path="") == replace(found.files[1], path="")
