"""Plans of schema changes: each kind, their combinations, and random histories on a model of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_model import ModelTable, ids

from frazil.errors import BadInput, ConfigError, TableChanged
from frazil.iceberg.tables.column_match import contradictions, match_columns
from frazil.iceberg.tables.new_schema import first_memory, new_schema, target_columns
from frazil.iceberg.tables.schema_diff import difference
from frazil.iceberg.tables.schema_steps import SchemaChange
from frazil.iceberg.tables.type_promotion import fits
from frazil.model.ids import TableName
from frazil.model.schema import (
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    Decimal,
    Field,
    KnownTable,
    ListOf,
    MapOf,
    Remembered,
    Schema,
    SourceSchema,
    StructOf,
    Type,
    columns_property,
    remembered,
)
from frazil.model.write import DeleteMode, SchemaConflict, TableOptions

ORDERS = TableName(("shop",), "orders")
NEW_COLUMN = TableOptions(on_conflict=SchemaConflict.NEW_COLUMN)
DROP = TableOptions(drop=True)


def column(name: str, kind: Type = STRING, origin: str = "sql", **more: Any) -> Column:
    return Column(name, kind, str(kind).upper(), origin, **more)


def known_as(name: str, identity: str, kind: Type = STRING, **more: Any) -> Column:
    return column(name, kind, identity=identity, **more)


def struct(**kinds: Type) -> StructOf:
    return StructOf(tuple(Field(0, name, kind) for name, kind in kinds.items()))


def table(*columns: Column, mode: DeleteMode = DeleteMode.EQUALITY, key: tuple[str, ...] = ("id",)) -> ModelTable:
    """A table made of id and these columns."""
    source_schema = SourceSchema((column("id", LONG, identity="t.1", required=True), *columns), key, "sql")
    schema = new_schema(ORDERS, source_schema, mode)
    return ModelTable(schema, first_memory(source_schema.columns, schema))


def grown(model: ModelTable, *columns: Column, options: TableOptions = TableOptions()) -> SchemaChange:  # noqa: B008
    """Plans for id and these columns, and applies the plan."""
    change = planned(model, *columns, options=options)
    model.apply(change)
    return change


def planned(model: ModelTable, *columns: Column, options: TableOptions = TableOptions()) -> SchemaChange:  # noqa: B008
    with_id = (column("id", LONG, identity="t.1", required=True), *columns)
    return difference(ORDERS, with_id, model.schema, known=model.known, options=options)


def names(model: ModelTable) -> list[str]:
    return [field.name for field in model.schema]


def test_equal_columns_change_nothing() -> None:
    model = table(column("a", ListOf(STRING)), known_as("b", "t.2", struct(x=INT)))
    assert not planned(model, column("a", ListOf(STRING)), known_as("b", "t.2", struct(x=INT)))


def test_a_table_that_remembers_nothing_learns_what_is_the_sources() -> None:
    model = ModelTable(Schema(0, (Field(1, "id", LONG, True), Field(2, "theirs", STRING)), (1,)))
    change = grown(model)
    assert (change.steps, bool(change)) == ((), True)
    assert model.known == {1: Remembered("t.1", ("id",))}
    assert not planned(model)


def test_missing_columns_are_added_in_the_order_of_the_source() -> None:
    model = table()
    change = grown(model, column("z"), column("a", LONG))
    assert change.texts == ("adds column z string", "adds column a long")
    assert names(model) == ["id", "z", "a"]


@pytest.mark.parametrize(("existing", "wanted"), [(INT, LONG), (FLOAT, DOUBLE), (Decimal(8, 2), Decimal(12, 2))])
@pytest.mark.parametrize(
    "around",
    [
        lambda kind: kind,
        ListOf,
        lambda kind: struct(a=STRING, x=kind),
        lambda kind: MapOf(STRING, struct(x=ListOf(kind))),
    ],
)
def test_a_narrow_type_is_widened_at_any_depth_and_a_wide_one_left(existing: Type, wanted: Type, around: Any) -> None:
    model = table(column("n", around(existing)))
    change = grown(model, column("n", around(wanted)))
    (text,) = change.texts
    assert text.startswith("widens n")
    assert text.endswith(f"from {existing} to {wanted}")
    assert not planned(model, column("n", around(existing)))
    assert not planned(model, column("n", around(wanted)))


@pytest.mark.parametrize(
    ("existing", "wanted", "text"),
    [
        (struct(a=INT), struct(a=INT, b=STRING), "adds column n.b string"),
        (ListOf(struct(a=INT)), ListOf(struct(b=LONG)), "adds column n.element.b long"),
        (MapOf(STRING, struct(a=INT)), MapOf(STRING, struct(a=INT, b=LONG)), "adds column n.value.b long"),
        (struct(a=struct(b=INT)), struct(a=struct(c=struct(d=INT))), "adds column n.a.c struct<d: int>"),
    ],
)
def test_fields_are_added_at_any_depth(existing: Type, wanted: Type, text: str) -> None:
    model = table(column("n", existing))
    assert grown(model, column("n", wanted)).texts == (text,)
    assert not planned(model, column("n", wanted))
    assert not planned(model, column("n", existing)), "what the source lacks stays"


@pytest.mark.parametrize(
    ("existing", "wanted"),
    [
        (LONG, STRING),
        (INT, DOUBLE),
        (Decimal(8, 2), Decimal(12, 3)),
        (TIMESTAMP, TIMESTAMPTZ),
        (STRING, ListOf(STRING)),
        (struct(a=INT), struct(a=STRING)),
        (MapOf(INT, STRING), MapOf(LONG, STRING)),
        (ListOf(struct(a=LONG)), struct(a=LONG)),
    ],
)
def test_a_contradiction_names_table_column_and_both_types(existing: Type, wanted: Type) -> None:
    model = table(column("n", existing))
    with pytest.raises(BadInput) as caught:
        planned(model, column("n", wanted))
    for part in ("shop.orders", "'n'", str(existing), str(wanted)):
        assert part in str(caught.value)
    assert "new-column" in caught.value.hint


def test_a_contradiction_from_the_configuration_is_its_error() -> None:
    with pytest.raises(ConfigError):
        planned(table(column("n", LONG)), column("n", STRING, "configuration"))


def test_an_incompatible_change_starts_a_column_beside_the_old_one_that_goes_on_after_a_restart() -> None:
    model = table(known_as("amount", "t.2", LONG))
    change = grown(model, known_as("amount", "t.2", STRING), options=NEW_COLUMN)
    assert change.texts == ("starts amount_v2 string beside amount long",)
    assert [c.carried for c in change.columns] == [(), ("amount",)]
    assert not planned(model, known_as("amount", "t.2", STRING)), "also if the policy is stop by then"
    assert not planned(model, column("amount", STRING, "inferred")), "also if nobody tells the identity"
    again = grown(model, known_as("amount", "t.2", DOUBLE), options=NEW_COLUMN)
    assert again.texts == ("starts amount_v3 double beside amount_v2 string",)
    assert names(model) == ["id", "amount", "amount_v2", "amount_v3"]
    assert model.known == remembered({"frazil.columns": columns_property(model.known)})


def test_a_name_that_is_taken_is_not_taken_away() -> None:
    model = table(column("amount", LONG), column("amount_v2", LONG))
    change = grown(model, column("amount", STRING), column("amount_v2", LONG), options=NEW_COLUMN)
    assert change.texts[0] == "starts amount_v3 string beside amount long"


def test_a_key_column_never_gets_a_version() -> None:
    model = table()
    with pytest.raises(BadInput, match="'id' is long"):
        difference(ORDERS, [column("id", STRING)], model.schema, known=model.known, options=NEW_COLUMN)
    keyed = KnownTable(Schema(0, (Field(1, "id", LONG),)))
    with pytest.raises(BadInput, match="'id' is long"):
        match_columns(ORDERS, SourceSchema((column("id", STRING),), ("id",), "sql"), keyed, NEW_COLUMN)


def test_rows_of_old_may_still_go_to_a_retired_column() -> None:
    """The table itself tells that column; the one that took over keeps its place."""
    model = table(known_as("amount", "t.2", LONG))
    grown(model, known_as("amount", "t.2", STRING), options=NEW_COLUMN)
    assert not planned(model, column("amount", LONG, "table"), options=NEW_COLUMN)
    assert not planned(model, known_as("amount", "t.2", STRING), options=NEW_COLUMN)


def test_a_required_column_becomes_optional_where_the_source_says_so() -> None:
    fields = (Field(1, "id", LONG, True), Field(2, "a", STRING, True), Field(3, "b", STRING, True))
    model = ModelTable(Schema(0, fields, (1,)))
    columns = (column("a"), column("b", required=True))
    change = difference(ORDERS, [column("id", LONG), *columns], model.schema)
    assert change.texts == ("makes a optional",), "the identifier stays, although its column may be null"
    inferred = [replace(c, origin="inferred") for c in columns]
    assert not difference(ORDERS, inferred, model.schema).steps, "an absent NOT NULL proves nothing there"


def test_a_renamed_column_keeps_its_field_and_its_old_name_in_rows() -> None:
    model = table(known_as("b", "t.2"))
    field_id = model.schema.fields[1].id
    change = grown(model, known_as("c", "t.2"))
    assert change.texts == ("renames b to c",)
    assert (model.schema.fields[1].name, model.schema.fields[1].id) == ("c", field_id)
    assert change.columns[1].carried == ("c", "b")
    again = grown(model, known_as("d", "t.2"))
    assert again.columns[1].carried == ("d", "c", "b")
    assert not planned(model, known_as("d", "t.2"))


def test_a_rename_widens_and_adds_inside_in_one_plan() -> None:
    model = table(known_as("b", "t.2", struct(x=INT)))
    change = grown(model, known_as("c", "t.2", struct(x=LONG, y=STRING)))
    assert change.texts == ("widens b.x from int to long", "renames b to c", "adds column c.y string")
    assert str(model.schema.field("c").type) == "struct<x: long, y: string>"  # type: ignore[union-attr]


def test_a_new_column_of_an_old_name_waits_until_rows_can_be_told_apart() -> None:
    model = table(known_as("b", "t.2"))
    with pytest.raises(BadInput, match=r"'b' is called 'c'.*another column is called 'b'") as caught:
        planned(model, known_as("c", "t.2"), known_as("b", "t.3"))
    assert "RENAME COLUMN b TO c" in caught.value.hint
    model.schema = replace(model.schema, fields=(model.schema.fields[0], replace(model.schema.fields[1], name="c")))
    change = grown(model, known_as("c", "t.2"), known_as("b", "t.3"))
    assert change.texts == ("adds column b string",)
    assert not planned(model, known_as("c", "t.2"), known_as("b", "t.3"))


def test_an_old_name_goes_to_a_new_column_that_came_later() -> None:
    model = table(known_as("b", "t.2"))
    grown(model, known_as("c", "t.2"))
    change = grown(model, known_as("c", "t.2"), known_as("b", "t.3", LONG))
    assert change.texts == ("adds column b long",)
    assert [c.carried_as for c in change.columns[1:]] == [("c",), ("b",)]


def test_a_rename_to_a_name_that_somebody_else_has_keeps_the_tables_name() -> None:
    model = table(known_as("b", "t.2"))
    theirs = Field(99, "c", LONG)
    model.schema = replace(model.schema, fields=(*model.schema.fields, theirs))
    change = grown(model, known_as("c", "t.2"))
    assert change.steps == ()
    assert (change.columns[1].name, change.columns[1].carried) == ("b", ("c", "b"))
    assert not planned(model, known_as("c", "t.2"))


def test_a_name_in_rows_belongs_to_one_field() -> None:
    """b is dropped and kept, and c takes its name: from then on a row's b is never the old column again."""
    model = table(known_as("b", "t.2"), known_as("c", "t.3"))
    change = grown(model, known_as("b", "t.3"))
    assert change.columns[1].name == "c"
    for later in (known_as("b", "t.3"), column("b", origin="inferred")):
        again = planned(model, later)
        assert not again
        assert (again.columns[1].name, again.columns[1].carried) == ("c", ("b", "c"))


