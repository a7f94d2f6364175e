"""`maintenance:`, what keeps tables small and fast: when they are looked at, how much that may take, what stays.

maintenance:
  naptime: 60s
  budget:  {cores: 2, bytes_per_hour: 200GB}
  expire:  {max_age: 5d, max_snapshots: 200, min_snapshots: 10, keep: [daily for 30d]}
  orphans: {older_than: 3d}
  queue:   {grace: 1d}
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import time
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from frazil.config.block import ColumnNames, Settings, SortFields, named_once, problem
from frazil.config.parse_values import ByteSize, Duration, Shown, duration_text, seconds_of

PERIODS = ("hourly", "daily", "weekly", "monthly")
_KEEP = re.compile(r"(?P<period>[a-z]+)\s+for\s+(?P<span>\S+)")


def parse_keep(text: str) -> tuple[str, float]:
    """(period, seconds) of `daily for 30d`. Raises ValueError."""
    found = _KEEP.fullmatch(text.strip())
    if found is None or found["period"] not in PERIODS:
        raise ValueError(f"{text!r} must be one of {', '.join(PERIODS)}, then `for` and a duration: daily for 30d")
    seconds = seconds_of(found["span"])
    if seconds <= 0:
        raise ValueError(f"{text!r} keeps nothing")
    return found["period"], seconds


def parse_hours(text: str) -> tuple[time, time]:
    """(begin, end) of `07:30-19:00`, in UTC; the end may be on the next day. Raises ValueError."""
    first, _, last = text.partition("-")
    try:
        begin, end = _time_of_day(first), _time_of_day(last)
    except ValueError:
        raise ValueError(f"{text!r} must be two times of the day in UTC, without a time zone: 07:30-19:00") from None
    if begin == end:
        raise ValueError(f"{text!r} could be no time or all day; `enabled: false` is all day")
    return begin, end


def _time_of_day(text: str) -> time:
    found = time.fromisoformat(text.strip())
    if found.tzinfo is not None:
        raise ValueError("a time zone")
    return found


def _hours(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        parse_hours(text)
    return texts


def _keep_rules(texts: tuple[str, ...]) -> tuple[str, ...]:
    rules = [parse_keep(text) for text in texts]
    named_once(period for period, _ in rules)
    return tuple(f"{period} for {duration_text(seconds)}" for period, seconds in rules)


def _rules_text(rules: Iterable[str]) -> str:
    return f"[{', '.join(rules)}]"


class ConvertConfig(Settings):
    """Equality deletes become deletion vectors (format 3) or position deletes (format 2)."""

    min_delete_files: int = Field(
        default=1, ge=1, description="Tables with fewer equality delete files than this are left alone."
    )
    after_commits: int = Field(
        default=4,
        ge=1,
        description=(
            "Equality deletes are converted after so many commits: a reader joins each of them with all older rows, "
            "so they cannot wait for the next nap."
        ),
    )


class CompactConfig(Settings):
    """Small files of a partition become larger ones."""

    target_file_size: ByteSize = Field(default=256 << 20, ge=1 << 20, description="How large files are to become.")
    min_input_files: int = Field(
        default=10, ge=2, description="So many small files of a partition are worth a rewrite."
    )
    delete_ratio: float = Field(
        default=0.3, gt=0, le=1, description="A file of which more than this share is deleted is rewritten by itself."
    )
    rest_delete_ratio: float = Field(
        default=0.01,
        gt=0,
        le=1,
        description=(
            "The same once the stream rests: some readers slow down by any deleted row, and nobody is in the way then."
        ),
    )
    budget: ByteSize = Field(default=64 << 30, ge=1 << 20, description="The most that one run reads of a table.")
    order_by: SortFields = Field(
        default=(),
        description=(
            "Rows are sorted by these columns on the way, each with `desc` or `nulls last` if wanted. Default: a "
            "table's own sort order, if it has one; else rows stay in the order they are in. A table without such a "
            "column is not compacted, and says so."
        ),
        examples=[["customer", "created_at desc"]],
    )
    zorder_by: ColumnNames = Field(
        default=(),
        description=(
            "Rows are sorted by the bits of these columns in turn, as `[customer, created_at]`, so that queries by any "
            "of them open few files. Instead of order_by."
        ),
    )
    sorted_files: int = Field(
        default=10,
        ge=1,
        description="So many full files are sorted together at most: the more, the narrower what each of them holds.",
    )

    @model_validator(mode="after")
    def _one_order(self) -> CompactConfig:
        if self.order_by and self.zorder_by:
            both = f"rows lie in one order: order_by ({', '.join(self.order_by)})"
            raise problem(f"{both} or zorder_by ({', '.join(self.zorder_by)})", "zorder_by")
        if len(self.zorder_by) == 1:
            column = self.zorder_by[0]
            raise problem(f"{column!r} alone has no other column to take turns with: order_by: [{column}]", "zorder_by")
        return self


class ExpireConfig(Settings):
    """Which snapshots stay. Never removed: the newest epoch of any pipeline, what a tag or a branch names, and what is
    only on a branch."""

    max_age: Duration = Field(default=5 * 86400.0, ge=0, description="Older snapshots are removed.")
    max_snapshots: int = Field(
        default=200,
        ge=1,
        description=(
            "Of more snapshots than this the oldest are removed, however young: each makes metadata.json 2 KB larger, "
            "which every commit writes and every reader parses."
        ),
    )
    min_snapshots: int = Field(
        default=10, ge=1, description="So many of the newest snapshots stay, however old they are."
    )
    min_epochs: int = Field(
        default=2, ge=1, description="So many of the newest epochs of every pipeline stay, however old they are."
    )
    keep: Annotated[tuple[str, ...], AfterValidator(_keep_rules), Shown("list of rules", _rules_text)] = Field(
        default=(),
        description=(
            "The last epoch of each hour, day, week or month of the source's own time (UTC) stays for so long, by a "
            "tag `frazil_keep_<period>`; readers can name the tag."
        ),
        examples=[["daily for 30d", "monthly for 365d"]],
    )

    @property
    def rules(self) -> tuple[tuple[str, float], ...]:
        """(period, seconds) of each rule."""
        return tuple(parse_keep(text) for text in self.keep)

    @model_validator(mode="after")
    def _bounds_fit(self) -> ExpireConfig:
        if self.min_snapshots > self.max_snapshots:
            raise problem("must not be more than max_snapshots", "min_snapshots")
        return self


class OrphansConfig(Settings):
    """Files that were written and never committed."""

    older_than: Duration = Field(
        default=3 * 86400.0,
        ge=0,
        description=(
            "Only files older than this are looked at. It must be longer than anybody's commit takes, from the first "
            "file written on: also of other engines that write the same tables. An hour is the least, whatever is "
            "written here, but for files of epochs that can no longer be published."
        ),
    )


class QueueConfig(Settings):
    """`_frazil.deletion_queue`: every file that is to be deleted waits there first."""

    grace: Duration = Field(
        default=86400.0,
        ge=0,
        description="How long a file stays after nothing refers to it, for queries that are still reading it.",
    )
    batch_files: int = Field(
        default=1000, ge=1, le=100_000, description="Files that are checked once more and then deleted, at a time."
    )
    max_retries: int = Field(
        default=20, ge=0, description="A file that could not be deleted so often is given up, with a line in the log."
    )
    delete_outside: bool = Field(
        default=False,
        description=(
            "Whether files go too that lie outside of their table's own locations (its location, write.data.path, "
            "write.metadata.path): originals that somebody registered with add_files, or what was left in a former "
            "location. If not, they stay, and a line in the log says so."
        ),
    )


class BudgetConfig(Settings):
    """What maintenance may take of the machine that the stream needs too."""

    cores: int | None = Field(
        default=None, ge=1, description="Tasks of maintenance that run at once; half of all cores if nothing is said."
    )
    bytes_per_hour: ByteSize | None = Field(
        default=None,
        ge=1 << 20,
        description=(
            "What compaction may read in an hour; what is left of an hour is there in the next one. `frazil maintain` "
            "does not ask for it."
        ),
    )


class MaintenanceConfig(Settings):
    """How tables are kept small and fast while they are written."""

    enabled: bool = Field(
        default=True, description="Whether the daemon maintains its tables by itself; `frazil maintain` always can."
    )
    naptime: Duration = Field(
        default=60.0,
        ge=0.1,
        description=(
            "How often the daemon looks whether a table is due. A table without a commit for so long rests: then what "
            "is left to do is done to the end."
        ),
    )
    after_commits: int = Field(default=20, ge=1, description="A table is due after so many commits,")
    after_files: int = Field(
        default=100, ge=1, description="or when it has so many data files more than the last time,"
    )
    after_small_bytes: ByteSize = Field(
        default=256 << 20, ge=1 << 20, description="or when small files of so many bytes were added,"
    )
    after_delete_files: int = Field(default=50, ge=1, description="or so many delete files,")
    after_deletes_per_file: float = Field(
        default=3.0, gt=0, description="or so many delete files for each data file there is,"
    )
    after_delete_ratio: float = Field(
        default=0.2, gt=0, le=1, description="or when this share of all rows was deleted,"
    )
    after_snapshots: int = Field(
        default=50, ge=1, description="or when there are so many snapshots more than `expire.max_snapshots`,"
    )
    after_manifests: int = Field(default=100, ge=1, description="or so many manifests more than the last time,")
    every: Duration = Field(default=3600.0, ge=1, description="or when this time has passed.")
    max_lag: Duration = Field(
        default=300.0,
        ge=0,
        description=(
            "A table that is further behind its source than this waits until it is not; what is under way pauses "
            "after the commit it is at."
        ),
    )
    quiet_hours: Annotated[tuple[str, ...], AfterValidator(_hours), Shown("list of hours", _rules_text)] = Field(
        default=(),
        description="Hours at which the daemon maintains nothing; in UTC, written without a time zone.",
        examples=[["07:30-19:00"]],
    )
    budget: BudgetConfig = Field(default_factory=BudgetConfig, description="What maintenance may take.")
    convert: ConvertConfig = Field(default_factory=ConvertConfig, description="Equality deletes become vectors.")
    compact: CompactConfig = Field(default_factory=CompactConfig, description="Small files become larger ones.")
    expire: ExpireConfig = Field(default_factory=ExpireConfig, description="Which snapshots stay.")
    orphans: OrphansConfig = Field(default_factory=OrphansConfig, description="Files that were never committed.")
    queue: QueueConfig = Field(default_factory=QueueConfig, description="When unused files are deleted.")

    @property
    def quiet(self) -> tuple[tuple[time, time], ...]:
        return tuple(parse_hours(text) for text in self.quiet_hours)
