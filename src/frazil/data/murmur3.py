"""Murmur3, 32 bits, x86 form, seed 0: the hash behind Iceberg's buckets, of many byte strings at once.

    data   i c e b e r g p e a r x ...       starts 0, 7, 11   lengths 7, 4, 1
    round 0    iceb .  pear                  each round takes the next four bytes of all strings that still have them
    rest       erg     -       x             then the odd bytes, then the final mix

Strings are ordered by their number of rounds, so that those still in it are always the first ones. When only a few
very long ones are left, each is finished by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_ADD, _TIMES = np.uint32(0xE6546B64), np.uint32(5)
_MIX1, _MIX2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_FEW = 8
_32 = 0xFFFF_FFFF

Words = npt.NDArray[np.uint32]


def murmur3(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Words:
    """The hash of data[start : start + length], for each start and length."""
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    # A word may start at any byte, which the stride of one byte allows for.
    words: Any = np.ndarray((len(data) + 1,), "<u4", buffer=padded.data, strides=(1,))
    rounds = lengths >> 2
    order = None if _all_equal(rounds) else np.argsort(-rounds, kind="stable")
    first, left = (starts, rounds) if order is None else (starts[order], rounds[order])
    state = np.zeros(len(starts), np.uint32)
    done, most = 0, int(left[0]) if len(left) else 0
    while done < most:
        active = int(np.searchsorted(-left, -done, side="left"))
        if active <= _FEW and most - done > _FEW:
            for place in range(active):
                state[place] = _finish(words, int(first[place]), done, int(left[place]), int(state[place]))
            break
        mixed = state[:active] ^ _scramble(words[first[:active] + 4 * done])
        state[:active] = _rotate(mixed, 13) * _TIMES + _ADD
        done += 1
    if order is not None:
        unordered = np.empty_like(state)
        unordered[order] = state
        state = unordered
    odd = lengths & 3
    state ^= _scramble(words[starts + 4 * rounds] & _MASKS[odd])
    state ^= lengths.astype(np.uint32)
    state ^= state >> np.uint32(16)
    state *= _MIX1
    state ^= state >> np.uint32(13)
    state *= _MIX2
    state ^= state >> np.uint32(16)
    return state


def _finish(words: Any, start: int, done: int, rounds: int, state: int) -> int:
    """The remaining rounds of one string; its words are scrambled together, only the chain runs one by one."""
    for word in _scramble(words[start + 4 * done : start + 4 * rounds : 4].copy()).tolist():
        state ^= word
        state = ((state << 13) | (state >> 19)) & _32
        state = (state * 5 + 0xE6546B64) & _32
    return state


def _scramble(block: Words) -> Words:
    return _rotate(block * _C1, 15) * _C2


def _rotate(block: Words, bits: int) -> Words:
    return (block << np.uint32(bits)) | (block >> np.uint32(32 - bits))


def _all_equal(values: npt.NDArray[np.int64]) -> bool:
    return bool(len(values) == 0 or (values == values[0]).all())
