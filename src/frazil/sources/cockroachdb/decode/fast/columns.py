"""The fast road of decoding: a slice of payloads to Arrow columns, without a Python object for each value.

    payloads --printed alike--> read_regular ------------------------> vectorised casts ------+--> columns
       `------joined by newlines--+--> pyarrow.json, explicit types --> vectorised casts ------+
                                  |                                                            |
                                  +--> members.scan: raw text --> regular: vectorised ---------+
                                                            `--> odd: value by value ----------+
                                          `-- anything unusual --> TakeExactRoad

A column is read by pyarrow's JSON reader where that reader is exact, and from the raw text of its member where it is
not: JSON and shapes, whose text is kept; decimals without precision; numbers that come as strings (NaN) or with
exponents. Both see the same bytes, so the reader proves that what the scan cut is JSON. The road may give up at any
time, and never guesses: what it returns is what the exact road would return.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from frazil.model.schema import Column
from frazil.sources.cockroachdb.decode.fast.casts import Give, Step, by_value, raw_step, read_step
from frazil.sources.cockroachdb.decode.fast.casts import TakeExactRoad as TakeExactRoad
from frazil.sources.cockroachdb.decode.fast.members import Members, scan
from frazil.sources.cockroachdb.decode.fast.uniform_rows import Regular, read_regular

_BYTES_MAX = (1 << 31) - (1 << 16)
Convert = Callable[[Column], Give]


@dataclass(frozen=True, slots=True)
class Plan:
    """For each column how it is taken. `names` are all that a row may carry."""

    columns: tuple[Column, ...]
    steps: tuple[Step, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for column in self.columns for name in column.carried_as))

    @property
    def read(self) -> list[tuple[str, Any]]:
        """What pyarrow reads: names and types."""
        pairs = zip(self.columns, self.steps, strict=True)
        return [(name, step.read) for column, step in pairs if step.read is not None for name in column.carried_as]

    @property
    def scans(self) -> bool:
        """Whether members must be told apart by their text: also where one column has several names, since only
        their text tells an absent one from a null."""
        return any(step.read is None for step in self.steps) or any(len(c.carried_as) > 1 for c in self.columns)


def plan(
    columns: Sequence[Column], convert: Convert, *, spelled: Collection[str] = (), raw_numbers: bool = False
) -> Plan:
    """`convert` gives the exact conversion of a column, for odd values, and for all values of the columns in `spelled`.
    With `raw_numbers` decimals and floats are taken from their text: slower, but exponents and NaN do not stop it."""
    carried = [name for column in columns for name in column.carried_as]
    steps = []
    for column in columns:
        if column.name in spelled:
            steps.append(by_value(column, convert(column)))
            continue
        alone = all(carried.count(name) == 1 for name in column.carried_as)
        read = read_step(column) if alone else None
        if read is None or (raw_numbers and read.is_number):
            read = raw_step(column, convert(column))
        steps.append(read)
    return Plan(tuple(columns), tuple(steps))


def columns_of(payloads: pa.Array, planned: Plan) -> list[pa.Array]:
    """Raises TakeExactRoad."""
    try:
        texts = payloads.cast(pa.string())
        # A first line `null` would bring pyarrow down, an empty one would shift the rows, and half an object could
        # end in the next line.
        whole = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
        if texts.null_count or not pc.all(whole, min_count=0).as_py():
            raise TakeExactRoad
        found = None if planned.scans else read_regular(texts, dict(planned.read))
        if found is None:
            return _parsed(texts, planned)
        arrays = [_of_regular(column, step, found) for column, step in zip(planned.columns, planned.steps, strict=True)]
        if found.rows.all():
            return arrays
        odd = _parsed(texts.filter(pa.array(~found.rows)), planned)
        return [_merged(found.rows, *pair) for pair in zip(arrays, odd, strict=True)]
    except TakeExactRoad:
        raise
    except Exception as error:  # whatever it is, the exact road decides
        raise TakeExactRoad from error


def _of_regular(column: Column, step: Step, found: Regular) -> pa.Array:
    (name,) = column.carried_as
    array = found.columns.get(name)
    return step.finish(pa.nulls(int(found.rows.sum()), step.read) if array is None else array)


def _merged(rows: np.ndarray, of_these: pa.Array, of_others: pa.Array) -> pa.Array:
    places = np.where(rows, np.cumsum(rows) - 1, len(of_these) + np.cumsum(~rows) - 1)
    return pa.concat_arrays([of_these, of_others]).take(pa.array(places))


def _parsed(texts: pa.StringArray, planned: Plan) -> list[pa.Array]:
    guard = "|".join(step.guard for step in planned.steps if step.guard)
    if guard and pc.any(pc.match_substring_regex(texts, guard), min_count=0).as_py():
        raise TakeExactRoad
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")
    buffer = joined[0].as_buffer()
    if buffer.size >= _BYTES_MAX:
        raise TakeExactRoad
    members = _members(texts, buffer, planned) if planned.scans else None
    found = _read(buffer, len(texts), planned, members is not None)
    return [_taken(column, step, found, members) for column, step in zip(planned.columns, planned.steps, strict=True)]


def _read(buffer: Any, rows: int, planned: Plan, scanned: bool) -> pa.Table:
    """What pyarrow reads; it also proves that all of the text is JSON, and rows do not shift."""
    found = pj.read_json(
        pa.BufferReader(buffer),
        read_options=pj.ReadOptions(use_threads=False, block_size=buffer.size + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(planned.read), unexpected_field_behavior="ignore" if scanned else "infer"
        ),
    )
    known = set(planned.names)
    if found.num_rows != rows or any(f.name not in known and not pa.types.is_null(f.type) for f in found.schema):
        raise TakeExactRoad
    return found


def _members(texts: pa.StringArray, buffer: Any, planned: Plan) -> Members:
    lengths = pc.binary_length(texts).to_numpy().astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths[:-1] + 1)))
    members = scan(buffer, starts, planned.names)
    for column in planned.columns:
        if len(column.carried_as) > 1:
            has = np.stack([members.has(name) for name in column.carried_as])
            if (has.sum(axis=0) > 1).any():
                raise TakeExactRoad  # which of the names is meant depends on their values
    return members


def _taken(column: Column, step: Step, found: pa.Table, members: Members | None) -> pa.Array:
    if step.read is None:
        assert members is not None
        arrays = [members.raw(name) for name in column.carried_as]
    else:
        arrays = [found.column(name).combine_chunks() for name in column.carried_as]
    return step.finish(arrays[0] if len(arrays) == 1 else pc.coalesce(*arrays))
