"""Exit codes, as help shows them: supervisors and scripts decide by them."""

from __future__ import annotations

from collections.abc import Mapping

from frazil.errors import (
    BadInput,
    CatalogRefused,
    ConfigError,
    Fenced,
    FrazilError,
    LedgerTooNew,
    SourceLost,
    TableChanged,
    Transient,
)

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (0, "done, or stopped as asked"),
    (FrazilError.exit_code, "something failed; trying again may help"),
    (ConfigError.exit_code, "the configuration or the command line is wrong"),
    (BadInput.exit_code, "the source holds something that must not be guessed about"),
    (SourceLost.exit_code, "the source no longer holds what is needed, or is another one"),
    (TableChanged.exit_code, "a table was rolled back, recreated or edited: see frazil rewind"),
    (Fenced.exit_code, "a newer run of this pipeline has taken over; do not restart this one"),
    (CatalogRefused.exit_code, "the catalog or the storage said no"),
    (LedgerTooNew.exit_code, "a newer Frazil has written to a table: upgrade this one"),
)

_KINDS: Mapping[int, type[FrazilError]] = {
    kind.exit_code: kind
    for kind in (ConfigError, BadInput, SourceLost, TableChanged, Fenced, CatalogRefused, LedgerTooNew)
}


def error_of(code: int, message: str, *, hint: str = "") -> FrazilError:
    """An error of the kind that exits with this code; of 1 it is worth another try."""
    return _KINDS.get(code, Transient)(message, hint=hint)


EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES)
