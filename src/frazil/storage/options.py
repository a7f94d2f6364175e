"""What a store is opened with, from a table's or a feed's options. Pure: no file, no environment, no network.

    {s3.endpoint, s3.access-key-id, ...}   Iceberg's names, from the catalog    --+
    {endpoint, access_key_id, ...}         short names, written by people       --+--> StoreSettings: obstore's names
    {aws_..., allow_http, ...}             the client's own names               --+

A catalog's properties hold much that is no storage option, so what is unknown is left out; in options that people
wrote for one storage (`strict`) it is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.errors import ConfigError
from frazil.storage.url import ObjectUrl, StoreKind

PART_BYTES = 8 << 20
PART_BYTES_LEAST = 5 << 20
CA_FILE = "frazil.tls.ca-file"
PROFILE = "client.profile-name"
GCS_KEY_FILE = "frazil.gcs.service-account-file"
GCS_KEY = "frazil.gcs.service-account-key"
AZURE_LOGIN = "frazil.azure.login"
HDFS_NAMENODES = "frazil.hdfs.namenodes"
HDFS_USER = "frazil.hdfs.user"
HDFS_TOKEN = "frazil.hdfs.delegation-token"
EXPIRES = {
    StoreKind.S3: "s3.session-token-expires-at-ms",
    StoreKind.GCS: "gcs.oauth2.token-expires-at",
    StoreKind.AZURE: "adls.sas-token-expires-at-ms.",
}
REFRESH = {
    StoreKind.S3: "client.refresh-credentials-endpoint",
    StoreKind.GCS: "gcs.oauth2.refresh-credentials-endpoint",
    StoreKind.AZURE: "adls.refresh-credentials-endpoint",
}

_S3 = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "client.region": "region",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "s3.path-style-access": "path_style",
    "s3.force-virtual-addressing": "virtual_hosted_style_request",
    "s3.sse.type": "sse_type",
    "s3.sse.key": "sse_key",
    "s3.multipart.part-size-bytes": "part_bytes",
    "s3.remote-signing-enabled": "remote_signing",
    "s3.connect-timeout": "connect_timeout",
    "s3.request-timeout": "timeout",
    "s3.role-arn": "role_arn",
    "s3.role-session-name": "role_session_name",
    PROFILE: "profile",
    "s3.profile-name": "profile",
}
_GCS = {
    "gcs.oauth2.token": "token",
    "gcs.service.host": "base_url",
    "gcs.no-auth": "skip_signature",
    GCS_KEY_FILE: "service_account",
    GCS_KEY: "service_account_key",
}
_AZURE = {
    "adls.auth.shared-key.account.name": "account_name",
    "adls.auth.shared-key.account.key": "account_key",
    "adls.account-name": "account_name",
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_key",
    "adls.token": "token",
    "adls.tenant-id": "tenant_id",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
    "adls.connection-string": "connection_string",
}
_ICEBERG = {StoreKind.S3: _S3, StoreKind.GCS: _GCS, StoreKind.AZURE: _AZURE}
_SHORT = {
    StoreKind.S3: {"sse": "sse_type", "token": "session_token"},
    StoreKind.GCS: {"endpoint": "base_url", "service_account_file": "service_account", "bearer_token": "token"},
    StoreKind.AZURE: {"account": "account_name", "key": "account_key", "sas": "sas_key", "sas_token": "sas_key"},
}
_PREFIX = {StoreKind.S3: "aws_", StoreKind.GCS: "google_", StoreKind.AZURE: "azure_"}
_OWN = {
    StoreKind.S3: frozenset(
        {
            *("access_key_id", "secret_access_key", "session_token", "profile", "region", "default_region"),
            *("endpoint", "path_style", "virtual_hosted_style_request", "skip_signature", "unsigned_payload"),
            *("sse_type", "sse_key", "sse_bucket_key_enabled", "checksum_algorithm", "conditional_put", "s3_express"),
            *("part_bytes", "remote_signing", "request_payer", "disable_tagging", "imdsv1_fallback"),
            *("metadata_endpoint", "role_arn", "role_session_name", "sts_endpoint", "web_identity_token_file"),
            *("container_credentials_relative_uri", "container_credentials_full_uri"),
            "container_authorization_token_file",
        }
    ),
    StoreKind.GCS: frozenset(
        {"token", "base_url", "skip_signature", "service_account", "service_account_key", "application_credentials"}
    ),
    StoreKind.AZURE: frozenset(
        {
            *("account_name", "account_key", "sas_key", "token", "tenant_id", "client_id", "client_secret"),
            *("connection_string", "endpoint", "authority_host", "use_emulator", "use_fabric_endpoint"),
            *("federated_token_file", "msi_endpoint", "object_id", "use_azure_cli", "skip_signature"),
            "disable_tagging",
        }
    ),
}
_CLIENT = frozenset({"allow_http", "connect_timeout", "timeout", "read_timeout", "proxy_url", "user_agent"})
_ENCRYPTION = {"s3": "AES256", "kms": "aws:kms", "dsse-kms": "aws:kms:dsse", "custom": "sse-c"}
_TRUTHS = {"true": True, "false": False}
_ENDPOINT = {StoreKind.S3: "endpoint", StoreKind.GCS: "base_url", StoreKind.AZURE: "endpoint"}
_AMAZON = "Amazon S3"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """All that one store is opened with. `config` and `client` are the client library's; `secrets` are what its
    credentials are made of; `identity` and `endpoint` may be shown to anybody."""

    kind: StoreKind
    bucket: str
    config: Mapping[str, Any] = field(repr=False)
    client: Mapping[str, Any] = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)
    identity: str
    endpoint: str
    expires_at_ms: int | None = None
    refresh: Mapping[str, str] = field(default_factory=dict, repr=False)
    part_bytes: int = PART_BYTES
    ca_file: str = ""


def store_settings(place: ObjectUrl, options: Mapping[str, str], *, strict: bool = False) -> StoreSettings:
    """Raises ConfigError naming the option that cannot be used, or, with `strict`, that nobody knows."""
    found = _own_names(place, options, strict)
    client = {name: found.pop(name) for name in tuple(found) if name in _CLIENT}
    part_bytes = max(_number("part size", found.pop("part_bytes", PART_BYTES)), PART_BYTES_LEAST)
    match place.kind:
        case StoreKind.S3:
            config, secrets, identity = _s3(place, found)
        case StoreKind.GCS:
            config, secrets, identity = _gcs(found)
        case StoreKind.AZURE:
            config, secrets, identity = _azure(place, found, options)
    endpoint = str(config.get(_ENDPOINT[place.kind], ""))
    refresh_name = REFRESH[place.kind]
    refresh = {"endpoint": options[refresh_name]} if options.get(refresh_name) else {}
    if refresh:
        refresh |= {name: value for name, value in options.items() if name in _CATALOG or name.startswith("header.")}
    return StoreSettings(
        kind=place.kind,
        bucket=place.bucket,
        config=config,
        client={**_client(client), **({"allow_http": True} if endpoint.startswith("http://") else {})},
        secrets=secrets,
        identity=identity,
        endpoint=_shown_endpoint(place, endpoint, str(config.get("region", ""))),
        expires_at_ms=_expiry(place, options),
        refresh=refresh,
        part_bytes=part_bytes,
        ca_file=options.get(CA_FILE, "") or options.get("ca_file", ""),
    )


_CATALOG = frozenset({"uri", "token", "credential", "oauth2-server-uri", "scope", "prefix"})


def shortened(key_id: str) -> str:
    """Enough of an access key id to recognise it, not enough to use it."""
    return f"{key_id[:4]}...{key_id[-4:]}" if len(key_id) >= 12 else f"{key_id[:2]}..."


def _own_names(place: ObjectUrl, options: Mapping[str, str], strict: bool) -> dict[str, Any]:
    """Options under the names used here: the short ones first, then Iceberg's, which win."""
    iceberg, short, own = _ICEBERG[place.kind], _SHORT[place.kind], _OWN[place.kind]
    short_form: dict[str, Any] = {}
    iceberg_form: dict[str, Any] = {}
    for name, value in options.items():
        plain = name.removeprefix(_PREFIX[place.kind])
        plain = short.get(plain, plain)
        if name in iceberg:
            iceberg_form[iceberg[name]] = value
        elif plain in own or plain in _CLIENT:
            # A catalog's own `token` or `credential` is no storage option.
            if strict or name not in _CATALOG:
                short_form[plain] = value
        elif strict and not _is_iceberg_name(name):
            known = sorted({*own, *short} - {"sse_type", "part_bytes", "remote_signing"})
            raise ConfigError(
                f"{place.url}: the storage options are not understood: {name!r} is not one of {place.kind}'s",
                hint=f"Known are {', '.join(known)}, and Iceberg's names, such as {next(iter(iceberg))}.",
            )
    return {name: value for name, value in {**short_form, **iceberg_form}.items() if value != ""}


