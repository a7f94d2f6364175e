"""Finds credentials where Frazil is started, and adds them to a storage's options: executors have none of their own.

    options name keys, a token, a catalog that vends      --> as they are
            name a profile, or AWS_PROFILE is set         --> its keys, from the files that the AWS tools share
            name nothing                                  --> the environment, then the default profile
            nothing is found                              --> as they are: each machine asks its own role

Never cached and never written: every call looks again, so that credentials that a tool renews are renewed here too.
What only a vendor's own library can do (a role, single sign-on, a user's login) is asked of that library, an optional
part that the error names if it is missing.
"""

from __future__ import annotations

import configparser
import importlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from frazil.errors import ConfigError
from frazil.storage.options import AZURE_LOGIN, EXPIRES, GCS_KEY, GCS_KEY_FILE, PROFILE, REFRESH, store_settings
from frazil.storage.url import ObjectUrl, StoreKind, is_object_store, parse_place

Load = Callable[[str], Any]
_BY_LIBRARY = ("role_arn", "sso_session", "sso_account_id", "credential_process", "web_identity_token_file")


def with_credentials(
    url: str,
    options: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    load: Load = importlib.import_module,
) -> dict[str, str]:
    """The options, with credentials and addresses of this machine added where none are given, under Iceberg's names.

    Raises ConfigError for a profile or key file that cannot be used, naming it and what to do.
    """
    if not is_object_store(url):
        return dict(options)
    environment = os.environ if environment is None else environment
    place = parse_place(url)
    match place.kind:
        case StoreKind.S3:
            return _s3(place, options, environment, load)
        case StoreKind.GCS:
            return _gcs(place, options, environment, load)
        case StoreKind.AZURE:
            return _azure(place, options, environment, load)


def _given(place: ObjectUrl, options: Mapping[str, str]) -> bool:
    return bool(options.get(REFRESH[place.kind]) or store_settings(place, options).secrets)


def _s3(place: ObjectUrl, options: Mapping[str, str], environment: Mapping[str, str], load: Load) -> dict[str, str]:
    found: dict[str, str] = {}
    own = {**options}
    if endpoint := environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"):
        found["s3.endpoint"] = endpoint
    if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        found["client.region"] = region
    if _given(place, options) or options.get("skip_signature") == "true":
        return _added(found, own)
    profile = options.get(PROFILE) or options.get("s3.profile-name") or options.get("profile")
    if not profile and environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        found["s3.access-key-id"] = environment["AWS_ACCESS_KEY_ID"]
        found["s3.secret-access-key"] = environment["AWS_SECRET_ACCESS_KEY"]
        if token := environment.get("AWS_SESSION_TOKEN"):
            found["s3.session-token"] = token
        return _added(found, own)
    named = profile or environment.get("AWS_PROFILE")
    found |= _profile(place, named or "default", environment, load, required=bool(named))
    if named:
        own.setdefault(PROFILE, named)
    return _added(found, own)


