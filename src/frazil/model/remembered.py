"""What a target table remembers of the source's columns, in its property `frazil.columns`.

    {"3": {"identity": "104.2", "carried": ["c", "b"]},     renamed at the source from b to c, the column is field 3
     "5": {"retired": true},                                its source column goes on in another field
     "9": {"carried": ["amount"]},                          amount_v2, which the source calls amount
     "11": {"carried": ["note"], "family": "f2"}}           note comes with the column family f2 (see `model.parts`)

By field id, so that it holds whatever the table's columns are called, by us or by somebody else. It is written in the
commit that changes the schema, and survives a restart; a field that is not listed is none of the source's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.model.columns import Schema

COLUMNS_PROPERTY = "frazil.columns"


@dataclass(frozen=True, slots=True)
class Remembered:
    """One field. `carried` are its names in rows, the newest first. A `retired` field keeps its old values and gets no
    new ones."""

    identity: str | None = None
    carried: tuple[str, ...] = ()
    retired: bool = False
    family: str | None = None

    def names(self, field_name: str) -> tuple[str, ...]:
        """The names under which rows carry the field."""
        return () if self.retired else self.carried or (field_name,)

    def to_json(self) -> dict[str, Any]:
        json_form = {"identity": self.identity, "carried": list(self.carried), "retired": self.retired}
        known = {key: value for key, value in json_form.items() if value}
        return known if self.family is None else {**known, "family": self.family}


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A target table as a source may learn from it."""

    schema: Schema
    columns: Mapping[int, Remembered] = field(default_factory=dict)


def remembered(properties: Mapping[str, str]) -> dict[int, Remembered]:
    """By field id. What cannot be read is forgotten: names still tell the columns then."""
    try:
        entries = json.loads(properties.get(COLUMNS_PROPERTY, "{}"))
        return {
            int(number): Remembered(
                entry.get("identity"),
                tuple(entry.get("carried", ())),
                bool(entry.get("retired")),
                entry.get("family"),
            )
            for number, entry in entries.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}


def columns_property(columns: Mapping[int, Remembered]) -> str:
    return json.dumps({str(field_id): columns[field_id].to_json() for field_id in sorted(columns)})
