"""Damage that others do to a table, done for real: the doctor finds it, explains it, and repairs what it safely can.

The rows before the damage are the model: after a repair every engine sees exactly them.
"""

from __future__ import annotations

from collections import Counter

import pytest
from doctor_builders import Make, rows

from frazil.doctor.examination import Severity, Trouble
from frazil.model.ids import TableName

pytestmark = pytest.mark.spark

# nothing wrong


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_that_a_pipeline_writes_is_healthy(make: Make, version: int) -> None:
    ward = make(version=version, partition=["part"])
    ward.epoch({n: f"n{n}" for n in range(10)})
    ward.epoch({3: "three", 4: "four"}, deletes=[5])
    found = ward.diagnose()
    assert found.findings == ()
    assert found.keys_examined
    assert found.data_files == len(ward.live.files)
    snapshots = ward.snapshots
    assert ward.fix() == {}
    assert ward.snapshots == snapshots, "nothing was committed"


def test_an_empty_table_is_healthy(make: Make) -> None:
    assert make().diagnose().findings == ()


# files that are registered twice


@pytest.mark.parametrize("version", [2, 3])
def test_files_that_are_registered_twice_are_found_and_registered_once_again(make: Make, version: int) -> None:
    ward = make(version=version, partition=["part"])
    ward.append([*rows(1, 2), *rows(3, part=1)])
    ward.append(rows(4, 5))
    ward.run("DELETE FROM {table} WHERE id = 1")
    before, lineage = ward.seen_by_spark(), ward.lineage() if version == 3 else {}
    twice = [file for file in ward.live.files if not file.deletes]
    ward.register_again(*twice)
    ward.register_again(twice[0])
    assert ward.seen_by_spark() != before

    (found,) = ward.examine().values()
    assert found.trouble is Trouble.REGISTERED_TWICE
    assert (found.severity, found.fixable) == (Severity.ERROR, True)
    assert all(any(file.path in text for text in found.where) for file in twice)
    fixed = ward.fix()
    assert fixed[Trouble.REGISTERED_TWICE].fixed
    assert ward.seen_by_spark() == before == ward.seen_by_pyiceberg()
    assert ward.examine() == {}
    if version == 3:
        assert ward.lineage() == lineage, "the rows are those of the first registration"


def test_an_equality_delete_reaches_a_file_that_is_registered_once_again(make: Make) -> None:
    """H15: what takes the file's place keeps its sequence number."""
    ward = make()
    ward.append(rows(1, 2, 3))
    (file,) = ward.live.files
    ward.register_again(file)
    ward.delete_by(["id"], [(2,)])
    assert ward.fix()[Trouble.REGISTERED_TWICE].fixed
    assert ward.seen_by_spark() == Counter(rows(1, 3))


def test_a_file_whose_registrations_show_different_rows_is_left_to_a_person(make: Make) -> None:
    ward = make()
    ward.append(rows(1, 2))
    (file,) = ward.live.files
    ward.delete_by(["id"], [(1,)])
    ward.register_again(file)
    before = ward.seen_by_spark()
    found = ward.fix()[Trouble.REGISTERED_TWICE]
    assert (found.fixable, found.fixed, found.error) == (False, False, "")
    assert "some deletes reach one registration and not the other" in found.what
    assert ward.seen_by_spark() == before, "nothing was touched"


def test_a_table_that_no_engine_reads_because_of_a_second_registration_is_read_again(make: Make) -> None:
    ward = make()
    ward.epoch({1: "a", 2: "b"})
    ward.epoch({1: "c"})
    (file,) = [file for file in ward.live.files if file.vector is not None]
    ward.register_again(file)
    with pytest.raises(Exception, match="DV data sequence number"):
        ward.seen_by_spark()
    assert ward.fix()[Trouble.REGISTERED_TWICE].fixed
    ward.check()


