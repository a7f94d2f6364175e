"""Every column a table ever had."""

from __future__ import annotations

from frazil.lake.fields import columns_ever
from frazil.model.columns import INT, LONG, STRING


def schema(number: int, *fields: tuple[int, str, object], **more: object) -> dict[str, object]:
    listed = [{"id": id_, "name": name, "required": False, "type": type_, **more} for id_, name, type_ in fields]
    return {"type": "struct", "schema-id": number, "fields": listed}


def test_dropped_columns_are_known_and_widened_ones_have_their_widest_type() -> None:
    metadata = {
        "current-schema-id": 2,
        "schemas": [
            schema(2, (1, "id", "long"), (3, "name", "int")),
            schema(0, (1, "id", "int"), (2, "name", "string")),
            schema(1, (1, "id", "long"), (2, "title", "string")),
        ],
    }
    known = columns_ever(metadata)
    assert {id_: (column.field.name, column.field.type) for id_, column in known.items()} == {
        1: ("id", LONG),
        2: ("title", STRING),
        3: ("name", INT),
    }


def test_the_current_schema_has_the_last_word() -> None:
    """A schema may be made the current one again."""
    metadata = {"current-schema-id": 0, "schemas": [schema(0, (1, "now", "long")), schema(1, (1, "then", "long"))]}
    assert columns_ever(metadata)[1].field.name == "now"


def test_what_older_files_have_in_a_column_is_known() -> None:
    metadata = {"current-schema-id": 0, "schemas": [schema(0, (1, "region", "string"), **{"initial-default": "eu"})]}
    assert columns_ever(metadata)[1].default == "eu"


def test_a_type_that_is_not_known_here_is_left_out() -> None:
    metadata = {"current-schema-id": 0, "schemas": [schema(0, (1, "at", "timestamp_ns"), (2, "id", "long"))]}
    assert sorted(columns_ever(metadata)) == [2]
