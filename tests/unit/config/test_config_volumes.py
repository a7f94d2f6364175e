"""Volumes: what people write, as Iceberg's names; what does not fit together is refused by its key."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.config.secrets import MASK, Redactor, masked
from frazil.config.volumes import VolumeConfig, VolumeType

S3 = "org.apache.iceberg.aws.s3.S3FileIO"
KEYS = {"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "hunter22hunter22"}
ABFSS = "abfss://files@acc.dfs.core.windows.net/lake"


def volume(location: str = "s3://lake/tables", **settings: Any) -> VolumeConfig:
    return VolumeConfig.model_validate({"location": location, **settings})


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("/data/lake", VolumeType.LOCAL),
        ("file:///data/lake", VolumeType.LOCAL),
        ("s3://lake/tables", VolumeType.S3),
        ("s3a://lake/tables", VolumeType.S3),
        ("gs://lake/tables", VolumeType.GCS),
        (ABFSS, VolumeType.AZURE),
        ("hdfs://lake/tables", VolumeType.HDFS),
    ],
)
def test_the_type_follows_from_the_location(location: str, kind: VolumeType) -> None:
    assert volume(location).type is kind


@pytest.mark.parametrize(
    ("location", "settings", "properties"),
    [
        ("/data/lake", {}, {}),
        ("s3://lake/t", {}, {"io-impl": S3}),
        ("s3://lake/t", {"region": "eu-west-1"}, {"io-impl": S3, "client.region": "eu-west-1"}),
        (
            "s3://lake/t",
            {"endpoint": "http://minio:9000", **KEYS, "session_token": "tok"},
            {
                "io-impl": S3,
                "s3.endpoint": "http://minio:9000",
                "client.region": "us-east-1",
                "s3.path-style-access": "true",
                "s3.access-key-id": "AKIAIOSFODNN7EXAMPLE",
                "s3.secret-access-key": "hunter22hunter22",
                "s3.session-token": "tok",
            },
        ),
        ("s3://lake/t", {"path_style": False}, {"io-impl": S3, "s3.path-style-access": "false"}),
        ("s3://lake/t", {"profile": "shop"}, {"io-impl": S3, "client.profile-name": "shop"}),
        (
            "s3://lake/t",
            {"sse": "kms", "sse_key": "arn:key", "properties": {"s3.sse.type": "s3", "x": 1}},
            {"io-impl": S3, "s3.sse.type": "s3", "s3.sse.key": "arn:key", "x": "1"},
        ),
        (
            "gs://lake/t",
            {"token": "tok", "project": "p"},
            {"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO", "gcs.oauth2.token": "tok", "gcs.project-id": "p"},
        ),
        (
            ABFSS,
            {"account_key": "k"},
            {
                "io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
                "adls.auth.shared-key.account.name": "acc",
                "adls.auth.shared-key.account.key": "k",
            },
        ),
        (
            ABFSS,
            {"sas_token": "sig=1"},
            {
                "io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
                "adls.sas-token.acc": "sig=1",
                "adls.sas-token.acc.dfs.core.windows.net": "sig=1",
            },
        ),
        (
            "hdfs://lake/t",
            {"namenodes": ["http://a:9870", "http://b:9870"], "user": "shop", "hadoop": {"dfs.replication": 2}},
            {
                "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
                "frazil.hdfs.namenodes": "http://a:9870,http://b:9870",
                "frazil.hdfs.user": "shop",
                "hadoop.dfs.replication": "2",
            },
        ),
        (
            "hdfs://lake/t",
            {"kerberos": True},
            {
                "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
                "hadoop.hadoop.security.authentication": "kerberos",
            },
        ),
    ],
)
def test_settings_become_icebergs_properties(
    location: str, settings: dict[str, Any], properties: dict[str, str]
) -> None:
    assert volume(location, **settings).fileio_properties() == properties


@pytest.mark.parametrize(
    ("location", "settings", "key", "says"),
    [
        ("ftp://x/y", {}, "location", "no storage is known by ftp://"),
        ("gs://lake/t", {"type": "s3"}, "location", "starts with s3://"),
        ("s3://lake/t", {"access_key_id": "AKIA"}, "secret_access_key", "two parts"),
        ("s3://lake/t", {"session_token": "t"}, "session_token", "belongs to an access key"),
        ("s3://lake/t", {**KEYS, "profile": "p"}, "profile", "two identities"),
        ("s3://lake/t", {"sse_key": "k"}, "sse_key", "set sse"),
        ("s3://lake/t", {"sse": "custom"}, "sse_key", "is required"),
        ("s3://lake/t", {"account_key": "k"}, "account_key", "belongs to a volume of type azure"),
        ("/data", {"region": "x"}, "region", "belongs to a volume of type s3"),
        ("gs://lake/t", {"token": "t", "service_account_file": "k.json"}, "token", "two identities"),
        (ABFSS, {"account_key": "k", "sas_token": "s"}, "sas_token", "two identities"),
        (ABFSS, {"client_id": "c"}, "client_secret", "go together"),
        ("abfss://files/lake", {}, "location", "set account"),
        ("hdfs://lake/t", {"kerberos": True, "user": "u"}, "user", "ticket"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(location: str, settings: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        volume(location, **settings)
    (error,) = caught.value.errors()
    assert error["ctx"]["path"] == (key,)
    assert says in error["msg"]


def test_a_table_lies_below_its_volume() -> None:
    assert volume("s3://lake/tables/").table_location(("shop", "eu"), "orders") == "s3://lake/tables/shop/eu/orders"


@pytest.mark.parametrize(
    ("location", "settings"),
    [
        ("s3://lake/t", {**KEYS, "session_token": "tok-hunter22"}),
        ("s3://lake/t", {"sse": "custom", "sse_key": "a-hunter22-key"}),
        ("s3://lake/t", {"properties": {"s3.secret-access-key": "hunter22", "s3.sse.key": "hunter22"}}),
        ("gs://lake/t", {"token": "tok-hunter22"}),
        (ABFSS, {"account_key": "hunter22"}),
        (ABFSS, {"sas_token": "sv=1&sig=hunter22"}),
        (ABFSS, {"client_id": "c", "client_secret": "hunter22"}),
        ("hdfs://lake/t", {"delegation_token": "hunter22"}),
    ],
)
def test_secrets_are_masked_wherever_a_volume_is_shown(location: str, settings: dict[str, Any]) -> None:
    config = volume(location, **settings)
    assert "hunter22" not in repr(config)
    assert "hunter22" not in str(masked(config))
    assert MASK in str(masked(config))
    shown = Redactor(config)(f"it said: {config.fileio_properties()}")
    assert "hunter22" not in shown
