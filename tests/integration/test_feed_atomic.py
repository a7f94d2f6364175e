"""All tables of an epoch in one commit, and the moments at which all tables agree; on Iceberg's own REST server, on the
builtin catalog, which cannot, and across several catalogs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyspark.sql import SparkSession
from servers.faulty_proxy import Fault, FaultyProxy, faulty_proxy

from frazil.errors import ConfigError
from frazil.model.commit import Accepted
from frazil.sources.cockroachdb.position import Hlc

pytestmark = [pytest.mark.spark, pytest.mark.servers]
TABLES = ("t", "u", "v")


@pytest.fixture
def proxy(rest_uri: str) -> Iterator[FaultyProxy]:
    with faulty_proxy(rest_uri) as proxy:
        proxy.only = "/transactions/commit"
        yield proxy


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, proxy: FaultyProxy) -> Lab:
    made = Lab(spark, warehouse, namespace, tmp_path, tables=[table(name) for name in TABLES])
    made.catalog = {"type": "rest", "name": f"rest_{namespace}", "uri": proxy.uri}
    made.settings = {"atomic": "pipeline"}
    return made


def trade(lab: Lab, second: int, value: str, names: tuple[str, ...] = TABLES) -> None:
    """One epoch that changes these tables."""
    for name in names:
        rows = [upsert([n], at(second), a=n, b=value) for n in range(3)]
        lab.feed.data(at(second), [*rows, delete([9], at(second))], topic=name)
    lab.feed.resolved(at(second + 1))


def transactions(proxy: FaultyProxy) -> list[set[str]]:
    """Which tables each commit of several named."""
    found = [body for path, body in proxy.requests if path.endswith("/transactions/commit")]
    return [{change["identifier"]["name"] for change in body["table-changes"]} for body in found]


def contents(lab: Lab, moment: Hlc | None = None) -> dict[str, list[str]]:
    return {name: [row["b"] for row in lab.rows(name, moment)] for name in TABLES}


def test_the_tables_of_an_epoch_are_one_commit_with_all_requirements(lab: Lab, proxy: FaultyProxy) -> None:
    trade(lab, 1, "x")
    trade(lab, 3, "y", ("t", "v"))
    lab.run()
    assert transactions(proxy) == [{"t", "u", "v"}, {"t", "v"}]
    (first, *_) = [body for path, body in proxy.requests if path.endswith("/transactions/commit")]
    for change in first["table-changes"]:
        kinds = {requirement["type"] for requirement in change["requirements"]}
        assert kinds >= {
            "assert-table-uuid",
            "assert-ref-snapshot-id",
            "assert-current-schema-id",
            "assert-default-spec-id",
            "assert-default-sort-order-id",
        }
    assert contents(lab) == {"t": ["y"] * 3, "u": ["x"] * 3, "v": ["y"] * 3}
    assert contents(lab, at(2)) == dict.fromkeys(TABLES, ["x"] * 3)


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.CONFLICT, Fault.BROKEN])
def test_a_commit_that_landed_and_was_answered_wrongly_is_not_sent_again(
    lab: Lab, proxy: FaultyProxy, fault: Fault
) -> None:
    """H6, H43"""
    trade(lab, 1, "x")
    lab.run()
    trade(lab, 3, "y")
    proxy.fail_next(fault)
    lab.run()
    assert contents(lab) == dict.fromkeys(TABLES, ["y"] * 3)
    assert [lab.resolved(name) for name in TABLES] == [[at(2).text, at(4).text]] * 3


def test_a_table_that_moved_meanwhile_makes_all_of_them_look_again(lab: Lab, proxy: FaultyProxy) -> None:
    """H47: nobody's rows are lost, and no table is ahead of the others."""
    trade(lab, 1, "x")
    lab.run()
    trade(lab, 3, "y")
    proxy.before_next = lambda: lab.spark.sql(f"INSERT INTO {lab.sql_name('u')} VALUES (77, 'foreign')")
    lab.run()
    assert contents(lab) == {"t": ["y"] * 3, "u": ["y"] * 3 + ["foreign"], "v": ["y"] * 3}
    assert len(transactions(proxy)) == 3