def test_a_file_that_is_registered_under_two_specs_is_registered_once_again(make: Make) -> None:
    ward = make(partition=["part"])
    ward.append(rows(1, 2))
    (file,) = ward.live.files
    ward.register_again(file, spec_id=0, partition=())
    assert ward.seen_by_spark() == Counter(rows(1, 2) * 2)
    assert ward.fix()[Trouble.REGISTERED_TWICE].fixed
    assert ward.seen_by_spark() == Counter(rows(1, 2)) == ward.seen_by_pyiceberg()
    assert [entry.spec_id for entry in ward.registered.data] == [file.spec_id]


def test_a_file_whose_partitions_tell_its_columns_differently_is_left_to_a_person(make: Make) -> None:
    ward = make(partition=["part"])
    ward.add_file(("id", "name"), [(1, "a")], (0,))
    (file,) = ward.live.files
    ward.register_again(file, partition=(1,))
    before = ward.seen_by_spark()
    assert before == Counter([(1, "a", 0), (1, "a", 1)])
    assert not ward.fix()[Trouble.REGISTERED_TWICE].fixable
    assert ward.seen_by_spark() == before


def test_an_epoch_that_lands_during_the_repair_is_kept(make: Make) -> None:
    """H47: the file that is written anew has changed meanwhile, so it is read once more."""
    ward = make()
    ward.epoch({1: "a", 2: "b", 3: "c"})
    (file,) = ward.live.files
    ward.register_again(file)
    repairs = ward.repairs(lambda: ward.epoch({2: "later", 4: "d"}, deletes=[3]))
    assert repairs.register_once().snapshot_ids
    assert ward.between.calls == ["concatenate", "concatenate"]
    ward.check()


def test_an_append_during_the_repair_costs_nothing(make: Make) -> None:
    ward = make()
    ward.append(rows(1, 2))
    (file,) = ward.live.files
    ward.register_again(file)
    ward.repairs(lambda: ward.append(rows(3))).register_once()
    assert ward.between.calls == ["concatenate"]
    assert ward.seen_by_spark() == Counter(rows(1, 2, 3))


# rows in a partition that is not theirs


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("partition", ["part", "bucket(4, id)", "truncate(2, name)"])
def test_rows_in_a_wrong_partition_are_moved(make: Make, version: int, partition: str) -> None:
    """H1: what an update leaves behind that did not look where the older row lies."""
    ward = make(version=version, partition=[partition])
    ward.append([*rows(1, 2), *rows(3, part=1)])
    wrong = ward.live.files[0].partition
    ward.add_file(("id", "name", "part"), [*rows(11, 12, 13, part=1), *rows(14, part=2), (15, "", 0)], wrong)
    model = Counter([*rows(1, 2), *rows(3, part=1), *rows(11, 12, 13, part=1), *rows(14, part=2), (15, "", 0)])
    lineage = ward.lineage() if version == 3 else {}

    found = ward.examine()[Trouble.WRONG_PARTITION]
    assert (found.severity, found.fixable) == (Severity.ERROR, True)
    assert "belongs to" in found.where[0]
    fixed = ward.fix()
    assert fixed[Trouble.WRONG_PARTITION].fixed, fixed
    assert ward.seen_by_spark() == model == ward.seen_by_pyiceberg()
    assert ward.examine() == {}
    if version == 3:
        assert ward.lineage() == lineage
    where = "part = 1" if partition == "part" else "id = 12"
    counted = ward.spark.sql(f"SELECT * FROM {ward.sql} WHERE {where}").count()
    assert counted == sum(1 for row in model.elements() if (row[2] == 1 if partition == "part" else row[0] == 12))


