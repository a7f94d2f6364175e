"""A 64-bit hash of many byte strings at once, the same in every process and version.

    bytes of one key   |word 0 |word 1 |wo|      little-endian words of 8 bytes, the last one padded with zeros
                          |       |     |
                        mix(w + (j+1) * STEP)     j is the word's number in its key
                          `---- sum ----'
                               |
                        mix(sum + length * SPREAD)

`mix` is the finaliser of SplitMix64. The words of all keys are mixed together, whatever the keys' lengths, so no
Python runs per row. Chosen over `pandas.util.hash_array` because that one needs a Python object for each key (fifteen
times slower on strings, measured) and is not promised to stay as it is. The hash finds candidates only: every match is
verified on the key's bytes, so a collision costs time and never an answer. Saved indexes hold these numbers: who
changes the function raises `index.VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

WORD = 8
# Few enough words that the work on one block stays in the processor's cache.
BLOCK_WORDS = 1 << 16
_WORDS = np.dtype("<u8")
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SPREAD = np.uint64(0xC2B2AE3D27D4EB4F)
_KEPT_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(WORD + 1)], np.uint64)


def hash_rows(rows: NDArray[np.uint8]) -> Hashes:
    """Of keys that all have the same width: one row of bytes each."""
    count, width = rows.shape
    hashes = np.empty(count, np.uint64)
    words = max(1, -(-width // WORD))
    step = max(1, BLOCK_WORDS // words)
    for start in range(0, count, step):
        block = rows[start : start + step]
        padded = np.zeros((len(block), words * WORD), np.uint8)
        padded[:, :width] = block
        values = padded.view(_WORDS)
        total = np.zeros(len(block), np.uint64)
        for number in range(words):
            total += _mix(values[:, number] + np.uint64((number + 1) * int(_STEP) & 0xFFFFFFFFFFFFFFFF))
        hashes[start : start + step] = _mix(total + np.uint64(width * int(_SPREAD) & 0xFFFFFFFFFFFFFFFF))
    return hashes


def hash_spans(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Hashes:
    """Of keys that lie one after the other in `data`: key i from offsets[i] to offsets[i + 1]."""
    lengths = np.diff(offsets)
    # An empty key has one word of zeros: a sum over nothing has no place in `reduceat`.
    words = np.maximum((lengths + (WORD - 1)) // WORD, 1)
    hashes = np.empty(len(lengths), np.uint64)
    for start, end in _blocks(words):
        hashes[start:end] = _hash_block(data, offsets[start : end + 1], lengths[start:end], words[start:end])
    return hashes


def _blocks(words: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of keys with about BLOCK_WORDS words each; a longer key is a block by itself."""
    ends = np.cumsum(words)
    start = 0
    while start < len(words):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + BLOCK_WORDS, side="right")))
        yield start, end
        start = end


def _hash_block(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], lengths: NDArray[np.int64], words: NDArray[np.int64]
) -> Hashes:
    first_byte, last_byte = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last_byte - first_byte + WORD, np.uint8)
    padded[:-WORD] = data[first_byte:last_byte]
    # A word may start at any byte: the view has one for each.
    every_word: NDArray[Any] = np.ndarray(len(padded) - WORD + 1, _WORDS, padded, strides=(1,))
    first_word = np.cumsum(words) - words
    number = np.arange(int(words.sum())) - np.repeat(first_word, words)
    values = every_word[np.repeat(offsets[:-1] - first_byte, words) + number * WORD]
    values[first_word + words - 1] &= _KEPT_BYTES[lengths - (words - 1) * WORD]
    values += (number.astype(np.uint64) + np.uint64(1)) * _STEP
    return _mix(np.add.reduceat(_mix(values), first_word) + lengths.astype(np.uint64) * _SPREAD)


def _mix(values: Hashes) -> Hashes:
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values
