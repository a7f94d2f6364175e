"""A table is loaded anew on a branch and published at once: what readers of main see, and when a commit lands (H27)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from lake_builders import SHOP, column, plan, shape
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from servers.faulty_proxy import Fault, FaultyProxy, faulty_proxy

from frazil import errors
from frazil.clock import SystemClock
from frazil.coordinator.admission import Coordinator
from frazil.coordinator.frontier import At, Fresh, read_frontier
from frazil.coordinator.recovery import restated
from frazil.coordinator.resync import Adopted, Behind, Loading, NotUnderWay, clear_plan, resync_stage
from frazil.coordinator.resyncer import abandon_resync, adopt_resync, begin_resync
from frazil.lake.branches import BranchLake
from frazil.lake.catalogs import Catalog, CatalogSettings, CatalogType, open_catalog
from frazil.lake.commits import IcebergLake
from frazil.lake.history import as_of, published
from frazil.lake.session import open_session
from frazil.lake.tables import Tables
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, Refused
from frazil.model.epoch import Frontier
from frazil.model.ledger import BranchedHead, Fence, LedgerEntry, TableHead
from frazil.model.names import TableName
from frazil.model.position import Hlc
from frazil.model.write import DeleteMode, TableOptions

pytestmark = [pytest.mark.spark, pytest.mark.servers]
BRANCH = "frazil_shop_resync"
KINDS = ("builtin", "hadoop", "rest")
CLOCK = SystemClock()


@pytest.fixture(scope="module", params=KINDS)
def home(
    request: pytest.FixtureRequest, spark: SparkSession, catalog: Catalog, tmp_path_factory: pytest.TempPathFactory
) -> Catalog:
    match request.param:
        case "builtin":
            return catalog
        case "hadoop":
            warehouse = str(tmp_path_factory.mktemp("branches"))
            settings = CatalogSettings(name="hadoop_branches", type=CatalogType.HADOOP, warehouse=warehouse)
        case _:
            uri = request.getfixturevalue("rest_uri")
            settings = CatalogSettings(name="rest_branches", type=CatalogType.REST, uri=uri)
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)


def me(generation: int = 1, owner: int = 1) -> Coordinator:
    return Coordinator(
        job=SHOP, fence=Fence(generation, UUID(int=owner)), incarnation="cluster-1", config_hash="c0ffee"
    )


class Place:
    """One table, with the lake of main and the lake of its branch."""

    def __init__(self, home: Catalog, name: TableName, format_version: int = 3) -> None:
        self.home, self.name = home, name
        self.lake = IcebergLake(home)
        self.branch = BranchLake(self.lake, SHOP)
        options = TableOptions(mode=DeleteMode.EQUALITY, format_version=format_version)
        self.loaded = Tables(home).create(name, shape(), options)

    def publish(self, *arguments: Any, **options: Any) -> None:
        """An epoch on main."""
        made = plan(self.loaded, *arguments, **options)
        assert isinstance(self.lake.commit(self.name, self.lake.head(self.name), made), Accepted)

    def load(self, *arguments: Any, **options: Any) -> LedgerEntry:
        """An epoch on the branch."""
        made = plan(self.loaded, *arguments, **options)
        assert isinstance(self.branch.commit(self.name, self.branch.head(self.name), made), Accepted)
        return self.entry

    def begin(self, coordinator: Coordinator | None = None, **options: Any) -> Loading:
        return begin_resync(self.name, self.branch, coordinator or me(), CLOCK, **options)

    def adopt(self, coordinator: Coordinator | None = None) -> object:
        return adopt_resync(self.name, self.branch, coordinator or me(), CLOCK, self.entry)

    @property
    def heads(self) -> BranchedHead:
        return self.branch.heads(self.name)

    @property
    def entry(self) -> LedgerEntry:
        entry = self.branch.head(self.name).newest(SHOP)
        assert entry is not None
        return entry

    @property
    def stage(self) -> object:
        return resync_stage(self.heads, self.name, me())

    @property
    def refs(self) -> dict[str, int]:
        refs = self.lake.head(self.name).base.metadata.refs()  # type: ignore[attr-defined]
        return {name: refs[name].snapshotId() for name in refs}

    def read(self, what: str = "") -> dict[int, str]:
        rows = self.home.spark.sql(f"SELECT id, name FROM {self.home.settings.name}.{self.name.sql}{what}").collect()
        assert len({row.id for row in rows}) == len(rows), f"a key lives twice: {rows}"
        return {row.id: row.name for row in rows}

    def on_branch(self) -> dict[int, str]:
        return self.read(f".branch_{BRANCH}")

    def insert(self, key: int, name: str = "foreign") -> None:
        self.home.spark.sql(f"INSERT INTO {self.home.settings.name}.{self.name.sql} VALUES ({key}, '{name}')")

    @property
    def java(self) -> Any:
        return self.home.java.loadTable(self.home.identifier(self.name))


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
    main, refs = place.lake.head(place.name), place.refs
    files = {file.path for file in place.lake.live(place.name, main).files}
    assert place.begin() == Loading(None, None)
    assert place.lake.head(place.name) == main, "snapshots and properties"
    assert {name: id_ for name, id_ in place.refs.items() if name != BRANCH} == refs
    assert (place.read(), place.on_branch()) == (BEFORE, {})
    first = place.load(30, {2: "Bo", 4: "Di"})
    last = place.load(40, {4: "Dee", 5: "Eve"}, [4], lower=30)
    assert (first.resolved, last.resolved) == (Hlc(30), Hlc(40))
    assert place.lake.head(place.name) == main
    assert {name: id_ for name, id_ in place.refs.items() if name != BRANCH} == refs
    assert (place.read(), place.on_branch()) == (BEFORE, {2: "Bo", 4: "Dee", 5: "Eve"})
    assert {file.path for file in place.lake.live(place.name, main).files} == files


def test_after_the_adoption_everybody_reads_exactly_what_was_loaded(place: Place) -> None:
    old = place.lake.head(place.name)
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
    main = place.lake.head(place.name)
    reading = read_frontier(main, SHOP)
    assert isinstance(reading, At)
    assert (reading.entry.resolved, reading.entry.fence) == (Hlc(40), me(2).fence)
    assert main.mirror(SHOP) == reading.entry
    assert place.refs == {"main": main.snapshot_id, "frazil_shop": main.snapshot_id}
    assert old.snapshot_id in [snapshot.snapshot_id for snapshot in main.ancestry]
    place.publish(50, {2: "Bob"}, [2], lower=40, fence=me(2).fence)
    assert place.read() == {2: "Bob", 4: "Di"}


def test_the_totals_of_the_summaries_stay_true(place: Place) -> None:
    """Counted from nothing, they would be wrong or missing for as long as the table lives."""
    place.begin()
    place.load(30, {2: "Bo", 4: "Di"}, files=2)
    place.adopt()
    summary = place.lake.head(place.name).ancestry[0].summary
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
    main = place.lake.head(place.name)
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
    assert place.lake.head(place.name).snapshot_id is None
    assert place.heads.branch is not None
    assert read_frontier(place.heads.branch, SHOP) == Fresh(me().fence)
    place.load(30, {1: "Ann"})
    assert place.lake.head(place.name).snapshot_id is None
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
    main = place.lake.head(place.name)
    anew = IcebergLake(place.home).live(place.name, main)
    assert {file.path: file.deletes for file in place.lake.live(place.name, main).files} == {
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
    reading = read_frontier(place.lake.head(place.name), SHOP)
    assert isinstance(reading, At)
    assert reading.entry.resolved == Hlc(50)
    again = adopt_resync(place.name, place.branch, me(), CLOCK, loaded)
    assert again == Adopted(loaded), "found, though only the adoption itself is left of it"


def test_main_may_be_written_to_rolled_back_and_compacted_meanwhile(place: Place) -> None:
    first = place.lake.head(place.name).ancestry[-1].snapshot_id
    place.begin()
    place.insert(8)
    place.load(30, {2: "Bo"})
    place.java.manageSnapshots().rollbackTo(first).commit()
    assert place.read() == {1: "Ann", 2: "Bob", 3: "Cy"}
    loaded = place.load(40, {4: "Di"}, lower=30)
    assert place.adopt() == Adopted(loaded)
    assert place.read() == {2: "Bo", 4: "Di"}
    assert isinstance(read_frontier(place.lake.head(place.name), SHOP), At), "the rollback is healed"


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
    stale = place.lake.head(place.name)
    place.insert(8)
    answer = place.branch.begin(place.name, stale, clear_plan(me()))
    assert isinstance(answer, Conflicted), answer
    assert BRANCH not in place.refs


def test_a_beginning_that_comes_late_does_not_begin_what_has_ended(place: Place) -> None:
    """Another coordinator has done all of it meanwhile: the branch is as absent as it was, main is not the same."""
    stale = place.lake.head(place.name)
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
    main = place.lake.head(place.name)
    place.begin()
    place.load(30, {2: "Bo"})
    stale = place.branch.head(place.name)
    place.load(40, {4: "Di"}, lower=30)
    assert isinstance(place.branch.abandon(place.name, stale), Conflicted), "somebody goes on with it"
    assert BRANCH in place.refs
    abandon_resync(place.name, place.branch, me(), CLOCK)
    assert BRANCH not in place.refs
    assert place.lake.head(place.name) == main
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
    Tables(place.home).evolve(place.name, shape(column("more")).columns)
    place.load(40, {4: "Di"}, lower=30)
    place.adopt()
    rows = place.home.spark.sql(f"SELECT * FROM {place.home.settings.name}.{place.name.sql} ORDER BY id").collect()
    assert [(row.id, row.name, row.more) for row in rows] == [(2, "Bo", None), (4, "Di", None)]


def test_a_head_serves_only_the_branch_it_was_read_from(place: Place) -> None:
    place.begin()
    heads, made = place.heads, plan(place.loaded, 30, {2: "Bo"})
    assert heads.branch is not None
    with pytest.raises(TypeError):
        place.lake.commit(place.name, heads.branch, made)
    with pytest.raises(TypeError):
        place.branch.commit(place.name, heads.main, made)
    with pytest.raises(TypeError):
        place.branch.adopt(place.name, heads.main, replace(made, files=()))
    with pytest.raises(ValueError, match="published on the branch before"):
        place.branch.adopt(place.name, heads.branch, made)


def test_a_branch_of_somebody_else_is_left_alone(place: Place) -> None:
    place.java.manageSnapshots().createBranch(BRANCH, place.lake.head(place.name).snapshot_id).commit()
    refs = place.refs
    assert place.stage == NotUnderWay()
    with pytest.raises(errors.TableChanged, match="did not make"):
        place.begin()
    with pytest.raises(errors.TableChanged, match="none of this pipeline"):
        place.branch.head(place.name)
    assert place.refs == refs


# Answers that get lost on the way


@pytest.fixture(scope="module")
def proxy(rest_uri: str) -> Iterator[FaultyProxy]:
    with faulty_proxy(rest_uri) as running:
        yield running


@pytest.fixture(scope="module")
def behind_proxy(spark: SparkSession, proxy: FaultyProxy) -> Catalog:
    settings = CatalogSettings(name="proxied_branches", type=CatalogType.REST, uri=proxy.uri)
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)


@pytest.fixture(scope="module")
def direct(spark: SparkSession, rest_uri: str) -> Catalog:
    settings = CatalogSettings(name="direct_branches", type=CatalogType.REST, uri=rest_uri)
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.BROKEN, Fault.CONFLICT])
def test_what_landed_without_an_answer_is_found_and_not_sent_twice(
    behind_proxy: Catalog, proxy: FaultyProxy, namespace: str, fault: Fault
) -> None:
    """H6, H43"""
    place = Place(behind_proxy, TableName((f"lost_{namespace}",), "people"))
    place.publish(10, {1: "Ann"})
    sent = proxy.commits
    proxy.fail_next(fault)
    assert place.begin() == Loading(None, None)
    assert proxy.commits == sent + 1
    loaded = place.load(30, {2: "Bo"})
    sent = proxy.commits
    proxy.fail_next(fault)
    assert place.adopt() == Adopted(loaded)
    assert proxy.commits == sent + 1
    assert place.read() == {2: "Bo"}
    place.begin()
    sent = proxy.commits
    proxy.fail_next(fault)
    abandon_resync(place.name, place.branch, me(), CLOCK)
    assert proxy.commits == sent + 1
    assert place.refs.keys() == {"main", "frazil_shop"}


def test_the_server_is_told_all_that_must_not_have_moved(
    behind_proxy: Catalog, proxy: FaultyProxy, namespace: str
) -> None:
    place = Place(behind_proxy, TableName((f"wire_{namespace}",), "people"))
    place.publish(10, {1: "Ann"})
    main = place.refs["main"]

    def asserted() -> dict[str, int | None]:
        _, body = proxy.requests[-1]
        refs = [one for one in body["requirements"] if one["type"] == "assert-ref-snapshot-id"]
        return {one["ref"]: one["snapshot-id"] for one in refs if one["ref"] != "frazil_shop"}

    place.begin()
    assert asserted() == {"main": main, BRANCH: None}
    cleared = place.refs[BRANCH]
    place.load(30, {2: "Bo"})
    assert asserted() == {BRANCH: cleared}
    loaded = place.refs[BRANCH]
    place.adopt()
    assert asserted() == {"main": main, BRANCH: loaded}
    main = place.refs["main"]
    place.begin()
    cleared = place.refs[BRANCH]
    abandon_resync(place.name, place.branch, me(), CLOCK)
    assert asserted() == {"main": main, BRANCH: cleared}


@pytest.mark.parametrize(
    "who", ["somebody adds to main", "somebody rolls main back", "a newer coordinator begins anew"]
)
@pytest.mark.parametrize("wish", ["begin", "begin anew", "adopt", "abandon"])
def test_whoever_comes_between_look_and_commit_is_not_overwritten(
    behind_proxy: Catalog, proxy: FaultyProxy, direct: Catalog, namespace: str, wish: str, who: str
) -> None:
    """H44, H12: the others come after all that can be checked here; the server alone can tell."""
    place = Place(behind_proxy, TableName((f"race_{namespace}",), "people"))
    place.publish(10, {1: "Ann"})
    first = place.refs["main"]
    place.publish(20, lower=10)
    if wish != "begin":
        place.begin()
        place.load(30, {2: "Bo"})
    heads = place.heads
    rival = BranchLake(IcebergLake(direct), SHOP)

    def overtake() -> None:
        table = direct.java.loadTable(direct.identifier(place.name))
        if who == "somebody adds to main":
            table.newAppend().commit()
        elif who == "somebody rolls main back":
            table.manageSnapshots().rollbackTo(first).commit()
        else:
            answer = rival.begin(place.name, rival.heads(place.name).main, clear_plan(me(2)))
            assert isinstance(answer, Accepted), answer

    proxy.before_next = overtake
    match wish, heads:
        case "begin" | "begin anew", BranchedHead(main):
            answer = place.branch.begin(place.name, main, clear_plan(me()))
        case "adopt", BranchedHead(_, TableHead() as branch):
            answer = place.branch.adopt(place.name, branch, restated(place.entry, me().fence, "adopt"))
        case "abandon", BranchedHead(_, TableHead() as branch):
            answer = place.branch.abandon(place.name, branch)
    assert isinstance(answer, Conflicted), answer
    assert proxy.before_next is None, "it was sent"
    assert place.read() == {1: "Ann"}
    if who == "a newer coordinator begins anew":
        assert place.branch.head(place.name).ancestry[0].summary["frazil.fence"] == me(2).fence.text
    else:
        assert (BRANCH in place.refs) == (wish != "begin")
        assert len(place.heads.main.ancestry) == (3 if who == "somebody adds to main" else 1)