def test_a_column_that_somebody_renamed_in_the_table_is_still_the_sources() -> None:
    """H30: what is remembered goes by field id."""
    model = table(column("b"))
    model.schema = replace(model.schema, fields=(model.schema.fields[0], replace(model.schema.fields[1], name="nice")))
    change = planned(model, column("b"))
    assert not change
    assert (change.columns[1].name, change.columns[1].carried) == ("nice", ("b",))


def test_a_column_dropped_and_made_again_at_the_source_goes_on_if_its_type_fits() -> None:
    model = table(known_as("b", "t.2", INT))
    assert grown(model, known_as("b", "t.7", LONG)).texts == ("widens b from int to long",)
    with pytest.raises(BadInput):
        planned(model, known_as("b", "t.9", STRING))


def test_a_dropped_column_stays_unless_drops_are_followed() -> None:
    model = table(known_as("b", "t.2"), column("c"))
    assert not planned(model, known_as("b", "t.2"))
    assert grown(model, known_as("b", "t.2"), options=DROP).texts == ("drops c, which the source has dropped",)
    assert names(model) == ["id", "b"]
    assert not planned(model, known_as("b", "t.2"), options=DROP)


@pytest.mark.parametrize("origin", ["inferred", "table"])
def test_nothing_is_dropped_because_a_row_lacks_it(origin: str) -> None:
    model = table(column("b"), column("c"))
    assert not planned(model, column("b", origin=origin), options=DROP).steps


