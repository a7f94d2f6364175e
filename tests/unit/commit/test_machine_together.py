"""Several tables in one commit: all of it landed, none of it, a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from commit_builders import Notebook, StillClock, entry, epoch_commit, head

from frazil import errors
from frazil.commit.admission import Stopped
from frazil.commit.machine import AlreadyPublished, EpochCommit, GaveUp, HeldBack, Published, Recut
from frazil.commit.publisher import publish_together
from frazil.model.commit import Accepted, CommitAnswer, CommitPlan, Conflicted, Unknown
from frazil.model.files import LiveFiles
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead

A, B, C = (TableName(("shop",), name) for name in ("a", "b", "c"))
BEFORE, AFTER = head(entry(5)), head(entry(10, 5), entry(5))


def of(table: TableName) -> EpochCommit:
    return replace(epoch_commit(5, 10), table=table)


class TwoTables:
    """A server whose answers are scripted; `lands` are the tables that each request really changes."""

    def __init__(self, *script: tuple[Sequence[TableName], CommitAnswer | Exception]) -> None:
        self.heads: dict[TableName, TableHead | Exception] = dict.fromkeys((A, B, C), BEFORE)
        self.sent: list[tuple[TableName, ...]] = []
        self._script = list(script)

    def head(self, table: TableName) -> TableHead:
        found = self.heads[table]
        if isinstance(found, Exception):
            raise found
        return found

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        raise AssertionError("nobody looks for older rows here")

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return self.commit_many([(table, head, plan)])[0]

    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> list[CommitAnswer]:
        self.sent.append(tuple(table for table, _, _ in commits))
        lands, answer = self._script.pop(0)
        self.heads |= dict.fromkeys(lands, AFTER)
        if isinstance(answer, Exception):
            raise answer
        return [answer] * len(commits)


def outcomes(server: TwoTables, *tables: TableName) -> list[type]:
    notebook = Notebook()
    found = publish_together([of(table) for table in tables], server, StillClock(), notebook)
    assert notebook.outcomes == list(found), "the observer is told the same"
    return [type(outcome) for outcome in found]


def test_all_tables_are_sent_in_one_request() -> None:
    server = TwoTables(([A, B, C], Accepted(7)))
    assert outcomes(server, A, B, C) == [Published] * 3
    assert server.sent == [(A, B, C)]


@pytest.mark.parametrize("answer", [Conflicted("409"), Unknown("timeout"), ConnectionResetError("broken")])
def test_of_a_commit_that_landed_in_part_only_the_rest_is_sent_again(answer: CommitAnswer | Exception) -> None:
    """H6, H43: whatever the server said, the tables tell what landed."""
    server = TwoTables(([B], answer), ([A, C], Accepted(8)))
    assert outcomes(server, A, B, C) == [Published, AlreadyPublished, Published]
    assert server.sent == [(A, B, C), (A, C)]


def test_a_commit_that_landed_whole_without_an_answer_is_not_sent_again() -> None:
    server = TwoTables(([A, B], Unknown("timeout")))
    assert outcomes(server, A, B) == [AlreadyPublished, AlreadyPublished]
    assert len(server.sent) == 1


def test_one_table_that_cannot_be_published_holds_back_the_others() -> None:
    server = TwoTables()
    server.heads[B] = errors.TableChanged("gone")
    assert outcomes(server, A, B, C) == [HeldBack, Stopped, HeldBack]
    server.heads[B] = head(entry(7, 5))
    assert outcomes(server, A, B, C) == [HeldBack, Recut, HeldBack]
    assert server.sent == []


def test_what_stops_after_a_part_has_landed_leaves_that_part_published() -> None:
    server = TwoTables(([A], Unknown("timeout")))
    original = server.commit_many

    def commit_many(commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> list[CommitAnswer]:
        answers = original(commits)
        server.heads[B] = errors.TableChanged("gone")
        return answers

    server.commit_many = commit_many  # type: ignore[method-assign]
    assert outcomes(server, A, B, C) == [AlreadyPublished, Stopped, HeldBack]


def test_a_server_that_never_takes_it_is_given_up() -> None:
    server = TwoTables(*[([], Conflicted("409"))] * 20)
    assert outcomes(server, A, B) == [GaveUp, GaveUp]