def _is_iceberg_name(name: str) -> bool:
    return name.startswith(("s3.", "client.", "gcs.", "adls.", "frazil.", "io-impl")) or name == "ca_file"


def _s3(place: ObjectUrl, found: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str], str]:
    if _flag("s3.remote-signing-enabled", found.pop("remote_signing", "false")):
        raise ConfigError(
            f"{place.url}: the catalog wants to sign every request itself, which workers cannot ask for",
            hint="Set `s3.remote-signing-enabled: false` and `header.X-Iceberg-Access-Delegation: vended-credentials`"
            " in the catalog's properties, or give the volume's own keys.",
        )
    path_style, endpoint = found.pop("path_style", None), found.get("endpoint")
    if path_style is not None and not _flag("s3.path-style-access", path_style):
        found["virtual_hosted_style_request"] = True
        if endpoint and not _host(endpoint).startswith(f"{place.bucket}."):
            scheme, _, host = endpoint.rpartition("://")
            found["endpoint"] = f"{scheme or 'https'}://{place.bucket}.{host}"
    elif endpoint and "://" not in endpoint:
        found["endpoint"] = f"https://{endpoint}"
    sse, key = found.pop("sse_type", "none"), found.pop("sse_key", None)
    if sse not in ("none", *_ENCRYPTION, *_ENCRYPTION.values()):
        raise ConfigError(
            f"{place.url}: s3.sse.type is {sse!r}", hint=f"Use none, {', '.join(_ENCRYPTION)}.", option="s3.sse.type"
        )
    if sse != "none":
        found["server_side_encryption"] = _ENCRYPTION.get(sse, sse)
        if key:
            found["sse_customer_key_base64" if sse == "custom" else "sse_kms_key_id"] = key
    secrets = _taken(found, "access_key_id", "secret_access_key", "session_token")
    if ("access_key_id" in secrets) != ("secret_access_key" in secrets):
        missing = "secret_access_key" if "access_key_id" in secrets else "access_key_id"
        raise ConfigError(
            f"{place.url}: an access key has two parts, and {missing} is missing",
            hint=f"Set {missing} too, or neither: then the environment or the profile gives both.",
            option=missing,
        )
    profile = found.pop("profile", "")
    if "access_key_id" in secrets:
        identity = f"access key {shortened(secrets['access_key_id'])}" + (f" of profile {profile}" if profile else "")
    elif _flag("skip_signature", found.get("skip_signature", "false")):
        identity = "nobody (unsigned requests)"
    else:
        identity = "the credentials of the machine or its environment"
    return found, secrets, identity