def test_the_partition_of_every_type_is_computed_as_iceberg_does(make: Make) -> None:
    """A healthy table of every kind of partition has no finding."""
    ward = make()
    ward.run(
        "CREATE TABLE {catalog}.{name}_types (id bigint, d date, ts timestamp, tn timestamp_ntz, f double, b boolean, "
        "x binary, dec decimal(9,2), s string) USING iceberg PARTITIONED BY (days(ts), hours(tn), identity(d), "
        "identity(f), identity(b), identity(x), identity(dec), truncate(3, s), bucket(7, dec))"
    )
    ward.run(
        "INSERT INTO {catalog}.{name}_types SELECT id, date '1969-12-30' + cast(id as int), "
        "timestamp '1969-12-31 23:59:59.999999' + make_interval(0,0,0,0,cast(id as int)), "
        "timestamp_ntz '2024-02-29 12:00:00', CASE id WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN NULL "
        "ELSE id / 3D END, id % 2 = 0, CAST(CAST(id AS STRING) AS BINARY), CAST(id / 7 AS decimal(9,2)), "
        "CASE WHEN id = 3 THEN NULL ELSE concat('höß', id) END FROM range(6)"
    )
    ward.name = TableName(ward.name.namespace, f"{ward.name.name}_types")
    assert ward.diagnose().findings == ()


def test_equality_deletes_are_converted_before_rows_are_moved(make: Make) -> None:
    """A delete of the partition where the rows are put must not reach them, one that reached them still does."""
    ward = make(partition=["part"])
    spec = ward.tables.load(ward.name).spec.spec_id
    ward.add_file(("id", "name", "part"), rows(1, 2, 3, part=1), (0,))
    ward.delete_by(["id"], [(1,)])
    ward.delete_by(["id"], [(2,)], part=(1,), spec_id=spec)
    ward.delete_by(["id"], [(3,)], part=(0,), spec_id=spec)
    assert ward.seen_by_spark("id") == Counter([(2,)])
    assert ward.fix()[Trouble.WRONG_PARTITION].fixed
    assert ward.seen_by_spark("id") == Counter([(2,)])
    assert ward.seen_by_pyiceberg() == Counter(rows(2, part=1))


def test_an_older_delete_of_the_right_partition_does_not_reach_rows_that_are_moved_there(make: Make) -> None:
    """The row was alive, and stays alive."""
    ward = make(partition=["part"])
    spec = ward.tables.load(ward.name).spec.spec_id
    ward.append(rows(7, part=1))
    ward.add_file(("id", "name", "part"), rows(1, 2, part=1), (0,))
    ward.delete_by(["id"], [(2,), (7,)], part=(1,), spec_id=spec)
    assert ward.seen_by_spark("id") == Counter([(1,), (2,)])
    assert ward.fix()[Trouble.WRONG_PARTITION].fixed
    assert ward.seen_by_spark() == Counter(rows(1, 2, part=1))


def test_a_head_that_moves_while_rows_are_moved(make: Make) -> None:
    """H47, H15: an append and a global delete are passed; a delete in the file itself is read again."""
    ward = make(partition=["part"])
    ward.add_file(("id", "name", "part"), rows(1, 2, 3, part=1), (0,))
    path = ward.live.files[0].path

    def others() -> None:
        ward.append(rows(9))
        ward.delete_by(["id"], [(2,)])

    ward.repairs(others).place_rows([path])
    assert ward.between.calls == ["place"]
    assert ward.seen_by_spark() == Counter([*rows(1, 3, part=1), *rows(9)])

    ward.add_file(("id", "name", "part"), rows(21, 22, part=2), (0,))
    path = next(file.path for file in ward.live.files if file.records == 2 and file.partition == (0,))
    ward.repairs(lambda: ward.run("DELETE FROM {table} WHERE id = 21")).place_rows([path])
    assert ward.between.calls == ["place", "place"]
    assert ward.seen_by_spark() == Counter([*rows(1, 3, part=1), *rows(9), *rows(22, part=2)])


# duplicate keys


