"""Which kinds of deletes an engine reads, and what that means for the readers that a configuration declares. Pure.

    reader      equality deletes   position deletes   deletion vectors
    spark       yes                yes                yes                Iceberg 1.12
    flink       yes                yes                yes                the same library
    trino       yes                yes                yes                vectors since the versions of 2026
    duckdb      yes                yes                yes                1.5
    pyiceberg   no                 yes                yes                0.12 refuses the table
    polars      no                 yes                yes                plans a scan with PyIceberg
    snowflake   no                 yes                yes                refuses the table, error 091968

A conversion makes vectors (format 3) or position deletes (format 2) of equality deletes, which all of them read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from frazil.doctor.examination import SAMPLES, Finding, Severity, Trouble
from frazil.model.files import FileKind, LiveDelete


class DeleteKind(StrEnum):
    EQUALITY = "equality deletes"
    POSITION = "position deletes"
    VECTOR = "deletion vectors"


_ALL = frozenset(DeleteKind)
_BY_POSITION = frozenset((DeleteKind.POSITION, DeleteKind.VECTOR))
READS: Mapping[str, frozenset[DeleteKind]] = {
    "spark": _ALL,
    "flink": _ALL,
    "trino": _ALL,
    "duckdb": _ALL,
    "pyiceberg": _BY_POSITION,
    "polars": _BY_POSITION,
    "snowflake": _BY_POSITION,
}


def kind_of(delete: LiveDelete) -> DeleteKind:
    if delete.kind is FileKind.EQUALITY_DELETE:
        return DeleteKind.EQUALITY
    return DeleteKind.VECTOR if delete.is_vector else DeleteKind.POSITION


def unreadable_deletes(deletes: Sequence[LiveDelete], readers: Sequence[str], convertible: bool) -> list[Finding]:
    """One finding for each kind that some declared reader cannot read. `convertible` if a conversion can take equality
    deletes away."""
    findings = []
    for kind in DeleteKind:
        there = [delete for delete in deletes if kind_of(delete) is kind]
        blind = [reader for reader in readers if kind not in READS.get(reader, _ALL)]
        if not there or not blind:
            continue
        fixable = kind is DeleteKind.EQUALITY and convertible
        shown = tuple(delete.path for delete in there[:SAMPLES])
        findings.append(
            Finding(
                trouble=Trouble.UNREADABLE_DELETES,
                severity=Severity.ERROR,
                what=f"{len(there):,} files of {kind}, which {' and '.join(blind)} cannot read",
                where=(*shown, f"and {len(there) - SAMPLES:,} more") if len(there) > SAMPLES else shown,
                means=f"{' and '.join(blind)} refuse the table, or would show rows that are deleted.",
                next="Run it again with --fix: they are converted. `frazil maintain` and the daemon do the same."
                if fixable
                else "Rewrite the data files that they reach, so that nothing is left to delete: CALL "
                "system.rewrite_data_files in Spark.",
                fixable=fixable,
            )
        )
    return findings