def _gcs(found: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str], str]:
    secrets = _taken(found, "token")
    if "service_account_key" in found:
        found.pop("service_account", None)
        identity = "a service account's key"
    elif "service_account" in found:
        identity = f"the service account of {found['service_account']}"
    elif secrets:
        identity = "an OAuth2 token"
    elif _flag("gcs.no-auth", found.get("skip_signature", "false")):
        identity = "nobody (unsigned requests)"
    else:
        identity = "the credentials of the machine or its environment"
    return found, secrets, identity


def _azure(
    place: ObjectUrl, found: dict[str, Any], options: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str], str]:
    account = place.account or found.get("account_name", "")
    for prefix, name in (("adls.sas-token.", "sas_key"), ("adls.connection-string.", "connection_string")):
        for option, value in options.items():
            if option.startswith(prefix) and option.removeprefix(prefix).partition(".")[0] == account:
                found[name] = value
    if connection := found.pop("connection_string", ""):
        found |= _connection(connection)
    if account:
        found["account_name"] = account
    secrets = _taken(found, "account_key", "sas_key", "token")
    if "sas_key" in secrets:
        secrets = {"sas_token": secrets["sas_key"].removeprefix("?")}
        identity = f"a SAS token of account {account}"
    elif "account_key" in secrets:
        identity = f"the key of account {account}"
    elif secrets:
        identity = "an OAuth2 token"
    elif "client_id" in found:
        identity = f"client {shortened(str(found['client_id']))}"
    else:
        identity = "the credentials of the machine or its environment"
    return found, secrets, identity


def _connection(text: str) -> dict[str, str]:
    """The parts of a connection string. One that is a mere address (as Iceberg also takes it) is the endpoint."""
    if "=" not in text:
        return {"endpoint": text}
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    names = {
        "AccountName": "account_name",
        "AccountKey": "account_key",
        "SharedAccessSignature": "sas_key",
        "BlobEndpoint": "endpoint",
    }
    return {names[name]: value for name, value in parts.items() if name in names}


def _taken(found: dict[str, Any], *names: str) -> dict[str, str]:
    return {name: str(found.pop(name)) for name in names if name in found}


def _expiry(place: ObjectUrl, options: Mapping[str, str]) -> int | None:
    name = EXPIRES[place.kind]
    if name.endswith("."):
        texts = [v for n, v in options.items() if n.startswith(name) and n[len(name) :].startswith(place.account)]
        text = texts[0] if texts else ""
    else:
        text = options.get(name, "")
    return _number(name, text) if text else None


def _client(given: Mapping[str, Any]) -> dict[str, Any]:
    """Timeouts that end a stalled request, so that it can be tried again."""
    client: dict[str, Any] = {"connect_timeout": "5s", "timeout": "120s", "read_timeout": "30s"}
    for name, value in given.items():
        if name == "allow_http":
            client[name] = _flag(name, value)
        else:
            client[name] = f"{value}s" if str(value).replace(".", "").isdigit() else value
    return client


def _shown_endpoint(place: ObjectUrl, endpoint: str, region: str) -> str:
    if endpoint:
        return endpoint.partition("?")[0]
    match place.kind:
        case StoreKind.S3:
            return f"{_AMAZON} in {region}" if region else _AMAZON
        case StoreKind.GCS:
            return str(place.kind)
        case StoreKind.AZURE:
            return f"{place.account}.{place.host}" if place.host else f"{place.kind}"


def _host(endpoint: str) -> str:
    return endpoint.rpartition("://")[2]


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    truth = _TRUTHS.get(str(value).strip().lower())
    if truth is None:
        raise ConfigError(f"{name} is {value!r}", hint=f"Set {name} to true or false.", option=name)
    return truth


def _number(name: str, value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"{name} is {value!r}, which is no whole number", hint=f"Correct {name}.") from None
