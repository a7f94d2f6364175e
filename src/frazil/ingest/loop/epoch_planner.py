"""What a written window means for each of its tables: the epochs to publish, each following the one before.

    WrittenWindow --> a lane for each source table: its side tables' epochs, then its main table's;
                      or `together`, one lane in which each group is an epoch of all tables

The order is what makes a main table's frontier speak for its side tables, see `tables`. An epoch that a side table
publishes its main table publishes too, if need be empty: so whatever is in quarantine lies behind the main table's
frontier, and can be replayed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

from frazil.clock import Clock
from frazil.commit.admission import Coordinator
from frazil.commit.machine import EpochCommit, make_epoch_commit
from frazil.config.pipeline_config import PipelineConfig
from frazil.ingest.loop.commit_lanes import Group
from frazil.ingest.loop.target_tables import TargetTable
from frazil.ingest.write.window_writer import Targets, WrittenWindow
from frazil.model.frontier import Frontier, chain, epochs_to_publish, heartbeat_due
from frazil.model.position import Position
from frazil.model.write import DeleteMode
from frazil.sources.base import Source, TellsTimes

ALL = ""
"""The lane of everything, where an epoch of all tables is one commit."""


class EpochPlanner:
    """With `states_end`, a table publishes how far it was read even if nothing was found there."""

    def __init__(
        self,
        config: PipelineConfig,
        source: Source,
        clock: Clock,
        together: bool = False,
        states_end: bool = False,
    ) -> None:
        self._config = config
        self._source = source
        self._clock = clock
        self._together = together
        self._states_end = states_end

    def lanes(
        self, coordinator: Coordinator, written: WrittenWindow, concerned: Sequence[Targets]
    ) -> dict[str, list[Group]]:
        """What each source table publishes, in order; each epoch counts as in flight from now on."""
        first: dict[str, list[EpochCommit]] = {}
        then: dict[str, list[EpochCommit]] = {}
        for *side_tables, main_table in concerned:
            beside: set[Position] = set()
            for table in side_tables:
                made = self._chain(coordinator, written, table, ())
                beside |= {epoch_commit.upper for epoch_commit in made if epoch_commit.plan.files}
                first.setdefault(main_table.source, []).extend(made)
            then[main_table.source] = self._chain(coordinator, written, main_table, beside)
        if self._together:
            everything: list[Group] = [(epoch_commit,) for made in first.values() for epoch_commit in made]
            everything += _together(then.values())
            return {ALL: everything} if everything else {}
        lanes: dict[str, list[Group]] = {
            name: [(epoch_commit,) for epoch_commit in (*first.get(name, ()), *made)] for name, made in then.items()
        }
        return {name: groups for name, groups in lanes.items() if groups}

    def _chain(
        self, coordinator: Coordinator, written: WrittenWindow, table: TargetTable, beside: Collection[Position]
    ) -> list[EpochCommit]:
        own, window = written.found(table.index), written.window
        files = written.files(table.target)
        interval = timedelta(seconds=self._config.heartbeat)
        beat = self._states_end or heartbeat_due(table.published_at, self._clock.now(), interval)
        starts_empty, tip = table.starts_empty, table.progress.tip_position
        met = table.is_main and (self._states_end or any(report.rows for report in own))
        uuid, form = ("", None) if table.loaded is None else (table.loaded.uuid, table.loaded.form)
        epoch_commits = []
        for lower, upper in chain(tip, epochs_to_publish(window, files, tip, beat, met, beside)):
            told = self._source.time_of(upper) if isinstance(self._source, TellsTimes) else None
            frontier = Frontier(upper, self._source.resume_state(table.source, upper, own), told)
            epoch_commits.append(
                make_epoch_commit(
                    coordinator,
                    table.target,
                    uuid,
                    lower,
                    frontier,
                    files.get(upper, ()),
                    requires_empty=starts_empty and upper == window.uppers[0],
                    source=table.source,
                    vectors=table.options.mode is DeleteMode.VECTORS,
                    by_position=table.options.by_position,
                    written=form,
                )
            )
            table.hand_over(frontier)
        table.read_through(window.upper, any(report.holds_changes for report in own))
        return epoch_commits


def _together(chains: Iterable[Sequence[EpochCommit]]) -> list[Group]:
    """The epochs in order, each with all the tables that it changes."""
    groups: dict[Position, list[EpochCommit]] = {}
    for epoch_commit in sorted(
        (epoch_commit for made in chains for epoch_commit in made), key=lambda epoch_commit: epoch_commit.upper.order
    ):
        groups.setdefault(epoch_commit.upper, []).append(epoch_commit)
    return [tuple(group) for group in groups.values()]