@pytest.mark.parametrize("version", [2, 3])
def test_equal_rows_of_one_key_become_one(make: Make, version: int) -> None:
    """H8: a replayed commit."""
    ward = make(version=version)
    ward.append(rows(1, 2, 3))
    ward.append(rows(2, 3, 4))
    ward.append([(3, "n3", 0), (4, "other", 0)])
    ward.run("DELETE FROM {table} WHERE id = 1")
    found = {one.fixable: one for one in ward.diagnose().findings}
    assert found[True].what.startswith("2 keys (id)")
    assert "id=2" in found[True].where[0]
    assert found[False].what.startswith("1 keys (id)")
    assert "id=4" in found[False].where[0]

    fixed, left = ward.diagnose(fix=True).findings
    assert (fixed.trouble, fixed.fixed) == (Trouble.DUPLICATE_KEYS, True)
    assert (left.trouble, left.fixable) == (Trouble.DUPLICATE_KEYS, False)
    expected = Counter([*rows(2, 3, 4), (4, "other", 0)])
    assert ward.seen_by_spark() == expected == ward.seen_by_pyiceberg()


def test_rows_that_equality_deletes_delete_are_no_duplicates(make: Make) -> None:
    ward = make(partition=["part"])
    ward.append(rows(1, 2))
    ward.delete_by(["id"], [(1,)])
    ward.append(rows(1, part=1))
    assert ward.diagnose().findings == ()


def test_a_key_that_lives_in_two_partitions_is_told_with_both(make: Make) -> None:
    """H1: an update moved the row, and its older version lives on where it was. Each lies where it belongs."""
    ward = make(partition=["part"])
    ward.append(rows(1, 2))
    ward.append([(1, "moved", 1)])
    (found,) = ward.diagnose(fix=True).findings
    assert (found.trouble, found.fixable) == (Trouble.DUPLICATE_KEYS, False)
    assert found.what == "1 keys (id) have several rows that differ, some of them in several partitions"
    assert " in part=0, " in found.where[0]
    assert found.where[0].endswith(" in part=1")


def test_rows_are_not_moved_by_a_column_that_was_dropped(make: Make) -> None:
    ward = make(partition=["bucket(4, part)"])
    ward.append(rows(1))
    there = ward.live.files[0].partition
    ward.add_file(("id", "name", "part"), [row for part in range(1, 9) for row in rows(10 + part, part=part)], there)
    ward.run("ALTER TABLE {table} DROP PARTITION FIELD bucket(4, part)")
    ward.run("ALTER TABLE {table} DROP COLUMN part")
    before = ward.snapshots
    (found,) = ward.diagnose(fix=True).findings
    assert (found.trouble, found.fixable, found.error) == (Trouble.WRONG_PARTITION, False, "")
    assert "was dropped" in found.what
    assert ward.snapshots == before


def test_a_column_with_a_default_is_not_taken_for_null(make: Make) -> None:
    ward = make()
    ward.append([(1, "a", 0)])
    table = ward.catalog.java.loadTable(ward.catalog.identifier(ward.name))
    literal = ward.catalog.iceberg.expressions.Expressions.lit(5)
    table.updateSchema().addColumn("more", ward.catalog.iceberg.types.Types.IntegerType.get(), literal).commit()
    ward.append([(1, "a", 0, None)])
    before = ward.seen_by_spark()
    assert before == Counter([(1, "a", 0, 5), (1, "a", 0, None)])
    (found,) = ward.diagnose(fix=True).findings
    assert not found.fixable, "a row of the older file has 5, not NULL"
    assert ward.seen_by_spark() == before


def test_the_last_row_of_a_key_is_never_deleted_by_two(make: Make) -> None:
    """Somebody deletes the row that was to stay, after the other one was marked."""
    ward = make(version=2)
    ward.append(rows(1, 2))
    ward.append(rows(1, 3))
    oldest = min(ward.live.files, key=lambda file: file.sequence_number)
    ward.repairs(lambda: ward.position_deletes(oldest, [oldest.path])).drop_equal_rows()
    assert ward.between.calls == ["surplus", "surplus"]
    assert ward.seen_by_spark() == Counter(rows(1, 2, 3))