def test_what_landed_in_part_is_made_whole_by_the_next_run(lab: Lab) -> None:
    """A server that died in the middle: one table shows R, the others do not. Nothing is acknowledged before all do."""
    trade(lab, 1, "x")
    lab.run()
    trade(lab, 3, "y")
    with lab.open() as pipeline:
        committer = pipeline.assembled.committer
        whole = committer.commit_many

        def dies(commits: Any) -> Any:
            committer.commit(*commits[0])
            raise SystemExit("the process dies, and the server had done one table")

        committer.commit_many = dies  # type: ignore[method-assign]
        with pytest.raises(BaseException, match="the process dies"):
            pipeline.run(once=True)
        committer.commit_many = whole  # type: ignore[method-assign]
        told = pipeline.consistent()
    assert told.resolved == at(2).text, "one table is ahead; all of them agree at the epoch before"
    assert sorted(len(lab.resolved(name)) for name in TABLES) == [1, 1, 2]
    lab.run()
    assert contents(lab) == dict.fromkeys(TABLES, ["y"] * 3)
    assert [lab.resolved(name) for name in TABLES] == [[at(2).text, at(4).text]] * 3


def test_a_server_that_says_yes_and_loses_a_table_is_not_believed(lab: Lab) -> None:
    """Only the tables prove what they hold: the epoch is published again where it is missing, and the moment at which
    all agree is told when all of them show it."""
    trade(lab, 1, "x")
    lab.run()
    trade(lab, 3, "y")
    with lab.open() as pipeline:
        committer = pipeline.assembled.committer
        whole, lied = committer.commit_many, []

        def lies(commits: Any) -> Any:
            if lied:
                return whole(commits)
            lied.append(commits[-1][0].name)
            return [*(committer.commit(*commit) for commit in commits[:-1]), Accepted(1)]

        committer.commit_many = lies  # type: ignore[method-assign]
        pipeline.run(once=True)
        newest = pipeline.consistent_epochs()[0]
    (loser,) = lied
    assert contents(lab) == dict.fromkeys(TABLES, ["y"] * 3), f"{loser} was lost"
    assert [lab.resolved(name) for name in TABLES] == [[at(2).text, at(4).text]] * 3
    assert newest.resolved == at(4).text
    assert newest.snapshots[f"{lab.namespace}.{loser}"] == lab.epochs(loser)[0].snapshot_id


def test_the_moments_at_which_all_agree_are_recorded_and_can_be_joined_in_sql(lab: Lab) -> None:
    trade(lab, 1, "x")
    lab.run()
    trade(lab, 3, "y", ("t",))
    lab.run()
    told = lab.cli("epochs", "--consistent", "--json")
    newest, oldest = json.loads(told.stdout)
    assert (newest["resolved"], oldest["resolved"]) == (at(4).text, at(2).text)
    assert newest["snapshots"][f"{lab.namespace}.u"] == oldest["snapshots"][f"{lab.namespace}.u"]
    assert newest["snapshots"][f"{lab.namespace}.t"] != oldest["snapshots"][f"{lab.namespace}.t"]
    for epoch, expected in ((oldest, "x"), (newest, "y")):
        t, u = (epoch["snapshots"][f"{lab.namespace}.{name}"] for name in ("t", "u"))
        joined = lab.spark.sql(
            f"SELECT DISTINCT l.b AS l, r.b AS r FROM {lab.sql_name('t')} VERSION AS OF {t} l "
            f"JOIN {lab.sql_name('u')} VERSION AS OF {u} r ON l.a = r.a"
        ).collect()
        assert [tuple(row) for row in joined] == [(expected, "x")]
    rows = lab.spark.sql(
        f"SELECT table, snapshot_id FROM {lab.catalog['name']}._frazil.consistent_epochs "
        f"WHERE pipeline = '{lab.namespace}' AND resolved = '{at(4).text}'"
    ).collect()
    assert {row["table"]: row["snapshot_id"] for row in rows} == newest["snapshots"]
    with lab.open() as pipeline, pytest.raises(ConfigError, match="not every table"):
        pipeline.consistent(at(99))


def test_a_catalog_that_cannot_commits_one_by_one_and_still_tells_when_all_agree(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(name) for name in TABLES])
    lab.settings = {"atomic": "pipeline"}
    trade(lab, 1, "x")
    told = lab.cli("check")
    assert told.exit_code == 0, told.output
    assert "cannot: one commit for several tables" in told.output
    assert "committed one by one, and _frazil.consistent_epochs tells" in told.output
    lab.run()
    with lab.open() as pipeline:
        assert [epoch.resolved for epoch in pipeline.consistent_epochs()] == [at(2).text]


