"""The statement of a sinkless feed and the meaning of the server's refusals."""

from __future__ import annotations

import pickle

import pytest

from frazil.errors import ConfigError, FrazilError, SourceLost, SourceUnavailable
from frazil.model.frontier import Frontier
from frazil.model.position import BatchNumber
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.sinkless.sql import (
    FeedOptions,
    FeedStart,
    create_changefeed,
    explain,
    quoted_table,
    server_of,
    start_of,
    without_password,
)

R1 = Hlc.parse("1701102296662969433.0000000001")
R2 = Hlc.parse("1701102297000000000.0000000000")
URL = "postgresql://relay:s3cr%2Fet@db.example:26257/shop?sslmode=verify-full"


def explained(message: str, sqlstate: str | None = "XXUUU", *, url: str = URL, cursor: Hlc | None = R1) -> FrazilError:
    start = FeedStart() if cursor is None else FeedStart(cursor, scan=False)
    return explain(message, sqlstate, url=url, start=start, tables=["shop.public.orders"])


class TestStatement:
    def test_a_first_run_scans_and_a_resumed_one_names_its_cursor(self) -> None:
        tables = ["shop.public.orders", "shop.public.customers"]
        assert create_changefeed(tables, FeedStart(), FeedOptions()) == (
            'CREATE CHANGEFEED FOR TABLE "shop"."public"."orders", "shop"."public"."customers" WITH updated, '
            "resolved = '1s', min_checkpoint_frequency = '1s', key_in_value, full_table_name, initial_scan = 'yes'"
        )
        resumed = create_changefeed(tables, FeedStart(R1, scan=False), FeedOptions())
        assert resumed.endswith("full_table_name, cursor = '1701102296662969433.0000000001'")

    def test_a_joining_table_is_scanned_at_the_cursor_of_the_others(self) -> None:
        statement = create_changefeed(["t"], FeedStart(R1, scan=True), FeedOptions())
        assert statement.endswith("cursor = '1701102296662969433.0000000001', initial_scan = 'yes'")

    def test_chosen_options_go_through(self) -> None:
        options = FeedOptions(
            resolved="5s",
            min_checkpoint_frequency="250ms",
            diff=True,
            extra=(("schema_change_policy", "nobackfill"), ("split_column_families", None)),
        )
        statement = create_changefeed(["t"], FeedStart(), options)
        assert "resolved = '5s', min_checkpoint_frequency = '250ms'" in statement
        assert ", diff, " in statement
        assert statement.endswith("schema_change_policy = 'nobackfill', split_column_families")

    def test_names_and_values_cannot_leave_their_quotes(self) -> None:
        assert quoted_table('shop.public."my.ta""ble"') == '"shop"."public"."my.ta""ble"'
        assert quoted_table("shop.public.x; DROP TABLE y --") == '"shop"."public"."x; DROP TABLE y --"'
        statement = create_changefeed(["t"], FeedStart(), FeedOptions(extra=(("metrics_label", "a' , cursor='0"),)))
        assert statement.endswith("metrics_label = 'a'' , cursor=''0'")

    @pytest.mark.parametrize("name", ["", "a..b", ".a", "a.", "a.b.c.d", 'a"b', '"a', '""', "a\0b", 'a."b"c'])
    def test_what_is_no_table_name_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError):
            quoted_table(name)

    def test_a_pattern_is_refused_since_a_feed_names_its_tables(self) -> None:
        with pytest.raises(ConfigError) as refused:
            create_changefeed(["shop.public.*"], FeedStart(), FeedOptions())
        assert "name each table" in refused.value.hint

    @pytest.mark.parametrize("name", ["cursor", "resolved", "format", "envelope", "end_time", "no_initial_scan"])
    def test_options_that_the_relay_relies_on_cannot_be_overridden(self, name: str) -> None:
        with pytest.raises(ConfigError, match=name):
            FeedOptions(extra=((name, "x"),))

    @pytest.mark.parametrize("name", ["a b", "x='1', cursor", "", "Upper"])
    def test_an_option_name_is_a_plain_word(self, name: str) -> None:
        with pytest.raises(ConfigError):
            FeedOptions(extra=((name, None),))

    def test_a_feed_needs_a_table(self) -> None:
        with pytest.raises(ConfigError):
            create_changefeed([], FeedStart(), FeedOptions())


class TestStart:
    def test_the_oldest_frontier_is_the_cursor_of_all(self) -> None:
        assert start_of([Frontier(R2), Frontier(R1)]) == FeedStart(R1, scan=False)

    def test_nothing_published_means_a_scan_without_cursor(self) -> None:
        assert start_of([None, None]) == FeedStart(None, scan=True)

    def test_a_table_without_frontier_has_its_rows_scanned(self) -> None:
        """H54: a table that joins must not miss what it held before."""
        assert start_of([Frontier(R2), None]) == FeedStart(R2, scan=True)

    def test_a_start_that_would_leave_a_gap_cannot_be_made(self) -> None:
        with pytest.raises(ValueError, match="would miss"):
            FeedStart(None, scan=False)

    def test_the_position_of_another_kind_of_source_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="batch:7"):
            start_of([Frontier(BatchNumber(7))])