def test_what_is_not_the_sources_or_carries_the_table_is_never_dropped() -> None:
    model = table(column("b"), column("day"))
    theirs = Field(99, "theirs", LONG)
    model.schema = replace(model.schema, fields=(*model.schema.fields, theirs))
    day = model.schema.fields[2].id
    columns = [column("b")]
    change = difference(ORDERS, columns, model.schema, known=model.known, options=DROP, kept={day})
    assert change.steps == ()
    assert change.notes == ("keeps day, which the source has dropped: the table is partitioned or sorted by it",)


def test_retired_columns_are_history_and_stay() -> None:
    model = table(column("amount", LONG))
    both = replace(DROP, on_conflict=SchemaConflict.NEW_COLUMN)
    grown(model, column("amount", STRING), options=both)
    assert not planned(model, column("amount", STRING), options=both)
    assert names(model) == ["id", "amount", "amount_v2"]


def test_our_columns_take_the_sources_order_and_others_stay_where_they_are() -> None:
    model = table(column("b"), column("a"))
    theirs = Field(99, "theirs", LONG)
    first, *rest = model.schema.fields
    model.schema = replace(model.schema, fields=(first, theirs, *rest))
    change = grown(model, column("a"), column("b"))
    assert names(model) == ["id", "theirs", "a", "b"]
    assert change.texts == ("moves a behind theirs",)
    inferred = [column("b", origin="inferred"), column("a", origin="inferred")]
    assert not planned(model, *inferred), "who infers columns does not know their order"


