"""Credentials found where Frazil is started: what is given wins, then a profile, the environment, the default."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frazil.errors import ConfigError
from frazil.storage.credentials import with_credentials

LAKE = "s3://lake/t"
ENVIRONMENT_KEYS = {"AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "env-secret"}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose home has AWS' two files."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = default%secret\n"
        "[shop]\naws_access_key_id = AKIASHOP\naws_secret_access_key = shop-secret\naws_session_token = shop-token\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[profile shop]\nregion = eu-central-1\nendpoint_url = https://s3.shop\n"
        "[profile assumed]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = shop\n"
    )
    return {"HOME": str(tmp_path)}


def nothing_installed(name: str) -> Any:
    raise ImportError(f"No module named {name!r}", name=name)


def test_what_is_given_is_kept(home: dict[str, str]) -> None:
    given = {"s3.access-key-id": "AKIAGIVEN", "s3.secret-access-key": "given"}
    assert with_credentials(LAKE, given, {**home, **ENVIRONMENT_KEYS}) == given
    short = {"access_key_id": "AKIAGIVEN", "secret_access_key": "given"}
    assert with_credentials(LAKE, short, {**home, **ENVIRONMENT_KEYS}) == short


def test_the_environment_comes_before_the_default_profile(home: dict[str, str]) -> None:
    environment = {**home, **ENVIRONMENT_KEYS, "AWS_SESSION_TOKEN": "tok", "AWS_REGION": "eu-west-1"}
    assert with_credentials(LAKE, {}, environment) == {
        "s3.access-key-id": "AKIAENV",
        "s3.secret-access-key": "env-secret",
        "s3.session-token": "tok",
        "client.region": "eu-west-1",
    }


def test_the_default_profile_is_used_when_nothing_else_is_there(home: dict[str, str]) -> None:
    found = with_credentials(LAKE, {}, home)
    assert found == {"s3.access-key-id": "AKIADEFAULT", "s3.secret-access-key": "default%secret"}


@pytest.mark.parametrize("name", ["client.profile-name", "profile", "s3.profile-name"])
def test_a_named_profile_comes_before_the_environment(home: dict[str, str], name: str) -> None:
    found = with_credentials(LAKE, {name: "shop"}, {**home, **ENVIRONMENT_KEYS})
    assert found["s3.access-key-id"] == "AKIASHOP"
    assert found["s3.session-token"] == "shop-token"
    assert found["client.region"] == "eu-central-1"
    assert found["s3.endpoint"] == "https://s3.shop"


def test_a_profile_may_be_named_by_the_environment(home: dict[str, str]) -> None:
    assert with_credentials(LAKE, {}, {**home, "AWS_PROFILE": "shop"})["s3.access-key-id"] == "AKIASHOP"


@pytest.mark.parametrize(
    ("given", "name"), [("endpoint", "s3.endpoint"), ("region", "client.region"), ("s3.region", "client.region")]
)
def test_an_address_that_is_given_wins_under_any_of_its_names(home: dict[str, str], given: str, name: str) -> None:
    found = with_credentials(LAKE, {"profile": "shop", given: "mine"}, home)
    assert found[given] == "mine"
    assert name not in found


def test_a_profile_that_is_not_there_is_named_with_those_that_are(home: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="'stop'") as caught:
        with_credentials(LAKE, {"profile": "stop"}, home)
    assert "shop" in caught.value.hint


def test_nothing_found_leaves_it_to_the_machines(tmp_path: Path) -> None:
    assert with_credentials(LAKE, {"client.region": "x"}, {"HOME": str(tmp_path)}) == {"client.region": "x"}


def test_a_profile_that_assumes_a_role_needs_a_library_that_the_error_names(home: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="role_arn") as caught:
        with_credentials(LAKE, {"profile": "assumed"}, home, nothing_installed)
    assert caught.value.hint == "pip install 'boto3>=1.34'"


def test_a_profile_that_assumes_a_role_is_asked_of_the_vendors_library(home: dict[str, str]) -> None:
    frozen = SimpleNamespace(access_key="ASIATEMP", secret_key="temp", token="tok")
    session = SimpleNamespace(get_credentials=lambda: SimpleNamespace(get_frozen_credentials=lambda: frozen))
    vendor = SimpleNamespace(Session=lambda profile_name: session)
    found = with_credentials(LAKE, {"profile": "assumed"}, home, lambda name: vendor)
    assert found["s3.access-key-id"] == "ASIATEMP"
    assert found["s3.session-token"] == "tok"


def test_a_damaged_file_is_named_and_not_quoted(home: dict[str, str]) -> None:
    path = Path(home["HOME"]) / ".aws" / "credentials"
    path.write_text("aws_secret_access_key = leaked\n")
    with pytest.raises(ConfigError, match="credentials cannot be read") as caught:
        with_credentials(LAKE, {}, home)
    assert "leaked" not in str(caught.value) + caught.value.hint


def test_a_catalog_that_vends_is_not_overruled(home: dict[str, str]) -> None:
    options = {"client.refresh-credentials-endpoint": "v1/credentials", "uri": "http://c"}
    assert with_credentials(LAKE, options, {**home, **ENVIRONMENT_KEYS}) == options


def test_a_service_accounts_key_travels_by_value(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"type": "service_account", "private_key": "pem"}))
    found = with_credentials("gs://lake/t", {}, {"GOOGLE_APPLICATION_CREDENTIALS": str(key)})
    assert json.loads(found["frazil.gcs.service-account-key"])["private_key"] == "pem"
    given = with_credentials("gs://lake/t", {"frazil.gcs.service-account-file": str(key)}, {})
    assert given["frazil.gcs.service-account-key"] == found["frazil.gcs.service-account-key"]


def test_other_google_credentials_need_a_library_that_the_error_names(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"type": "authorized_user"}))
    with pytest.raises(ConfigError, match="authorized_user") as caught:
        with_credentials("gs://lake/t", {}, {"GOOGLE_APPLICATION_CREDENTIALS": str(key)}, nothing_installed)
    assert "pip install 'google-auth>=2.23' 'requests>=2.31'" in caught.value.hint


def test_a_google_file_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"/nowhere\.json"):
        with_credentials("gs://lake/t", {"service_account_file": "/nowhere.json"}, {})


def test_azures_environment_is_taken_along() -> None:
    url = "abfss://files@acc.dfs.core.windows.net/t"
    by_key = with_credentials(url, {}, {"AZURE_STORAGE_ACCOUNT_KEY": "k"})
    assert by_key == {"adls.auth.shared-key.account.name": "acc", "adls.auth.shared-key.account.key": "k"}
    by_token = with_credentials(url, {}, {"AZURE_STORAGE_SAS_TOKEN": "sig=1"})
    assert by_token == {"adls.sas-token.acc": "sig=1"}
    principal = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}
    assert with_credentials(url, {}, principal)["adls.client-secret"] == "s"


def test_azures_login_needs_a_library_that_the_error_names() -> None:
    with pytest.raises(ConfigError, match="azure-identity") as caught:
        with_credentials("az://files/t", {"frazil.azure.login": "true"}, {}, nothing_installed)
    assert caught.value.hint == "pip install 'azure-identity>=1.15'"


def test_local_paths_and_hdfs_are_left_alone() -> None:
    assert with_credentials("/w/x", {"a": "b"}, ENVIRONMENT_KEYS) == {"a": "b"}
    assert with_credentials("hdfs://lake/x", {"a": "b"}, ENVIRONMENT_KEYS) == {"a": "b"}
