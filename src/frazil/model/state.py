"""The states of a table, as status and metrics show them.

INITIALIZING --first row--> INITIAL_SYNC --first load done--> STEADY_STATE <--> BACKOFF (trying again)
                                                                   |
                                            NEEDS_RESYNC <---------+---------> STOPPED
"""

from __future__ import annotations

from enum import StrEnum


class TableState(StrEnum):
    INITIALIZING = "INITIALIZING"
    INITIAL_SYNC = "INITIAL_SYNC"
    STEADY_STATE = "STEADY_STATE"
    BACKOFF = "BACKOFF"
    NEEDS_RESYNC = "NEEDS_RESYNC"
    STOPPED = "STOPPED"
