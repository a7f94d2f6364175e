"""What of a table its declared readers cannot read. What they can, `config.engines` knows. Pure.

A conversion makes vectors (format 3) or position deletes (format 2) of equality deletes.
"""

from __future__ import annotations

from collections.abc import Sequence

from frazil.config.engines import REMEDIES, Ability, ReaderEngine, refusing, told_of, without
from frazil.doctor.examination import SAMPLES, Finding, Severity, Trouble
from frazil.model.files import FileKind, LiveDelete


def kind_of(delete: LiveDelete) -> Ability:
    if delete.kind is FileKind.EQUALITY_DELETE:
        return Ability.EQUALITY
    return Ability.VECTORS if delete.is_vector else Ability.POSITIONS


def unreadable_deletes(
    deletes: Sequence[LiveDelete], readers: Sequence[ReaderEngine], convertible: bool
) -> list[Finding]:
    """One finding for each kind that some declared reader cannot read, or is not known to. `convertible` if a
    conversion can take equality deletes away."""
    findings = []
    for kind in (Ability.EQUALITY, Ability.POSITIONS, Ability.VECTORS):
        there = [delete for delete in deletes if kind_of(delete) is kind]
        blind = without(readers, kind)
        if not there or not blind:
            continue
        fixable = kind is Ability.EQUALITY and convertible
        shown = tuple(delete.path for delete in there[:SAMPLES])
        findings.append(
            Finding(
                trouble=Trouble.UNREADABLE_DELETES,
                severity=Severity.ERROR if refusing(blind, kind) else Severity.WARNING,
                what=f"{len(there):,} files of {kind}; {told_of(blind, kind)}",
                where=(*shown, f"and {len(there) - SAMPLES:,} more") if len(there) > SAMPLES else shown,
                means="They refuse the table, or would show rows that are deleted.",
                next="Run it again with --fix: they are converted. `frazil maintain` and the daemon do the same."
                if fixable
                else REMEDIES[Ability.VECTORS if kind is Ability.EQUALITY else kind],
                fixable=fixable,
            )
        )
    return findings
