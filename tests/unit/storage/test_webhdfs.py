"""Where an HDFS service answers over HTTP, from Hadoop's own settings or ours; and as whom it is asked."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from frazil.errors import ConfigError
from frazil.storage.files.webhdfs import HdfsAnswer, WebHdfs, web_addresses

HA = {
    "hadoop.dfs.nameservices": "lake",
    "hadoop.dfs.ha.namenodes.lake": "nn1, nn2",
    "hadoop.dfs.namenode.http-address.lake.nn1": "one:9870",
    "hadoop.dfs.namenode.http-address.lake.nn2": "two:50070",
    "hadoop.dfs.namenode.https-address.lake.nn1": "one:9871",
    "hadoop.dfs.namenode.https-address.lake.nn2": "two:9871",
}


@pytest.mark.parametrize(
    ("url", "options", "addresses"),
    [
        ("hdfs://nn:8020/x", {}, ("http://nn:9870",)),
        ("hdfs://nn/x", {}, ("http://nn:9870",)),
        ("hdfs://lake/x", HA, ("http://one:9870", "http://two:50070")),
        ("hdfs://lake/x", {**HA, "hadoop.dfs.http.policy": "HTTPS_ONLY"}, ("https://one:9871", "https://two:9871")),
        ("hdfs:///x", {**HA, "hadoop.fs.defaultFS": "hdfs://lake"}, ("http://one:9870", "http://two:50070")),
        ("hdfs://lake/x", {**HA, "frazil.hdfs.namenodes": "https://a, b:1"}, ("https://a:9871", "http://b:1")),
        ("hdfs://nn/x", {"hadoop.dfs.namenode.http-address": "web:50070"}, ("http://web:50070",)),
        ("webhdfs://nn:50070/x", HA, ("http://nn:50070",)),
        ("swebhdfs://nn/x", {}, ("https://nn:9871",)),
    ],
)
def test_the_web_addresses_of_a_service_are_found(
    url: str, options: dict[str, str], addresses: tuple[str, ...]
) -> None:
    assert web_addresses(url, options) == addresses


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("hdfs:///x", {}, "names no namenode"),
        (
            "hdfs://lake/x",
            {"hadoop.dfs.ha.namenodes.lake": "nn1"},
            r"http-address\.lake\.nn1 is not set",
        ),
    ],
)
def test_an_address_that_cannot_be_told_is_asked_for(url: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        web_addresses(url, options)
    assert caught.value.hint


def test_a_user_is_named_and_a_token_is_not() -> None:
    assert WebHdfs("hdfs://nn/x", {"frazil.hdfs.user": "shop"}).identity == "user shop"
    assert "hunter22" not in WebHdfs("hdfs://nn/x", {"frazil.hdfs.delegation-token": "hunter22"}).identity


def test_kerberos_needs_a_library_that_the_error_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_installed(name: str) -> Any:
        raise ImportError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", nothing_installed)
    with pytest.raises(ConfigError, match="Kerberos") as caught:
        WebHdfs("hdfs://nn/x", {"hadoop.hadoop.security.authentication": "kerberos"})
    assert "pip install 'requests>=2.31' 'requests-kerberos>=0.14'" in caught.value.hint


def test_hadoops_answers_are_read_and_others_survived() -> None:
    body = b'{"RemoteException": {"exception": "StandbyException", "message": "first line\\nsecond"}}'
    assert str(HdfsAnswer.of(403, body)) == "StandbyException (first line)"
    assert str(HdfsAnswer.of(502, b"<html>")) == "it answered 502"
