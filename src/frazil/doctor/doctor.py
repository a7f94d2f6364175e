"""`frazil doctor`: examines tables, tells what is wrong, and with `fix` repairs what it safely can.

    head --metadata, ledger--> manifests --> every file, looked at on Spark --> keys, searched on Spark --> findings
                                                                                                              |
    a second look <-- repairs, in the order in which they help each other  <----------- fix ------------------+
       `--> what it does not find any more is fixed

A table that cannot be read so far is a finding too: the others are examined nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.commit.frontier_check import At, Damaged, Fresh, RolledBack, read_frontier
from frazil.config.engines import ReaderEngine
from frazil.config.pipeline_config import PipelineConfig
from frazil.data.deletes.vectors import DamagedVector
from frazil.data.read.parquet import DamagedFile
from frazil.doctor import findings as doctor
from frazil.doctor.diagnosis import Diagnosis, ExaminationProgress
from frazil.doctor.examination import DuplicateKeys, Finding, Registered, Severity, Trouble
from frazil.doctor.metadata import LedgerState, LedgerView, ledger, metadata_limits
from frazil.doctor.readers import unreadable_deletes
from frazil.doctor.registered import ExaminedTables
from frazil.doctor.repairs import Repairs, Tools
from frazil.doctor.tasks import SparkExamining
from frazil.errors import BadInput, ConfigError, FrazilError, TableChanged, Terminal, Transient
from frazil.ingest.catalog_handles import CatalogHandle, Catalogs
from frazil.maintenance.compact.tasks import SparkRewriting
from frazil.maintenance.convert.planner import plan_conversion
from frazil.maintenance.convert.runner import Convert
from frazil.maintenance.convert.tasks import SparkConverting
from frazil.maintenance.runner import Maintenance
from frazil.model.files import LiveFiles
from frazil.model.ids import BadName, JobId, TableName
from frazil.model.ledger import LEDGER_PROPERTY, TableHead
from frazil.model.ports import Arbiter
from frazil.model.results import MaintenanceStep
from frazil.model.write import main_table_of
from frazil.observability.logs import Log

_EXPIRE = "expire"
LOOKS_MAX = 3
_LOST = (Trouble.MISSING_FILES, Trouble.DIFFERENT_FILES)
_LOADED_ANEW = (*_LOST, Trouble.DUPLICATE_KEYS)
_RESYNC = "To load it anew: `frazil resync CONFIG TABLE`."
_DROP_AND_RUN = (
    "To load it anew, if the changefeed has all its files since the initial scan: stop the pipeline, `frazil drop "
    "CONFIG TABLE --force`, `frazil run CONFIG`."
)
OnProgress = Callable[[ExaminationProgress], None]
_log = Log("frazil.doctor")


def _unseen(progress: ExaminationProgress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ExaminedSubject:
    """A table, and the catalog that has it."""

    table: TableName
    place: CatalogHandle


@dataclass(frozen=True, slots=True)
class _Examined:
    """What one look at a table saw."""

    snapshot_id: int | None
    registered: Registered
    looks: doctor.Looks
    keys_examined: bool
    findings: tuple[Finding, ...]


class Doctor:
    """Of the tables of a pipeline's catalogs."""

    def __init__(
        self, config: PipelineConfig, places: Catalogs, arbiter: Arbiter, spark: SparkSession, clock: Clock
    ) -> None:
        self._config = config
        self._places = places
        self._arbiter = arbiter
        self._spark = spark
        self._clock = clock

    def find(self, table: str) -> ExaminedSubject:
        """A table of any catalog of the pipeline. Raises ConfigError that names tables which are called alike."""
        try:
            wanted = TableName.parse(table)
        except BadName as error:
            raise ConfigError(str(error), hint="Name it as namespace.table.", table=table) from error
        for place in dict.fromkeys((self._places.of(wanted), *self._places.all)):
            if place.tables.exists(wanted):
                return ExaminedSubject(wanted, place)
        known = sorted({one.text for place in self._places.all for one in ExaminedTables(place.catalog).names()})
        near = get_close_matches(table, known, n=3) or [name for name in known if name.endswith(f".{wanted.name}")]
        catalogs = ", ".join(place.catalog.settings.name for place in self._places.all)
        raise ConfigError(
            f"there is no table {table} in {catalogs}",
            hint=f"Did you mean {' or '.join(near)}?"
            if near
            else f"There are: {', '.join(known[:10]) or 'no tables yet'}.",
            table=table,
        )

    def run(
        self, patients: Sequence[ExaminedSubject], *, fix: bool, on_progress: OnProgress = _unseen
    ) -> Iterator[Diagnosis]:
        """One diagnosis for each table, as they are made. Raises what catalogs and storage raise if they do not
        answer."""
        for patient in patients:
            began = self._clock.monotonic()
            try:
                yield _Examination(self, patient, on_progress).diagnose(fix=fix)
            except Terminal as error:
                yield Diagnosis(
                    table=patient.table.text,
                    snapshot_id=None,
                    data_files=0,
                    delete_files=0,
                    keys_examined=False,
                    seconds=round(self._clock.monotonic() - began, 3),
                    findings=(_unexamined(error),),
                )

    # what a visit needs

    def with_a_way(self, table: TableName, finding: Finding) -> Finding:
        """What can be mended by loading the table anew says how its source does that."""
        claim = self._config.entries.claiming(main_table_of(table))
        if finding.trouble not in _LOADED_ANEW or finding.fixable or claim is None:
            return finding
        way = _RESYNC if self._config.source.can_reload else _DROP_AND_RUN
        return replace(finding, next=f"{finding.next} {way}")

    def tools(self, place: CatalogHandle) -> Tools:
        parquet = self._config.parquet.settings
        converting = SparkConverting(self._spark, self._clock, place.locators.settings)
        return Tools(
            committer=place.committer,
            reads=ExaminedTables(place.catalog),
            examining=SparkExamining(self._spark, self._clock),
            rewriting=SparkRewriting(self._spark, self._clock),
            convert=Convert(place.committer, converting, self._clock, parquet),
            clock=self._clock,
            parquet=parquet,
        )

    def key_of(self, table: TableName) -> tuple[str, ...]:
        """What the configuration says of a table that may name no identifier fields of its own."""
        entry = self._config.entries.filling(table) if main_table_of(table) == table else None
        return entry.key if entry is not None and entry.deletes.needs_key else ()

    @property
    def readers(self) -> tuple[ReaderEngine, ...]:
        return self._config.readers

    @property
    def clock(self) -> Clock:
        return self._clock

    def expirable(self, patient: ExaminedSubject) -> int:
        """How many snapshots the configured expiry would remove now."""
        steps = self._expire(patient, dry=True)
        return sum(step.counts.get("snapshots", 0) for step in steps if not step.error)

    def expire(self, patient: ExaminedSubject) -> None:
        """Raises what the action met."""
        for step in self._expire(patient, dry=False):
            if step.error:
                raise Transient(step.error, hint=step.hint, table=patient.table.text)

    def _expire(self, patient: ExaminedSubject, *, dry: bool) -> list[MaintenanceStep]:
        if self._places.of(patient.table) is not patient.place:
            return []
        maintenance = Maintenance(self._config, self._places, self._spark, self._clock)
        return list(maintenance.run([patient.table], dry=dry, actions=(_EXPIRE,)))

    def ledgers(self, head: TableHead) -> Iterator[LedgerView]:
        """Of every pipeline that has left its ledger in the table."""
        begin, end = LEDGER_PROPERTY
        named = [
            name[len(begin) : -len(end)] for name in head.properties if name.startswith(begin) and name.endswith(end)
        ]
        told = [snapshot.summary["frazil.job-id"] for snapshot in head.ancestry if "frazil.job-id" in snapshot.summary]
        for text in dict.fromkeys((*named, *told)):
            try:
                job = JobId(text)
            except BadName:
                continue
            yield self._ledger(head, job)

    def _ledger(self, head: TableHead, job: JobId) -> LedgerView:
        match read_frontier(head, job):
            case Damaged(reason):
                return LedgerView(job=job.text, state=LedgerState.DAMAGED, reason=reason)
            case RolledBack(lost, left, starts_over):
                return LedgerView(
                    job=job.text, state=LedgerState.ROLLED_BACK, entry=left, in_property=lost, starts_over=starts_over
                )
            case Fresh():
                return LedgerView(job=job.text, state=LedgerState.FRESH)
            case At():
                tag = head.tags.get(job.tag)
                return LedgerView(
                    job=job.text,
                    state=LedgerState.AT,
                    entry=head.newest(job),
                    in_property=head.in_property(job),
                    tagged=None if tag is None else tag.snapshot_id,
                    generation=self._generation(job),
                )

    def _generation(self, job: JobId) -> int | None:
        if job != self._config.job:
            return None
        try:
            fence, _ = self._arbiter.newest(job)
        except FrazilError:
            return None
        return None if fence is None else fence.generation


