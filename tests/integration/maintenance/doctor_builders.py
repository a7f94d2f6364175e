"""A table that somebody damages for real, and the doctor who examines it.

twice(...), misplace(...), stray_vector() ...   damage, done as other programs would: iceberg-java, Spark, bare files
examine(), fix()                                what `frazil doctor` does, by kind of finding
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID as Uuid

import yaml
from compact_builders import Yard
from convert_builders import JOB
from pyroaring import BitMap64

from frazil.app.pipeline import Pipeline
from frazil.config.load import load_config
from frazil.data.deletes.positions import write_positions
from frazil.data.deletes.vectors import write_puffin
from frazil.doctor.diagnosis import Diagnosis
from frazil.doctor.examination import ExaminedTable, Finding, Folder, Placed, Registered, Surplus, Trouble
from frazil.doctor.registered import ExaminedTables
from frazil.doctor.repairs import Repairs, Tools
from frazil.doctor.tasks import SparkExamining
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.maintenance.compact.tasks import SparkRewriting
from frazil.maintenance.convert.runner import Convert
from frazil.maintenance.convert.tasks import SparkConverting
from frazil.model.commit import Accepted, ReplaceFiles
from frazil.model.compaction import Carried, Moved, Reprojected, Rewrite, RewriteResult
from frazil.model.conversion import Search
from frazil.model.files import FileClosed, FileKind, LiveFile
from frazil.model.ids import TableName
from frazil.model.write import ParquetSettings
from frazil.sources.cockroachdb.position import Hlc

_numbers = itertools.count(1)
Act = Callable[[], object]


class Ward(Yard):
    """One table, a configuration that knows its catalog, and a doctor."""

    def __init__(self, catalog: Catalog, name: TableName, folder: Path, **options: Any) -> None:
        super().__init__(catalog, name, folder, **options)
        self._folder = folder
        self.settings: dict[str, Any] = {}

    @property
    def config(self) -> Path:
        feed = self._folder / "feed"
        feed.mkdir(exist_ok=True)
        settings = self.catalog.settings
        document = {
            "pipeline": JOB.text,
            "source": {"type": "cockroachdb", "feed": str(feed)},
            "catalog": {"type": "builtin", "name": settings.name, "warehouse": str(settings.warehouse)},
            "tables": [{"source": "t", "target": self.name.text}],
            **self.settings,
        }
        path = self._folder / "shop.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return path

    # the doctor

    def diagnose(self, *, fix: bool = False) -> Diagnosis:
        with Pipeline(load_config(self.config), spark=self.spark) as pipeline:
            (found,) = pipeline.doctor([self.name.text], fix=fix)
        return found

    def examine(self) -> dict[Trouble, Finding]:
        return {finding.trouble: finding for finding in self.diagnose().findings}

    def fix(self) -> dict[Trouble, Finding]:
        return {finding.trouble: finding for finding in self.diagnose(fix=True).findings}

    def repairs(self, *acts: Act) -> Repairs:
        """Repairs during which others get a chance: after Spark's part, before the commit."""
        between = Between(SparkExamining(self.spark, self.clock), SparkRewriting(self.spark, self.clock), list(acts))
        self.between = between
        tools = Tools(
            committer=self.committer,
            reads=ExaminedTables(self.catalog),
            examining=between,
            rewriting=between,
            convert=Convert(self.committer, SparkConverting(self.spark, self.clock), self.clock),
            clock=self.clock,
            parquet=ParquetSettings(),
        )
        return Repairs(self.name, tools)

    @property
    def registered(self) -> Registered:
        return ExaminedTables(self.catalog).registered(self.name, self.committer.head(self.name))

    @property
    def snapshots(self) -> int:
        return len(self.committer.head(self.name).ancestry)

    # damage

    def register_again(
        self, *files: LiveFile, spec_id: int | None = None, partition: tuple[Any, ...] | None = None
    ) -> None:
        """As a writer does that appends once more what it had appended; elsewhere if that is given."""
        table = self.catalog.java.loadTable(self.catalog.identifier(self.name))
        append = table.newAppend()
        mapper, parser = self.catalog.iceberg.util.JsonUtil.mapper(), self.catalog.iceberg.ContentFileParser
        for file in files:
            entry = {
                "spec-id": file.spec_id if spec_id is None else spec_id,
                "content": "data",
                "file-path": file.path,
                "file-format": "parquet",
                "partition": list(file.partition if partition is None else partition),
                "file-size-in-bytes": file.size,
                "record-count": file.records,
            }
            append.appendFile(parser.fromJson(mapper.readTree(json.dumps(entry)), table.specs()))
        append.commit()

    def stray_vector(self, like: LiveFile) -> None:
        """A vector for a data file that the table does not have."""
        path = f"{self.tables.load(self.name).data_location}/foreign/stray-{next(_numbers)}.puffin"
        puffin = write_puffin(path, {f"{like.path}.elsewhere": BitMap64([0])}, {})
        self._commit(like, path=path, records=1, size=puffin.size, digest=puffin.digest, vector=puffin.blobs[0])

    def position_deletes(self, like: LiveFile, names: Iterable[str]) -> None:
        """A position delete file that deletes the first row of each of these data files."""
        path = f"{self.tables.load(self.name).data_location}/foreign/stray-{next(_numbers)}.parquet"
        closed = write_positions(path, {name: BitMap64([0]) for name in names}, ParquetSettings(), {})
        facts = {"records": closed.records, "size": closed.size, "digest": closed.digest, "metrics": closed.metrics}
        self._commit(like, path=path, **facts)

    def _commit(self, like: LiveFile, **facts: Any) -> None:
        message = FileClosed(
            table=self.name,
            epoch=Hlc(0),
            batch_id=Uuid(int=0),
            worker=0,
            schema_id=self.tables.load(self.name).schema.schema_id,
            spec_id=like.spec_id,
            partition=like.partition,
            kind=FileKind.POSITION_DELETE,
            **facts,
        )
        answer = self.committer.repair(
            self.name, self.committer.head(self.name), ReplaceFiles(files=(message,), summary={})
        )
        assert isinstance(answer, Accepted), answer


