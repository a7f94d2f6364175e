"""Bytes looked at eight at a time, at many places at once.

    places  3, 41, 90   literal ', "key": '     -->  True, True, False       two words a place, not nine bytes
    places  7, 55       19 digits               -->  1701102296662969433, ...

Comparing byte by byte would touch each of them through an array of indices; a word takes as long as a byte does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

WORD = 8
BEHIND = 1 << 12
"""So many bytes behind the end may be asked for; they are zeros."""
_HIGH = np.uint64(0xF0F0_F0F0_F0F0_F0F0)
_SIX = np.uint64(0x0606_0606_0606_0606)
_DIGITS = np.uint64(0x3333_3333_3333_3333)
_ZEROS = np.uint64(0x3030_3030_3030_3030)
_PAIRS = np.uint64(0x0000_00FF_0000_00FF)
_BY_100 = np.uint64(0x000F_4240_0000_0064)
_BY_1 = np.uint64(0x0000_2710_0000_0001)
_FOUR, _EIGHT, _SIXTEEN, _THIRTY_TWO, _TEN = (np.uint64(number) for number in (4, 8, 16, 32, 10))

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ByteWords:
    """`data` and the words that begin at each of its bytes, the first byte the lowest."""

    data: npt.NDArray[np.uint8]
    words: Any

    @classmethod
    def of(cls, data: npt.NDArray[np.uint8]) -> ByteWords:
        padded = np.concatenate([data, np.zeros(BEHIND + WORD, np.uint8)])
        # A word may start at any byte, which the stride of one byte allows for.
        words: Any = np.ndarray((len(data) + BEHIND + 1,), "<u8", buffer=padded.data, strides=(1,))
        return cls(padded[: len(data)], words)

    def has(self, places: Places, literal: bytes) -> Mask:
        """Whether this stands at each place."""
        found = np.ones(len(places), np.bool_)
        for at in range(0, len(literal), WORD):
            part = literal[at : at + WORD]
            word, wanted = self.words[places + at], np.uint64(int.from_bytes(part, "little"))
            if len(part) < WORD:
                word = word & np.uint64((1 << 8 * len(part)) - 1)
            found &= word == wanted
        return found

    def behind(self, mark: int, before: bytes) -> Places:
        """The places of a byte that has this in front of it."""
        places = np.flatnonzero(self.data == mark)
        places = places[places >= len(before)]
        return places[self.has(places - len(before), before)]

    def number(self, places: Places, digits: int) -> tuple[Words, Mask]:
        """The numbers of so many digits, at least eight and at most nineteen, that begin at each place, and whether
        they do: a number where other bytes stand means nothing."""
        if not WORD <= digits <= 19:
            raise ValueError(f"numbers of {digits} digits are not for words")
        total = np.zeros(len(places), np.uint64)
        fine = np.ones(len(places), np.bool_)
        for at in range(0, digits, WORD):
            fresh = min(WORD, digits - at)
            word = self.words[places + at + fresh - WORD]
            fine &= ((word & _HIGH) | (((word + _SIX) & _HIGH) >> _FOUR)) == _DIGITS
            value, power = _eight_digits(word), np.uint64(10**fresh)
            total = total * power + (value if fresh == WORD else value % power)
        return total, fine


def _eight_digits(word: Words) -> Words:
    """Neighbours are added up: digits to pairs, pairs to fours, fours to the number."""
    value = word - _ZEROS
    value = value * _TEN + (value >> _EIGHT)
    return ((value & _PAIRS) * _BY_100 + ((value >> _SIXTEEN) & _PAIRS) * _BY_1) >> _THIRTY_TWO
