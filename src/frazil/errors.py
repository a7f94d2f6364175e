"""Every error a caller can meet, by what the caller can do about it.

    FrazilError                    carries `hint`: what a tired operator does next
      +-- Transient                try again, later
      |     +-- SourceUnavailable
      |     +-- CatalogUnavailable
      |     +-- StorageUnavailable
      |     +-- ClockBehind        this machine's clock is behind that of the table's last commit
      |     +-- Unexplained        a few times: it may be the table's own fault
      +-- OutcomeUnknown           look before you retry, and delete nothing
      +-- Terminal                 a person must act
            +-- ConfigError        exit 2: the configuration says something impossible
            +-- BadInput           exit 3: the source holds something we must not guess about
            |     +-- UnknownColumn     a change names a column the table does not have yet
            |     +-- DoesNotFit        a value that its column's type cannot hold exactly
            +-- SourceLost         exit 4: the source no longer holds what we need, or is another one
            +-- TableChanged       exit 5: the table was rolled back, recreated or edited under us
            +-- Fenced             exit 6: a newer coordinator of this pipeline has taken over
            +-- CatalogRefused     exit 7: forbidden, not found, read-only
            +-- LedgerTooNew       exit 8: a newer version of Frazil has written to the table

All of them pickle, since they cross from executors to the driver: keyword facts only, no captured
handles.
"""

from __future__ import annotations

from typing import Any


class FrazilError(Exception):
    """The root. `facts` are attributes for logs and scripts; `hint` is what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        # An error quotes what it met, and half a surrogate pair could be neither logged nor stored.
        message, hint = (text.encode("utf-8", "backslashreplace").decode() for text in (message, hint))
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.facts)

    def __str__(self) -> str:
        return self.message


def _rebuild(kind: type[FrazilError], message: str, hint: str, facts: dict[str, Any]) -> FrazilError:
    return kind(message, hint=hint, **facts)


class Transient(FrazilError):
    """Trying again, later, may succeed."""


class SourceUnavailable(Transient):
    """The source did not answer."""


class CatalogUnavailable(Transient):
    """The catalog did not answer a question that changes nothing."""


class StorageUnavailable(Transient):
    """The object store or the disk did not take or give a file."""


class ClockBehind(Transient):
    """By this machine's clock it is earlier than the table's last commit, and Iceberg takes no commit from the past."""


class Unexplained(Transient):
    """Something failed and did not say why, as a process that was killed. What fails so again and again is not passing:
    whoever tries again does so a few times."""


class OutcomeUnknown(FrazilError):
    """A commit was sent and no proof of its fate came back."""


class Terminal(FrazilError):
    """A person must act."""


class ConfigError(Terminal):
    """The configuration says something impossible or unknown."""

    exit_code = 2


class BadInput(Terminal):
    """The source holds something that must not be guessed about; names file and line, table, key or column."""

    exit_code = 3


class UnknownColumn(BadInput):
    """A change has columns the table does not have yet: the schema evolves first, then the epoch is written."""


class DoesNotFit(BadInput):
    """A value that the column's type cannot hold exactly."""


class SourceLost(Terminal):
    """The source no longer holds what is needed to go on, or is another source than before."""

    exit_code = 4


class TableChanged(Terminal):
    """The table was rolled back, recreated or edited; publishing on top would lose or double rows."""

    exit_code = 5


class Fenced(Terminal):
    """A newer coordinator of the same pipeline has taken over; a supervisor must not restart this one."""

    exit_code = 6


class CatalogRefused(Terminal):
    """The catalog or the storage said no: forbidden, not found, read-only."""

    exit_code = 7


class LedgerTooNew(Terminal):
    """A ledger entry of a format that this version does not know: only a newer Frazil may go on with the table."""

    exit_code = 8
