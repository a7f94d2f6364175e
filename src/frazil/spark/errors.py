"""Brings an error home from an executor as what it was.

    a person must act   FrazilError --packed--> a row of the task's output --unpacked--> the same error, raised
    try again           FrazilError --carried--> RuntimeError("... frazil-error[<base64>]"): Spark repeats the task
                        its text --brought_home--> the same FrazilError, class, hint and facts
    without a word      a worker that was killed, an exception of a library --> Unexplained, with what Spark says of it
    an assertion        stays one: an assumption of ours does not hold

A definite error is an answer like any other: raising it would make Spark repeat the task and log tracebacks. Of an
exception Spark gives the driver nothing but text. Base64 has neither line breaks nor brackets, so indenting, quoting
and nesting of tracebacks leave the marker whole.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from frazil.errors import FrazilError, Unexplained

if TYPE_CHECKING:
    import pyarrow as pa

ArrowTask = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

Given = TypeVar("Given")
Made = TypeVar("Made")

_CRASHED = "Python worker exited unexpectedly"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning)\b(:|$)(?! JVM)")
_SAID_MAX = 500
_MARKER = re.compile(r"frazil-error\[([A-Za-z0-9+/=]+)\]")


def packed(error: FrazilError) -> bytes:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        # A fact that does not pickle must not hide the error that it describes.
        facts = {name: repr(value) for name, value in error.facts.items()}
        data = pickle.dumps(type(error)(error.message, hint=error.hint, **facts))
    return data


def unpacked(data: bytes) -> FrazilError:
    error: FrazilError = pickle.loads(data)
    return error


def carried(error: FrazilError) -> RuntimeError:
    """An exception whose text holds the whole error, and says it to a person too."""
    text = base64.b64encode(packed(error)).decode()
    return RuntimeError(f"{type(error).__name__}: {error.message} frazil-error[{text}]")


def brought_home(text: str) -> FrazilError | None:
    """The error carried in a text, the last one if there are several; None if there is none or it is damaged."""
    for marker in reversed(_MARKER.findall(text)):
        try:
            error = pickle.loads(base64.b64decode(marker))
        except Exception:
            continue
        if isinstance(error, FrazilError):
            return error
    return None


def guarded(task: Callable[[Iterator[Given]], Iterator[Made]]) -> Callable[[Iterator[Given]], Iterator[Made]]:
    """A task whose errors find their way home."""

    def run(given: Iterator[Given]) -> Iterator[Made]:
        try:
            yield from task(given)
        except FrazilError as error:
            raise carried(error) from error

    return run


def collected(collect: Callable[[], list[Any]]) -> list[Any]:
    """What a job has put out. Raises the error that one of its tasks was ended by; Unexplained if that is none of
    ours."""
    try:
        return list(collect())
    except (FrazilError, AssertionError):
        raise
    except Exception as error:
        raise (brought_home(str(error)) or unexplained(error)) from error


def unexplained(error: Exception) -> Unexplained | AssertionError:
    """What Spark says of a job that failed, without its stack traces."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    crashed = [line[line.index(_CRASHED) :] for line in lines if _CRASHED in line]
    if raised and not crashed and raised[-1].startswith("AssertionError"):
        return AssertionError(raised[-1].removeprefix("AssertionError").lstrip(": "))
    said = [*crashed[:1], *raised[-1:], *lines[:1], type(error).__name__][0]
    return Unexplained(
        f"a Spark job failed: {said[:_SAID_MAX]}",
        hint="Frazil tries again. A worker that exits unexpectedly was killed, most often for want of memory: give the "
        "machine more, or let a job read less (limits.epochs_per_job). Spark's own log tells more.",
    )
