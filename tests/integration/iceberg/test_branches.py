"""A table is loaded anew on a branch and published at once: what readers of main see, and when a commit lands (H27)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from branch_builders import BRANCH, CLOCK, Place, me
from iceberg_builders import SHOP, catalog_of, column, plan, source_schema
from pyiceberg.catalog.sql import SqlCatalog

from frazil import errors
from frazil.commit.frontier_check import At, Fresh, read_frontier
from frazil.commit.recovery import restated
from frazil.commit.resync_machine import Adopted, Behind, Loading, NotUnderWay, clear_plan
from frazil.commit.resync_runner import abandon_resync, adopt_resync
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogType
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.model.commit import CommitAnswer, Conflicted, Refused
from frazil.model.frontier import Frontier
from frazil.model.ids import TableName
from frazil.model.ledger import as_of, published
from frazil.sources.cockroachdb.position import Hlc

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@pytest.fixture(scope="module", params=("builtin", "hadoop", "rest"))
def home(request: pytest.FixtureRequest) -> Catalog:
    return catalog_of(request)


@pytest.fixture
def place(home: Catalog, namespace: str) -> Place:
    """Three rows, one of them gone again, and one of somebody else."""
    made = Place(home, TableName((f"{namespace}_branches",), "people"))
    made.publish(10, {1: "Ann", 2: "Bob", 3: "Cy"}, files=2)
    made.publish(20, {2: "Bert"}, [2, 3], lower=10)
    made.insert(9)
    return made


BEFORE = {1: "Ann", 2: "Bert", 9: "foreign"}


def test_nothing_of_main_changes_until_it_is_adopted(place: Place) -> None:
    main, refs = place.committer.head(place.name), place.refs
    files = {file.path for file in place.committer.live(place.name, main).files}
    assert place.begin() == Loading(None, None)
    assert place.committer.head(place.name) == main, "snapshots and properties"
    assert {name: id_ for name, id_ in place.refs.items() if name != BRANCH} == refs
    assert (place.read(), place.on_branch()) == (BEFORE, {})
    first = place.load(30, {2: "Bo", 4: "Di"})
    last = place.load(40, {4: "Dee", 5: "Eve"}, [4], lower=30)
    assert (first.resolved, last.resolved) == (Hlc(30), Hlc(40))
    assert place.committer.head(place.name) == main
    assert {name: id_ for name, id_ in place.refs.items() if name != BRANCH} == refs
    assert (place.read(), place.on_branch()) == (BEFORE, {2: "Bo", 4: "Dee", 5: "Eve"})
    assert {file.path for file in place.committer.live(place.name, main).files} == files


def test_after_the_adoption_everybody_reads_exactly_what_was_loaded(place: Place) -> None:
    old = place.committer.head(place.name)
    place.begin()
    place.load(30, {2: "Bo"})
    loaded = place.load(40, {4: "Di"}, lower=30)
    assert place.adopt(me(2)) == Adopted(loaded)
    assert place.read() == {2: "Bo", 4: "Di"}, "what was absent from the load is gone, whoever wrote it"
    if place.home.settings.type is CatalogType.BUILTIN:
        settings = place.home.settings
        catalog = SqlCatalog("frazil", uri=f"sqlite:///{settings.database}", warehouse=str(settings.warehouse))
        rows = catalog.load_table(place.name.text).scan().to_arrow().to_pylist()
        assert {row["id"]: row["name"] for row in rows} == {2: "Bo", 4: "Di"}
    assert place.read(f" VERSION AS OF {old.snapshot_id}") == BEFORE, "time travel"
    main = place.committer.head(place.name)
    reading = read_frontier(main, SHOP)
    assert isinstance(reading, At)
    assert (reading.entry.resolved, reading.entry.fence) == (Hlc(40), me(2).fence)
    assert main.in_property(SHOP) == reading.entry
    assert place.refs == {"main": main.snapshot_id, "frazil_shop": main.snapshot_id}
    assert old.snapshot_id in [snapshot.snapshot_id for snapshot in main.ancestry]
    place.publish(50, {2: "Bob"}, [2], lower=40, fence=me(2).fence)
    assert place.read() == {2: "Bob", 4: "Di"}


def test_the_totals_of_the_summaries_stay_true(place: Place) -> None:
    """Counted from nothing, they would be wrong or missing for as long as the table lives."""
    place.begin()
    place.load(30, {2: "Bo", 4: "Di"}, files=2)
    place.adopt()
    summary = place.committer.head(place.name).ancestry[0].summary
    assert {key: summary.get(f"total-{key}") for key in ("records", "data-files", "delete-files")} == {
        "records": "2",
        "data-files": "2",
        "delete-files": "0",
    }


def test_the_history_tells_what_main_showed(place: Place) -> None:
    place.begin()
    place.load(30, {2: "Bo"})
    place.load(40, {4: "Di"}, lower=30)
    place.adopt()
    main = place.committer.head(place.name)
    told = published(main, SHOP)
    assert [(epoch.entry.resolved, epoch.entry.operation) for epoch in told] == [
        (Hlc(40), "adopt"),
        (Hlc(20), "row_delta"),
        (Hlc(10), "append"),
    ]
    half_loaded = as_of(main, SHOP, Hlc(35))
    assert half_loaded is not None
    assert half_loaded.entry.resolved == Hlc(20)


def test_an_empty_table_can_be_loaded_on_a_branch(home: Catalog, namespace: str) -> None:
    place = Place(home, TableName((f"{namespace}_empty",), "people"))
    place.begin()
    assert place.committer.head(place.name).snapshot_id is None
    assert place.heads.branch is not None
    assert read_frontier(place.heads.branch, SHOP) == Fresh(me().fence)
    place.load(30, {1: "Ann"})
    assert place.committer.head(place.name).snapshot_id is None
    place.adopt()
    assert place.read() == {1: "Ann"}
    assert place.refs.keys() == {"main", "frazil_shop"}


def test_the_files_of_a_head_are_those_of_its_branch(place: Place) -> None:
    """Whichever of the two was asked for last."""
    place.begin()
    place.load(30, {2: "Bo", 4: "Di"}, files=2)
    for _ in range(2):
        heads = place.heads
        assert heads.branch is not None
        on_branch, on_main = (place.branch.live(place.name, head) for head in (heads.branch, heads.main))
        assert (sum(file.records for file in on_branch.files), len(on_branch.files)) == (2, 2)
        assert not any(file.deletes for file in on_branch.files), "deletes went with the rows they deleted"
        assert sum(file.records for file in on_main.files) == 5
    place.load(40, {4: "Dee"}, [4], lower=30)
    heads = place.heads
    assert heads.branch is not None
    assert sorted(len(file.deletes) for file in place.branch.live(place.name, heads.branch).files) == [0, 1, 1]
    place.adopt()
    main = place.committer.head(place.name)
    anew = IcebergCommitter(place.home).live(place.name, main)
    assert {file.path: file.deletes for file in place.committer.live(place.name, main).files} == {
        file.path: file.deletes for file in anew.files
    }


def test_an_expiry_of_everything_old_leaves_the_branch_whole(place: Place) -> None:
    """H3"""
    place.begin()
    place.load(30, {2: "Bo"})
    place.load(40, {4: "Di"}, lower=30)
    place.java.expireSnapshots().commit()
    assert place.on_branch() == {2: "Bo", 4: "Di"}
    place.java.expireSnapshots().expireOlderThan(2**62).retainLast(1).cleanExpiredFiles(True).commit()
    assert place.heads.branch is not None
    assert len(place.heads.branch.ancestry) == 1
    assert (place.read(), place.on_branch()) == (BEFORE, {2: "Bo", 4: "Di"})
    assert place.stage == Loading(Frontier(Hlc(40)), place.entry)
    place.load(50, {5: "Eve"}, [2], lower=40)
    loaded = place.entry
    assert place.adopt() == Adopted(loaded)
    place.java.expireSnapshots().expireOlderThan(2**62).retainLast(1).cleanExpiredFiles(True).commit()
    assert place.read() == {4: "Di", 5: "Eve"}
    reading = read_frontier(place.committer.head(place.name), SHOP)
    assert isinstance(reading, At)
    assert reading.entry.resolved == Hlc(50)
    again = adopt_resync(place.name, place.branch, me(), CLOCK, loaded)
    assert again == Adopted(loaded), "found, though only the adoption itself is left of it"


def test_main_may_be_written_to_rolled_back_and_compacted_meanwhile(place: Place) -> None:
    first = place.committer.head(place.name).ancestry[-1].snapshot_id
    place.begin()
    place.insert(8)
    place.load(30, {2: "Bo"})
    place.java.manageSnapshots().rollbackTo(first).commit()
    assert place.read() == {1: "Ann", 2: "Bob", 3: "Cy"}
    loaded = place.load(40, {4: "Di"}, lower=30)
    assert place.adopt() == Adopted(loaded)
    assert place.read() == {2: "Bo", 4: "Di"}
    assert isinstance(read_frontier(place.committer.head(place.name), SHOP), At), "the rollback is healed"


def test_a_table_that_was_published_further_meanwhile_does_not_go_back(place: Place) -> None:
    place.begin()
    place.load(30, {2: "Bo"})
    place.publish(35, {7: "Gus"}, lower=20)
    assert isinstance(place.adopt(), Behind)
    assert place.read() == {**BEFORE, 7: "Gus"}
    place.load(40, {7: "Gus"}, lower=30)
    assert isinstance(place.adopt(), Adopted)
    assert place.read() == {2: "Bo", 7: "Gus"}


def test_a_beginning_lands_on_the_main_that_was_read_or_not_at_all(place: Place) -> None:
    """H44"""
    stale = place.committer.head(place.name)
    place.insert(8)
    answer = place.branch.begin(place.name, stale, clear_plan(me()))
    assert isinstance(answer, Conflicted), answer
    assert BRANCH not in place.refs


def test_a_beginning_that_comes_late_does_not_begin_what_has_ended(place: Place) -> None:
    """Another coordinator has done all of it meanwhile: the branch is as absent as it was, main is not the same."""
    stale = place.committer.head(place.name)
    place.begin(me(2))
    place.load(30, {2: "Bo"}, fence=me(2).fence)
    place.adopt(me(2))
    assert isinstance(place.branch.begin(place.name, stale, clear_plan(me())), Conflicted)
    with pytest.raises(errors.Fenced):
        place.begin(me())
    assert BRANCH not in place.refs


def test_an_adoption_lands_on_the_main_and_the_branch_that_were_read(place: Place) -> None:
    """H44, H12: what a zombie sends too late changes nothing."""
    place.begin()
    stale_entry = place.load(30, {2: "Bo"})
    stale = place.branch.head(place.name)
    adoption = restated(stale_entry, me().fence, "adopt")
    place.load(40, {4: "Di"}, lower=30, fence=me(2).fence)
    assert isinstance(place.branch.adopt(place.name, stale, adoption), Conflicted), "the branch has moved"
    unmoved = place.branch.head(place.name)
    place.insert(8)
    assert isinstance(place.branch.adopt(place.name, unmoved, adoption), Conflicted), "main has moved"
    assert place.read() == {**BEFORE, 8: "foreign"}
    assert place.on_branch() == {2: "Bo", 4: "Di"}
    with pytest.raises(errors.Fenced):
        place.adopt(me())
    assert isinstance(place.adopt(me(2)), Adopted)
    assert isinstance(place.branch.adopt(place.name, unmoved, adoption), Conflicted | Refused), "the branch is gone"
    assert place.read() == {2: "Bo", 4: "Di"}


def test_an_epoch_lands_on_the_branch_that_was_read(place: Place) -> None:
    """H47"""
    place.begin()
    stale = place.branch.head(place.name)
    place.load(30, {2: "Bo"})
    assert isinstance(place.branch.commit(place.name, stale, plan(place.loaded, 30, {2: "Bo"})), Conflicted)
    assert place.on_branch() == {2: "Bo"}
    before = place.branch.head(place.name)
    place.adopt()
    late: CommitAnswer = place.branch.commit(place.name, before, plan(place.loaded, 40, {4: "Di"}, lower=30))
    assert isinstance(late, Conflicted | Refused), late
    assert BRANCH not in place.refs
    with pytest.raises(errors.TableChanged, match=f"{BRANCH} is gone"):
        place.branch.head(place.name)


def test_a_load_that_is_given_up_leaves_main_as_it_was(place: Place) -> None:
    main = place.committer.head(place.name)
    place.begin()
    place.load(30, {2: "Bo"})
    stale = place.branch.head(place.name)
    place.load(40, {4: "Di"}, lower=30)
    assert isinstance(place.branch.abandon(place.name, stale), Conflicted), "somebody goes on with it"
    assert BRANCH in place.refs
    abandon_resync(place.name, place.branch, me(), CLOCK)
    assert BRANCH not in place.refs
    assert place.committer.head(place.name) == main
    assert place.read() == BEFORE
    assert place.stage == NotUnderWay()


def test_a_load_that_begins_anew_holds_nothing_of_the_first_one(place: Place) -> None:
    place.begin()
    place.load(30, {2: "Bo", 6: "Flo"})
    zombie = place.branch.head(place.name)
    assert place.begin(me(2), anew=True) == Loading(None, None)
    assert place.on_branch() == {}
    assert isinstance(place.branch.commit(place.name, zombie, plan(place.loaded, 40, {4: "Di"}, lower=30)), Conflicted)
    assert place.begin(me(2), anew=True) == Loading(None, None), "nothing is cleared twice"
    assert place.heads.branch is not None
    assert sum(s.summary.get("frazil.operation") == "resync" for s in place.heads.branch.ancestry) == 2
    place.load(50, {5: "Eve"}, fence=me(2).fence)
    place.adopt(me(2))
    assert place.read() == {5: "Eve"}


def test_columns_may_be_added_meanwhile(place: Place) -> None:
    place.begin()
    place.load(30, {2: "Bo"})
    Tables(place.home).evolve(place.name, source_schema(column("more")).columns)
    place.load(40, {4: "Di"}, lower=30)
    place.adopt()
    rows = place.home.spark.sql(f"SELECT * FROM {place.home.settings.name}.{place.name.sql} ORDER BY id").collect()
    assert [(row.id, row.name, row.more) for row in rows] == [(2, "Bo", None), (4, "Di", None)]


def test_a_head_serves_only_the_branch_it_was_read_from(place: Place) -> None:
    place.begin()
    heads, made = place.heads, plan(place.loaded, 30, {2: "Bo"})
    assert heads.branch is not None
    with pytest.raises(TypeError):
        place.committer.commit(place.name, heads.branch, made)
    with pytest.raises(TypeError):
        place.branch.commit(place.name, heads.main, made)
    with pytest.raises(TypeError):
        place.branch.adopt(place.name, heads.main, replace(made, files=()))
    with pytest.raises(ValueError, match="published on the branch before"):
        place.branch.adopt(place.name, heads.branch, made)


def test_a_branch_of_somebody_else_is_left_alone(place: Place) -> None:
    place.java.manageSnapshots().createBranch(BRANCH, place.committer.head(place.name).snapshot_id).commit()
    refs = place.refs
    assert place.stage == NotUnderWay()
    with pytest.raises(errors.TableChanged, match="did not make"):
        place.begin()
    with pytest.raises(errors.TableChanged, match="none of this pipeline"):
        place.branch.head(place.name)
    assert place.refs == refs
