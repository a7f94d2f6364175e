"""File names of a changefeed's cloud storage.

    2020-04-02/202004022058072107140000000000000-56087568dba1e6b8-1-72-00000000-test_table-1.ndjson.gz
    `partition' `---- stamp: UTC + logical ----' `-- session --' n s  file id   topic     `schema (hex)

    2020-04-04/202004042351304139680000000000000.RESOLVED

The order of a feed is the byte order of full paths: `R-...` sorts before `R.RESOLVED`, so every data file
that sorts before a resolved file is final once that file exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from frazil.errors import BadInput, SourceLost
from frazil.model.position import NotAPosition, Position
from frazil.sources.cockroachdb.position import Hlc

_PARTITION = r"(?:\d{4}-\d{2}-\d{2}/(?:\d{2}/)?)?"
_DATA = re.compile(
    rf"{_PARTITION}(\d{{33}})-([0-9a-f]{{16}})-(\d+)-(\d+)-([0-9a-f]{{8,}})-(.+)-([0-9a-f]+)"
    r"\.(ndjson|csv|parquet)(\.gz|\.zst)?"
)
_UNPACKED = 10
"""Times as large is what compression makes small, of changes as they are printed."""
_STAMP_DIGITS = 33
_SESSION_DIGITS = 16
_PLAIN = (".ndjson", ".csv")
_HIDDEN = re.compile(r"\.(?!RESOLVED$)")
_RESOLVED = re.compile(rf"({_PARTITION})([^/]*)\.RESOLVED")


class Format(StrEnum):
    JSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


class Compression(StrEnum):
    NONE = ""
    GZIP = "gz"
    ZSTD = "zst"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFile:
    """One data file; `path` is relative to the feed's root. One file holds one topic and one schema version."""

    path: str
    stamp: Hlc
    session: str
    topic: str
    schema_version: int
    format: Format
    compression: Compression
    size: int = 0

    @property
    def weight(self) -> int:
        return weight_of(self.path, self.size)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"{self.path}: a file of {self.size} bytes")


@dataclass(frozen=True, slots=True)
class ResolvedFile:
    """The promise that no unseen change at or below `stamp` remains; the name alone carries it."""

    path: str
    stamp: Hlc


def parse_name(path: str, size: int = 0) -> FeedFile | ResolvedFile | None:
    """What a path below the feed's root is; None for a file that is none of the feed's.

    Raises BadInput for a name that claims to be the feed's but carries no timestamp.
    """
    path = path.lstrip("/")
    if _HIDDEN.match(path.rpartition("/")[2]):
        # What copies a feed to a directory writes under a hidden name first, and renames: not there yet.
        return None
    if match := _RESOLVED.fullmatch(path):
        return ResolvedFile(path, _stamp(match[2], path))
    if match := _DATA.fullmatch(path):
        stamp, session, _node, _sink, _file_id, topic, schema, form, compression = match.groups()
        return FeedFile(
            path=path,
            stamp=_stamp(stamp, path, table=topic),
            session=session,
            topic=topic,
            schema_version=int(schema, 16),
            format=Format(form),
            compression=Compression((compression or "").removeprefix(".")),
            size=size,
        )
    return None


def data_file(path: str, size: int = 0) -> FeedFile:
    """A path that is known to be a data file's, as every partition's is."""
    file = parse_name(path, size)
    assert isinstance(file, FeedFile), path
    return file


def topic_in(path: str) -> str | None:
    """The topic of a data file's name; None for any other. Looks at nothing else of it: a feed has many names."""
    match = _DATA.fullmatch(path)
    return None if match is None else match[6]


def number_in(path: str) -> tuple[str, str, int] | None:
    """Stamp, session and number of a data file's name; None for any other."""
    match = _DATA.fullmatch(path)
    return None if match is None else (match[1], match[2], int(match[5], 16))


def weight_of(path: str, size: int) -> int:
    """About how many bytes a file's rows are once they are read: those of a compressed file are more than it has."""
    return size if path.endswith(_PLAIN) else size * _UNPACKED


def resolved_paths(position: Hlc) -> tuple[str, str, str]:
    """Where the resolved file of this position lies in a flat, a daily and an hourly feed."""
    name = f"{position.file_stamp}.RESOLVED"
    day = f"{name[:4]}-{name[4:6]}-{name[6:8]}"
    return name, f"{day}/{name}", f"{day}/{name[8:10]}/{name}"


def hlc_of(position: Position) -> Hlc:
    """Raises SourceLost for a position of another kind of source."""
    if not isinstance(position, Hlc):
        raise SourceLost(
            f"{position} is no position of CockroachDB",
            hint="The pipeline's name was used with another kind of source: choose another name.",
        )
    return position


def stem_of(resolved_path: str) -> str:
    """What sorts just before every `R-...` and `R.RESOLVED` of this R."""
    return resolved_path.removesuffix(".RESOLVED")


def stem_in(path: str) -> str:
    """Of a data file."""
    return path[: path.rfind("/") + 1 + _STAMP_DIGITS]


def session_in(path: str) -> str:
    """Of a data file."""
    begin = len(stem_in(path)) + 1
    return path[begin : begin + _SESSION_DIGITS]


def is_under(path: str, resolved_path: str) -> bool:
    """Whether a data file carries the very stamp of a resolved file."""
    return path.startswith(stem_of(resolved_path) + "-")


def _stamp(digits: str, path: str, **facts: str) -> Hlc:
    try:
        return Hlc.from_file_stamp(digits)
    except NotAPosition as error:
        raise BadInput(
            f"{path}: the file name carries no changefeed timestamp: {error}",
            hint="Remove the file from the feed's prefix if the changefeed did not write it.",
            file=path,
            **facts,
        ) from error
