"""Files to configurations, and mistakes to sentences that name file, line, key and what was probably meant."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import pytest
from config_builders import GOOD, config, lines

from frazil.config.load import config_hash, load_config, parse_config
from frazil.config.pipeline_config import CatalogType, SnapshotMode
from frazil.errors import ConfigError
from frazil.model.write import DeleteMode


def refusal(text: str, *overrides: str, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config(*overrides, text=text, environ=environ)
    return caught.value


def test_a_small_file_is_enough_and_the_rest_has_defaults() -> None:
    loaded = config()
    assert loaded.job.text == "shop"
    assert loaded.catalog.type is CatalogType.BUILTIN
    assert loaded.catalog.name == "frazil"
    assert loaded.tables[0].deletes is DeleteMode.VECTORS
    assert loaded.tables[0].options.format_version == 3
    assert loaded.snapshot is SnapshotMode.EVERY_RESOLVED
    assert (loaded.epoch_interval, loaded.heartbeat, loaded.source.poll_interval) == (0.0, 600.0, 1.0)
    assert (loaded.limits.epochs_in_flight, loaded.limits.epochs_per_job) == (3, 16)
    assert loaded.limits.small_epoch_bytes == 32 << 20
    assert (loaded.http.host, loaded.http.port, loaded.http.token) == ("127.0.0.1", None, None)
    assert loaded.parquet.settings.target_file_bytes == 256 << 20


def test_relative_paths_are_relative_to_the_file_and_not_to_the_caller(tmp_path: Path) -> None:
    file = tmp_path / "etc" / "shop.yaml"
    file.parent.mkdir()
    file.write_text(lines(("s3://feeds/shop", "../feed")))
    loaded = load_config(file, environ={})
    assert loaded.source.feed == str(tmp_path / "feed")
    assert loaded.catalog.warehouse == str(tmp_path / "etc" / "warehouse")


def test_cloud_urls_and_absolute_paths_stay_as_written(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(lines(("./warehouse", "/data/warehouse")))
    loaded = load_config(file, environ={})
    assert loaded.source.feed == "s3://feeds/shop"
    assert loaded.catalog.warehouse == "/data/warehouse"


def test_an_override_path_is_relative_to_the_file_too(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(GOOD)
    assert load_config(file, ["source.feed=./other"], {}).source.feed == str(tmp_path / "other")


def test_a_misspelt_key_names_its_path_its_line_and_the_nearest_key() -> None:
    error = refusal(lines(("    key: [id]", "    keyy: [id]")))
    assert str(error) == "shop.yaml: line 11: tables[0].keyy: unknown key; did you mean 'key'?"
    assert error.exit_code == 2
    assert error.hint


def test_a_key_in_the_wrong_block_is_told_where_it_belongs() -> None:
    assert "'warehouse' belongs under catalog" in str(refusal(GOOD + "warehouse: ./w\n"))
    assert "belongs at the top level" in str(refusal(lines(("  feed:", "  heartbeat: 5m\n  feed:"))))


def test_a_key_like_no_other_lists_the_known_ones() -> None:
    error = refusal(lines(("  warehouse", "  zzz: 1\n  warehouse")))
    assert "catalog.zzz: unknown key; known here: type, name, warehouse, " in str(error)


def test_all_problems_are_listed_at_once_in_the_order_of_the_file() -> None:
    text = lines(("type: builtin", "type: bulitin"), ("key: [id]", "deletes: eqality")) + "heartbeat: soon\n"
    problems = refusal(text).facts["problems"]
    assert [problem.split(": ")[:2] for problem in problems] == [
        ["line 6", "catalog.type"],
        ["line 11", "tables[0].deletes"],
        ["line 12", "heartbeat"],
    ]
    assert "did you mean 'builtin'?" in problems[0]
    assert "must be one of vectors, equality, append-only, not 'eqality'; did you mean 'equality'?" in problems[1]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("type: cockroachdb", "type: postgresql", "source.type"),
    ],
)
def test_what_a_later_version_brings_is_refused_by_name(old: str, new: str, path: str) -> None:
    text = str(refusal(lines((old, new))))
    assert f" {path}: " in text
    assert "not available in this version" in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pipeline: shop", "pipeline: 7", "pipeline: must be text, not a number; put it in quotes"),
        ("pipeline: shop", "pipeline: 'a b'", "must start with a letter"),
        ("key: [id]", "key: id", "tables[0].key: must be a list, not text"),
        ("key: [id]", "key: [id, id]", "tables[0].key: names 'id' twice"),
        ("key: [id]", "format_version: 4", "tables[0].format_version: must be one of 2, 3, not '4'"),
        ("key: [id]", "partition: ['day(at']", "tables[0].partition: 'day(at' is no partition field"),
        ("key: [id]", "partition: ['bucket(id)']", "bucket and truncate, and only they, have a width"),
        ("key: [id]", "partition: ['week(at)']", "unknown transform 'week'"),
        ("key: [id]", "partition: [a, a]", "tables[0].partition: names 'a' twice"),
        ("key: [id]", "sort: [a sideways]", "tables[0].sort: 'a sideways' is no sort field"),
        ("key: [id]", "deletes: append-only\n    changelog: true", "an append-only table is a changelog already"),
        ("key: [id]", "columns: [id]", "tables[0].columns: must be a mapping, not a list"),
        ("  feed: s3://feeds/shop\n", "", "source.feed: is required"),
        ("  warehouse: ./warehouse\n", "", "catalog.warehouse: is required for a catalog of type builtin"),
        ("type: builtin", "type: rest", "catalog.uri: is required for a catalog of type rest"),
        ("type: builtin", "type: memory", "catalog.warehouse: a memory catalog lives in a temporary directory"),
        ("./warehouse", "s3://lake", "catalog.uri: a builtin catalog over cloud storage needs a local path"),
        ("pipeline: shop", "pipeline: shop\nheartbeat: 5", "heartbeat: a duration needs a unit: 5s or 5m"),
        ("pipeline: shop", "pipeline: shop\nhttp: {port: 99999}", "http.port: must be less than"),
        ("pipeline: shop", "pipeline: shop\nhttp: {port: many}", "http.port: must be a whole number, not 'many'"),
        ("pipeline: shop", "pipeline: shop\nhttp: {token: short}", "http.token: must be at least 16 letters"),
        ("pipeline: shop", "pipeline: shop\nhttp: {token: 'a token with some spaces'}", "http.token: must be"),
        ("pipeline: shop", "pipeline: shop\nparquet: {page_bytes: 1XB}", "parquet.page_bytes: must be a size such as"),
        ("feed: s3://feeds/shop", "feed: s3://f\n  complete: perhaps", "source.complete: must be true or false"),
        ("feed: s3://feeds/shop", "feed: s3://f\n  schema_from: mysql://h", "source.schema_from: must be a URL post"),
        ("feed: s3://feeds/shop", "feed: ''", "source.feed: must not be empty"),
        ("target: analytics.orders", "target: orders", "tables[0].target: table 'orders' must be written namespace."),
        ("target: analytics.orders", "target: _frazil.x", "tables[0].target: the namespace _frazil is reserved"),
        ("key: [id]", "properties: {format-version: 3}", "tables[0].properties.format-version: set format_version"),
        ("key: [id]", "properties: {encryption.key-id: k}", "tables[0].properties.encryption.key-id: Frazil writes"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_must_be(old: str, new: str, message: str) -> None:
    assert message in str(refusal(lines((old, new))))


def test_no_tables_at_all_is_an_error_of_the_list() -> None:
    assert "tables: needs at least one entry" in str(refusal(GOOD.split("tables:")[0] + "tables: []\n"))


def test_two_entries_cannot_claim_one_target() -> None:
    text = GOOD + "  - source: shop.public.archive\n    target: analytics.orders\n"
    assert "line 13: tables[1].target: two entries claim one target: tables[0] already fills analytics.orders" in str(
        refusal(text)
    )


def test_two_entries_claim_one_target_by_default_names_too() -> None:
    text = GOOD + "  - source: shop.public.items\n  - source: shop.other.items\n"
    assert "two entries claim one target: tables[1] already fills shop.items" in str(refusal(text))


def test_a_source_table_is_named_once() -> None:
    text = GOOD + "  - source: shop.public.orders\n    target: other.orders\n"
    assert "tables[1].source: tables[0] already names shop.public.orders" in str(refusal(text))


def test_an_unreadable_file_says_so(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.yaml"
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere.yaml: no such file") as caught:
        load_config(missing)
    assert "frazil init" in caught.value.hint
    with pytest.raises(ConfigError, match="is a directory"):
        load_config(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(binary)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("# only words\n", "the file is empty"),
        ("- a\n- b\n", "must be a mapping"),
        ("pipeline: [shop\n", "not valid YAML"),
        ("pipeline: shop\npipeline: other\n", "line 2: pipeline: is there twice, first in line 1"),
        ("a: &x [*x]\n", "an alias must not contain itself"),
        ("a: !!python/object:os.system {}\nb: !!python/name:os.system x\n", "not valid YAML"),
        ("? [a]\n: b\n", "a key must be a plain name"),
    ],
)
def test_what_is_no_configuration_is_told_apart(text: str, message: str) -> None:
    assert message in str(refusal(text))


def test_a_yaml_error_names_its_line() -> None:
    assert "shop.yaml: line 3: not valid YAML" in str(refusal("pipeline: shop\nsource:\n\tx: 1\n"))


def test_a_column_named_like_a_boolean_stays_a_name() -> None:
    loaded = config(text=lines(("key: [id]", "columns: {no: BOOL, on: INT8, 1: INT8, null: STRING}")))
    assert loaded.tables[0].columns == {"no": "BOOL", "on": "INT8", "1": "INT8", "null": "STRING"}


def test_a_key_with_nothing_after_it_means_its_default() -> None:
    loaded = config(text=GOOD + "http:\nspark:\n  conf:\n")
    assert loaded.http.port is None
    assert loaded.spark.conf == {}


def test_an_unknown_key_with_nothing_after_it_is_still_unknown() -> None:
    assert "htpp: unknown key; did you mean 'http'?" in str(refusal(GOOD + "htpp:\n"))


def test_environment_variables_fill_values() -> None:
    text = lines(
        ("s3://feeds/shop", "s3://${BUCKET}/${PREFIX:-shop}"),
        ("key: [id]", "key: ['${KEY}']"),
    ) + "http: {port: '${PORT}'}\n"  # fmt: skip
    loaded = config(text=text, environ={"BUCKET": "feeds", "KEY": "id", "PORT": "9464"})
    assert loaded.source.feed == "s3://feeds/shop"
    assert loaded.tables[0].key == ("id",)
    assert loaded.http.port == 9464


def test_an_optional_key_may_be_left_to_a_variable_that_is_not_set() -> None:
    text = lines(("s3://feeds/shop", "s3://feeds/shop\n  schema_from: ${SQL:-}"))
    assert config(text=text, environ={}).source.schema_from is None
    assert config(text=text, environ={"SQL": "postgresql://db/shop"}).source.schema_from == "postgresql://db/shop"


def test_a_value_from_the_environment_cannot_change_the_structure() -> None:
    loaded = config(text=lines(("s3://feeds/shop", "${FEED}")), environ={"FEED": "a: [b, {c: d}] # x"})
    assert loaded.source.feed == "a: [b, {c: d}] # x"


def test_a_default_is_taken_for_an_empty_variable_and_dollars_can_be_escaped() -> None:
    text = lines(("s3://feeds/shop", "s3://${A:-x}/$${B}/${C:-}"))
    assert config(text=text, environ={"A": ""}).source.feed == "s3://x/${B}/"


def test_missing_variables_are_all_named_with_their_keys() -> None:
    error = refusal(lines(("s3://feeds/shop", "${FEED}"), ("[id]", "['${KEY}']")))
    assert error.facts["problems"] == (
        "line 4: source.feed: the environment variable FEED is not set",
        "line 11: tables[0].key[0]: the environment variable KEY is not set",
    )


@pytest.mark.parametrize("value", ["${", "${A", "${}", "${A B}", "${1A}"])
def test_a_variable_that_is_none_is_an_error(value: str) -> None:
    assert "source.feed: ${ must be followed by a variable's name" in str(
        refusal(lines(("s3://feeds/shop", f"'{value}'")))
    )


def test_overrides_reach_lists_blocks_and_keys_with_dots() -> None:
    loaded = config(
        "tables.0.target=lake.orders",
        "tables.1.source=shop.public.items",
        "tables.1.key=[order_id, line]",
        "spark.conf.spark.sql.shuffle.partitions=8",
        "catalog.properties.s3.endpoint=http://localhost:9000",
        "http.port=9464",
        "heartbeat=30s",
        "http.port=9465",
    )
    assert loaded.tables[0].target == "lake.orders"
    assert loaded.tables[1].key == ("order_id", "line")
    assert loaded.spark.conf == {"spark.sql.shuffle.partitions": "8"}
    assert loaded.catalog.properties == {"s3.endpoint": "http://localhost:9000"}
    assert (loaded.http.port, loaded.heartbeat) == (9465, 30.0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("nonsense", "'nonsense' must be written key=value"),
        ("a..b=1", "must be written key=value"),
        ("tables.first.key=[id]", "tables is a list: name one of its entries by number"),
        ("tables.7.key=[id]", "tables has 1 entries, so there is no entry 7"),
        ("pipeline.name=x", "pipeline is a single value and has no name"),
        ("http.prot=1", "--set http.prot: unknown key; did you mean 'port'?"),
        ("heartbeat=often", "--set heartbeat: must be a duration"),
    ],
)
def test_an_override_that_leads_nowhere_is_an_error(override: str, message: str) -> None:
    assert message in str(refusal(GOOD, override))


def test_the_error_crosses_processes_with_its_facts() -> None:
    error = pickle.loads(pickle.dumps(refusal(GOOD + "zzz: 1\n")))
    assert error.facts["file"] == "shop.yaml"


def test_the_hash_stays_when_addresses_passwords_and_tuning_change() -> None:
    before = config_hash(config())
    same = config(
        "source.feed=s3://moved/shop", "source.options.aws_secret_access_key=x", "catalog.warehouse=./other",
        "http.port=9", "heartbeat=1h", "parquet.compression=snappy", "spark.master=local[1]",
        "limits.epochs_per_job=2",
    )  # fmt: skip
    assert config_hash(same) == before
    assert len(before) == len(hashlib.sha256().hexdigest())


@pytest.mark.parametrize(
    "override",
    ["tables.0.key=[a]", "tables.0.deletes=append-only", "tables.0.columns.a=INT8", "tables.0.target=b.c",
     "snapshot=latest", "pipeline=other", "source.envelope=bare", "source.bare_deletes=never", "tables.1.source=more"],
)  # fmt: skip
def test_the_hash_changes_with_what_decides_the_tables(override: str) -> None:
    assert config_hash(config(override)) != config_hash(config())


def test_the_hash_knows_the_order_of_columns_since_csv_files_are_read_by_it() -> None:
    one = config(text=lines(("key: [id]", "columns: {a: INT8, b: INT8}")))
    other = config(text=lines(("key: [id]", "columns: {b: INT8, a: INT8}")))
    assert config_hash(one) != config_hash(other)


def test_a_text_without_a_file_keeps_relative_paths() -> None:
    assert parse_config(lines(("s3://feeds/shop", "./feed")), environ={}).source.feed == "./feed"