class _Examination:
    """Of one table."""

    def __init__(self, doctor_: Doctor, patient: ExaminedSubject, on_progress: OnProgress) -> None:
        self._doctor = doctor_
        self._patient = patient
        self._table = patient.table
        self._on_progress = on_progress
        self._tools = doctor_.tools(patient.place)
        self._key = doctor_.key_of(patient.table)
        self._repairs = Repairs(patient.table, self._tools, self._key)

    def diagnose(self, *, fix: bool) -> Diagnosis:
        began = self._doctor.clock.monotonic()
        seen = self._examine()
        findings = seen.findings
        if fix and any(finding.fixable for finding in findings):
            failed = self._repair(seen)
            again = self._examine()
            findings = compared(seen.findings, again.findings, failed)
            seen = again
        return Diagnosis(
            table=self._table.text,
            snapshot_id=seen.snapshot_id,
            data_files=len(seen.registered.data),
            delete_files=len(seen.registered.deletes),
            keys_examined=seen.keys_examined,
            seconds=round(self._doctor.clock.monotonic() - began, 3),
            findings=findings,
        )

    def _examine(self) -> _Examined:
        """Raises what catalogs and storage raise if they do not answer, TableChanged if files keep going meanwhile."""
        for left in reversed(range(LOOKS_MAX)):
            try:
                seen = self._look()
            except TableChanged:
                # A file has gone since it was looked at: another look tells whether anybody needs it.
                if not left:
                    raise
                continue
            # What a snapshot needs may go once a newer one has taken its place, and is missed by nobody then.
            lost = any(finding.trouble in _LOST for finding in seen.findings)
            if not lost or self._tools.committer.head(self._table).snapshot_id == seen.snapshot_id:
                break
        return seen

    def _look(self) -> _Examined:
        self._tell("metadata")
        head = self._tools.committer.head(self._table)
        facts = self._committer.metadata(self._table, head)
        if metadata_limits(facts):
            facts = replace(facts, expirable=self._doctor.expirable(self._patient))
        findings = [
            *metadata_limits(facts),
            *(finding for view in self._doctor.ledgers(head) for finding in ledger(view)),
        ]
        try:
            self._tell("manifests")
            registered = self._committer.registered(self._table, head)
        except TableChanged as error:
            return _Examined(head.snapshot_id, Registered(None), doctor.Looks(), False, (*findings, _unread(error)))
        examined = self._committer.examined_table(self._table, head, self._key)
        data, deletes = doctor.to_look_at(registered)
        total = len(data) + len(deletes)
        self._tell("files", 0, total)
        looks = doctor.looks_of(
            data, deletes, self._tools.examining.look(examined, data, deletes, lambda n: self._tell("files", n, total))
        )
        troubles = doctor.unreadable_rows(registered, looks)
        lost = doctor.missing_files(registered, looks)
        findings += [
            *lost,
            *doctor.registered_twice(doctor.twice(registered, looks)),
            *doctor.two_vectors(registered),
            *doctor.wrong_partition(registered, looks, examined.table),
            *self._unreadable(head, registered),
            *doctor.dangling_deletes(doctor.dangling(registered, doctor.names_in(looks))),
        ]
        keys: DuplicateKeys | None = None
        if examined.key and lost:
            troubles.append("keys: files are missing or not as the manifests say")
        elif examined.key and doctor.is_foreign(registered):
            troubles.append("keys: some files are not Parquet")
        elif examined.key:
            self._tell("keys")
            try:
                search = self._repairs.deletes(head, registered)
                keys = self._tools.examining.duplicates(examined, registered.first, search)
            except (DamagedFile, DamagedVector) as error:
                findings += doctor.different_files([error.message])
            except BadInput as error:
                troubles.append(f"keys: {error.message}")
        if keys is not None:
            names = [field.name for field in examined.key]
            findings += doctor.duplicate_keys(keys, names, registered, examined.table.specs)
        findings += doctor.not_examined(troubles)
        findings = [self._doctor.with_a_way(self._table, finding) for finding in findings]
        return _Examined(head.snapshot_id, registered, looks, keys is not None, tuple(findings))

    def _unreadable(self, head: TableHead, registered: Registered) -> list[Finding]:
        live = LiveFiles(snapshot_id=registered.snapshot_id, files=registered.first, deletes=registered.deletes)
        plan = plan_conversion(self._tools.committer.converted_table(self._table, head), live)
        return unreadable_deletes(registered.deletes, self._doctor.readers, plan is not None and not plan.left)

    def _repair(self, seen: _Examined) -> Mapping[Trouble, str]:
        """In the order in which they help each other. What failed, with why."""
        misplaced = [file.path for file in seen.registered.first if seen.looks.of(file).misplaced]
        names = doctor.names_in(seen.looks)
        ways: dict[Trouble, Callable[[], Sequence[str]]] = {
            Trouble.REGISTERED_TWICE: lambda: self._repairs.register_once().left,
            Trouble.UNREADABLE_DELETES: self._convert,
            Trouble.WRONG_PARTITION: lambda: self._repairs.place_rows(misplaced).left,
            Trouble.DUPLICATE_KEYS: lambda: self._repairs.drop_equal_rows().left,
            Trouble.DANGLING_DELETES: lambda: self._repairs.drop_dangling(names).left,
            Trouble.METADATA: self._expire,
        }
        wanted = {finding.trouble for finding in seen.findings if finding.fixable}
        failed: dict[Trouble, str] = {}
        for trouble, repair in ways.items():
            if trouble not in wanted:
                continue
            self._tell(f"repair: {trouble}")
            try:
                left = repair()
            except FrazilError as error:
                failed[trouble] = f"{error.message} {error.hint}".strip()
                _log.warning("a repair failed", table=self._table.text, trouble=trouble.value, reason=error.message)
                continue
            if left:
                failed[trouble] = "; ".join(left)
        return failed

    def _convert(self) -> Sequence[str]:
        committer = self._tools.committer
        head = committer.head(self._table)
        plan = self._tools.convert.plan(self._table, head, committer.live(self._table, head))
        done = None if plan is None else self._tools.convert.perform(plan)
        return [] if done is None else [one.why for one in done.left]

    def _expire(self) -> Sequence[str]:
        self._doctor.expire(self._patient)
        return []

    @property
    def _committer(self) -> ExaminedTables:
        reads = self._tools.reads
        assert isinstance(reads, ExaminedTables)
        return reads

    def _tell(self, step: str, done: int = 0, total: int = 0) -> None:
        self._on_progress(ExaminationProgress(table=self._table.text, step=step, done=done, total=total))


