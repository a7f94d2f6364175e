"""What an examination tells its callers: how far it is, and what it found."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.doctor.examination import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminationProgress:
    """How far an examination is: `done` of `total` files in this step; a step without files has a total of 0."""

    table: str
    step: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What an examination of one table found. With repairs: `snapshot_id` is that of the second look, and findings of
    the first one that it did not see any more are `fixed`. `keys_examined` if there is a key, and that of every row was
    read."""

    table: str
    snapshot_id: int | None
    data_files: int
    delete_files: int
    keys_examined: bool
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def remaining(self) -> tuple[Finding, ...]:
        """Those that somebody has to do something about."""
        return tuple(finding for finding in self.findings if finding.remains)
