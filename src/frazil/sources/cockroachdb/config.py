"""Where changes come from: a CockroachDB changefeed.

feed: s3://feeds/shop       files of a cloud storage sink: options, complete, envelope
feed: postgresql://...      a sinkless feed over SQL: changefeed_options
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from frazil.config.block import LocalOrCloud, problem, starts_with
from frazil.config.entry_checks import Judgement, KnownColumns, judge_key, judge_layout, judge_types
from frazil.config.parse_values import Duration, TextMap, seconds_of
from frazil.config.table_entries import TableEntry
from frazil.errors import ConfigError
from frazil.model.position import without_login
from frazil.model.schema import Type
from frazil.sources.cockroachdb.decode.envelope import BareDeletes
from frazil.sources.cockroachdb.schema.types import TypeRules, parse_source_type
from frazil.sources.cockroachdb.sinkless.sql import FeedOptions
from frazil.sources.registry import SourceConfig
from frazil.storage.url import is_object_store

_POSTGRES = ("postgresql://", "postgres://")
_OURS_TO_SET = frozenset(
    {
        "cursor",
        "end_time",
        "envelope",
        "format",
        "full_table_name",
        "initial_scan",
        "initial_scan_only",
        "key_in_value",
        "no_initial_scan",
        "updated",
    }
)
_SINKLESS_PACE = "1s"
_TRUTHS = {"true": True, "": True, "false": False}


class LateFiles(StrEnum):
    STOP = "stop"
    IGNORE = "ignore"


class CockroachSource(SourceConfig):
    """A CockroachDB changefeed: the files of a cloud storage sink, or a sinkless feed over SQL."""

    decides_content: ClassVar[frozenset[str]] = frozenset(
        {"complete", "envelope", "op_column", "prev_column", "bare_deletes", "csv_header"}
    )

    type: Literal["cockroachdb"] = Field(description="The kind of source.")
    feed: LocalOrCloud = Field(
        min_length=1,
        description=(
            "Where the changefeed writes: a directory or cloud URL (s3://, gs://, az://) of its cloud storage sink, "
            "or postgresql://... to run a sinkless changefeed over SQL. One feed per prefix."
        ),
        examples=["s3://feeds/shop"],
    )
    complete: bool = Field(
        default=False,
        description=(
            "The feed has ended and nothing will be added (an export with initial_scan = 'only', a feed that was "
            "cancelled): all it holds is published, although no resolved timestamp covers it. Cloud storage only."
        ),
    )
    late_files: LateFiles = Field(
        default=LateFiles.STOP,
        description=(
            "Cloud storage: what happens when one writer keeps adding files behind resolved timestamps that were read "
            "already, as a second changefeed in the same prefix does. Nobody reads them. stop: the pipeline stops. "
            "ignore: it goes on, without their rows."
        ),
    )
    envelope: Literal["auto", "wrapped", "bare", "enriched"] = Field(
        default="auto", description="The envelope of the feed's messages; auto tells it from the messages."
    )
    op_column: str | None = Field(
        default=None,
        min_length=1,
        description="Feeds of a CDC query: the column that holds event_op(). It tells deletes and is not written.",
        examples=["op"],
    )
    prev_column: str | None = Field(
        default=None,
        min_length=1,
        description="Feeds of a CDC query: the column that holds cdc_prev. It is not written.",
        examples=["prev"],
    )
    bare_deletes: BareDeletes = Field(
        default=BareDeletes.REFUSE,
        description=(
            "In the bare envelope a delete looks like a row whose columns beside the key are all NULL. refuse: stop at "
            "such a row. all-null: it is a delete. never: it is a row."
        ),
    )
    csv_header: bool = Field(
        default=False, description="CSV files of the feed begin with a line of column names (WITH csv_header)."
    )
    schema_from: Annotated[str, AfterValidator(starts_with(_POSTGRES, "a URL postgresql://..."))] | None = Field(
        default=None,
        description=(
            "A SQL connection to the source (postgresql://user:password@host:26257/database) that tells column types "
            "and keys. Used where a table's entry does not pin them; a sinkless feed uses its own connection."
        ),
        examples=["postgresql://frazil@localhost:26257/shop"],
    )
    options: TextMap = Field(
        default_factory=dict,
        description=(
            "How the feed's storage is reached: endpoint, region, access_key_id, secret_access_key, session_token, "
            "profile, path_style (s3); service_account_file, token (gcs); account, key, sas_token (azure); or "
            "Iceberg's names (s3.endpoint, ...). Credentials that are not given are looked for where Frazil is started."
        ),
        examples=[{"region": "eu-central-1"}],
    )
    changefeed_options: TextMap = Field(
        default_factory=dict,
        description=(
            "Options of the sinkless CREATE CHANGEFEED statement: resolved (default 1s), min_checkpoint_frequency "
            "(default 1s), diff, and others as CockroachDB documents them. Those that decide correctness (updated, "
            "cursor, envelope, ...) are set by Frazil."
        ),
        examples=[{"resolved": "1s", "min_checkpoint_frequency": "1s", "diff": "true"}],
    )
    poll_interval: Duration = Field(default=1.0, ge=0.01, description="How often an idle feed is looked at again.")

    @property
    def address(self) -> str:
        return self.feed

    @property
    def sinkless(self) -> bool:
        return self.feed.startswith(_POSTGRES)

    @model_validator(mode="after")
    def _fits_together(self) -> CockroachSource:
        if self.sinkless and self.complete:
            raise problem("a sinkless feed has no end; complete is for files in cloud storage", "complete")
        address, parameters, query = self.feed.partition("?")
        if parameters and is_object_store(address):
            names = ", ".join(sorted({name.partition("=")[0] for name in query.split("&")}))
            raise problem(
                f"write {without_login(address)}, without the parameters of CREATE CHANGEFEED ({names}): credentials, "
                "region and endpoint of the storage stand under source.options",
                "feed",
            )
        if self.changefeed_options and not self.sinkless:
            raise problem("only a sinkless feed (feed: postgresql://...) takes these", "changefeed_options")
        if self.sinkless and self.envelope not in ("auto", "wrapped"):
            raise problem("a sinkless feed has the wrapped envelope; remove this key", "envelope")
        for name, value in self.changefeed_options.items():
            if name.lower() in _OURS_TO_SET:
                raise problem(f"{name} is set by Frazil and cannot be changed", "changefeed_options", name)
            if name == "diff" and value not in _TRUTHS:
                raise problem("must be true or false", "changefeed_options", name)
            if name in ("resolved", "min_checkpoint_frequency"):
                _duration_or_problem(value, "changefeed_options", name)
        return self

    @property
    def sinkless_options(self) -> FeedOptions:
        """`changefeed_options`, sorted out: those Frazil gives a default, and the rest as they are."""
        given = dict(self.changefeed_options)
        return FeedOptions(
            resolved=given.pop("resolved", _SINKLESS_PACE),
            min_checkpoint_frequency=given.pop("min_checkpoint_frequency", _SINKLESS_PACE),
            diff=_TRUTHS[given.pop("diff", "false")],
            extra=tuple(given.items()),
        )

    def judge(self, entry: TableEntry, *, spark_reads: bool) -> Iterator[Judgement]:
        """Types that do not exist; and what does not fit the columns, if nobody tells others."""
        try:
            rules = TypeRules(time_as="long" if spark_reads else "time", json_as=entry.json_as)
        except ConfigError as error:
            yield f"{error.message}. {error.hint}", ("json_as",)
            return
        types: dict[str, Type | None] = {}
        texts = ((name, text, ("columns", name)) for name, text in entry.columns.items())
        yield from judge_types(entry, texts, lambda text: parse_source_type(text, rules).type, types)
        is_pinned = bool(entry.key) and all(name in types for name in entry.key)
        known = KnownColumns(types, whole=is_pinned and not self.sinkless and self.schema_from is None)
        yield from judge_key(entry, known)
        yield from judge_layout(entry, known)


def _duration_or_problem(value: str, *path: str) -> None:
    try:
        seconds_of(value)
    except ValueError as error:
        raise problem(str(error), *path) from error
