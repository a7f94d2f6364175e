"""The volume block: where tables' files lie, and as whom they are written.

    volumes:
      main: {location: s3://lake/tables, region: eu-central-1}
        |
        +-- fileio_properties: Iceberg's FileIO names, for the catalog and for the workers alike
        +-- table_location:    <location>/<namespace>/<table>

| type  | location                                            | as whom                                          |
|-------|-----------------------------------------------------|--------------------------------------------------|
| local | a path that every executor reaches                  | the user that runs Spark                         |
| s3    | s3://bucket/path                                    | access key, profile, environment, role           |
| gcs   | gs://bucket/path                                    | service account, token, environment, role        |
| azure | abfss://container@account.dfs.core.windows.net/path | account key, SAS token, client, login, environment |
| hdfs  | hdfs://service/path                                 | user, or Kerberos                                |

A volume is only told what it needs: credentials that are not given are looked for where Frazil is started, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from frazil.config.block import LocalOrCloud, Settings, problem
from frazil.config.parse_values import TextMap
from frazil.storage.options import AZURE_LOGIN, CA_FILE, GCS_KEY_FILE, HDFS_NAMENODES, HDFS_TOKEN, HDFS_USER, PROFILE
from frazil.storage.url import FILE_IO, kind_of, scheme_of

_AZURE_HOST = "dfs.core.windows.net"
_DEFAULT_REGION = "us-east-1"


class VolumeType(StrEnum):
    LOCAL = "local"
    S3 = "s3"
    GCS = "gcs"
    AZURE = "azure"
    HDFS = "hdfs"


_SCHEMES = {
    VolumeType.LOCAL: ("", "file"),
    VolumeType.S3: ("s3", "s3a", "s3n"),
    VolumeType.GCS: ("gs",),
    VolumeType.AZURE: ("abfs", "abfss", "wasb", "wasbs"),
    VolumeType.HDFS: ("hdfs", "webhdfs", "swebhdfs"),
}
_HADOOP_FILE_IO = "org.apache.iceberg.hadoop.HadoopFileIO"
_OPTIONS = {
    VolumeType.LOCAL: (),
    VolumeType.S3: (
        *("endpoint", "region", "path_style", "access_key_id", "secret_access_key", "session_token", "profile"),
        *("sse", "sse_key", "ca_file"),
    ),
    VolumeType.GCS: ("endpoint", "project", "token", "service_account_file", "ca_file"),
    VolumeType.AZURE: (
        *("endpoint", "account", "account_key", "sas_token", "tenant_id", "client_id", "client_secret", "login"),
        "ca_file",
    ),
    VolumeType.HDFS: ("namenodes", "user", "kerberos", "delegation_token", "hadoop", "ca_file"),
}
_OF_ALL = ("type", "location", "properties")


class VolumeConfig(Settings):
    """Where the files of tables lie. Secrets are best taken from the environment: `${LAKE_SECRET}`."""

    type: VolumeType = Field(description="The kind of storage. Default: by the location's scheme.")
    location: LocalOrCloud = Field(
        min_length=1,
        description=(
            "The root of the volume: a path, s3://bucket/path, gs://bucket/path, hdfs://service/path or "
            "abfss://container@account.dfs.core.windows.net/path. A table lies at <location>/<namespace>/<table>."
        ),
        examples=["s3://lake/tables"],
    )
    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="s3, gcs, azure: the address of a compatible or private service, instead of the vendor's own.",
        examples=["https://minio.example.com:9000"],
    )
    region: str | None = Field(
        default=None, min_length=1, description="s3: the region of the bucket.", examples=["eu-central-1"]
    )
    path_style: bool | None = Field(
        default=None,
        description=(
            "s3: whether the bucket is named in the path (true) or in the host name. Default: in the path where "
            "`endpoint` is set."
        ),
    )
    access_key_id: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "s3: the access key. Without it: `profile`, then AWS_ACCESS_KEY_ID and its like, then the default profile, "
            "all where Frazil is started; then the role of each machine."
        ),
    )
    secret_access_key: str | None = Field(default=None, min_length=1, description="s3: the access key's secret.")
    session_token: str | None = Field(default=None, min_length=1, description="s3: of temporary credentials.")
    profile: str | None = Field(
        default=None,
        min_length=1,
        description="s3: a profile of ~/.aws, instead of keys. One that assumes a role or logs in needs frazil[aws].",
    )
    sse: Literal["none", "s3", "kms", "dsse-kms", "custom"] = Field(
        default="none", description="s3: how the service encrypts objects (server-side encryption)."
    )
    sse_key: str | None = Field(
        default=None,
        min_length=1,
        description="s3: for kms and dsse-kms the key's id, for custom the key itself in base64.",
    )
    project: str | None = Field(default=None, min_length=1, description="gcs: the project that pays.")
    token: str | None = Field(default=None, min_length=1, description="gcs: an OAuth2 token; it is not renewed.")
    service_account_file: LocalOrCloud | None = Field(
        default=None,
        description=(
            "gcs: the JSON key of a service account, read where Frazil is started. Without it: "
            "GOOGLE_APPLICATION_CREDENTIALS there, then the account of each machine."
        ),
    )
    account: str | None = Field(
        default=None, min_length=1, description="azure: the storage account. Default: the one in the location."
    )
    account_key: str | None = Field(default=None, min_length=1, description="azure: the account's key.")
    sas_token: str | None = Field(default=None, min_length=1, description="azure: a SAS token for the container.")
    tenant_id: str | None = Field(default=None, min_length=1, description="azure: the tenant of client_id.")
    client_id: str | None = Field(default=None, min_length=1, description="azure: a service principal.")
    client_secret: str | None = Field(default=None, min_length=1, description="azure: the service principal's secret.")
    login: bool = Field(
        default=False,
        description="azure: use the login of the user that starts Frazil (`az login`, ...); needs frazil[azure].",
    )
    namenodes: tuple[str, ...] = Field(
        default=(),
        description=(
            "hdfs: the web addresses of all namenodes, for the workers (WebHDFS). Default: from `hadoop` "
            "(dfs.namenode.http-address...), else port 9870 of the location's host."
        ),
        examples=[["http://nn1:9870", "http://nn2:9870"]],
    )
    user: str | None = Field(
        default=None, min_length=1, description="hdfs: the user's name, without Kerberos. Default: who runs Spark."
    )
    kerberos: bool = Field(
        default=False, description="hdfs: whether to use the Kerberos ticket of each process; needs frazil[hdfs]."
    )
    delegation_token: str | None = Field(
        default=None, min_length=1, description="hdfs: a token in place of Kerberos, for executors without a ticket."
    )
    hadoop: TextMap = Field(
        default_factory=dict,
        description="hdfs: Hadoop's own settings, as in hdfs-site.xml: nameservices, addresses, failover.",
        examples=[{"dfs.nameservices": "lake", "dfs.ha.namenodes.lake": "nn1,nn2"}],
    )
    ca_file: LocalOrCloud | None = Field(
        default=None,
        description=(
            "The PEM file of a private certificate authority, at the same path on every machine, for the workers; "
            "Spark's Java has its own trust store."
        ),
    )
    properties: TextMap = Field(
        default_factory=dict,
        description="Passed on untouched to Iceberg's FileIO and to the workers; wins over all of the above.",
        examples=[{"s3.multipart.part-size-bytes": "33554432"}],
    )

    @model_validator(mode="before")
    @classmethod
    def _type_by_its_scheme(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("type") and isinstance(data.get("location"), str):
            scheme = scheme_of(data["location"])
            found = next((kind for kind, schemes in _SCHEMES.items() if scheme in schemes), None)
            if found is None:
                known = ", ".join(f"{one}://" for schemes in _SCHEMES.values() for one in schemes if one)
                raise problem(f"no storage is known by {scheme}://; known are {known} and paths", "location")
            return {**data, "type": found}
        return data

    @field_validator("location")
    @classmethod
    def _without_a_slash_at_its_end(cls, value: str) -> str:
        return value.rstrip("/") or "/"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if scheme_of(self.location) not in _SCHEMES[self.type]:
            known = " or ".join(f"{scheme}://" if scheme else "a path" for scheme in _SCHEMES[self.type])
            raise problem(f"a volume of type {self.type} starts with {known}", "location")
        for name in type(self).model_fields:
            info = type(self).model_fields[name]
            unset = getattr(self, name) == info.get_default(call_default_factory=True, validated_data={})
            if not unset and name not in (*_OF_ALL, *_OPTIONS[self.type]):
                homes = " or ".join(kind for kind, names in _OPTIONS.items() if name in names)
                raise problem(f"belongs to a volume of type {homes}; this one is of type {self.type}", name)
        match self.type:
            case VolumeType.S3:
                self._one_way_in()
            case VolumeType.GCS if self.token and self.service_account_file:
                raise problem("token and service_account_file are two identities: give one", "token")
            case VolumeType.AZURE:
                self._one_way_into_azure()
            case VolumeType.HDFS if self.kerberos and self.user:
                raise problem("the Kerberos ticket says who the user is: remove one of the two", "user")
            case _:
                pass
        return self

    def _one_way_in(self) -> None:
        if bool(self.access_key_id) != bool(self.secret_access_key):
            missing = "secret_access_key" if self.access_key_id else "access_key_id"
            raise problem("an access key has two parts: access_key_id and secret_access_key", missing)
        if self.session_token and not self.access_key_id:
            raise problem("belongs to an access key: set access_key_id and secret_access_key too", "session_token")
        if self.profile and self.access_key_id:
            raise problem("a profile and an access key are two identities: give one", "profile")
        if self.sse_key and self.sse in ("none", "s3"):
            raise problem("set sse to kms, dsse-kms or custom to use a key", "sse_key")
        if self.sse == "custom" and not self.sse_key:
            raise problem("is required for sse: custom", "sse_key")

    def _one_way_into_azure(self) -> None:
        given = [name for name in ("account_key", "sas_token", "client_id", "login") if getattr(self, name)]
        if len(given) > 1:
            raise problem(f"{' and '.join(given)} are two identities: give one", given[1])
        if bool(self.client_id) != bool(self.client_secret):
            raise problem("client_id and client_secret go together", "client_secret" if self.client_id else "client_id")
        if not self.azure_account:
            raise problem("write abfss://container@account.dfs.core.windows.net/path, or set account", "location")

    @property
    def azure_account(self) -> str:
        """The storage account, from the setting or the location."""
        host = self.location.partition("://")[2].partition("/")[0].partition("@")[2]
        return self.account or host.partition(".")[0]

    def table_location(self, namespace: Sequence[str], table: str) -> str:
        """Where a table lies that has no location of its own."""
        return "/".join((self.location.rstrip("/"), *namespace, table))

    def fileio_properties(self) -> dict[str, str]:
        """Iceberg's names for this storage and its credentials; what `properties` says wins."""
        match self.type:
            case VolumeType.LOCAL:
                derived: dict[str, str | None] = {}
            case VolumeType.S3:
                derived = self._s3()
            case VolumeType.GCS:
                derived = {
                    "gcs.project-id": self.project,
                    "gcs.service.host": self.endpoint,
                    "gcs.oauth2.token": self.token,
                    GCS_KEY_FILE: self.service_account_file,
                }
            case VolumeType.AZURE:
                derived = self._azure()
            case VolumeType.HDFS:
                derived = {
                    HDFS_NAMENODES: ",".join(self.namenodes),
                    HDFS_USER: self.user,
                    HDFS_TOKEN: self.delegation_token,
                    "hadoop.hadoop.security.authentication": "kerberos" if self.kerberos else None,
                    **{f"hadoop.{name}": value for name, value in self.hadoop.items()},
                }
        kind = kind_of(self.location)
        file_io = _HADOOP_FILE_IO if self.type is VolumeType.HDFS else FILE_IO[kind] if kind else None
        derived = {"io-impl": file_io, CA_FILE: self.ca_file, **derived}
        return {**{name: value for name, value in derived.items() if value}, **self.properties}

    def _s3(self) -> dict[str, str | None]:
        path_style = self.path_style if self.path_style is not None else (True if self.endpoint else None)
        return {
            "s3.endpoint": self.endpoint,
            # A compatible store seldom minds the region, but signatures need one.
            "client.region": self.region or (_DEFAULT_REGION if self.endpoint else None),
            "s3.path-style-access": None if path_style is None else str(path_style).lower(),
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
            "s3.session-token": self.session_token,
            "s3.sse.type": None if self.sse == "none" else self.sse,
            "s3.sse.key": self.sse_key,
            PROFILE: self.profile,
        }

    def _azure(self) -> dict[str, str | None]:
        account = self.azure_account
        with_key = {
            "adls.auth.shared-key.account.name": account if self.account_key else None,
            "adls.auth.shared-key.account.key": self.account_key,
        }
        # Iceberg looks for the whole host name, others for the account alone.
        hosts = (account, f"{account}.{_AZURE_HOST}")
        with_token = {f"adls.sas-token.{host}": self.sas_token for host in hosts}
        address = {f"adls.connection-string.{host}": self.endpoint for host in hosts}
        principal = {
            "adls.tenant-id": self.tenant_id,
            "adls.client-id": self.client_id,
            "adls.client-secret": self.client_secret,
            AZURE_LOGIN: "true" if self.login else None,
        }
        return {**with_key, **with_token, **address, **principal}
