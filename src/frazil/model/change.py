"""Changes as they travel between Spark tasks.

One row is one change, or one report about a partition. The order of the columns is the order of the
sort: within a table and epoch all versions of a key lie together, the newest last.

    table  epoch  key           part  major    minor  op      payload                     before        partition  line
    0      0      [1]           0     17..433  0      UPSERT  {"id": 1, "name": "Terry"}                3      12
    0      0      [1]           0     17..561  0      DELETE                              {"id": 1...}  3      13
    0     -1      2020-04-02/…  0     17..561  0      REPORT  {"rows": 2, "dropped": 0}
    0     -1                    0                     ERROR   a definite error of the reader, pickled
    0      1      #f:17         0     17..500  0      BAD     the raw line                a `BadLine`

`part` tells apart what a source sends separately of one row (column families): each part has a newest version of its
own. `before` is the row as it was, for targets that keep it: null if the source did not tell, `null` in JSON if it
said that there was none. `partition` and `line` say where the change was read, for a source of files: the number that
the job gives the partition, and the line or row in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from frazil.model.position import Position

CHANGE_COLUMNS = ("table", "epoch", "key", "part", "major", "minor", "op", "payload", "before", "partition", "line")
ROW_COLUMNS = ("table", "epoch", "key", "part")
"""Of changes that are alike in these the last one counts."""
SORT_COLUMNS = (*ROW_COLUMNS, "major", "minor", "op")
REPORT_EPOCH = -1


class Op(IntEnum):
    """At one position an upsert outranks a delete: a row that moves between regions or hash shards is
    deleted and inserted at one commit time, with no order between the two."""

    DELETE = 0
    UPSERT = 1
    REPORT = 2
    ERROR = 3
    BAD = 4


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What a reader found in one partition, told to the driver through the job's own output. `left_out` are fields that
    no column takes on purpose, each with the number of rows that have a value there. `scanned` are changes at the very
    moment that the partition begins with, as far as the source has partitions that do."""

    table: int
    partition: str
    rows: int
    dropped: int
    newest: Position | None
    left_out: Mapping[str, int] = field(default_factory=dict, hash=False)
    scanned: int = 0

    @property
    def holds_changes(self) -> bool:
        """Also of changes beyond the window: then the source must not forget the partition yet."""
        return self.rows > 0 or self.newest is not None


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What a writing task sent to quarantine of one source table: the keys, each with the oldest position that was
    sent, how many rows in all, and which columns the errors name."""

    table: int
    keys: Mapping[str, tuple[int, int]]
    rows: int
    columns: tuple[str, ...] = ()


Report = PartitionReport | CaptureReport