# deletes


def test_dangling_deletes_of_all_kinds_go(make: Make) -> None:
    """H17."""
    ward = make()
    ward.append(rows(1, 2))
    ward.stray_vector(ward.live.files[0])
    ward.run("DELETE FROM {table} WHERE id = 1")
    (file,) = ward.live.files
    ward.settings["readers"] = ["spark"]
    before = ward.seen_by_spark()
    found = ward.examine()[Trouble.DANGLING_DELETES]
    assert (found.severity, found.fixable) == (Severity.WARNING, True)
    assert f"{file.path}.elsewhere" in found.where[0]
    assert ward.fix()[Trouble.DANGLING_DELETES].fixed
    assert ward.seen_by_spark() == before == ward.seen_by_pyiceberg()
    assert [delete.data_file for delete in ward.live.deletes] == [file.path], "the vector that deletes a row stays"


def test_position_deletes_of_several_files_dangle_if_none_of_them_lives(make: Make) -> None:
    ward = make(version=2)
    ward.append(rows(1, 2))
    ward.append(rows(3, 4))
    one, other = ward.live.files
    ward.position_deletes(one, ["gone-1.parquet", "gone-2.parquet"])
    ward.position_deletes(one, ["gone-1.parquet", other.path])
    before = ward.seen_by_spark()
    assert sum(before.values()) == 3
    assert "1 position delete files" in ward.examine()[Trouble.DANGLING_DELETES].what
    assert ward.fix()[Trouble.DANGLING_DELETES].fixed
    assert ward.seen_by_spark() == before
    assert len(ward.live.deletes) == 1


def test_an_equality_delete_that_reaches_nothing_is_found_too(make: Make) -> None:
    ward = make()
    ward.delete_by(["id"], [(1,)])
    ward.append(rows(1))
    assert "1 equality delete files" in ward.examine()[Trouble.DANGLING_DELETES].what
    ward.fix()
    assert ward.live.deletes == ()
    assert ward.seen_by_spark() == Counter(rows(1))


def test_deletes_that_a_declared_reader_cannot_read_are_converted(make: Make) -> None:
    ward = make()
    ward.append(rows(1, 2))
    ward.delete_by(["id"], [(1,)])
    assert ward.examine() == {}, "Spark reads them"
    ward.settings["readers"] = ["spark", "pyiceberg", "snowflake"]
    found = ward.examine()[Trouble.UNREADABLE_DELETES]
    assert "pyiceberg and snowflake cannot read" in found.what
    assert ward.fix()[Trouble.UNREADABLE_DELETES].fixed
    assert ward.seen_by_spark() == Counter(rows(2)) == ward.seen_by_pyiceberg()


def test_several_kinds_of_damage_are_repaired_in_one_go(make: Make) -> None:
    ward = make(partition=["part"])
    ward.append(rows(1, 2))
    (file,) = ward.live.files
    ward.add_file(("id", "name", "part"), rows(3, 4, part=1), (0,))
    ward.append(rows(1))
    ward.register_again(file)
    ward.stray_vector(file)
    ward.delete_by(["id"], [(4,)])
    ward.settings["readers"] = ["pyiceberg"]
    found = ward.fix()
    assert {trouble for trouble, one in found.items() if one.fixed} == {
        Trouble.REGISTERED_TWICE,
        Trouble.WRONG_PARTITION,
        Trouble.DUPLICATE_KEYS,
        Trouble.DANGLING_DELETES,
        Trouble.UNREADABLE_DELETES,
    }
    assert not any(one.remains for one in found.values())
    assert ward.seen_by_spark() == Counter([*rows(1, 2), *rows(3, part=1)]) == ward.seen_by_pyiceberg()