@dataclass
class Between:
    """Spark's part of repairs, after which others get a chance."""

    inner: SparkExamining
    rewriting: SparkRewriting
    acts: list[Act]
    calls: list[str] = field(default_factory=list)

    def look(self, *arguments: Any, **options: Any) -> Any:
        return self.inner.look(*arguments, **options)

    def duplicates(self, *arguments: Any) -> Any:
        return self.inner.duplicates(*arguments)

    def surplus(
        self, table: ExaminedTable, files: Sequence[LiveFile], deletes: Search | None, folder: Folder
    ) -> Surplus:
        found = self.inner.surplus(table, files, deletes, folder)
        self._then("surplus")
        return found

    def place(self, table: ExaminedTable, files: Sequence[LiveFile], folder: Folder) -> tuple[Placed, ...]:
        placed = self.inner.place(table, files, folder)
        self._then("place")
        return placed

    def concatenate(self, rewrite: Rewrite) -> tuple[RewriteResult, ...]:
        made = self.rewriting.concatenate(rewrite)
        self._then("concatenate")
        return made

    def reproject(self, rewrite: Rewrite, moved: Sequence[Moved], carried: Sequence[Carried]) -> Reprojected:
        return self.rewriting.reproject(rewrite, moved, carried)

    def _then(self, call: str) -> None:
        self.calls.append(call)
        if self.acts:
            self.acts.pop(0)()


Make = Callable[..., Ward]


def rows(*numbers: int, part: int = 0) -> list[tuple[int, str, int]]:
    return [(number, f"n{number}", part) for number in numbers]
