"""One event a line, and no secret in any of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from frazil.config.secrets import Redactor
from frazil.observability.logs import Log, LogFormat, configured

log = Log("frazil.tests")


@contextmanager
def logging_to(form: LogFormat = LogFormat.LOGFMT, level: int = logging.INFO, **more: bool) -> Iterator[list[str]]:
    lines: list[str] = []
    with configured(lines.append, form=form, level=level, redact=Redactor(), **more):
        yield lines


def test_a_logfmt_line_has_the_event_first_and_then_table_epoch_and_batch() -> None:
    with logging_to() as lines:
        log.info("epoch published", rows=12, batch_id="b-1", epoch="17.0000000001", table="shop.orders", none=None)
    (line,) = lines
    moment, rest = line.split(" ", 1)
    assert moment.startswith("time=")
    assert moment.endswith("Z")
    assert rest == (
        'level=info event="epoch published" table=shop.orders epoch=17.0000000001 batch_id=b-1 rows=12'
    )  # fmt: skip


def test_values_that_would_break_a_line_are_quoted() -> None:
    with logging_to() as lines:
        log.info("e", text='two\nlines and "quotes" = x', empty="", flag=True, share=0.25, many=[1, "a b"])
    (line,) = lines
    assert "\n" not in line
    assert r'text="two\nlines and \"quotes\" = x" empty="" flag=true share=0.25 many="[1, \"a b\"]"' in line


def test_a_json_line_is_one_object_with_typed_values() -> None:
    with logging_to(LogFormat.JSON) as lines:
        log.warning("late", table="shop.orders", rows=3, share=0.5, ok=False)
    facts = json.loads(lines[0])
    assert (facts["level"], facts["event"], facts["table"]) == ("warning", "late", "shop.orders")
    assert (facts["rows"], facts["share"], facts["ok"]) == (3, 0.5, False)


@pytest.mark.parametrize("form", list(LogFormat))
def test_no_secret_leaves_by_name_by_url_by_message_or_by_exception(form: LogFormat) -> None:
    with logging_to(form, tracebacks=True) as lines:
        log.info("connecting to postgresql://u:hunter22@h/d", url="postgresql://u:hunter22@h/d", password="hunter22")
        log.info("nested", settings={"token": "hunter22", "at": ["s3://k:hunter22@b"]})
        try:
            raise ValueError("cannot open postgresql://u:hunter22@h/d")
        except ValueError as error:
            log.failure("failed", error)
        logging.getLogger("some.driver").warning("retrying postgresql://u:hunter22@h/d")
    assert len(lines) == 4
    assert "hunter22" not in "".join(lines)
    assert "postgresql://u:***@h/d" in lines[0]
    if form is LogFormat.JSON:
        assert json.loads(lines[1])["settings"]["token"] == "***"


def test_a_traceback_is_written_only_on_demand() -> None:
    error = ValueError("broken")
    with logging_to() as short:
        log.failure("failed", error)
    with logging_to(tracebacks=True) as long:
        log.failure("failed", error)
    assert 'error="ValueError: broken"' in short[0]
    assert "traceback" not in short[0]
    assert "traceback=" in long[0]


def test_levels_hide_ours_and_libraries_speak_from_warnings_on() -> None:
    with logging_to(level=logging.DEBUG) as lines:
        log.debug("ours")
        logging.getLogger("py.library").info("chatter")
        logging.getLogger("py.library").warning("trouble")
    assert ["event=ours" in lines[0], "event=trouble" in lines[1], len(lines)] == [True, True, 2]
    assert "logger=py.library" in lines[1]
    with logging_to(level=logging.ERROR) as quiet:
        log.info("hidden")
        logging.getLogger("py.library").warning("hidden")
    assert quiet == []


def test_logging_is_as_before_afterwards() -> None:
    before = list(logging.getLogger().handlers), logging.getLogger().level, logging.getLogger("frazil").level
    with logging_to() as lines:
        pass
    log.info("after")
    assert lines == []
    assert (list(logging.getLogger().handlers), logging.getLogger().level, logging.getLogger("frazil").level) == before
