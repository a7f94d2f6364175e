"""The catalog block: which catalog, how to reach it, and as whom.

    catalog:
      type, uri, warehouse    which one, and where
      auth, headers, tls      as whom ------+
      delegation              who signs ----+--> iceberg_properties: Iceberg's own names for all of it
      properties              untouched ----+    (what `properties` says wins)

| type     | needs                               | may have                              |
|----------|-------------------------------------|---------------------------------------|
| builtin  | warehouse                           | uri: another place for the SQLite file |
| memory   |                                     |                                       |
| hadoop   | warehouse                           |                                       |
| rest     | uri                                 | warehouse, auth, headers, tls, delegation |
| hive     | uri (thrift://host:port)            | warehouse                             |
| glue     | warehouse                           | region, account, uri: another endpoint |
| s3tables | warehouse (the table bucket's ARN)  | uri, region, auth                     |
| jdbc     | uri (jdbc:postgresql://, jdbc:mysql://), warehouse | user, password         |
| nessie   | uri, warehouse                      | reference, auth: bearer               |

A catalog that names a volume needs no warehouse: its tables lie on the volume.

The kinds of Iceberg catalogs.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from frazil.config.block import LocalOrCloud, Settings, from_file, is_cloud, problem
from frazil.config.parse_values import Shown, TextMap


class CatalogType(StrEnum):
    BUILTIN = "builtin"
    MEMORY = "memory"
    HADOOP = "hadoop"
    REST = "rest"
    HIVE = "hive"
    GLUE = "glue"
    S3TABLES = "s3tables"
    JDBC = "jdbc"
    NESSIE = "nessie"

    @property
    def speaks_rest(self) -> bool:
        return self in (CatalogType.REST, CatalogType.S3TABLES)


LocalFile = Annotated[str, AfterValidator(from_file), Shown("path")]
_TABLE_BUCKET = re.compile(r"arn:aws[a-z-]*:s3tables:(?P<region>[a-z0-9-]+):\d{12}:bucket/[a-z0-9-]+")
_JDBC = ("jdbc:postgresql:", "jdbc:mysql:", "jdbc:mariadb:")
_JDBC_SHORT = ("postgresql://", "postgres://", "mysql://", "mariadb://")


class AuthType(StrEnum):
    NONE = "none"
    OAUTH2 = "oauth2"
    BEARER = "bearer"
    SIGV4 = "sigv4"
    BASIC = "basic"
    GOOGLE = "google"


class Delegation(StrEnum):
    VENDED = "vended-credentials"
    REMOTE_SIGNING = "remote-signing"
    NONE = "none"


class AuthConfig(Settings):
    """As whom a REST catalog is asked. Secrets are best taken from the environment: `${CATALOG_SECRET}`."""

    type: AuthType = Field(
        description=(
            "oauth2: client credentials, the token is renewed before it ends. bearer: a token as it is. sigv4: AWS "
            "signatures. basic: user and password. google: Google's application credentials. none: nothing is sent."
        )
    )
    client_id: str | None = Field(default=None, min_length=1, description="oauth2: who asks. Shown in errors.")
    client_secret: str | None = Field(default=None, min_length=1, description="oauth2: the client's secret.")
    credential: str | None = Field(
        default=None, min_length=1, description="oauth2: `client_id:client_secret` in one, instead of the two."
    )
    server_uri: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="oauth2: the token endpoint. Default: the catalog's own `v1/oauth/tokens`.",
    )
    scope: str | None = Field(default=None, description="oauth2: the scope asked for, e.g. `PRINCIPAL_ROLE:ALL`.")
    audience: str | None = Field(default=None, description="oauth2: the audience asked for.")
    resource: str | None = Field(default=None, description="oauth2: the resource asked for.")
    refresh: bool = Field(default=True, description="oauth2: whether the token is renewed before it ends.")
    token: str | None = Field(default=None, min_length=1, description="bearer: the token.")
    region: str | None = Field(default=None, description="sigv4: the region to sign for.")
    service: str = Field(default="execute-api", description="sigv4: the service to sign for: `glue`, `s3tables`, ...")
    access_key_id: str | None = Field(
        default=None, description="sigv4: the key; without it AWS' own chain: environment, profile, instance role."
    )
    secret_access_key: str | None = Field(default=None, description="sigv4: the key's secret.")
    session_token: str | None = Field(default=None, description="sigv4: of temporary credentials.")
    user: str | None = Field(default=None, description="basic: the user.")
    password: str | None = Field(default=None, description="basic: the password.")

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Self:
        match self.type:
            case AuthType.OAUTH2:
                whole = bool(self.client_id and self.client_secret)
                if whole == bool(self.credential):
                    raise problem("oauth2 needs client_id and client_secret, or credential: one of the two", "type")
            case AuthType.BEARER if not self.token:
                raise problem("is required for bearer", "token")
            case AuthType.SIGV4 if not self.region:
                raise problem("is required for sigv4", "region")
            case AuthType.SIGV4 if bool(self.access_key_id) != bool(self.secret_access_key):
                raise problem("access_key_id and secret_access_key go together", "access_key_id")
            case AuthType.BASIC if not (self.user and self.password):
                raise problem("basic needs user and password", "user")
            case _:
                pass
        return self

    @property
    def iceberg_properties(self) -> dict[str, str]:
        match self.type:
            case AuthType.NONE:
                return {"rest.auth.type": "none"}
            case AuthType.GOOGLE:
                return {"rest.auth.type": "google"}
            case AuthType.BASIC:
                found = {"rest.auth.basic.username": self.user, "rest.auth.basic.password": self.password}
                return {"rest.auth.type": "basic", **_given(found)}
            case AuthType.BEARER:
                # iceberg-java would exchange the token for another one; a token as it is stays as it is.
                return {
                    "rest.auth.type": "oauth2",
                    "token": self.token or "",
                    "token-refresh-enabled": "false",
                    "token-exchange-enabled": "false",
                }
            case AuthType.OAUTH2:
                found = {
                    "credential": self.credential or f"{self.client_id}:{self.client_secret}",
                    "oauth2-server-uri": self.server_uri,
                    "scope": self.scope,
                    "audience": self.audience,
                    "resource": self.resource,
                    "token-refresh-enabled": "true" if self.refresh else "false",
                }
                return {"rest.auth.type": "oauth2", **_given(found)}
            case AuthType.SIGV4:
                found = {
                    "rest.signing-region": self.region,
                    "rest.signing-name": self.service,
                    "rest.access-key-id": self.access_key_id,
                    "rest.secret-access-key": self.secret_access_key,
                    "rest.session-token": self.session_token,
                }
                return {"rest.auth.type": "sigv4", "rest.auth.sigv4.delegate-auth-type": "none", **_given(found)}


class TlsConfig(Settings):
    """TLS of a REST catalog. The server's certificate is always verified, by the usual authorities and `ca`."""

    ca: LocalFile | None = Field(default=None, description="A PEM file with authorities to trust besides the usual.")
    certificate: LocalFile | None = Field(
        default=None, description="mTLS: a PEM file with the client's certificate and its chain."
    )
    key: LocalFile | None = Field(default=None, description="mTLS: the certificate's key: PEM, PKCS#8, not encrypted.")

    @model_validator(mode="after")
    def _a_certificate_has_its_key(self) -> Self:
        if bool(self.certificate) != bool(self.key):
            raise problem("certificate and key go together", "key" if self.certificate else "certificate")
        return self


