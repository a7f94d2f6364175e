"""One net for one line, document or row: whatever breaks on it is BadInput of it, and of nothing else.

    a FrazilError          passes; of a file or a line it is told which table it belongs to
    any other exception    BadInput that names what was looked at
    memory, assertions     pass: they say nothing of the input

Sources meet bytes that anybody wrote. What nobody thought of must stop, or put away, that one piece, not every table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from frazil.errors import BadInput, FrazilError

_PASS = (FrazilError, MemoryError, AssertionError)
_EXCERPT = 300
_KEY_EXCERPT = 120
_HINT = "Change the row at the source, or set `on_error: quarantine` to go on without it."

Made = TypeVar("Made")


@contextmanager
def netted(what: str, hint: str = "", **facts: Any) -> Iterator[None]:
    """`what` was looked at, and is said to be the trouble."""
    try:
        yield
    except _PASS:
        raise
    except Exception as error:
        raise BadInput(f"{what}: {type(error).__name__}: {str(error)[:_EXCERPT]}", hint=hint, **facts) from error


@contextmanager
def of_table(table: str) -> Iterator[None]:
    """A file names its table: what is wrong with it is the trouble of that table."""
    try:
        yield
    except FrazilError as error:
        error.facts["table"] = table
        raise


def decoded(table: str, keys: pa.Array, rows: slice, decode: Callable[[slice], Made]) -> Made:
    """What `decode` makes of these rows at once. If that breaks, each by itself, to find the one to blame."""
    try:
        return decode(rows)
    except _PASS:
        raise
    except Exception:
        for at in range(rows.start, rows.stop):
            key = keys[at].as_py()
            with netted(f"{table}: the row with key {key[:_KEY_EXCERPT]} cannot be read", _HINT, table=table, key=key):
                decode(slice(at, at + 1))
        with netted(f"{table}: rows that can be read one by one cannot be read together", table=table):
            raise