def test_a_changelog_keeps_the_row_before_which_follows_the_row() -> None:
    model = table(known_as("b", "t.2", INT), known_as("d", "t.3"), mode=DeleteMode.APPEND_ONLY, key=())

    def columns(*more: Column) -> Sequence[Column]:
        source_schema = SourceSchema((column("id", LONG, identity="t.1"), *more), (), "none")
        return target_columns(ORDERS, source_schema, DeleteMode.APPEND_ONLY)

    def plan(*more: Column) -> SchemaChange:
        options = replace(DROP, on_conflict=SchemaConflict.NEW_COLUMN, mode=DeleteMode.APPEND_ONLY)
        return difference(ORDERS, columns(*more), model.schema, known=model.known, options=options)

    assert names(model) == ["id", "b", "d", "_op", "_position", "_before"]
    change = plan(known_as("c", "t.2", LONG), known_as("new", "t.4", struct(x=INT)))
    model.apply(change)
    before = model.schema.fields[-2]
    assert before.name == "_before"
    assert str(before.type) == "struct<id: long, c: long, new: struct<x: int>>"
    assert "renames _before.b to _before.c" in change.texts
    assert not plan(known_as("c", "t.2", LONG), known_as("new", "t.4", struct(x=INT)))
    model.apply(plan(known_as("c", "t.2", STRING), known_as("new", "t.4", struct(x=LONG, y=INT))))
    assert str(model.schema.field("_before").type) == (  # type: ignore[union-attr]
        "struct<id: long, c: long, new: struct<x: long, y: int>, c_v2: string>"
    )


