"""What a doctor takes for damage, what may be repaired, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from frazil.config.engines import ReaderEngine
from frazil.doctor import findings as doctor
from frazil.doctor.examination import (
    SAMPLES,
    DuplicateKeys,
    FileLook,
    Finding,
    KeySample,
    MetadataFacts,
    Misplaced,
    Registered,
    Severity,
    Trouble,
)
from frazil.doctor.metadata import (
    METADATA_BYTES_MAX,
    METADATA_BYTES_WARN,
    PROPERTY_BYTES_WARN,
    REFERENCES_WARN,
    SCHEMAS_WARN,
    SNAPSHOTS_WARN,
    LedgerState,
    LedgerView,
    ledger,
    metadata_limits,
)
from frazil.doctor.readers import unreadable_deletes
from frazil.doctor.registered import parse_registered
from frazil.doctor.repairs import unchanged
from frazil.model.compaction import RewrittenTable
from frazil.model.files import FileKind, LiveDelete, LiveFile
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, LedgerEntry
from frazil.model.partition import UNPARTITIONED, PartitionField, PartitionSpec, Transform
from frazil.model.schema import LONG, TIMESTAMP, Field, Schema, StructOf
from frazil.sources.cockroachdb.position import Hlc

DAILY = PartitionSpec(1, (PartitionField(1000, 4, "created_at_day", Transform("day")),))


def file(path: str = "a", sequence: int = 1, **more: Any) -> LiveFile:
    facts = {"format": "parquet", "size": 100, "records": 10, "spec_id": 0, **more}
    return LiveFile(path=path, sequence_number=sequence, **facts)


def equality(path: str = "e", sequence: int = 5, **more: Any) -> LiveDelete:
    facts = {"format": "parquet", "size": 10, "records": 1, "spec_id": 0, "equality_ids": (1,), **more}
    return LiveDelete(path=path, kind=FileKind.EQUALITY_DELETE, sequence_number=sequence, **facts)


def positions(path: str = "p", sequence: int = 5, data_file: str | None = None, **more: Any) -> LiveDelete:
    facts = {"format": "parquet", "size": 10, "records": 1, "spec_id": 0, **more}
    return LiveDelete(path=path, kind=FileKind.POSITION_DELETE, sequence_number=sequence, data_file=data_file, **facts)


def vector(data_file: str, sequence: int = 5, path: str = "v", offset: int = 4) -> LiveDelete:
    return positions(path, sequence, data_file, format="puffin", offset=offset, length=20)


def registered(*entries: LiveFile | LiveDelete, specs: tuple[PartitionSpec, ...] = (UNPARTITIONED,)) -> Registered:
    return parse_registered(9, entries, specs)


def looks(table: Registered, **changed: Any) -> doctor.Looks:
    """Every file as its manifest says; those in `changed` by path otherwise."""
    data, deletes = doctor.to_look_at(table)
    everything: list[LiveFile | LiveDelete] = [*data, *deletes]
    seen = [
        FileLook(path=one.path, size=one.size, records=one.records if isinstance(one, LiveFile) else None)
        for one in everything
    ]
    return doctor.looks_of(data, deletes, [replace(look, **changed.get(look.path, {})) for look in seen])


def described(*fields: Field) -> RewrittenTable:
    """With the column that `DAILY` is made of, if nothing else is said."""
    return RewrittenTable(
        name=TableName(("shop",), "orders"),
        schema=Schema(0, fields or (Field(4, "created_at", TIMESTAMP),)),
        format_version=3,
        sequence_number=9,
        data_location="",
        specs=(UNPARTITIONED, DAILY),
    )


def entry(**changed: Any) -> LedgerEntry:
    facts: dict[str, Any] = {
        "job": JobId("shop"),
        "batch_id": UUID(int=7),
        "lower": None,
        "resolved": Hlc(10),
        "notes": "",
        "fence": Fence(3, UUID(int=1)),
        "incarnation": "c",
        "config_hash": "",
        "operation": "append",
        "data_files": 1,
        "delete_files": 0,
        "rows": 1,
        "deletes": 0,
        "snapshot_id": 42,
        "sequence_number": 5,
    }
    return LedgerEntry(**{**facts, **changed})


def engines(*names: str) -> tuple[ReaderEngine, ...]:
    return tuple(ReaderEngine(name) for name in names)


def only(findings: list[Finding]) -> Finding:
    (found,) = findings
    return found


# what the manifests register


def test_a_file_that_is_registered_twice_is_seen_twice_each_with_the_deletes_that_reach_it() -> None:
    found = registered(file(sequence=6), file(sequence=1), equality(sequence=5), vector("a", 7))
    older, later = found.by_path["a"]
    assert [older.sequence_number, later.sequence_number] == [1, 6]
    assert {one.path for one in older.deletes} == {"e", "v"}
    assert {one.path for one in later.deletes} == {"v"}
    assert found.first == (older,)


def test_a_delete_of_an_unpartitioned_spec_reaches_every_partition_and_one_of_a_partition_does_not() -> None:
    parted = file(spec_id=1, partition=("2024-01-01",))
    specs = (UNPARTITIONED, DAILY)
    assert registered(parted, equality(), specs=specs).data[0].deletes
    elsewhere = equality(spec_id=1, partition=("2024-01-02",))
    assert registered(parted, elsewhere, specs=specs).data[0].deletes == ()


# registered twice


def test_a_file_that_is_registered_once_is_no_finding() -> None:
    table = registered(file("a"), file("b"))
    assert doctor.registered_twice(doctor.twice(table, looks(table))) == []


def test_registrations_that_show_the_same_rows_are_repaired() -> None:
    table = registered(file(sequence=1), file(sequence=3), file(sequence=4), vector("a", 9))
    found = only(doctor.registered_twice(doctor.twice(table, looks(table))))
    assert found.fixable
    assert "20 rows too many" in found.means
    assert found.where == ("a: 3 times, with sequence numbers 1, 3, 4",)


@pytest.mark.parametrize(
    ("more", "changed", "why"),
    [
        ([equality(sequence=2)], {}, "some deletes reach one"),
        ([positions(sequence=2)], {}, "some deletes reach one"),
        ([], {"a": {"size": None}}, "missing"),
        ([], {"a": {"size": 99}}, "missing or another one"),
        ([], {"a": {"trouble": "cannot read it"}}, "cannot read it"),
    ],
)
def test_registrations_of_which_nobody_can_say_what_is_right_are_explained(
    more: list[LiveDelete], changed: dict[str, Any], why: str
) -> None:
    table = registered(file(sequence=1), file(sequence=3), *more)
    found = only(doctor.registered_twice(doctor.twice(table, looks(table, **changed))))
    assert not found.fixable
    assert why in found.what


def test_a_vector_older_than_the_second_registration_hides_nothing() -> None:
    """Readers refuse such a table, so nobody has seen rows of the second registration."""
    table = registered(file(sequence=1), file(sequence=3), vector("a", 2))
    assert not doctor.twice(table, looks(table))[0].hindrance


def test_a_file_that_takes_columns_from_its_partition_must_be_registered_in_one_partition() -> None:
    specs = (UNPARTITIONED, DAILY)
    one, other = (file(sequence=n, spec_id=1, partition=(f"2024-01-0{n}",)) for n in (1, 2))
    table = registered(one, other, specs=specs)
    assert not doctor.twice(table, looks(table))[0].hindrance
    assert (
        "each registration tells others" in doctor.twice(table, looks(table, a={"told": frozenset([4])}))[0].hindrance
    )


def test_a_file_that_is_not_parquet_is_not_rewritten() -> None:
    table = registered(file(sequence=1, format="orc"), file(sequence=3, format="orc"))
    assert "orc" in doctor.twice(table, looks(table))[0].hindrance


# rows and keys


def test_rows_in_a_wrong_partition_are_shown_with_the_right_one() -> None:
    table = registered(file(spec_id=1, partition=("2024-01-01",)), specs=(UNPARTITIONED, DAILY))
    seen = looks(table, a={"misplaced": 3, "samples": (Misplaced(7, ("2024-01-02",)), Misplaced(8, (None,)))})
    found = only(doctor.wrong_partition(table, seen, described()))
    assert found.what == "3 rows of 1 data file lie in a partition that is not theirs"
    assert found.where[0] == "a, row 7: lies in created_at_day=2024-01-01, belongs to created_at_day=2024-01-02"
    assert found.where[1].endswith("belongs to created_at_day=null")
    assert doctor.wrong_partition(table, looks(table), described()) == []


def test_rows_are_not_moved_by_a_column_that_was_dropped() -> None:
    """No file of that spec can be written any more."""
    table = registered(file(spec_id=1, partition=("2024-01-01",)), specs=(UNPARTITIONED, DAILY))
    seen = looks(table, a={"misplaced": 3})
    found = only(doctor.wrong_partition(table, seen, described(Field(1, "id", LONG))))
    assert not found.fixable
    assert found.what.endswith("(the column of created_at_day was dropped)")
    assert "--fix" not in found.next
    inside = Field(9, "meta", StructOf((Field(4, "created_at", TIMESTAMP),)))
    assert only(doctor.wrong_partition(table, seen, described(inside))).fixable


def test_rows_that_an_equality_delete_may_have_deleted_are_counted_at_most() -> None:
    table = registered(file(spec_id=1, partition=("x",)), equality(), specs=(UNPARTITIONED, DAILY))
    found = only(doctor.wrong_partition(table, looks(table, a={"misplaced": 3}), described()))
    assert found.what.startswith("up to 3 rows")


def test_only_keys_whose_rows_are_all_equal_are_repaired() -> None:
    samples = (KeySample("id=1", (("a", 0), ("b", 4)), True), KeySample("id=2", (("a", 1), ("b", 5)), False))
    table = registered(file("a"), file("b"))
    told = DuplicateKeys(keys=5, rows=12, equal=3, samples=samples)
    equal, different = doctor.duplicate_keys(told, ["id"], table, (UNPARTITIONED,))
    assert (equal.fixable, equal.where) == (True, ("id=1: a row 0, b row 4",))
    assert (different.fixable, different.where) == (False, ("id=2: a row 1, b row 5",))
    assert different.what == "2 keys (id) have several rows that differ"
    assert doctor.duplicate_keys(DuplicateKeys(), ["id"], table, (UNPARTITIONED,)) == []


def test_of_a_key_that_lives_in_several_partitions_these_are_told() -> None:
    """H1: each of the two rows lies in the partition that its own columns give it."""
    specs = (UNPARTITIONED, DAILY)
    old, new = (file(path, spec_id=1, partition=(f"2024-01-0{day}",)) for path, day in (("a", 1), ("b", 2)))
    told = DuplicateKeys(keys=1, rows=2, samples=(KeySample("id=7", (("a", 1), ("b", 5)), False),))
    found = only(doctor.duplicate_keys(told, ["id"], registered(old, new, specs=specs), specs))
    assert found.what == "1 keys (id) have several rows that differ, some of them in several partitions"
    assert found.where == ("id=7: a row 1 in created_at_day=2024-01-01, b row 5 in created_at_day=2024-01-02",)
    assert "left behind in its partition" in found.means


# deletes


def test_a_delete_that_reaches_one_file_does_not_dangle() -> None:
    table = registered(file(sequence=3), equality("old", 2), equality("new", 4), vector("a", 4), vector("gone", 4, "w"))
    assert {one.path for one in doctor.dangling(table, {})} == {"old", "w"}
    found = only(doctor.dangling_deletes(doctor.dangling(table, {})))
    assert found.what == "1 equality delete files, 1 deletion vectors reach no data file"
    assert (found.severity, found.fixable) == (Severity.WARNING, True)


def test_position_deletes_of_several_files_are_judged_by_the_files_that_they_name() -> None:
    table = registered(file(sequence=3), positions("known", 4), positions("unknown", 4), positions("stale", 2))
    names = {"known": frozenset(["gone"]), "stale": frozenset(["a"])}
    assert {one.path for one in doctor.dangling(table, names)} == {"known", "stale"}
    assert {one.path for one in doctor.dangling(table, {"known": frozenset(["a"])})} == {"stale"}


def test_position_deletes_of_a_file_that_has_a_vector_are_read_by_nobody() -> None:
    """H24."""
    table = registered(file(sequence=1), positions("p", 2, "a"), vector("a", 3))
    assert [one.path for one in doctor.dangling(table, {})] == ["p"]


def test_two_vectors_of_one_file_are_told() -> None:
    """H23."""
    table = registered(file(), vector("a", 5, "v", 4), vector("a", 6, "w", 4))
    assert only(doctor.two_vectors(table)).where == ("a",)
    assert doctor.two_vectors(registered(file(), vector("a"))) == []


def test_deletes_by_position_are_unreadable_for_some_declared_readers() -> None:
    assert unreadable_deletes([vector("a"), positions()], engines("spark", "pyiceberg"), convertible=True) == []
    vectors = only(unreadable_deletes([vector("a"), positions()], engines("athena"), convertible=True))
    assert "deletion vectors; athena cannot read" in vectors.what
    by_file = only(unreadable_deletes([vector("a"), positions()], engines("databricks"), convertible=True))
    assert "position deletes; databricks cannot read" in by_file.what
    assert not vectors.fixable
    assert not by_file.fixable


def test_equality_deletes_are_unreadable_for_some_declared_readers_only() -> None:
    deletes = [equality(f"e{n}") for n in range(SAMPLES + 2)]
    assert unreadable_deletes(deletes, engines("spark", "trino", "duckdb", "flink"), convertible=True) == []
    found = only(unreadable_deletes(deletes, engines("spark", "pyiceberg", "polars"), convertible=True))
    assert (found.fixable, found.where[-1]) == (True, "and 2 more")
    assert "pyiceberg and polars" in found.what
    assert not only(unreadable_deletes(deletes, engines("snowflake"), convertible=False)).fixable
    unsaid = only(unreadable_deletes(deletes, engines("athena"), convertible=True))
    assert (unsaid.severity, unsaid.fixable) == (Severity.WARNING, True)


# files


def test_files_that_are_missing_or_different_are_never_repaired() -> None:
    table = registered(file("a"), file("b"), file("c"), equality("e"), vector("a"))
    seen = looks(table, a={"size": None}, b={"size": 7}, c={"records": 3}, v={"size": None})
    missing, different = doctor.missing_files(table, seen)
    assert missing.where == ("a", "v")
    assert different.where == ("b: 7 bytes, 100 in the manifest", "c: 3 rows, 10 in the manifest")
    assert not missing.fixable
    assert not different.fixable
    assert doctor.missing_files(table, looks(table)) == []


def test_a_file_that_nobody_can_read_is_as_bad_as_another_one() -> None:
    table = registered(file("a"), vector("a", 5, "v", 4), vector("b", 5, "v", 90), file("b"))
    seen = looks(table, a={"damage": "cannot read a: no footer"})
    found = only(doctor.missing_files(table, seen))
    assert (found.trouble, found.severity, found.fixable) == (Trouble.DIFFERENT_FILES, Severity.ERROR, False)
    assert found.where == ("cannot read a: no footer",)
    assert doctor.unreadable_rows(table, seen) == []


def test_each_vector_of_a_file_is_looked_at_and_told_once() -> None:
    table = registered(file("a"), file("b"), vector("a", 5, "v", 4), vector("b", 5, "v", 90))
    _, deletes = doctor.to_look_at(table)
    assert [delete.offset for delete in deletes] == [4, 90]
    assert only(doctor.missing_files(table, looks(table, v={"size": None}))).where == ("v",)


def test_keys_are_not_searched_in_files_of_another_format() -> None:
    assert not doctor.is_foreign(registered(file("a"), vector("a"), equality()))
    assert doctor.is_foreign(registered(file("a"), file("b", format="orc")))
    assert doctor.is_foreign(registered(file("a"), positions(format="avro")))


def test_what_cannot_be_looked_at_is_no_reason_to_fail() -> None:
    table = registered(file("a"))
    found = only(doctor.not_examined(doctor.unreadable_rows(table, looks(table, a={"trouble": "it is orc"}))))
    assert (found.severity, found.remains, found.where) == (Severity.INFO, False, ("a: it is orc",))


# metadata


def metadata(**changed: Any) -> MetadataFacts:
    small = {"bytes": 1000, "snapshots": 10, "references": 2, "schemas": 1, "specs": 1, "log": 10}
    return MetadataFacts(**{**small, **changed})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"bytes": METADATA_BYTES_WARN}, "metadata of"),
        ({"snapshots": SNAPSHOTS_WARN}, "snapshots"),
        ({"references": REFERENCES_WARN}, "branches and tags"),
        ({"schemas": SCHEMAS_WARN}, "schemas"),
        ({"properties": {"frazil.shop.ledger": PROPERTY_BYTES_WARN}}, "table property frazil.shop.ledger"),
        ({"properties": {f"p{n}": 30_000 for n in range(9)}}, "table properties of 270,000 bytes"),
    ],
)
def test_metadata_at_a_limit_is_told_and_below_it_is_not(changed: dict[str, Any], text: str) -> None:
    """H31."""
    found = only(metadata_limits(metadata(**changed)))
    assert text in found.what
    assert found.severity is Severity.WARNING
    below: dict[str, Any] = {name: value - 1 if isinstance(value, int) else {} for name, value in changed.items()}
    assert metadata_limits(metadata(**below)) == []


def test_metadata_beyond_what_catalogs_take_is_an_error_and_expiry_repairs_it_if_something_is_due() -> None:
    assert only(metadata_limits(metadata(bytes=METADATA_BYTES_MAX))).severity is Severity.ERROR
    assert not only(metadata_limits(metadata(bytes=METADATA_BYTES_MAX))).fixable
    assert only(metadata_limits(metadata(bytes=METADATA_BYTES_MAX, expirable=3))).fixable


# the ledger


def view(**changed: Any) -> LedgerView:
    facts = {"entry": entry(), "in_property": entry(), "tagged": 42, "generation": 3}
    return LedgerView(job="shop", state=LedgerState.AT, **{**facts, **changed})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"tagged": None}, "the tag frazil_shop is gone"),
        ({"tagged": 41}, "names snapshot 41"),
        ({"in_property": None}, "the property frazil.shop.ledger is gone"),
        ({"in_property": entry(resolved=Hlc(9))}, "property and summary of snapshot 42"),
        ({"in_property": entry(snapshot_id=40, sequence_number=4)}, "the property names snapshot 40"),
        ({"generation": 2}, "generation 3 of pipeline shop, the register knows 2"),
    ],
)
def test_a_ledger_that_disagrees_is_a_warning_and_never_repaired(changed: dict[str, Any], text: str) -> None:
    found = only(ledger(view(**changed)))
    assert text in found.what
    assert (found.severity, found.fixable) == (Severity.WARNING, False)


def test_a_ledger_that_agrees_is_no_finding() -> None:
    assert ledger(view()) == []
    assert ledger(view(generation=None)) == []
    assert ledger(view(entry=None)) == [], "its snapshot expired, and the tag keeps it"
    assert ledger(LedgerView(job="shop", state=LedgerState.FRESH)) == []


def test_a_ledger_that_was_rolled_back_or_damaged_says_what_to_do() -> None:
    back = LedgerView(job="shop", state=LedgerState.ROLLED_BACK, in_property=entry(), entry=entry(resolved=Hlc(5)))
    found = only(ledger(back))
    assert found.severity is Severity.ERROR
    assert "frazil rewind" in found.next
    assert "goes on from" in found.next
    over = only(ledger(replace(back, entry=None, starts_over=True)))
    assert "starts over" in over.next
    damaged = only(ledger(LedgerView(job="shop", state=LedgerState.DAMAGED, reason="no json")))
    assert "no json" in damaged.what


# what still holds at a later head


def test_files_that_are_as_they_were_may_be_replaced() -> None:
    before = registered(file("a"), vector("a", 5))
    allowed = doctor_allows_equality
    assert unchanged(before.data, registered(file("a"), vector("a", 5), file("new", 9)), allowed)
    assert unchanged(before.data, registered(file("a"), vector("a", 5), equality("e", 9)), allowed)
    assert not unchanged(before.data, registered(file("a"), vector("a", 6, "w")), allowed), "another vector"
    assert not unchanged(before.data, registered(file("a")), allowed), "its vector is gone: rows are alive again"
    assert not unchanged(before.data, registered(file("b"), vector("a", 5)), allowed), "it was rewritten"
    assert not unchanged(before.data, registered(file("a"), file("a", 7), vector("a", 5)), allowed), "once more"


def doctor_allows_equality(delete: LiveDelete) -> bool:
    return delete.kind is FileKind.EQUALITY_DELETE


def test_what_cannot_be_repaired_is_never_called_fixed() -> None:
    with pytest.raises(ValueError, match="cannot be repaired"):
        Finding(trouble=Trouble.LEDGER, severity=Severity.ERROR, what="x", means="", next="", fixed=True)
