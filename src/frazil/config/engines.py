"""Which engine reads which Iceberg tables, as its makers say, and what the readers of a pipeline leave to choose. Pure.

    readers: [spark, athena]     --> format 2, because of athena; deletes by position only, because of athena
    readers: [spark, trino]      --> format 3; deletes by key where a table wants them, or where a lookup lost its races
    readers: [athena, databricks] -> no form of deletes that both read: refused, but for append-only tables

What its makers do not say, or call a preview, is not relied on, but whoever asks for it by name gets it. The facts
stand here and nowhere else: docs/reading.md shows them, and a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from frazil.model.write import DEFAULT_FORMAT_VERSION, DeleteMode, TableOptions

OLDER_FORMAT = 2


class ReaderEngine(StrEnum):
    """Engines whose abilities are known."""

    SPARK = "spark"
    FLINK = "flink"
    TRINO = "trino"
    DUCKDB = "duckdb"
    PYICEBERG = "pyiceberg"
    POLARS = "polars"
    SNOWFLAKE = "snowflake"
    ATHENA = "athena"
    REDSHIFT = "redshift"
    BIGQUERY = "bigquery"
    DATABRICKS = "databricks"
    CLICKHOUSE = "clickhouse"
    STARROCKS = "starrocks"
    DORIS = "doris"
    DREMIO = "dremio"


class Ability(StrEnum):
    """What must be read of a table. Position deletes are those of format 2, vectors those of format 3."""

    FORMAT_3 = "format 3"
    POSITIONS = "position deletes"
    VECTORS = "deletion vectors"
    EQUALITY = "equality deletes"


class Statement(StrEnum):
    """What its makers say of an ability."""

    YES = "yes"
    PREVIEW = "preview"
    UNSAID = "not said"
    NO = "no"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """`version` is the one the facts hold from, or the one that was looked at; `said` is when, `where` who."""

    version: str
    format_3: Statement
    positions: Statement
    vectors: Statement
    equality: Statement
    said: str
    where: str

    def of(self, ability: Ability) -> Statement:
        return {
            Ability.FORMAT_3: self.format_3,
            Ability.POSITIONS: self.positions,
            Ability.VECTORS: self.vectors,
            Ability.EQUALITY: self.equality,
        }[ability]


_YES, _PREVIEW, _UNSAID, _NO = Statement.YES, Statement.PREVIEW, Statement.UNSAID, Statement.NO
FACTS: Mapping[ReaderEngine, EngineFacts] = MappingProxyType(
    {
        ReaderEngine.SPARK: EngineFacts("Iceberg 1.12", _YES, _YES, _YES, _YES, "each run of the tests", "tests"),
        ReaderEngine.FLINK: EngineFacts("Iceberg 1.12", _YES, _YES, _YES, _YES, "2026-11", "the library of Spark"),
        ReaderEngine.TRINO: EngineFacts("480", _YES, _YES, _YES, _YES, "2026-03-24", "release notes of 480"),
        ReaderEngine.DUCKDB: EngineFacts("1.5.5", _YES, _YES, _YES, _YES, "each run of the tests", "tests"),
        ReaderEngine.PYICEBERG: EngineFacts("0.12", _YES, _YES, _YES, _NO, "each run of the tests", "tests"),
        ReaderEngine.POLARS: EngineFacts("PyIceberg 0.12", _YES, _YES, _YES, _NO, "2026-11", "it plans with PyIceberg"),
        ReaderEngine.SNOWFLAKE: EngineFacts(
            "managed", _YES, _YES, _YES, _NO, "2026-05-07", "release note of format 3; error 091968 of equality deletes"
        ),
        ReaderEngine.ATHENA: EngineFacts(
            "engine 3", _NO, _YES, _NO, _UNSAID, "2026-11", "AWS Prescriptive Guidance, Athena User Guide"
        ),
        ReaderEngine.REDSHIFT: EngineFacts(
            "serverless, Graviton", _YES, _YES, _YES, _UNSAID, "2026-08-31", "What's New at AWS"
        ),
        ReaderEngine.BIGQUERY: EngineFacts(
            "managed", _PREVIEW, _YES, _PREVIEW, _UNSAID, "2026-11", "Lakehouse documentation, of its own catalog"
        ),
        ReaderEngine.DATABRICKS: EngineFacts(
            "Runtime 18.0", _YES, _NO, _YES, _NO, "2026-09", "documentation of Unity Catalog"
        ),
        ReaderEngine.CLICKHOUSE: EngineFacts(
            "25.8", _PREVIEW, _YES, _PREVIEW, _YES, "2026-08", "documentation; ClickHouse/ClickHouse#110781"
        ),
        ReaderEngine.STARROCKS: EngineFacts(
            "3.2.5", _NO, _YES, _NO, _YES, "2026-07-11", "documentation; StarRocks/starrocks#76228"
        ),
        ReaderEngine.DORIS: EngineFacts("4.1.0", _YES, _YES, _YES, _YES, "2026-11", "documentation of the catalog"),
        ReaderEngine.DREMIO: EngineFacts(
            "Cloud", _PREVIEW, _YES, _PREVIEW, _UNSAID, "2026-11", "documentation of Dremio Cloud"
        ),
    }
)


def without(readers: Sequence[ReaderEngine], *abilities: Ability) -> tuple[ReaderEngine, ...]:
    """Those that are not known to have all of these."""
    return tuple(one for one in readers if any(FACTS[one].of(ability) is not Statement.YES for ability in abilities))


def refusing(readers: Sequence[ReaderEngine], *abilities: Ability) -> tuple[ReaderEngine, ...]:
    """Those that are known to lack one of these."""
    return tuple(one for one in readers if any(FACTS[one].of(ability) is Statement.NO for ability in abilities))


def abilities_of(mode: DeleteMode, format_version: int) -> tuple[Ability, ...]:
    """What a reader of such a table needs."""
    format_3 = (Ability.FORMAT_3,) if format_version >= DEFAULT_FORMAT_VERSION else ()
    match mode:
        case DeleteMode.APPEND_ONLY:
            return format_3
        case DeleteMode.EQUALITY:
            return (*format_3, Ability.EQUALITY, _positions(format_version))
        case DeleteMode.VECTORS:
            return (*format_3, _positions(format_version))


def fitted(options: TableOptions, readers: Sequence[ReaderEngine]) -> TableOptions:
    """What a table is made with, so that these engines read it. What the configuration asks for by name stays."""
    by_position = bool(without(readers, Ability.EQUALITY))
    if not options.insists_on_version and without(readers, *abilities_of(options.mode, options.format_version)):
        older = abilities_of(options.mode, OLDER_FORMAT)
        if not refusing(readers, *older):
            return replace(options, format_version=OLDER_FORMAT, by_position=by_position)
    return replace(options, by_position=by_position)


def reasons(options: TableOptions, readers: Sequence[ReaderEngine]) -> list[str]:
    """Why `fitted` chose otherwise than for a pipeline without readers, naming them; and what they may not read."""
    made = fitted(options, readers)
    said = []
    if made.format_version < options.format_version:
        blind = without(readers, *abilities_of(options.mode, options.format_version))
        said.append(f"format version {made.format_version} because of `readers:`: {told_of(blind, Ability.FORMAT_3)}")
    needed = abilities_of(made.mode, made.format_version)
    said += [
        f"{told_of(blind, ability)}, and the table is made with it: it was asked for by name"
        for ability in needed
        if (blind := without(readers, ability))
    ]
    if made.mode is DeleteMode.VECTORS and made.by_position:
        blind = without(readers, Ability.EQUALITY)
        said.append(f"rows are only deleted by position because of `readers:`: {told_of(blind, Ability.EQUALITY)}")
    return said


def contradiction(options: TableOptions, readers: Sequence[ReaderEngine]) -> tuple[str, str] | None:
    """What of an entry cannot be read by all of its readers, and the option that it is about; None if all can."""
    made = fitted(options, readers)
    if (blind := refusing(readers, Ability.EQUALITY)) and made.mode is DeleteMode.EQUALITY:
        return f"{told_of(blind, Ability.EQUALITY)}: set `deletes: vectors`, or change `readers:`", "deletes"
    needed = abilities_of(made.mode, made.format_version)
    if not (blind := refusing(readers, *needed)):
        return None
    if options.insists_on_version:
        lacking = next(ability for ability in needed if refusing(blind, ability))
        return f"{told_of(refusing(blind, lacking), lacking)}: leave it out, or change `readers:`", "format_version"
    one = told_of(refusing(readers, Ability.FORMAT_3, Ability.VECTORS), Ability.FORMAT_3)
    other = told_of(refusing(readers, Ability.POSITIONS), Ability.POSITIONS)
    return f"no form of deletes is read by all `readers:`: {one}, {other}", "deletes"


def told_of(engines: Sequence[ReaderEngine], ability: Ability) -> str:
    """`athena cannot read format 3`."""
    named = " and ".join(engines)
    if not engines:
        return ""
    if refusing(engines, ability) == tuple(engines):
        return f"{named} cannot read {ability}"
    return f"{named} {'is' if len(engines) == 1 else 'are'} not known to read {ability}"


REMEDIES: Mapping[Ability, str] = MappingProxyType(
    {
        Ability.FORMAT_3: "A table does not go back to format 2: load it anew (`frazil drop CONFIG TABLE --force`, "
        "then `frazil run`), or take the engine out of `readers:`.",
        Ability.POSITIONS: "ALTER TABLE ... SET TBLPROPERTIES ('format-version' = '3'), then rewrite the data files "
        "that they reach: CALL system.rewrite_data_files in Spark.",
        Ability.VECTORS: "Rewrite the data files that they reach, so that nothing is left to delete: CALL "
        "system.rewrite_data_files in Spark.",
        Ability.EQUALITY: "`frazil maintain` converts them, and so does the daemon.",
    }
)
"""What a table needs that is there, and has what a reader cannot read."""


def _positions(format_version: int) -> Ability:
    return Ability.VECTORS if format_version >= DEFAULT_FORMAT_VERSION else Ability.POSITIONS