def test_as_of_source_reads_a_position_or_a_time_and_explains_what_is_not_there(lab: Lab) -> None:
    trade(lab, 1, "x")
    trade(lab, 5, "y")
    lab.run()
    name = f"{lab.namespace}.t"
    with lab.open() as pipeline:
        time = at(5).source_time
        assert time is not None
        assert [row["b"] for row in pipeline.read(name, as_of=time).collect()] == ["x"] * 3
        assert [row["b"] for row in pipeline.read(name, as_of=at(6)).collect()] == ["y"] * 3
        assert pipeline.as_of(name, at(6)).reached
        assert not pipeline.as_of(name, at(60)).reached
    told = lab.cli("as-of", name, time.isoformat(), "--json")
    assert json.loads(told.stdout)[0]["resolved"] == at(2).text
    mistakes = {
        "1970-01-01T00:00:00Z": "the oldest epoch that can be read is",
        "yesterday": "neither a position",
        "2026-01-01T00:00:00": "no time zone",
    }
    for moment, complaint in mistakes.items():
        wrong = lab.cli("as-of", name, moment)
        assert wrong.exit_code == 2
        assert complaint in wrong.stderr


def test_tables_of_one_pipeline_lie_in_several_catalogs_and_on_several_volumes(
    spark: SparkSession, namespace: str, tmp_path: Path
) -> None:
    lab = Lab(spark, tmp_path, namespace, tmp_path, tables=[table("t"), table("u"), table("v")])
    lab.tables[1] |= {"catalog": "cold", "volume": "archive"}
    lab.tables[2] |= {"volume": "archive", "changelog": True}
    hot, cold, archive = (tmp_path / name for name in ("hot", "cold", "archive"))
    lab.settings = {
        "catalog": f"hot_{namespace}",
        "catalogs": {
            f"hot_{namespace}": {"type": "builtin", "warehouse": str(hot)},
            "cold": {"type": "builtin", "name": f"cold_{namespace}", "warehouse": str(cold)},
        },
        "volumes": {"archive": {"location": str(archive)}},
    }
    trade(lab, 1, "x")
    trade(lab, 3, "y")
    lab.run()
    names = {"t": f"hot_{namespace}", "u": f"cold_{namespace}", "v": f"hot_{namespace}"}
    for name, catalog in names.items():
        rows = spark.sql(f"SELECT b FROM {catalog}.{namespace}.{name}").collect()
        assert [row["b"] for row in rows] == ["y"] * 3
    assert spark.table(f"hot_{namespace}.{namespace}.v__changelog").count() == 8
    assert {path.name for path in (archive / namespace).iterdir()} == {"u", "v", "v__changelog"}
    assert {path.name for path in (hot / namespace).iterdir()} == {"t"}
    with lab.open() as pipeline:
        assert len(pipeline.status()) == 4
        assert [row["b"] for row in pipeline.read(f"{namespace}.u", as_of=at(2)).collect()] == ["x"] * 3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda lab: lab.tables[0].update(catalog="warm"), "'warm' is none of `catalogs`"),
        (lambda lab: lab.tables[0].update(volume="attic"), "'attic' is none of `volumes`"),
        (lambda lab: lab.catalog.update(volume="attic"), "'attic' is none of `volumes`"),
        (lambda lab: lab.settings.update(atomic="everything"), "atomic"),
    ],
)
def test_what_a_configuration_names_must_be_there(lab: Lab, change: Callable[[Lab], None], complaint: str) -> None:
    change(lab)
    told = lab.cli("check")
    assert told.exit_code == 2
    assert complaint in told.stderr


def test_a_second_pipeline_may_not_publish_to_a_table_of_another(lab: Lab) -> None:
    trade(lab, 1, "x")
    lab.run()
    owner = lab.namespace
    lab.settings = {"pipeline": "another"}
    with pytest.raises(ConfigError, match=f"belongs to the pipeline {owner}") as refused:
        lab.run()
    assert f"frazil.{owner}.ledger" in refused.value.hint
    assert lab.rows("t") != []


def test_check_says_that_the_catalog_commits_several_tables_at_once(lab: Lab) -> None:
    told = lab.cli("check")
    assert "one commit for several tables" in told.output.split("cannot:")[0]
