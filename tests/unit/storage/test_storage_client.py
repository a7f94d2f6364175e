"""Stores are opened with names that the client knows, kept for a while, and never mixed with the environment."""

from __future__ import annotations

import pytest

from frazil.errors import ConfigError
from frazil.storage.client import StaticCredentials, store_for
from frazil.storage.url import parse_place

KEYS = {"s3.access-key-id": "AKIA", "s3.secret-access-key": "secret"}


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://b/x", {**KEYS, "client.region": "eu-west-1", "s3.sse.type": "kms", "s3.sse.key": "k"}),
        ("s3://b/x", {**KEYS, "s3.sse.type": "custom", "s3.sse.key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}),
        ("s3://b/x", {"skip_signature": "true", "request_payer": "true", "s3.connect-timeout": "3"}),
        ("gs://b/x", {"gcs.oauth2.token": "t", "gcs.service.host": "http://127.0.0.1:9"}),
        ("gs://b/x", {"gcs.no-auth": "true"}),
        ("abfss://c@a.dfs.core.windows.net/x", {"adls.sas-token.a": "sv=1&sig=2"}),
        ("abfss://c@a.dfs.core.windows.net/x", {"adls.auth.shared-key.account.key": "a2V5"}),
        ("abfss://c@a.dfs.core.windows.net/x", {"adls.token": "t"}),
        (
            "wasbs://c@a.blob.core.windows.net/x",
            {"adls.tenant-id": "t", "adls.client-id": "c", "adls.client-secret": "s"},
        ),
    ],
)
def test_the_client_knows_every_name_it_is_given(url: str, options: dict[str, str]) -> None:
    assert store_for(parse_place(url), options).listed is not None


def test_a_value_that_the_client_refuses_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigError, match="not understood"):
        store_for(parse_place("s3://b/x"), {**KEYS, "s3.connect-timeout": "soon"})


def test_a_store_is_opened_once_for_the_same_bucket_and_options() -> None:
    first = store_for(parse_place("s3://b/x"), KEYS)
    assert store_for(parse_place("s3://b/another/key"), dict(reversed(KEYS.items()))) is first
    assert store_for(parse_place("s3://other/x"), KEYS) is not first
    assert store_for(parse_place("s3://b/x"), {**KEYS, "s3.secret-access-key": "new"}) is not first


def test_given_credentials_are_exactly_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session token of the environment must not be added to somebody else's keys."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the environment's")
    store = store_for(parse_place("s3://mixed/x"), KEYS)
    provider = store.listed.credential_provider  # type: ignore[union-attr]
    assert isinstance(provider, StaticCredentials)
    assert provider() == {
        "access_key_id": "AKIA",
        "secret_access_key": "secret",
        "token": None,
        "expires_at": None,
    }


def test_a_missing_authority_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"/no/such\.pem"):
        store_for(parse_place("s3://b/x"), {**KEYS, "frazil.tls.ca-file": "/no/such.pem"})
