"""Credentials that a REST catalog hands out for one table, renewed by whoever uses them, shortly before they end.

    store --asks before each request--> VendedCredentials --still good--> the ones at hand
                                              `--ending--> GET <uri>/<refresh endpoint> --> storage-credentials: [...]
                                                              401 --> a new token by client credentials, once

Answers follow Iceberg's LoadCredentialsResponse: the entry with the longest prefix of the location counts.
"""

from __future__ import annotations

import json
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from frazil.clock import Clock
from frazil.errors import CatalogRefused, CatalogUnavailable, FrazilError
from frazil.storage.options import EXPIRES, StoreSettings, store_settings
from frazil.storage.requests import waits
from frazil.storage.url import ObjectUrl

_TIMEOUT_SECONDS = 30
_ATTEMPTS = 4
_MARGIN_MS = 120_000
_LEAST_LIFE_MS = 1_000


class VendedCredentials:
    """A credential provider of the store's client. After a call that failed, `failure` says why."""

    def __init__(self, place: ObjectUrl, settings: StoreSettings, clock: Clock) -> None:
        self.failure: FrazilError | None = None
        self._place = place
        self._settings = settings
        self._refresh = dict(settings.refresh)
        self._token = self._refresh.get("token", "")
        self._secrets, self._expires_at_ms = settings.secrets, settings.expires_at_ms
        self._clock = clock
        self._lock = threading.Lock()

    def __call__(self) -> dict[str, Any]:
        with self._lock:
            if not self._secrets or self._ends_within(_MARGIN_MS):
                try:
                    self._renew()
                    self.failure = None
                except FrazilError as error:
                    # What is at hand may serve for its last two minutes, while the catalog is away.
                    self.failure = error
                    if not self._secrets or self._ends_within(0):
                        raise
            return credential_of(self._secrets, self._ask_again_at())

    def _ends_within(self, milliseconds: int) -> bool:
        return self._expires_at_ms is not None and self._expires_at_ms - milliseconds <= self._now_ms()

    def _ask_again_at(self) -> datetime | None:
        if self._expires_at_ms is None:
            return None
        at_ms = max(self._expires_at_ms - _MARGIN_MS, min(self._now_ms() + _LEAST_LIFE_MS, self._expires_at_ms))
        return datetime.fromtimestamp(at_ms / 1000, UTC)

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    def _renew(self) -> None:
        found = self._matching(self._get())
        settings = store_settings(self._place, {EXPIRES[self._place.kind]: "", **found})
        if not settings.secrets:
            raise CatalogRefused(
                f"the catalog at {self._shown} vended no {self._place.kind} credentials for {self._place.url}",
                hint="See whether the catalog's storage settings cover this location.",
            )
        self._secrets, self._expires_at_ms = settings.secrets, settings.expires_at_ms

    def _matching(self, answer: Mapping[str, Any]) -> dict[str, str]:
        entries = [
            entry
            for entry in answer.get("storage-credentials", ())
            if self._place.url.startswith(entry["prefix"]) or entry["prefix"] in ("", "s3", "gs", "abfs", "abfss")
        ]
        return dict(max(entries, key=lambda entry: len(entry["prefix"]))["config"]) if entries else {}

    def _get(self) -> Any:
        schema_changed = False
        pauses = waits(self._clock, _ATTEMPTS)
        while True:
            try:
                return _ask(self._address, headers=self._headers())
            except urllib.error.HTTPError as error:
                if error.code in (401, 419) and self._refresh.get("credential") and not schema_changed:
                    schema_changed = True
                    self._token = self._new_token()
                    continue
                if error.code < 500 and error.code != 429:
                    raise CatalogRefused(
                        f"the catalog at {self._shown} does not renew the credentials of {self._place.url}: it"
                        f" answered {error.code}",
                        hint="Its token may have ended: give the catalog a `credential` instead of a `token`, or let"
                        " the principal load the table.",
                        status=error.code,
                    ) from None
                failed: Exception = error
            except (OSError, ValueError) as error:
                failed = error
            pause = next(pauses, None)
            if pause is None:
                raise CatalogUnavailable(
                    f"the catalog at {self._shown} does not renew the credentials of {self._place.url}:"
                    f" {type(failed).__name__}",
                    hint="See whether the executors can reach the catalog.",
                ) from None
            self._clock.wait(pause)

    def _headers(self) -> dict[str, str]:
        own = {name.removeprefix("header."): text for name, text in self._refresh.items() if name.startswith("header.")}
        if not self._token and self._refresh.get("credential"):
            self._token = self._new_token()
        return {
            "Accept": "application/json",
            **own,
            **({"Authorization": f"Bearer {self._token}"} if self._token else {}),
        }

    def _new_token(self) -> str:
        client, _, secret = self._refresh["credential"].rpartition(":")
        address = self._refresh.get("oauth2-server-uri") or f"{self._catalog}/v1/oauth/tokens"
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret}
        form["scope"] = self._refresh.get("scope", "catalog")
        return str(_ask(address, body=urllib.parse.urlencode(form).encode())["access_token"])

    @property
    def _catalog(self) -> str:
        return self._refresh.get("uri", "").rstrip("/")

    @property
    def _address(self) -> str:
        endpoint = self._refresh["endpoint"]
        return endpoint if endpoint.startswith(("http://", "https://")) else f"{self._catalog}/{endpoint.lstrip('/')}"

    @property
    def _shown(self) -> str:
        parts = urllib.parse.urlsplit(self._address)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def credential_of(secrets: Mapping[str, str], expires_at: datetime | None) -> dict[str, Any]:
    """Credentials in the form the client's providers return them."""
    if "access_key_id" in secrets:
        return {
            "access_key_id": secrets["access_key_id"],
            "secret_access_key": secrets["secret_access_key"],
            "token": secrets.get("session_token"),
            "expires_at": expires_at,
        }
    names = {"account_key": "access_key"}
    return {**{names.get(name, name): value for name, value in secrets.items()}, "expires_at": expires_at}


def _ask(address: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> Any:
    request = urllib.request.Request(address, body, dict(headers or {}))
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context()) as answer:
        return json.load(answer)
