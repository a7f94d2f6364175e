"""Secrets never leave: not in what is shown, not in errors, not in text of other origin."""

from __future__ import annotations

import json

import pytest
from config_builders import config, lines

from frazil.config.secrets import MASK, Redactor, is_secret_name, mask_text, masked
from frazil.errors import ConfigError

SECRETIVE = (
    lines(("s3://feeds/shop", "https://feeds.example/shop?AWS_ACCESS_KEY_ID=AKIAxyz&sig=feedsecret"))
    .replace(
        "catalog:",
        "  schema_from: postgresql://root:sqlp%40ss@db:26257/shop\n"
        "  options: {aws_secret_access_key: optionsecret, aws_region: eu-central-1}\ncatalog:",
    )
    .replace(
        "tables:",
        "  properties: {credential: 'id:catalogsecret', token: tokensecret, s3.endpoint: 'http://minio:9000'}\ntables:",
    )
    + "    columns: {token: STRING}\n"
    + "spark: {conf: {spark.hadoop.fs.s3a.secret.key: sparksecret}}\n"
    + "http: {token: daemonsecret-of-16}\n"
)
SECRETS = (
    "AKIAxyz",
    "feedsecret",
    "sqlp%40ss",
    "optionsecret",
    "catalogsecret",
    "tokensecret",
    "sparksecret",
    "daemonsecret-of-16",
)


def test_masked_configuration_shows_what_is_no_secret_and_nothing_else() -> None:
    shown = masked(config(text=SECRETIVE))
    text = json.dumps(shown)
    assert not [secret for secret in SECRETS if secret in text]
    assert shown["source"]["schema_from"] == f"postgresql://root:{MASK}@db:26257/shop"
    assert shown["source"]["options"] == {"aws_secret_access_key": MASK, "aws_region": "eu-central-1"}
    assert shown["catalog"]["properties"]["s3.endpoint"] == "http://minio:9000"
    assert shown["tables"][0]["key"] == ["id"]
    assert shown["tables"][0]["columns"] == {"token": "STRING"}


def test_the_repr_of_a_configuration_and_of_its_blocks_is_masked() -> None:
    loaded = config(text=SECRETIVE)
    for thing in (loaded, loaded.source, loaded.catalog, loaded.spark, loaded.http):
        assert not [secret for secret in SECRETS if secret in f"{thing!r} {thing}"]


def test_a_redactor_finds_the_values_in_text_of_any_origin() -> None:
    redact = Redactor(config(text=SECRETIVE))
    text = redact("driver said: login sqlp@ss / sqlp%40ss failed, catalogsecret, header tokensecret; orders are fine")
    assert text == f"driver said: login {MASK} / {MASK} failed, {MASK}, header {MASK}; orders are fine"


def test_the_short_name_of_azures_account_key_is_a_secret_among_options_only() -> None:
    loaded = config("source.options={account: lake, key: accountsecret}")
    assert masked(loaded)["source"]["options"] == {"account": "lake", "key": MASK}
    assert Redactor(loaded)("key accountsecret of account lake") == f"key {MASK} of account lake"
    assert masked(loaded)["tables"][0]["key"] == ["id"]


def test_an_error_about_a_secret_value_does_not_repeat_it() -> None:
    with pytest.raises(ConfigError) as caught:
        config("source.options.aws_secret_access_key=[hunter22]", "source.schema_from=mysql://u:hunter22@h/d")
    assert "hunter22" not in str(caught.value)
    assert "hunter22" not in str(caught.value.facts)


def test_a_feeds_address_with_the_parameters_of_its_changefeed_is_refused_by_their_names() -> None:
    with pytest.raises(ConfigError) as caught:
        config("source.feed=s3://feeds/shop?AUTH=specified&AWS_SECRET_ACCESS_KEY=hunter22")
    assert "write s3://feeds/shop, without the parameters of CREATE CHANGEFEED (AUTH, AWS_SECRET_ACCESS_KEY)" in str(
        caught.value
    )
    assert "hunter22" not in f"{caught.value} {caught.value.facts}"


def test_a_secret_from_the_environment_does_not_reach_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        config(text=lines(("type: cockroachdb", "type: ${T}")), environ={"T": "postgresql://u:hunter22@h/d"})
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["password", "aws_secret_access_key", "AWS_ACCESS_KEY_ID", "s3.access-key-id", "token", "credential", "api_key",
     "azure_account_key", "s3.session-token", "sas", "adls.sas-token", "header.Authorization", "sslpassword"],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["key", "region", "endpoint", "warehouse", "primary_keys", "wasabi.bucket", "uri"])
def test_harmless_names_are_not_hidden(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h:1/d", "postgresql://u:***@h:1/d"),
        ("postgresql://u:p@s/s@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h:1/d", "postgresql://u@h:1/d"),
        ("https://host:8181/v1", "https://host:8181/v1"),
        ("jdbc:postgresql://h/d?user=u&password=p&ssl=true", "jdbc:postgresql://h/d?user=u&password=***&ssl=true"),
        ("host=h password='a b' dbname=d", "host=h password=*** dbname=d"),
        ("https://token@host/feed", "https://***@host/feed"),
        ("https://h/feed?sv=1&sig=abc", "https://h/feed?sv=1&sig=***"),
        ("abfss://container@account.dfs.core.windows.net/x", "abfss://container@account.dfs.core.windows.net/x"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_urls_and_assignments_are_masked_in_text(text: str, shown: str) -> None:
    assert mask_text(text) == shown