def _added(found: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """What was found, and over it what was given, under whichever of its names."""
    short = {"s3.endpoint": "endpoint", "client.region": "region"}
    hidden = {name for name in found if own.get(short.get(name, "")) or own.get(f"aws_{short.get(name, '')}")}
    hidden |= {"client.region"} if own.get("s3.region") else set()
    return {**{name: value for name, value in found.items() if name not in hidden}, **own}


def _profile(
    place: ObjectUrl, name: str, environment: Mapping[str, str], load: Load, *, required: bool
) -> dict[str, str]:
    home = Path(environment.get("HOME") or Path.home())
    keys_file = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials").expanduser()
    settings_file = Path(environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config").expanduser()
    keys, settings = _ini(keys_file), _ini(settings_file)
    section = dict(settings.get("default" if name == "default" else f"profile {name}", {})) | dict(keys.get(name, {}))
    if not section:
        if not required:
            return {}
        known = sorted({*keys, *(one.removeprefix("profile ") for one in settings)})
        raise ConfigError(
            f"{place.url}: there is no profile {name!r} in {keys_file} or {settings_file}",
            hint=f"Known are {', '.join(known)}."
            if known
            else "Run `aws configure`, or set access_key_id and secret_access_key.",
            profile=name,
        )
    found = {"client.region": section.get("region", ""), "s3.endpoint": section.get("endpoint_url", "")}
    if "aws_access_key_id" in section and "aws_secret_access_key" in section and "role_arn" not in section:
        found["s3.access-key-id"] = section["aws_access_key_id"]
        found["s3.secret-access-key"] = section["aws_secret_access_key"]
        found["s3.session-token"] = section.get("aws_session_token", "")
    elif how := next((one for one in _BY_LIBRARY if one in section), None):
        found |= _by_boto3(place, name, how, load)
    return {key: value for key, value in found.items() if value}


def _by_boto3(place: ObjectUrl, profile: str, how: str, load: Load) -> dict[str, str]:
    try:
        boto3 = load("boto3")
    except ImportError as error:
        raise ConfigError(
            f"{place.url}: profile {profile!r} gets its credentials by {how}, which needs a library that is not"
            " installed: boto3",
            hint="pip install 'boto3>=1.34'",
            profile=profile,
        ) from error
    try:
        credentials = boto3.Session(profile_name=profile).get_credentials()
        frozen = credentials.get_frozen_credentials()
    except Exception as error:
        raise ConfigError(
            f"{place.url}: profile {profile!r} gave no credentials: {type(error).__name__}",
            hint=f"Run `aws sso login --profile {profile}`, or `aws sts get-caller-identity --profile {profile}` to see"
            " what is wrong.",
            profile=profile,
        ) from error
    found = {"s3.access-key-id": frozen.access_key, "s3.secret-access-key": frozen.secret_key}
    if frozen.token:
        found["s3.session-token"] = frozen.token
    ends = getattr(credentials, "_expiry_time", None)
    if ends is not None:
        found[EXPIRES[StoreKind.S3]] = str(int(ends.timestamp() * 1000))
    return found


def _ini(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(default_section="\0", interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, configparser.Error) as error:
        # A parser's message quotes the line, which may be a key.
        raise ConfigError(
            f"{path} cannot be read: {type(error).__name__}", hint="Correct the file, or set AWS_CONFIG_FILE."
        ) from None
    return {name: dict(parser[name]) for name in parser.sections()}


def _gcs(place: ObjectUrl, options: Mapping[str, str], environment: Mapping[str, str], load: Load) -> dict[str, str]:
    if _given(place, options) or options.get(GCS_KEY) or options.get("gcs.no-auth") == "true":
        return dict(options)
    given = options.get(GCS_KEY_FILE) or options.get("service_account_file") or options.get("service_account")
    path = given or environment.get("GOOGLE_APPLICATION_CREDENTIALS")
    if not path:
        return dict(options)
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        kind = json.loads(text)["type"]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{place.url}: the credentials file {path} cannot be used: {type(error).__name__}",
            hint="Set service_account_file (or GOOGLE_APPLICATION_CREDENTIALS) to the JSON key of a service account.",
        ) from None
    if kind == "service_account":
        return {**options, GCS_KEY: text}
    try:
        auth, transport = load("google.auth"), load("google.auth.transport.requests")
    except ImportError as error:
        raise ConfigError(
            f"{place.url}: credentials of type {kind!r} need a library that is not installed: google-auth",
            hint="pip install 'google-auth>=2.23' 'requests>=2.31', or use the JSON key of a service account.",
        ) from error
    credentials, _ = auth.load_credentials_from_file(path, ["https://www.googleapis.com/auth/devstorage.read_write"])
    credentials.refresh(transport.Request())
    ends = str(int(credentials.expiry.timestamp() * 1000)) if credentials.expiry else ""
    return {**options, "gcs.oauth2.token": credentials.token, EXPIRES[StoreKind.GCS]: ends}


def _azure(place: ObjectUrl, options: Mapping[str, str], environment: Mapping[str, str], load: Load) -> dict[str, str]:
    if _given(place, options) or options.get("adls.client-id") or options.get("client_id"):
        return dict(options)
    if options.get(AZURE_LOGIN) == "true":
        return {**options, "adls.token": _azure_token(place, load)}
    key = environment.get("AZURE_STORAGE_ACCOUNT_KEY") or environment.get("AZURE_STORAGE_KEY")
    account = place.account or environment.get("AZURE_STORAGE_ACCOUNT_NAME") or environment.get("AZURE_STORAGE_ACCOUNT")
    found: dict[str, str] = {}
    if account and key:
        found = {"adls.auth.shared-key.account.name": account, "adls.auth.shared-key.account.key": key}
    elif account and (token := environment.get("AZURE_STORAGE_SAS_TOKEN")):
        found = {f"adls.sas-token.{account}": token}
    elif environment.get("AZURE_CLIENT_SECRET"):
        names = {"AZURE_TENANT_ID": "tenant-id", "AZURE_CLIENT_ID": "client-id", "AZURE_CLIENT_SECRET": "client-secret"}
        found = {f"adls.{name}": environment[variable] for variable, name in names.items() if variable in environment}
    return {**found, **options}


def _azure_token(place: ObjectUrl, load: Load) -> str:
    try:
        identity = load("azure.identity")
    except ImportError as error:
        raise ConfigError(
            f"{place.url}: the login of this user needs a library that is not installed: azure-identity",
            hint="pip install 'azure-identity>=1.15'",
        ) from error
    try:
        return str(identity.DefaultAzureCredential().get_token("https://storage.azure.com/.default").token)
    except Exception as error:
        raise ConfigError(
            f"{place.url}: the login of this user gave no token: {type(error).__name__}",
            hint="Run `az login`, or set account_key, sas_token, or client_id and client_secret.",
        ) from error
