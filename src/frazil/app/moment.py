"""A moment of the source as a person writes it: a position, a time with its zone, or a time as commands print it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from frazil.errors import ConfigError
from frazil.model.position import NotAPosition, Position, parse_position

_SHOWN_TIME = re.compile(r"(\S+[ T]\S+\.\d{3}) ?Z")


@dataclass(frozen=True, slots=True)
class AskedMoment:
    """Epochs up to `last` are meant; a table that is published up to `first` is published up to it.

    They differ for a time as commands print it, `2026-03-01 12:00:00.123 Z` or, in JSON, `2026-03-01T12:00:00.123Z`,
    which is cut off after the millisecond: all of that one is meant, so that an epoch is found by what was shown of it.
    """

    text: str
    first: Position | datetime
    last: Position | datetime

    @classmethod
    def of(cls, moment: Position | datetime | str) -> AskedMoment:
        """Raises ConfigError for a text that is neither a position nor a time, and for a time without its zone."""
        if not isinstance(moment, str):
            return cls._checked(moment.isoformat() if isinstance(moment, datetime) else moment.text, moment, moment)
        try:
            if shown := _SHOWN_TIME.fullmatch(moment):
                first, last = (datetime.fromisoformat(f"{shown[1]}{digits}Z") for digits in ("000", "999"))
                return cls._checked(moment, first, last)
            time = datetime.fromisoformat(moment)
            return cls._checked(moment, time, time)
        except ValueError:
            pass
        try:
            position = parse_position(moment)
        except NotAPosition:
            raise _refused(f"{moment} is neither a position nor a time") from None
        return cls._checked(moment, position, position)

    @classmethod
    def _checked(cls, text: str, first: Position | datetime, last: Position | datetime) -> AskedMoment:
        if isinstance(first, datetime) and first.tzinfo is None:
            raise _refused(f"{text} has no time zone")
        return cls(text, first, last)


def _refused(text: str) -> ConfigError:
    return ConfigError(
        text,
        hint="Write a time like 2026-03-01T12:00:00Z, or, in quotes, one or a position as `frazil epochs` shows it: "
        "'2026-03-01 12:00:00.123 Z', 1701102296662969433.0000000001.",
    )
