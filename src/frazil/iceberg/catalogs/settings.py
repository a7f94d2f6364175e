"""What is configured of a catalog, and what iceberg-java is told of it. Pure.

    CatalogSettings --iceberg_properties--> {"type": ..., "uri": ..., "io-impl": ..., ...}   `properties` wins
          |
          +-- endpoint, identity   what errors may show: where, and as whom; never a secret

| type     | in iceberg-java                                                                                  |
|----------|--------------------------------------------------------------------------------------------------|
| builtin  | JdbcCatalog, schema V1, on SQLite: `<warehouse>/catalog.db`; PyIceberg's SqlCatalog opens it too   |
| memory   | builtin in a temporary directory that is removed at exit                                         |
| hadoop   | HadoopCatalog: one writer process, or HDFS                                                       |
| rest     | RESTCatalog: any server that speaks Iceberg's REST protocol                                      |
| hive     | HiveCatalog over thrift                                                                          |
| glue     | GlueCatalog                                                                                      |
| s3tables | RESTCatalog at S3 Tables' own endpoint, signed with SigV4                                        |
| jdbc     | JdbcCatalog on PostgreSQL or MySQL                                                               |
| nessie   | NessieCatalog, Nessie's own protocol                                                             |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from frazil.config.catalogs import CatalogType as CatalogType
from frazil.errors import ConfigError
from frazil.storage.url import FILE_IO, kind_of

DEFAULT_NAME = "frazil"
DELEGATION_HEADER = "header.X-Iceberg-Access-Delegation"
_BUSY_TIMEOUT_MS = 60_000
_REMOTE = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "hdfs", "viewfs", "webhdfs", "http", "https")
_TABLE_BUCKET_REGION = re.compile(r"arn:[a-z-]+:s3tables:(?P<region>[a-z0-9-]+):")


_NEEDS_URI = {
    CatalogType.REST: "set catalog.uri to the REST endpoint",
    CatalogType.HIVE: "set catalog.uri to the metastore, e.g. thrift://localhost:9083",
    CatalogType.JDBC: "set catalog.uri to the database, e.g. jdbc:postgresql://localhost/catalog",
    CatalogType.NESSIE: "set catalog.uri to the server, e.g. http://localhost:19120/api/v2",
}
_NEEDS_WAREHOUSE = {
    CatalogType.BUILTIN: "set catalog.warehouse to a directory, e.g. ./warehouse",
    CatalogType.HADOOP: "set catalog.warehouse to a directory, e.g. ./warehouse",
    CatalogType.GLUE: "set catalog.warehouse to where tables are stored, e.g. s3://lake/warehouse",
    CatalogType.JDBC: "set catalog.warehouse to where tables are stored, e.g. s3://lake/warehouse",
    CatalogType.NESSIE: "set catalog.warehouse to where tables are stored, e.g. s3://lake/warehouse",
    CatalogType.S3TABLES: "set catalog.warehouse to the table bucket's ARN",
}


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: authorities to trust besides the usual, and the certificate and key of this client."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ConfigError(
                "a client certificate and its key go together", hint="set both tls.certificate and tls.key"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """One configured catalog. `properties` go to Iceberg untouched and win over everything derived here.

    `uri` is the endpoint of a server; for builtin, the SQLite file if it lies outside the warehouse. Those of
    `properties` that start with `hadoop.` are settings of Hadoop's file systems.
    """

    name: str = DEFAULT_NAME
    type: CatalogType = CatalogType.BUILTIN
    warehouse: str | None = None
    uri: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.name.replace("_", "").isalnum():
            raise ConfigError(
                f"catalog name {self.name!r} must consist of letters, digits and '_'", hint="rename the catalog"
            )
        for key, needs in (("uri", _NEEDS_URI), ("warehouse", _NEEDS_WAREHOUSE)):
            if self.type in needs and not getattr(self, key) and key not in self.properties:
                raise ConfigError(f"catalog {self.name}: type {self.type} needs a {key}", hint=needs[self.type])
        if self.type is CatalogType.BUILTIN and not self.uri and is_remote(self.warehouse):
            raise ConfigError(
                f"catalog {self.name}: the warehouse {self.warehouse} is remote, and SQLite needs a local file",
                hint="set catalog.uri to the path of a local catalog.db, or use a rest catalog",
            )

    @property
    def endpoint(self) -> str:
        """Where the catalog is, to be shown to people: without user names, passwords or tokens."""
        match self.type:
            case CatalogType.BUILTIN:
                return str(self.database)
            case CatalogType.HADOOP:
                return without_credentials(str(self.warehouse))
            case CatalogType.MEMORY:
                return "memory"
            case CatalogType.GLUE:
                told = iceberg_properties(self)
                region = told.get("client.region", "the region of the environment")
                return without_credentials(told.get("glue.endpoint", f"AWS Glue in {region}"))
            case _:
                return without_credentials(iceberg_properties(self).get("uri", ""))

    @property
    def identity(self) -> str:
        """As whom the catalog is asked, to be shown to people: a client's or a user's name, never its secret."""
        return identity_of(iceberg_properties(self)) if self.type is not CatalogType.MEMORY else "this process"

    @property
    def database(self) -> Path:
        """The SQLite file of a builtin catalog."""
        if self.uri:
            return Path(self.uri.removeprefix("jdbc:").removeprefix("sqlite:///").removeprefix("sqlite:")).absolute()
        return Path(local_path(self.warehouse or "")) / "catalog.db"


def iceberg_properties(settings: CatalogSettings) -> dict[str, str]:
    """What iceberg-java is told. A memory catalog must be prepared first."""
    derived = _by_type(settings)
    kind = kind_of(derived.get("warehouse", ""))
    if kind is not None and not settings.type.speaks_rest:
        # A REST catalog resolves the file system of each table by its location; others take one for all.
        derived["io-impl"] = FILE_IO[kind]
    return {**derived, **settings.properties}


def identity_of(properties: Mapping[str, str]) -> str:
    """Who the properties of a catalog make us. Never a secret."""
    auth = properties.get("rest.auth.type")
    if auth == "none":
        return "nobody (auth.type is none)"
    if user := properties.get("rest.auth.basic.username"):
        return f"user {user}"
    if auth == "sigv4" or properties.get("rest.sigv4-enabled") == "true":
        key = properties.get("rest.access-key-id")
        return f"AWS access key {key}" if key else "the AWS credentials of this machine"
    if credential := properties.get("credential"):
        client, colon, _ = credential.partition(":")
        return f"OAuth2 client {client}" if colon else "an OAuth2 client without a name"
    if "token" in properties or "authentication.token" in properties:
        return "the owner of the configured token"
    if user := properties.get("jdbc.user"):
        return f"database user {user}"
    if key := properties.get("client.credentials-provider.glue.access-key-id"):
        return f"AWS access key {key}"
    if properties.get("type") == "glue":
        return "the AWS credentials of this machine"
    if properties.get("type") in ("rest", "nessie"):
        return "nobody (no auth is configured)"
    return "the user of this process"


def without_credentials(uri: str) -> str:
    """A URI as it may be shown: no user, no password, no query."""
    prefix, uri = ("jdbc:", uri.removeprefix("jdbc:")) if uri.startswith("jdbc:") else ("", uri)
    parts = urlsplit(uri)
    if not parts.netloc:
        return prefix + uri.partition("?")[0]
    return prefix + urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_remote(place: str | None) -> bool:
    return urlsplit(place or "").scheme in _REMOTE


def local_path(warehouse: str) -> str:
    """An absolute path for a local directory; anything remote stays as it is written."""
    if is_remote(warehouse):
        return warehouse.rstrip("/")
    path = warehouse.removeprefix("file:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    return str(Path(path).expanduser().absolute())


def _by_type(settings: CatalogSettings) -> dict[str, str]:
    stored = {"warehouse": local_path(settings.warehouse)} if settings.warehouse else {}
    match settings.type:
        case CatalogType.BUILTIN:
            return {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{settings.database}",
                "jdbc.schema-version": "V1",
                "jdbc.busy_timeout": str(_BUSY_TIMEOUT_MS),
                **stored,
            }
        case CatalogType.JDBC:
            return {"type": "jdbc", "jdbc.schema-version": "V1", **_database(settings.uri or ""), **stored}
        case CatalogType.HADOOP:
            return {"type": "hadoop", **stored}
        case CatalogType.HIVE:
            return {"type": "hive", "uri": settings.uri or "", **stored}
        case CatalogType.GLUE:
            return {"type": "glue", **stored, **({"glue.endpoint": settings.uri} if settings.uri else {})}
        case CatalogType.NESSIE:
            return {"type": "nessie", "uri": settings.uri or "", **stored}
        case CatalogType.REST:
            named = {"warehouse": settings.warehouse} if settings.warehouse else {}
            return {"type": "rest", **_server(settings.uri or ""), **named}
        case CatalogType.S3TABLES:
            return _s3_tables(settings)
        case CatalogType.MEMORY:
            raise AssertionError("a memory catalog has no properties before it is prepared")


def _s3_tables(settings: CatalogSettings) -> dict[str, str]:
    found = _TABLE_BUCKET_REGION.match(settings.warehouse or "")
    region = settings.properties.get("client.region") or (found["region"] if found else "us-east-1")
    return {
        "type": "rest",
        "uri": settings.uri or f"https://s3tables.{region}.amazonaws.com/iceberg",
        "warehouse": settings.warehouse or "",
        "rest.auth.type": "sigv4",
        "rest.auth.sigv4.delegate-auth-type": "none",
        "rest.signing-name": "s3tables",
        "rest.signing-region": region,
        "client.region": region,
    }


def _server(uri: str) -> dict[str, str]:
    """A server's address without `client:secret@`, which HTTP clients refuse, and that as the OAuth2 credential."""
    parts = urlsplit(uri)
    if not parts.username:
        return {"uri": uri}
    bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
    return {"uri": bare, "credential": f"{unquote(parts.username)}:{unquote(parts.password or '')}"}


def _database(uri: str) -> dict[str, str]:
    """A database's URL in JDBC's form; who and the password leave it, since URLs are logged."""
    parts = urlsplit(uri.removeprefix("jdbc:"))
    scheme = {"postgres": "postgresql"}.get(parts.scheme, parts.scheme)
    found = {"uri": "jdbc:" + urlunsplit((scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))}
    if parts.username:
        found["jdbc.user"] = unquote(parts.username)
    if parts.password:
        found["jdbc.password"] = unquote(parts.password)
    return found
