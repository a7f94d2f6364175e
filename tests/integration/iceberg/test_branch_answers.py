"""Commits to a branch whose answers get lost on the way, and others that come between look and commit."""

from __future__ import annotations

import pytest
from branch_builders import BRANCH, CLOCK, Place, me
from iceberg_builders import SHOP
from pyspark.sql import SparkSession
from servers.faulty_proxy import Fault, FaultyProxy

from frazil.commit.recovery import restated
from frazil.commit.resync_machine import Adopted, Loading, clear_plan
from frazil.commit.resync_runner import abandon_resync
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.commits.branches import BranchCommitter
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.session import open_session
from frazil.model.commit import Accepted, Conflicted
from frazil.model.ids import TableName
from frazil.model.ledger import BranchedHead, TableHead

pytestmark = [pytest.mark.spark, pytest.mark.servers]


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
    rival = BranchCommitter(IcebergCommitter(direct), SHOP)

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
