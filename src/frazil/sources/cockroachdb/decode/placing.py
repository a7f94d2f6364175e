"""Where a line stands: what breaks on it, whatever it is, is BadInput that names its file and number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from frazil.errors import BadInput
from frazil.sources.cockroachdb.decode.keys import EXCERPT
from frazil.sources.net import netted


@contextmanager
def placed(path: str, line: int, raw: bytes = b"") -> Iterator[None]:
    """`raw` is the line as it stands, of which an excerpt is shown."""
    try:
        with netted("cannot be read"):
            yield
    except BadInput as error:
        if "line" in error.facts:
            raise
        shown = f" in {raw[:EXCERPT]!r}" if raw else ""
        facts = {**error.facts, "file": path, "line": line}
        raise type(error)(f"{path}:{line}: {error.message}{shown}", hint=error.hint, **facts) from error


def text_of(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8: {error}") from error
