"""Cuts the changes of one table into the epochs of a window.

    positions     lower          uppers[0]      uppers[1]
    --------------|--------------|--------------|------------->
      DROPPED     `- epoch 0 ----'- epoch 1 ----'   BEYOND
      a duplicate                                   stays in its split for a later window

A position is a pair of 64-bit integers. Comparing pairs by way of one float would lose the logical
part, and a loop over the uppers would be slow; so majors and minors are each replaced by their rank
among the uppers, and the two small ranks packed into one integer that is searched once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from frazil.model.epoch import Window
from frazil.model.ports import Cut
from frazil.model.position import Position

DROPPED = -1
BEYOND = -2


def cut_of(window: Window, lower: Position | None) -> Cut:
    """The cut of a table whose newest epoch, published or in flight, ends at `lower`.

    Uppers at or below `lower` keep their place, so that an epoch has one index for all tables of the window.
    """
    return Cut(None if lower is None else lower.order, tuple(upper.order for upper in window.uppers))


def assign(major: NDArray[np.int64], minor: NDArray[np.int64], cut: Cut) -> NDArray[np.int32]:
    """The index of each change's epoch in the window, or DROPPED, or BEYOND."""
    upper_major, upper_minor = np.array(cut.uppers, dtype=np.int64).T
    majors = np.array(sorted({m for m, _ in cut.uppers}), dtype=np.int64)
    minors = np.array(sorted({m for _, m in cut.uppers}), dtype=np.int64)

    def rank(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        place = np.searchsorted(majors, a, side="left")
        # Twice the place leaves a rank between any two majors for those that equal neither.
        is_upper = majors[np.minimum(place, len(majors) - 1)] == a
        packed: NDArray[np.int64] = (2 * place + is_upper) * (len(minors) + 1) + np.searchsorted(minors, b, side="left")
        return packed

    epoch = np.searchsorted(rank(upper_major, upper_minor), rank(major, minor), side="left").astype(np.int32)
    epoch[epoch == len(cut.uppers)] = BEYOND
    if cut.lower is not None:
        lower_major, lower_minor = cut.lower
        epoch[(major < lower_major) | ((major == lower_major) & (minor <= lower_minor))] = DROPPED
    return epoch
