"""Files, manifests and metadata that are not as they were written: told by name, and repaired where that is safe."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from convert_builders import JOB
from doctor_builders import Make, rows

from frazil.doctor.duplicates import KeySearch
from frazil.doctor.examination import Severity, Trouble
from frazil.errors import StorageUnavailable

pytestmark = pytest.mark.spark


def test_files_that_are_missing_or_replaced_are_told_and_never_repaired(make: Make) -> None:
    ward = make()
    for number in range(3):
        ward.append(rows(number))
    ward.run("DELETE FROM {table} WHERE id = 9")
    gone, cut, _ = sorted(file.path for file in ward.live.files)
    os.remove(gone.removeprefix("file:"))
    with open(cut.removeprefix("file:"), "ab") as file:
        file.write(b"more")
    snapshots = ward.snapshots
    found = ward.fix()
    assert found[Trouble.MISSING_FILES].where == (gone,)
    assert cut in found[Trouble.DIFFERENT_FILES].where[0]
    assert not any(one.fixable for one in found.values())
    assert "keys: files are missing" in found[Trouble.NOT_EXAMINED].where[0]
    assert ward.snapshots == snapshots


def overwrite(path: str, offset: int, count: int) -> None:
    """The size stays."""
    with open(path.removeprefix("file:"), "r+b") as file:
        file.seek(offset, 0 if offset >= 0 else 2)
        file.write(b"\x5a" * count)


def test_a_file_with_a_destroyed_footer_is_an_error(make: Make) -> None:
    ward = make()
    ward.append(rows(1))
    ward.append(rows(2))
    damaged = ward.live.files[0].path
    overwrite(damaged, -12, 12)
    told = ward.diagnose()
    found = {finding.trouble: finding for finding in told.findings}
    assert damaged in found[Trouble.DIFFERENT_FILES].where[0]
    assert (found[Trouble.DIFFERENT_FILES].severity, found[Trouble.DIFFERENT_FILES].fixable) == (Severity.ERROR, False)
    assert "keys: files are missing or not as" in found[Trouble.NOT_EXAMINED].where[0]
    assert not told.keys_examined


def test_a_damaged_page_of_a_key_is_an_error_too(make: Make) -> None:
    """The footer is right, so only reading the keys tells."""
    ward = make()
    ward.append(rows(*range(100)))
    (file,) = ward.live.files
    overwrite(file.path, 4, 40)
    told = ward.diagnose()
    (found,) = told.findings
    assert (found.trouble, found.severity) == (Trouble.DIFFERENT_FILES, Severity.ERROR)
    assert file.path in found.where[0]
    assert not told.keys_examined


def test_a_damaged_vector_is_an_error(make: Make) -> None:
    ward = make()
    ward.append(rows(*range(10)))
    ward.run("DELETE FROM {table} WHERE id = 3")
    (vector,) = ward.live.deletes
    assert vector.offset is not None
    overwrite(vector.path, vector.offset + 10, 4)
    assert "damaged deletion vector" in ward.examine()[Trouble.DIFFERENT_FILES].where[0]


def test_storage_that_does_not_answer_is_no_finding(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows then: the command fails, and may succeed later."""
    ward = make()
    ward.append(rows(1))

    def unavailable(*_: Any) -> None:
        raise StorageUnavailable("the bucket does not answer")

    monkeypatch.setattr(KeySearch, "find", unavailable)
    with pytest.raises(StorageUnavailable, match="does not answer"):
        ward.diagnose()


def test_a_file_that_goes_after_it_was_looked_at_is_looked_for_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another snapshot by then, or missing."""
    ward = make()
    ward.append(rows(1))
    ward.append(rows(2))
    gone = ward.live.files[0].path
    search = KeySearch.find

    def find(*given: Any) -> Any:
        if os.path.exists(gone.removeprefix("file:")):
            os.remove(gone.removeprefix("file:"))
        return search(*given)

    monkeypatch.setattr(KeySearch, "find", find)
    assert ward.examine()[Trouble.MISSING_FILES].where == (gone,)


def test_a_manifest_that_is_missing_is_a_finding(make: Make) -> None:
    ward = make()
    ward.append(rows(1))
    (manifest,) = ward.spark.sql(f"SELECT path FROM {ward.sql}.manifests").collect()
    os.remove(manifest.path.removeprefix("file:"))
    (found,) = ward.diagnose().findings
    assert found.trouble is Trouble.MISSING_FILES
    assert "manifests cannot be read" in found.what


# metadata and ledger


def test_metadata_that_grew_too_large_is_told_and_expired(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.doctor.metadata.SNAPSHOTS_WARN", 5)
    ward = make()
    for number in range(6):
        ward.append(rows(number))
    found = ward.examine()[Trouble.METADATA]
    assert found.what == "6 snapshots"
    assert not found.fixable, "none of them is old enough"
    ward.settings["maintenance"] = {"expire": {"max_age": "0s", "min_snapshots": 2, "max_snapshots": 2}}
    assert ward.examine()[Trouble.METADATA].fixable
    assert ward.fix()[Trouble.METADATA].fixed
    assert ward.snapshots == 2
    assert ward.seen_by_spark() == Counter(row for number in range(6) for row in rows(number))


def test_a_ledger_that_disagrees_is_explained_and_left_alone(make: Make) -> None:
    """H4: the pipeline heals what it can with its next epoch, and a person decides about the rest."""
    ward = make()
    ward.epoch({1: "a"})
    first = ward.committer.head(ward.name).snapshot_id
    ward.epoch({2: "b"})
    ward.run("ALTER TABLE {table} DROP TAG " + JOB.tag)
    found = ward.fix()[Trouble.LEDGER]
    assert (found.severity, found.fixable) == (Severity.WARNING, False)
    assert f"the tag {JOB.tag} is gone" in found.what

    ward.run("ALTER TABLE {table} UNSET TBLPROPERTIES ('" + JOB.ledger_property + "')")
    assert "is gone; the tag" in ward.fix()[Trouble.LEDGER].what
    ward.epoch({3: "c"})
    assert ward.examine() == {}, "the next epoch has written both"

    ward.run(f"CALL {{catalog}}.system.rollback_to_snapshot('{{name}}', {first})")
    found = ward.fix()[Trouble.LEDGER]
    assert (found.severity, found.fixable) == (Severity.ERROR, False)
    assert "frazil rewind CONFIG TABLE" in found.next
