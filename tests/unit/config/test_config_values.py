"""Durations, sizes, sinkless feeds, sink URLs."""

from __future__ import annotations

import pytest
from config_builders import GOOD, config, lines
from hypothesis import given
from hypothesis import strategies as st

from frazil.config.load import parse_config
from frazil.config.parse_values import bytes_of, bytes_text, duration_text, seconds_of, texts_of
from frazil.config.pipeline_config import CatalogType
from frazil.config.sink_url import parse_sink_url
from frazil.errors import ConfigError
from frazil.sources.cockroachdb.sinkless.sql import FeedOptions

SINKLESS = lines(("s3://feeds/shop", "postgresql://root@localhost:26257/shop"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("300ms", 0.3), ("10s", 10.0), ("10m", 600.0), ("1h", 3600.0), ("1d", 86400.0), ("1.5s", 1.5),
     ("0", 0.0), (0, 0.0), ("10 s", 10.0)],
)  # fmt: skip
def test_a_duration_has_a_unit(text: object, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["10", 10, 1.5, "10 years", "m", "-5s", "", None, True, [1]])
def test_a_duration_without_a_known_unit_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds_of(text)


@given(st.integers(min_value=0, max_value=10**10))
def test_a_duration_is_written_as_it_is_read(millis: int) -> None:
    assert seconds_of(duration_text(millis / 1000)) == millis / 1000


@pytest.mark.parametrize(
    ("text", "size"),
    [("64KB", 65536), ("256MB", 256 << 20), ("1GB", 1 << 30), ("1.5kb", 1536), ("8MiB", 8 << 20), (512, 512), ("7", 7)],
)
def test_sizes_are_powers_of_1024(text: object, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["many", "-1", -1, 1.5, float("inf"), float("nan"), True, "1PB", None])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        bytes_of(text)


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_size_is_written_as_it_is_read(size: int) -> None:
    assert bytes_of(bytes_text(size)) == size


def test_numbers_and_booleans_in_passed_on_maps_become_text() -> None:
    assert texts_of({"a": 1, "b": True, "c": 1.5, 4: "d"}) == {"a": "1", "b": "true", "c": "1.5", "4": "d"}


def test_a_nested_value_in_a_passed_on_map_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"source.options.a: must be text, not a mapping"):
        config("source.options.a={b: c}")


def test_a_sinkless_feed_is_told_by_its_url_and_has_defaults() -> None:
    loaded = config(text=SINKLESS)
    assert loaded.source.sinkless
    assert not config().source.sinkless
    assert loaded.source.sinkless_options == FeedOptions(
        resolved="1s", min_checkpoint_frequency="1s", diff=False, extra=()
    )


def test_changefeed_options_are_sorted_into_ours_and_others() -> None:
    loaded = config(
        "source.changefeed_options={resolved: 5s, diff: true, schema_change_policy: nobackfill}", text=SINKLESS
    )
    assert loaded.source.sinkless_options == FeedOptions(
        resolved="5s", min_checkpoint_frequency="1s", diff=True, extra=(("schema_change_policy", "nobackfill"),)
    )


@pytest.mark.parametrize(
    ("text", "override", "message"),
    [
        (GOOD, "source.changefeed_options.diff=true", "source.changefeed_options: only a sinkless feed"),
        (SINKLESS, "source.changefeed_options.cursor=1", "changefeed_options.cursor: cursor is set by Frazil"),
        (SINKLESS, "source.changefeed_options.diff=perhaps", "changefeed_options.diff: must be true or false"),
        (SINKLESS, "source.changefeed_options.resolved=soon", "changefeed_options.resolved: must be a duration"),
        (SINKLESS, "source.complete=true", "source.complete: a sinkless feed has no end"),
        (SINKLESS, "source.envelope=bare", "source.envelope: a sinkless feed has the wrapped envelope"),
    ],
)
def test_options_that_do_not_fit_the_kind_of_feed_are_refused(text: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(override, text=text)
    assert message in str(caught.value)


def test_a_sink_url_stands_for_catalog_target_and_key() -> None:
    sink = parse_sink_url("iceberg://rest.example:8181/analytics/orders?warehouse=s3://lake&equality_delete_by=id,at")
    assert (sink.uri, sink.target, sink.warehouse) == ("https://rest.example:8181", "analytics.orders", "s3://lake")
    assert (sink.key, sink.properties) == (("id", "at"), {})


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("iceberg://localhost:8181/ns/t", "http://localhost:8181"),
        ("iceberg://127.0.0.1/ns/t", "http://127.0.0.1"),
        ("iceberg://[::1]:8181/ns/t", "http://[::1]:8181"),
        ("iceberg://10.0.0.1/ns/t?insecure=true", "http://10.0.0.1"),
        ("iceberg://user:pw@polaris.example/api/catalog/ns/t", "https://polaris.example/api/catalog"),
    ],
)
def test_a_sink_url_is_http_on_loopback_or_on_demand(url: str, uri: str) -> None:
    assert parse_sink_url(url).uri == uri


def test_further_parameters_of_a_sink_url_are_catalog_properties() -> None:
    sink = parse_sink_url("iceberg://me:s%40crt@h/ns/t?s3.endpoint=http://x&oauth2-server-uri=http://y&scope=all")
    assert sink.properties == {
        "s3.endpoint": "http://x", "oauth2-server-uri": "http://y", "scope": "all", "credential": "me:s@crt",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://bucket", "must be a block of settings, or a sink URL"),
        ("iceberg://host/only", "must end in /<namespace>/<table>"),
        ("iceberg:///ns/t", "must be a block of settings"),
        ("iceberg://h/ns/t?warehuose=x", "unknown warehuose in the sink URL; did you mean warehouse?"),
        ("iceberg://h/ns/t?warehouse=a&warehouse=b", "names warehouse twice"),
        ("iceberg://h/ns/t?insecure=maybe", "must be true or false"),
    ],
)
def test_a_wrong_sink_url_is_an_error_of_the_catalog_key(url: str, message: str) -> None:
    text = lines(("catalog:\n  type: builtin\n  warehouse: ./warehouse\n", f"catalog: {url}\n"))
    with pytest.raises(ConfigError) as caught:
        parse_config(text, environ={})
    assert str(caught.value).startswith("configuration: line 5: catalog: ")
    assert message in str(caught.value)


def test_entries_keep_their_own_target_and_key_beside_a_sink_url() -> None:
    url = "iceberg://localhost:8181/lake/%7Btable%7D?warehouse=w&equality_delete_by=id"
    text = lines(("catalog:\n  type: builtin\n  warehouse: ./warehouse\n", f"catalog: {url}\n"))
    loaded = parse_config(text + "  - source: shop.public.items\n", environ={})
    assert loaded.catalog.type is CatalogType.REST
    assert loaded.catalog.warehouse == "w"
    assert [(t.target, t.key) for t in loaded.tables] == [("analytics.orders", ("id",)), ("lake.{table}", ("id",))]
