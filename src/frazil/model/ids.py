"""Names that outlive a process: pipelines, tables, batches, paths, ledger keys.

A path has a deterministic prefix to sweep and a leaf that is never used twice:

    <location>/data/frazil_job=<job>/epoch=<R>/fence=<gen>-<owner8>/shard=<n>/data-<attempt>-<seq>.parquet
                                                                      .../deletes/eqdel-<attempt>-<seq>.parquet
                                                                      .../partial/partial-<attempt>-<seq>.parquet
    what a coordinator adds when it publishes:                          /vectors/vectors-<attempt>.puffin
                                                                        /deletes/posdel-<attempt>-<seq>.parquet
    what maintenance writes:  <location>/data/frazil_maintenance/<action>=<uuid>/...
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import NAMESPACE_URL, UUID, uuid5

from frazil.model.position import Position

_JOB = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_PART = re.compile(r"[^.\s/`]+")

SYSTEM_NAMESPACE = "_frazil"
PLAIN_SYSTEM_NAMESPACE = "frazil_system"
"""For catalogs in which a name begins with a letter (Amazon S3 Tables and its like)."""


class BadName(ValueError):
    """A name that cannot serve as part of a path, a tag or a table identifier."""


@dataclass(frozen=True, order=True, slots=True)
class JobId:
    """The configured pipeline name: the identity of the ledger, never a process id."""

    text: str

    def __post_init__(self) -> None:
        if not _JOB.fullmatch(self.text):
            raise BadName(
                f"pipeline name {self.text!r} must start with a letter and hold up to 63 letters, digits, '_' or '-'"
            )

    def __str__(self) -> str:
        return self.text

    @property
    def ledger_property(self) -> str:
        return f"frazil.{self.text}.ledger"

    @property
    def fence_property(self) -> str:
        return f"frazil.{self.text}.fence"

    @property
    def source_property(self) -> str:
        """Beside the fence: what the source asked to be kept."""
        return f"frazil.{self.text}.source"

    @property
    def taken_property(self) -> str:
        """Beside the fence: who took it, and when."""
        return f"frazil.{self.text}.taken"

    @property
    def tag(self) -> str:
        return f"frazil_{self.text}"

    @property
    def resync_property(self) -> str:
        """Set on a table that somebody wants loaded anew; or, with the value `cancel`, no longer."""
        return f"frazil.{self.text}.resync"

    @property
    def resync_branch(self) -> str:
        """Where a table is loaded anew before main shows it."""
        return f"frazil_{self.text}_resync"


@dataclass(frozen=True, order=True, slots=True)
class TableName:
    """A target table: at least one namespace level and a name."""

    namespace: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        parts = (*self.namespace, self.name)
        if len(parts) < 2 or not all(_PART.fullmatch(part) for part in parts):
            raise BadName(f"table {'.'.join(parts)!r} must be written namespace.table, without spaces, '/' or '`'")

    @classmethod
    def parse(cls, text: str) -> TableName:
        *namespace, name = text.split(".")
        return cls(tuple(namespace), name)

    @property
    def text(self) -> str:
        return ".".join((*self.namespace, self.name))

    @property
    def is_reserved(self) -> bool:
        """Whether it could be a table of our own: some catalogs do not tell upper from lower case."""
        return self.namespace[0].lower() in (SYSTEM_NAMESPACE, PLAIN_SYSTEM_NAMESPACE)

    @property
    def sql(self) -> str:
        """Quoted for Spark SQL, without the catalog."""
        return ".".join(f"`{part}`" for part in (*self.namespace, self.name))

    def __str__(self) -> str:
        return self.text


def batch_id(job: JobId, table: TableName, resolved: Position) -> UUID:
    """Names one epoch of one table forever."""
    return uuid5(NAMESPACE_URL, f"frazil:{job}:{table}:{resolved.text}")


def epoch_prefix(data_location: str, job: JobId, resolved: Position, fence_label: str) -> str:
    """All files that one coordinator writes for one epoch of a table lie below this."""
    return f"{data_location}/frazil_job={job}/epoch={resolved.text}/fence={fence_label}"


def replay_folder(data_location: str, job: JobId, replay: UUID) -> str:
    """All files that a replay from quarantine writes for one table lie below this."""
    return f"{data_location}/frazil_job={job}/replay={replay}"


def maintenance_folder(data_location: str, action: str, run: UUID) -> str:
    """All files that one run of a maintenance action writes for one table lie below this."""
    return f"{data_location}/frazil_maintenance/{action}={run}"


def data_path(prefix: str, shard: int, attempt: str, sequence: int) -> str:
    return f"{prefix}/shard={shard}/data-{attempt}-{sequence}.parquet"


def equality_delete_path(prefix: str, shard: int, attempt: str, sequence: int) -> str:
    return f"{prefix}/shard={shard}/deletes/eqdel-{attempt}-{sequence}.parquet"


def partial_path(prefix: str, shard: int, attempt: str, sequence: int) -> str:
    """Of rows that a coordinator completes; the file itself is never part of a table."""
    return f"{prefix}/shard={shard}/partial/partial-{attempt}-{sequence}.parquet"


def vectors_path(prefix: str, attempt: str) -> str:
    return f"{prefix}/vectors/vectors-{attempt}.puffin"


def position_delete_path(prefix: str, attempt: str, sequence: int) -> str:
    return f"{prefix}/deletes/posdel-{attempt}-{sequence}.parquet"


def key_delete_path(prefix: str, attempt: str, sequence: int) -> str:
    """Of equality deletes that a coordinator writes, not a worker's shard."""
    return f"{prefix}/deletes/eqdel-{attempt}-{sequence}.parquet"


def prefix_of(path: str) -> str:
    """The epoch's prefix, of a path that a worker wrote."""
    prefix, found, _ = path.rpartition("/shard=")
    if not found:
        raise BadName(f"{path!r} does not lie below an epoch's prefix")
    return prefix