def compared(before: Sequence[Finding], after: Sequence[Finding], failed: Mapping[Trouble, str]) -> tuple[Finding, ...]:
    """What was repaired, then what is there now. Nothing was repaired of a kind that the second look still finds: to be
    repaired, or as something that was not left to a person before."""
    by_hand = {(finding.trouble, finding.what) for finding in before if not finding.fixable}
    left = {one.trouble for one in after if one.fixable or (one.trouble, one.what) not in by_hand}
    fixed = [replace(finding, fixed=True) for finding in before if finding.fixable and finding.trouble not in left]
    told = [
        replace(finding, error=failed.get(finding.trouble, "")) if finding.fixable else finding for finding in after
    ]
    return (*fixed, *told)


def _unexamined(error: Terminal) -> Finding:
    return Finding(
        trouble=Trouble.NOT_EXAMINED,
        severity=Severity.ERROR,
        what=f"it cannot be examined: {error.message}",
        means="Nothing is known of its rows and files.",
        next=error.hint or "See what the message says, then run it again.",
    )


def _unread(error: FrazilError) -> Finding:
    return Finding(
        trouble=Trouble.MISSING_FILES,
        severity=Severity.ERROR,
        what=f"its manifests cannot be read: {error.message}",
        means="No engine can plan a query over the table's newest snapshot.",
        next="Restore the manifest, or roll the table back to a snapshot whose manifests all exist; then `frazil "
        f"rewind CONFIG TABLE`. {error.hint}".strip(),
    )
