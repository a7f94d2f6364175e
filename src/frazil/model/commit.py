"""A commit, described: what is to be published on exactly one head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.model.files import FileKind, LiveDelete, LiveFile, WrittenFile
from frazil.model.ids import JobId
from frazil.model.ledger import BRANCH_FACT, FORMAT, FORMAT_FACT, RESYNC, SOURCE_TIME_FACT, Fence, LedgerEntry

_POSITION_FACTS = frozenset(["frazil.batch-id", "frazil.lower", "frazil.resolved", "frazil.notes", SOURCE_TIME_FACT])


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """One snapshot with its ledger. `extra_summary` holds keys that other tools look for (`crdb.*`).

    `forget` says that no epoch of the pipeline is left in the table: the commit removes the ledger property and
    the tag instead of writing them, and its snapshot is a mark with a fence but without a position.

    `removed_deletes` are vectors that a new one of the same data file replaces; `must_exist` are data files that
    position deletes point into, which the commit asserts once more.
    """

    entry: LedgerEntry
    files: tuple[WrittenFile, ...]
    extra_summary: Mapping[str, str] = field(default_factory=dict)
    forget: bool = False
    removed_deletes: tuple[LiveDelete, ...] = ()
    must_exist: tuple[str, ...] = ()

    @property
    def summary(self) -> dict[str, str]:
        """What the snapshot's summary is to say."""
        facts = self.entry.to_summary()
        if self.forget:
            facts = {key: value for key, value in facts.items() if key not in _POSITION_FACTS}
        return {**facts, **self.extra_summary}

    @property
    def data_files(self) -> tuple[WrittenFile, ...]:
        return tuple(f for f in self.files if f.kind is FileKind.DATA)

    @property
    def delete_files(self) -> tuple[WrittenFile, ...]:
        return tuple(f for f in self.files if f.kind.deletes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceFiles:
    """One snapshot that is no epoch: the ledger, its property and its tag stay as they are, and whoever reads the
    ledger walks over it. `rewrites` if the rows stay what they are (Iceberg's operation `replace`, which readers of
    changes pass over): then files are exchanged for others, and every one that is removed must be there. Data files
    that take the place of `removed_data` get the sequence number `keeps_sequence`: newer equality deletes reach them
    (H15). New deletes get `deletes_sequence`, if it is said: they reach no newer file."""

    files: tuple[WrittenFile, ...]
    summary: Mapping[str, str]
    removed_deletes: tuple[LiveDelete, ...] = ()
    must_exist: tuple[str, ...] = ()
    rewrites: bool = False
    removed_data: tuple[LiveFile, ...] = ()
    keeps_sequence: int | None = None
    deletes_sequence: int | None = None

    def __post_init__(self) -> None:
        if "frazil.job-id" in self.summary:
            raise ValueError("a snapshot with frazil.job-id would be an epoch")
        if self.rewrites and not self.removed_deletes and not self.removed_data:
            raise ValueError("a rewrite that removes nothing changes the rows")
        if self.removed_data and (not self.rewrites or self.keeps_sequence is None):
            raise ValueError("data files are removed by a rewrite that says which deletes reach the new ones")
        if self.rewrites and not self.removed_data and any(file.kind is FileKind.DATA for file in self.files):
            raise ValueError("data files can only take the place of data files")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearPlan:
    """One snapshot that deletes every row, on the branch on which the table is then loaded anew: a mark with a fence
    but without a position."""

    job: JobId
    fence: Fence
    incarnation: str
    config_hash: str = ""
    source: str = ""

    @property
    def summary(self) -> dict[str, str]:
        """What the snapshot's summary is to say."""
        facts = {
            FORMAT_FACT: str(FORMAT),
            "frazil.job-id": self.job.text,
            "frazil.fence": self.fence.text,
            "frazil.incarnation": self.incarnation,
            "frazil.config-hash": self.config_hash,
            "frazil.operation": RESYNC,
            "frazil.source": self.source,
            BRANCH_FACT: self.job.resync_branch,
        }
        return {key: value for key, value in facts.items() if value}


@dataclass(frozen=True, slots=True)
class Accepted:
    """The catalog said yes."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Conflicted:
    """The catalog proved that the head had moved, and so nothing landed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No proof either way."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The catalog proved that nothing landed and that trying again will not help."""

    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Early(Conflicted):
    """Nothing was sent: by this machine's clock the table's last commit lies in the future, by more than the minute
    that Iceberg allows for. In so many seconds it no longer does."""

    seconds: float = 0.0

    @property
    def hint(self) -> str:
        return (
            "Set the clocks right (NTP), of this machine and of whoever else writes to the table. Until then it is "
            "tried again by itself; nothing is lost."
        )


CommitAnswer = Accepted | Conflicted | Unknown | Refused