class CatalogConfig(Settings):
    """An Iceberg catalog. In place of this block a sink URL may stand:
    `iceberg://<rest-endpoint>/<namespace>/<table>?warehouse=...&equality_delete_by=...`."""

    type: CatalogType = Field(
        default=CatalogType.BUILTIN,
        description=(
            "builtin: one SQLite file, catalog.db, in the warehouse. rest: an Iceberg REST server (Polaris, "
            "Lakekeeper, Unity, ...). hive: a Hive Metastore. glue: AWS Glue. s3tables: Amazon S3 Tables. "
            "jdbc: PostgreSQL or MySQL. nessie: Nessie. hadoop: files alone, one writer process. memory: a builtin "
            "catalog in a temporary directory, gone at exit."
        ),
    )
    name: str = Field(
        default="frazil", pattern=r"^[A-Za-z][A-Za-z0-9_]*$", description="The catalog's name in Spark and in SQL."
    )
    warehouse: Annotated[str, Shown("path or URL")] | None = Field(
        default=None,
        description=(
            "Where tables are stored: a directory or cloud URL; for rest the server's own name for it; for s3tables "
            "the table bucket's ARN. Required for builtin, hadoop, glue, jdbc, nessie and s3tables."
        ),
        examples=["./warehouse"],
    )
    volume: str | None = Field(
        default=None, description="The volume of `volumes:` that tables lie on, unless their entry names another."
    )
    uri: LocalOrCloud | None = Field(
        default=None,
        description=(
            "rest, nessie: the server's address. hive: thrift://host:9083. jdbc: jdbc:postgresql://host/database. "
            "glue, s3tables: another endpoint than AWS' own. builtin: another place for the SQLite file."
        ),
        examples=["http://localhost:8181"],
    )
    auth: AuthConfig | None = Field(default=None, description="As whom a REST catalog is asked.")
    headers: TextMap = Field(default_factory=dict, description="rest: headers sent with every request.")
    tls: TlsConfig | None = Field(default=None, description="rest: further authorities, and a client certificate.")
    delegation: Delegation | None = Field(
        default=None,
        description=(
            "rest: how storage is reached. vended-credentials: the catalog gives credentials with each table, and the "
            "workers use them. remote-signing: the catalog signs what the driver does; workers need a volume's "
            "credentials. none: neither. Default: the server decides."
        ),
    )
    region: str | None = Field(default=None, description="glue, s3tables: the AWS region.")
    account: str | None = Field(default=None, pattern=r"^\d{12}$", description="glue: the account of another catalog.")
    user: str | None = Field(default=None, description="jdbc: the database user.")
    password: str | None = Field(default=None, description="jdbc: the user's password.")
    reference: str | None = Field(default=None, description="nessie: the branch. Default: the server's, `main`.")
    properties: TextMap = Field(
        default_factory=dict,
        description="Passed on untouched to the Iceberg catalog (credential, token, s3.endpoint, io-impl, ...).",
        examples=[{"s3.endpoint": "http://localhost:9000"}],
    )

    @field_validator("warehouse")
    @classmethod
    def _a_place_of_ours_is_relative_to_the_file(cls, value: str | None, info: ValidationInfo) -> str | None:
        """What a server calls its warehouse is the server's own word."""
        if value is None or info.data.get("type") in (CatalogType.REST, CatalogType.S3TABLES):
            return value
        return from_file(value, info)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        kind = self.type
        _require_places(self)
        rest_only = {"auth": self.auth, "headers": self.headers, "tls": self.tls, "delegation": self.delegation}
        allowed = {
            CatalogType.REST: set(rest_only),
            CatalogType.S3TABLES: {"auth", "headers", "tls"},
            CatalogType.NESSIE: {"auth", "tls"},
        }.get(kind, set())
        _refuse(kind, {key: value for key, value in rest_only.items() if key not in allowed}, "rest")
        if kind not in (CatalogType.GLUE, CatalogType.S3TABLES):
            _refuse(kind, {"region": self.region}, "glue and s3tables")
        if kind is not CatalogType.GLUE:
            _refuse(kind, {"account": self.account}, "glue")
        if kind is not CatalogType.JDBC:
            _refuse(kind, {"user": self.user, "password": self.password}, "jdbc")
        if kind is not CatalogType.NESSIE:
            _refuse(kind, {"reference": self.reference}, "nessie")
        elif self.auth and self.auth.type not in (AuthType.NONE, AuthType.BEARER):
            raise problem("Nessie's own client takes bearer or none; for others use type: rest", "auth", "type")
        return self

    @property
    def iceberg_properties(self) -> dict[str, str]:
        """Everything but type, name, uri and warehouse, by Iceberg's names. `properties` wins."""
        derived: dict[str, str] = {}
        if self.auth is not None and self.type is CatalogType.NESSIE:
            bearer = {"authentication.type": "BEARER", "authentication.token": self.auth.token}
            derived |= _given(bearer) if self.auth.type is AuthType.BEARER else {"authentication.type": "NONE"}
        elif self.auth is not None:
            derived |= self.auth.iceberg_properties
        derived |= {f"header.{name}": value for name, value in self.headers.items()}
        if self.delegation not in (None, Delegation.NONE):
            derived["header.X-Iceberg-Access-Delegation"] = str(self.delegation)
        region = self.region or (table_bucket_region(self.warehouse) if self.type is CatalogType.S3TABLES else None)
        derived |= _given(
            {
                "client.region": region,
                "glue.id": self.account,
                "jdbc.user": self.user,
                "jdbc.password": self.password,
                "ref": self.reference,
            }
        )
        return {**derived, **self.properties}


