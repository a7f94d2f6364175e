"""Structured logs: one event a line, on stderr, as logfmt or JSON.

    Log("frazil.coordinator").info("epoch published", table="shop.orders", epoch=R, rows=12)

    time=2026-03-01T10:00:00.000Z level=info event="epoch published" table=shop.orders epoch=17.. rows=12

Every value passes `Redact` before it is written, so that no secret leaves through a message that some library
has made.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

ROOT = "frazil"
_FIRST = ("table", "epoch", "batch_id")
_FIELDS = "frazil_fields"
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/+@%[]()*,~")


class LogFormat(StrEnum):
    LOGFMT = "logfmt"
    JSON = "json"


class Redact(Protocol):
    """Knows secrets: by the name they go by, and in running text."""

    def hides(self, name: str) -> bool: ...
    def __call__(self, text: str) -> str: ...


class Log:
    """A logger whose messages are names of events; everything else is a field."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        self._logger.debug(event, extra={_FIELDS: fields})

    def info(self, event: str, /, **fields: Any) -> None:
        self._logger.info(event, extra={_FIELDS: fields})

    def warning(self, event: str, /, **fields: Any) -> None:
        self._logger.warning(event, extra={_FIELDS: fields})

    def error(self, event: str, /, **fields: Any) -> None:
        self._logger.error(event, extra={_FIELDS: fields})

    def failure(self, event: str, error: BaseException, /, **fields: Any) -> None:
        """An error that an exception tells about; its traceback is shown on demand."""
        self._logger.error(event, extra={_FIELDS: fields}, exc_info=error)


class StructuredFormatter(logging.Formatter):
    def __init__(self, form: LogFormat, redact: Redact, *, tracebacks: bool = False) -> None:
        super().__init__()
        self._form = form
        self._redact = redact
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        facts = self._facts(record)
        match self._form:
            case LogFormat.JSON:
                # Redacted value by value: a masked line must still be JSON.
                return json.dumps({key: self._redacted(key, value) for key, value in facts.items()}, ensure_ascii=False)
            case LogFormat.LOGFMT:
                return " ".join(f"{key}={_quoted(_text(self._redacted(key, value)))}" for key, value in facts.items())

    def _facts(self, record: logging.LogRecord) -> dict[str, Any]:
        given: Mapping[str, Any] = getattr(record, _FIELDS, {})
        moment = datetime.fromtimestamp(record.created, UTC)
        facts: dict[str, Any] = {
            "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        facts |= {name: given[name] for name in _FIRST if given.get(name) is not None}
        facts |= {name: value for name, value in given.items() if name not in _FIRST and value is not None}
        if not record.name.startswith(ROOT):
            facts["logger"] = record.name
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            facts["error"] = f"{type(error).__name__}: {error}"
            if self._tracebacks:
                facts["traceback"] = "".join(traceback.format_exception(error))
        return facts

    def _redacted(self, name: str, value: Any) -> Any:
        if self._redact.hides(name):
            return "***"
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {str(key): self._redacted(str(key), item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._redacted(name, item) for item in value]
        return self._redact(str(value))


@contextmanager
def configured(
    write: Callable[[str], None],
    *,
    form: LogFormat = LogFormat.LOGFMT,
    level: int = logging.INFO,
    redact: Redact,
    tracebacks: bool = False,
) -> Iterator[None]:
    """Sends our events, and warnings of libraries, to `write`; everything is as before afterwards."""
    handler = _LineHandler(write)
    handler.setFormatter(StructuredFormatter(form, redact, tracebacks=tracebacks))
    ours, everybody = logging.getLogger(ROOT), logging.getLogger()
    before = ours.level, everybody.level
    ours.setLevel(level)
    everybody.setLevel(max(level, logging.WARNING))
    everybody.addHandler(handler)
    try:
        yield
    finally:
        everybody.removeHandler(handler)
        ours.setLevel(before[0])
        everybody.setLevel(before[1])


class _LineHandler(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(self.format(record))
        except Exception:
            self.handleError(record)


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.3f}".rstrip("0").rstrip(".")
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def _quoted(text: str) -> str:
    return text if text and set(text) <= _BARE else json.dumps(text, ensure_ascii=False)