class TestRefusals:
    @pytest.mark.parametrize(
        "message",
        [
            "could not create changefeed: cursor 1701102296662969433.0000000001 is older than the GC threshold "
            "1701902296662969433",
            "batch timestamp 1701102296.662969433,1 must be after replica GC threshold 1701902296.662969433,0",
            "failed to run: batch timestamp 1701102296.6,1 must be after something",
        ],
    )
    def test_a_cursor_behind_garbage_collection_says_what_happened_and_what_to_do(self, message: str) -> None:
        error = explained(message)
        assert isinstance(error, SourceLost)
        assert R1.text in error.message
        assert "gc.ttlseconds" in error.hint
        assert "Drop or rename the target tables" in error.hint

    @pytest.mark.parametrize("message", ['"orders" was truncated', '"orders" was dropped'])
    def test_a_table_that_is_gone_is_a_lost_source(self, message: str) -> None:
        assert isinstance(explained(message), SourceLost)

    @pytest.mark.parametrize(
        ("message", "sqlstate"),
        [
            ('"orders" was truncated', "XXUUU"),
            ('"orders" was dropped', None),
            ("user relay does not have SELECT privilege on relation orders", "42501"),
            ('relation "shop.public.orders" does not exist', "42P01"),
        ],
    )
    def test_what_concerns_one_table_names_it(self, message: str, sqlstate: str | None) -> None:
        """The others of the feed go on without it."""
        tables = ("shop.public.orders", "shop.public.items", "orders_2")
        error = explain(message, sqlstate, url=URL, start=FeedStart(R1), tables=tables)
        assert error.facts["table"] == "shop.public.orders"
        twice = explain(
            message.replace("shop.public.", ""), sqlstate, url=URL, start=FeedStart(), tables=("a.orders", "b.orders")
        )
        assert "table" not in twice.facts, "either may be meant"
        assert (
            "table"
            not in explain("schema change occurred at 17", None, url=URL, start=FeedStart(), tables=("at",)).facts
        )

    def test_a_table_younger_than_the_cursor_is_a_lost_source(self) -> None:
        error = explained("do the targets exist at the specified cursor time 1701102296662969433.0000000001?")
        assert isinstance(error, SourceLost)
        assert "shop.public.orders" in error.hint

    def test_switched_off_rangefeeds_name_the_setting(self) -> None:
        error = explained("rangefeeds require the kv.rangefeed.enabled setting. See https://...")
        assert isinstance(error, ConfigError)
        assert "SET CLUSTER SETTING kv.rangefeed.enabled = true" in error.hint

    @pytest.mark.parametrize(
        ("message", "sqlstate", "hint"),
        [
            ('relation "shop.public.orders" does not exist', "42P01", "shop.public.orders"),
            ('database "shop" does not exist', "3D000", "shop.public.orders"),
            ("user relay does not have SELECT privilege on relation orders", "42501", 'GRANT SELECT ON TABLE "shop"'),
            ("password authentication failed for user relay", "28P01", "password"),
            ("password authentication failed for user relay", None, "password"),
            ('invalid option "foo"', "42601", "CREATE CHANGEFEED"),
            ("schema change occurred at 1701102296662969433.0000000001", "XXUUU", "schema_change_policy"),
            ('root certificate file "root.crt" does not exist', None, "sslrootcert"),
        ],
    )
    def test_what_a_person_must_set_right_comes_with_the_way(
        self, message: str, sqlstate: str | None, hint: str
    ) -> None:
        error = explained(message, sqlstate)
        assert isinstance(error, ConfigError)
        assert hint in error.hint

    @pytest.mark.parametrize(
        ("message", "sqlstate"),
        [
            ("server closed the connection unexpectedly", None),
            ('connection to server at "127.0.0.1", port 1 failed: Connection refused', None),
            ("server is shutting down", "57P01"),
            ("query execution canceled", "57014"),
            ("sorry, too many clients already", "53300"),
            ("something never heard of", "XXUUU"),
        ],
    )
    def test_what_may_pass_is_tried_again(self, message: str, sqlstate: str | None) -> None:
        assert isinstance(explained(message, sqlstate), SourceUnavailable)

    def test_refusals_cross_process_boundaries(self) -> None:
        error = explained('"orders" was dropped')
        assert pickle.loads(pickle.dumps(error)).facts == error.facts


class TestPasswords:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://relay:hunter22@db:26257/shop",
            "postgresql://relay:hun%74er22@db:26257/shop",
            "postgresql://relay@db/shop?password=hunter22&sslmode=require",
            "postgresql://relay:hunter22@sl/a?sh@db:x/shop",
            "postgres//relay:hunter22@db",
        ],
    )
    def test_no_message_holds_the_password_even_if_the_server_repeats_the_url(self, url: str) -> None:
        error = explained(f'missing "=" after "{url}" in connection info string, password hunter22', None, url=url)
        shown = f"{error} {error.hint} {error.facts}"
        assert "hunter22" not in shown
        assert "hun%74er22" not in shown

    def test_a_connection_string_in_key_value_form_is_masked(self) -> None:
        assert without_password("host=x password='a b' user=y", "host=x") == "host=x password=*** user=y"

    def test_the_server_is_named_by_host_port_and_database(self) -> None:
        assert server_of(URL) == "db.example:26257/shop"
        assert server_of("postgresql://u@[::1]:26257,b:1/shop?x=1") == "[::1]:26257,b:1/shop"

    @pytest.mark.parametrize("url", ["postgresql://u:p?w@h/db", "postgresql://u:p/w@h/db", "host=h password=x"])
    def test_a_url_that_does_not_read_cleanly_is_not_shown(self, url: str) -> None:
        assert server_of(url) == "the server"
