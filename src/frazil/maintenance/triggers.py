"""When a table should be maintained, how far, and why: a decision over numbers that are in memory. Pure.

    loads, is in trouble, lags; maintained a moment ago --> not now
    snapshots beyond those that stay, an hour ---------> everything: also expire, sweep, delete
    no commit for a naptime, something left to do -----> rewrites, to the end: nobody is in the way
    grown by commits, files, bytes, deletes, manifests -> rewrites
    equality deletes of a few commits -----------------> convert alone

Whether an action is worth it is for its own plan to say; here only when to look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time

from frazil.config.maintenance import MaintenanceConfig
from frazil.config.parse_values import bytes_text
from frazil.ingest.loop.table_stats import Added, TableStats
from frazil.maintenance.compact.planner import CompactSettings
from frazil.model.state import TableState

CONVERT = ("convert",)
REWRITE = (*CONVERT, "compact", "manifests")
CLEAN = ("expire", "sweep")
EVERYTHING = (*REWRITE, *CLEAN, "delete")
PAUSE = 3.0
"""So many times as long as its last maintenance took, a table is left alone: at most a quarter of the time. Conversions
have another quarter: while they wait for a compaction's pause, readers pay for it, and the next one takes longer."""
NEAT_MANIFESTS = 1
_SMALL_RATIO = CompactSettings().small_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What is known of a table without asking anybody.

    `idle` are seconds since its last commit, `silent` since anything was read for it or was on its way. `seconds` since
    anything was done to it, of which converting took `convert_took`; `looked` since its files were looked at, which
    took `look_took`; `cleaned` since its snapshots were; all of them since the daemon began if never. Commits, what was
    `added` and `before` count from the last look at its files, `unconverted` commits from the last conversion.
    `finished` if that look was to the end and left nothing.
    """

    state: TableState = TableState.STEADY_STATE
    lag: float | None = None
    idle: float = 0.0
    silent: float = 0.0
    seconds: float = 0.0
    convert_took: float = 0.0
    looked: float = 0.0
    look_took: float = 0.0
    cleaned: float = 0.0
    commits: int = 0
    unconverted: int = 0
    added: Added = field(default_factory=Added)
    stats: TableStats = field(default_factory=TableStats)
    before: TableStats = field(default_factory=TableStats)
    snapshots_before: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Due:
    """`finish` if everything that is left is to be done, however little it is."""

    reason: str
    actions: tuple[str, ...]
    finish: bool = False

    def only(self, actions: Collection[str]) -> Due:
        """As much of it as these are."""
        return replace(self, actions=tuple(action for action in self.actions if action in actions))


def due(activity: Activity, settings: MaintenanceConfig) -> Due | None:
    """What should be done now, and why; None if nothing."""
    if not may_be_disturbed(activity, settings):
        return None
    rests = activity.idle >= settings.naptime
    if activity.looked >= max(settings.naptime, PAUSE * activity.look_took):
        if (reason := next(_uncleaned(activity, settings), None)) is not None:
            return Due(reason, EVERYTHING, finish=rests)
        if rests and not is_finished(activity):
            return Due("the stream rests", REWRITE, finish=True)
        if (reason := next(_grown(activity, settings), None)) is not None:
            return Due(reason, REWRITE)
    has_many = activity.stats.equality_deletes > 0 and activity.unconverted >= settings.convert.after_commits
    if has_many and activity.seconds >= PAUSE * activity.convert_took:
        return Due(f"equality deletes of {activity.unconverted} commits", CONVERT)
    return None


def may_be_disturbed(activity: Activity, settings: MaintenanceConfig) -> bool:
    """Not while it loads, is in trouble, or lags."""
    return activity.state is TableState.STEADY_STATE and not is_behind(activity.lag, activity.silent, settings)


def is_behind(lag: float | None, silent: float, settings: MaintenanceConfig) -> bool:
    """A source of which nothing was there to read for as long is silent, and nobody is behind it."""
    return lag is not None and lag > settings.max_lag and silent <= settings.max_lag


def is_finished(activity: Activity) -> bool:
    """Whether a reader could not be served better: the last look was to the end, or there was nothing to do."""
    now = activity.stats
    is_neat = now.delete_files == 0 and now.data_files <= 1 and now.manifests <= NEAT_MANIFESTS
    return activity.added.commits == 0 and (activity.finished or is_neat)


def debt(activity: Activity) -> str:
    """What has come since the table was looked at, in words; nothing if that was little."""
    now, before = activity.stats, activity.before
    counted = {
        "commits": activity.commits,
        "data files": now.data_files - before.data_files,
        "delete files": now.delete_files - before.delete_files,
        "manifests": now.manifests - before.manifests,
    }
    return ", ".join(f"{count:,} {name}" for name, count in counted.items() if count > 0)


def is_quiet(now: datetime, hours: Sequence[tuple[time, time]]) -> bool:
    """Whether nothing may be done at this hour (UTC); a span may reach past midnight."""
    at = now.time()
    return any(begin <= at < end if begin <= end else at >= begin or at < end for begin, end in hours)


def _uncleaned(activity: Activity, settings: MaintenanceConfig) -> Iterator[str]:
    snapshots, most = activity.stats.snapshots, settings.expire.max_snapshots
    if snapshots - max(most, activity.snapshots_before) >= settings.after_snapshots:
        yield f"{snapshots} snapshots, of which {most} stay"
    if activity.cleaned >= settings.every:
        yield f"{activity.cleaned:.0f} s since everything was looked at"


def _grown(activity: Activity, settings: MaintenanceConfig) -> Iterator[str]:
    now, before, added = activity.stats, activity.before, activity.added
    if activity.commits >= settings.after_commits:
        yield f"{activity.commits} commits"
    if (files := now.data_files - before.data_files) >= settings.after_files:
        yield f"{files} data files more"
    small = _SMALL_RATIO * settings.compact.target_file_size
    if added.files and added.size / added.files < small and added.size >= settings.after_small_bytes:
        yield f"{bytes_text(added.size >> 20 << 20)} in {added.files} small files"
    if (files := now.delete_files - before.delete_files) >= settings.after_delete_files:
        yield f"{files} delete files more"
    if now.deletes_per_file - before.deletes_per_file >= settings.after_deletes_per_file:
        yield f"{now.deletes_per_file:.1f} delete files for each data file"
    if now.delete_ratio - before.delete_ratio >= settings.after_delete_ratio:
        yield f"{now.delete_ratio:.0%} of the rows are deleted"
    if (manifests := now.manifests - before.manifests) >= settings.after_manifests:
        yield f"{manifests} manifests more"