def test_settling_a_shape_again_changes_nothing() -> None:
    model = table(known_as("b", "t.2"), known_as("amount", "t.3", LONG))
    source_schema = SourceSchema(
        (column("id", LONG, identity="t.1"), known_as("c", "t.2"), known_as("amount", "t.3")), ("id",), "sql"
    )
    known = KnownTable(model.schema, model.known)
    assert contradictions(source_schema, known) == ("amount",)
    matched = match_columns(ORDERS, source_schema, known, NEW_COLUMN)
    assert [(c.name, c.carried) for c in matched.columns] == [
        ("id", ()),
        ("c", ("c", "b")),
        ("amount_v2", ("amount",)),
    ]
    assert match_columns(ORDERS, matched, known, NEW_COLUMN) == matched
    model.apply(difference(ORDERS, matched.columns, model.schema, known=model.known, options=NEW_COLUMN))
    assert match_columns(ORDERS, matched, KnownTable(model.schema, model.known), NEW_COLUMN) == matched
    assert match_columns(ORDERS, source_schema, KnownTable(model.schema, model.known), NEW_COLUMN) == matched


def test_what_columns_have_outgrown_stays_beside_them_unless_it_is_widened_after_all() -> None:
    model = table(known_as("amount", "t.2", LONG), known_as("n", "t.3", INT))
    columns = (column("id", LONG, identity="t.1"), known_as("amount", "t.2"), known_as("n", "t.3", LONG))
    old = (column("amount", LONG, origin="table"), column("n", INT, origin="table"))
    source_schema = SourceSchema(columns, ("id",), "sql", old)
    matched = match_columns(ORDERS, source_schema, KnownTable(model.schema, model.known), NEW_COLUMN)
    assert [c.name for c in matched.columns] == ["id", "amount_v2", "n"]
    assert matched.outgrown == old[:1]


# random histories

primitives = st.sampled_from([INT, LONG, FLOAT, DOUBLE, STRING, Decimal(8, 2), Decimal(12, 2), TIMESTAMP])
types = st.recursive(
    primitives,
    lambda inner: st.one_of(
        st.builds(ListOf, inner),
        st.builds(lambda value: MapOf(STRING, value), inner),
        st.dictionaries(st.sampled_from("xyz"), inner, min_size=1, max_size=3).map(lambda kinds: struct(**kinds)),
    ),
    max_leaves=4,
)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Column]]:
    """What a source's table looks like, time after time: columns come, go, change names and types."""
    columns: dict[int, tuple[str, Type]] = {}
    history = []
    for number in range(draw(st.integers(1, 6))):
        for identity in list(columns):
            match draw(st.sampled_from(["stay", "stay", "go", "retype", "rename"])):
                case "go":
                    del columns[identity]
                case "retype":
                    columns[identity] = (columns[identity][0], draw(types))
                case "rename":
                    columns[identity] = (draw(st.sampled_from("abcdef")), columns[identity][1])
        for place in range(draw(st.integers(0, 2))):
            columns[number * 10 + place] = (draw(st.sampled_from("abcdef")), draw(types))
        unique = {name: (identity, kind) for identity, (name, kind) in columns.items()}
        columns = {identity: (name, kind) for name, (identity, kind) in unique.items()}
        tells = draw(st.booleans())
        order = draw(st.permutations(list(columns.items())))
        history.append([column(name, kind, identity=f"t.{100 + i}" if tells else None) for i, (name, kind) in order])
    return history