def table_bucket_region(arn: str | None) -> str | None:
    """The region of an S3 table bucket's ARN, or None if that is not one."""
    found = _TABLE_BUCKET.fullmatch(arn or "")
    return found["region"] if found else None


def _require_places(config: CatalogConfig) -> None:
    kind, placed = config.type, config.warehouse or config.volume
    if kind is CatalogType.MEMORY and (config.warehouse or config.uri or config.volume):
        unused = next(key for key in ("warehouse", "uri", "volume") if getattr(config, key))
        raise problem("a memory catalog lives in a temporary directory and takes no place", unused)
    stored = (CatalogType.BUILTIN, CatalogType.HADOOP, CatalogType.GLUE, CatalogType.JDBC, CatalogType.NESSIE)
    if kind in stored and not placed:
        raise problem(f"is required for a catalog of type {kind}", "warehouse")
    if kind in (CatalogType.REST, CatalogType.HIVE, CatalogType.JDBC, CatalogType.NESSIE) and not config.uri:
        raise problem(f"is required for a catalog of type {kind}", "uri")
    match kind:
        case CatalogType.BUILTIN if not config.uri and (is_cloud(config.warehouse or "") or not config.warehouse):
            raise problem("a builtin catalog over cloud storage needs a local path for its SQLite file", "uri")
        case CatalogType.HADOOP if config.uri:
            raise problem("a hadoop catalog is its warehouse and has no address of its own", "uri")
        case CatalogType.HIVE if not (config.uri or "").startswith("thrift://"):
            raise problem("must be thrift://host:port, several separated by commas", "uri")
        case CatalogType.JDBC if not (config.uri or "").startswith((*_JDBC, *_JDBC_SHORT)):
            raise problem("must be jdbc:postgresql://host/database or jdbc:mysql://host/database", "uri")
        case CatalogType.S3TABLES if table_bucket_region(config.warehouse) is None:
            text = "must be the table bucket's ARN: arn:aws:s3tables:<region>:<account>:bucket/<name>"
            raise problem(text, "warehouse")
        case _:
            pass


def _refuse(kind: CatalogType, given: dict[str, object], owners: str) -> None:
    for key, value in given.items():
        if value:
            raise problem(f"is for catalogs of type {owners}, not {kind}", key)


def _given(found: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in found.items() if value is not None}
