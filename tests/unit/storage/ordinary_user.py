"""What the operating system refuses, it refuses to ordinary users: as root a test becomes one first."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable

NOBODY = 65534


def refusal_of(act: Callable[[], object]) -> BaseException | None:
    """What `act` raises to a user without privileges, in a process of its own; None if it raises nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        error: BaseException | None = None
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            act()
        except BaseException as raised:
            error = raised
        os.write(writing, pickle.dumps(error))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    found: BaseException | None = pickle.loads(told)
    return found