@pytest.mark.slow
@settings(max_examples=300)
@given(histories(), st.booleans(), st.sampled_from([DeleteMode.EQUALITY, DeleteMode.APPEND_ONLY]))
def test_whatever_happens_to_a_source_its_columns_fit_and_planning_again_yields_nothing(
    history: list[list[Column]], drop: bool, mode: DeleteMode
) -> None:
    """H14, H30, H55: every field keeps its id through its life, no id is ever used twice, and others' columns stay."""
    model = table(mode=mode)
    theirs = Field(model.last_id + 1, "theirs", LONG)
    model = ModelTable(replace(model.schema, fields=(*model.schema.fields, theirs)), model.known)
    options = TableOptions(mode=mode, drop=drop, on_conflict=SchemaConflict.NEW_COLUMN)
    for columns in history:
        source_schema = SourceSchema((column("id", LONG, identity="t.1", required=True), *columns), ("id",), "sql")
        try:
            wanted = match_columns(ORDERS, source_schema, KnownTable(model.schema, model.known), options)
        except BadInput as ambiguous:
            if "another column is called" not in str(ambiguous):
                raise
            continue
        used, last = set(ids(StructOf(model.schema.fields))), model.last_id
        targets = target_columns(ORDERS, wanted, mode)
        change = difference(ORDERS, targets, model.schema, known=model.known, options=options)
        assert change.columns[: len(wanted.columns)] == wanted.columns
        model.apply(change)
        now = ids(StructOf(model.schema.fields))
        assert len(set(now)) == len(now)
        assert all(field_id in used or field_id > last for field_id in now)
        for target in targets:
            field = model.schema.field(target.name)
            assert field is not None
            assert fits(field.type, target.type)
        assert model.schema.field("theirs") == theirs
        again = match_columns(ORDERS, source_schema, KnownTable(model.schema, model.known), options)
        assert again == wanted
        assert not difference(ORDERS, targets, model.schema, known=model.known, options=options)
        in_rows = [name for c in wanted.columns for name in c.carried_as]
        assert len(set(in_rows)) == len(in_rows), "one name in a row means one column"


# columns that somebody else has dropped


def dropped_by_others(model: ModelTable, name: str) -> None:
    """As ALTER TABLE does: the schema changes, and nobody tells our memory."""
    model.schema = replace(model.schema, fields=tuple(field for field in model.schema if field.name != name))


def test_a_column_that_others_dropped_is_not_added_again() -> None:
    """It would be NULL in all rows that are there, and nobody would know."""
    model = table(column("a"), column("b"))
    dropped_by_others(model, "b")
    with pytest.raises(TableChanged) as caught:
        planned(model, column("a"), column("b"))
    assert caught.value.facts["column"] == "b"
    assert "ADD COLUMN b" in caught.value.hint


def test_a_column_that_a_person_added_again_is_taken_as_it_is() -> None:
    model = table(column("a"), column("b"))
    dropped_by_others(model, "b")
    model.schema = replace(model.schema, fields=(*model.schema.fields, Field(99, "b", STRING)))
    change = grown(model, column("a"), column("b"))
    assert not change.steps
    assert 99 in model.known, "its memory follows"


def test_a_column_that_the_source_has_dropped_too_may_be_dropped_by_hand() -> None:
    model = table(column("a"), column("b"))
    dropped_by_others(model, "b")
    grown(model, column("a"))
    assert not planned(model, column("a"))
    grown(model, column("a"), column("b"))
    assert "b" in names(model), "a later column of that name is another one"


def test_a_dropped_column_is_known_by_its_identity_after_a_rename() -> None:
    model = table(known_as("a", "t.2"), known_as("b", "t.3"))
    dropped_by_others(model, "b")
    with pytest.raises(TableChanged):
        planned(model, known_as("a", "t.2"), known_as("c", "t.3"))
    planned(model, known_as("a", "t.2"), known_as("b", "t.4"))


def test_a_retired_column_may_be_dropped_by_hand() -> None:
    model = table(column("n", INT))
    grown(model, column("n", STRING), options=NEW_COLUMN)
    dropped_by_others(model, "n")
    assert not planned(model, column("n", STRING), options=NEW_COLUMN).steps
