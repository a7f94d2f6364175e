"""Open stores of this process, and the requests that are made of them.

    ObjectUrl + options --store_for--> Store (kept while its credentials hold, one per bucket and options)
        create   exclusively, one request; a lost answer is cleared up by looking
        upload   many parts, bounded memory, atomic at its end
        head, tail, range, listing

Every request is tried again where that may help, and raises StoreFailed else. Credentials that were given are handed
over by a provider, so that the process's environment never mixes into them.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from frazil.clock import Clock, SystemClock
from frazil.errors import ConfigError
from frazil.storage.errors import FailureKind, StorageFailure, StoreFailed, failure_of
from frazil.storage.options import StoreSettings, store_settings
from frazil.storage.requests import tried, waits
from frazil.storage.url import ObjectUrl, StoreKind
from frazil.storage.vending import VendedCredentials, credential_of

_KEPT_SECONDS = 1800.0
_KEPT_MOST = 64
_CONCURRENT_PARTS = 4
_RETRIES: dict[str, Any] = {
    "max_retries": 6,
    "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=5), "base": 2},
    "retry_timeout": timedelta(seconds=120),
}
_CLASSES: Mapping[StoreKind, Any] = {
    StoreKind.S3: S3Store,
    StoreKind.GCS: GCSStore,
    StoreKind.AZURE: AzureStore,
}
Answer = TypeVar("Answer")


class StaticCredentials:
    """Given credentials, exactly as they are."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets

    def __call__(self) -> dict[str, Any]:
        return credential_of(self._secrets, None)


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of an object: its bytes from `start`, and how long the whole is."""

    data: bytes
    start: int
    size: int


class Store:
    """One bucket, as one identity."""

    def __init__(
        self, place: ObjectUrl, settings: StoreSettings, clock: Clock | None = None, *, below: str = ""
    ) -> None:
        """`below` is a prefix that all keys are relative to."""
        self.settings = settings
        self._clock = clock or SystemClock()
        self._vended = VendedCredentials(place, settings, self._clock) if settings.refresh else None
        provider = self._vended or (StaticCredentials(settings.secrets) if settings.secrets else None)
        client = dict(settings.client)
        if settings.ca_file:
            client["root_certificate"] = _certificate(settings.ca_file)
        open_store = _CLASSES[settings.kind]
        arguments: dict[str, Any] = {"config": dict(settings.config), "client_options": client, "prefix": below or None}
        if provider is not None:
            arguments["credential_provider"] = provider
        try:
            # Each try of a request that must not be repeated blindly is ours to judge; parts may be repeated below us.
            self._once: ObjectStore = open_store(settings.bucket, retry_config={"max_retries": 0}, **arguments)
            self.listed: ObjectStore = open_store(settings.bucket, retry_config=_RETRIES, **arguments)
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{place.url}: the storage options are not understood: {failure_of(error).text}",
                hint="Compare them with docs/storage.md.",
            ) from error

    def create(self, key: str, data: bytes) -> None:
        """Makes an object that must not exist yet. Raises StoreFailed; of kind EXISTS only if it is not ours."""
        pauses = waits(self._clock)
        unsure = False
        while True:
            failure = self._failure_of(lambda: obstore.put(self._once, key, data, mode="create", use_multipart=False))
            if failure is None:
                return
            if failure.kind is FailureKind.EXISTS and unsure and self._holds(key, data):
                return
            if failure.kind is FailureKind.UNSUPPORTED:
                self._create_after_looking(key, data)
                return
            pause = next(pauses, None) if failure.transient else None
            if pause is None:
                raise StoreFailed(failure)
            unsure = True
            self._clock.wait(pause)

    def upload(self, key: str, chunks: Iterator[bytes]) -> None:
        """Puts a large object, part by part, over whatever is there. An iterator that raises ends it: the upload is
        given up and nothing of it shows. Raises StoreFailed, and what the iterator raises."""
        failure = self._failure_of(
            lambda: obstore.put(
                self.listed,
                key,
                chunks,
                use_multipart=True,
                chunk_size=self.settings.part_bytes,
                max_concurrency=_CONCURRENT_PARTS,
            )
        )
        if failure is not None:
            raise StoreFailed(failure)

    def size(self, key: str) -> int:
        """Its bytes. Raises StoreFailed of kind GONE if there is no such object."""
        return int(self._tried(lambda: obstore.head(self._once, key))["size"])

    def tail(self, key: str, length: int) -> Tail:
        """The last bytes of an object and its size, in one request."""

        def ask() -> Tail:
            answer = obstore.get(self._once, key, options={"range": {"suffix": length}})
            start, _ = answer.range
            return Tail(answer.bytes().to_bytes(), start, answer.meta["size"])

        try:
            return self._tried(ask)
        except StoreFailed as failed:
            # The end of nothing is no range; other stores that take no such range say what they are asked differently.
            if failed.failure.kind not in (FailureKind.EMPTY_RANGE, FailureKind.UNSUPPORTED):
                raise
        size = self.size(key)
        start = max(size - length, 0)
        return Tail(self.range(key, start, size) if size else b"", start, size)

    def range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, all of them."""
        data = self._tried(lambda: obstore.get_range(self._once, key, start=start, end=end)).to_bytes()
        if len(data) != end - start:
            text = f"{len(data)} bytes came for {end - start}"
            raise StoreFailed(StorageFailure(FailureKind.EMPTY_RANGE, text))
        return data

    def whole(self, key: str) -> bytes:
        return self._tried(lambda: obstore.get(self._once, key).bytes().to_bytes())

    def _create_after_looking(self, key: str, data: bytes) -> None:
        """For stores without conditional writes: the name is nobody else's by construction, which looking confirms."""
        try:
            self.size(key)
        except StoreFailed as failed:
            if failed.failure.kind is not FailureKind.GONE:
                raise
            self._tried(lambda: obstore.put(self._once, key, data, mode="overwrite", use_multipart=False))
            return
        raise StoreFailed(StorageFailure(FailureKind.EXISTS, "it is there already"))

    def _holds(self, key: str, data: bytes) -> bool:
        """Whether a try without an answer did land."""
        return self.size(key) == len(data) and self.whole(key) == data

    def _tried(self, action: Callable[[], Answer]) -> Answer:
        try:
            return tried(action, self._clock)
        except StoreFailed:
            self._raise_credential_failure()
            raise

    def _failure_of(self, action: Callable[[], object]) -> StorageFailure | None:
        try:
            action()
        except (BaseError, OSError) as error:
            self._raise_credential_failure()
            return failure_of(error)
        return None

    def _raise_credential_failure(self) -> None:
        """Why there were no credentials is known here and not by the client, which met an exception of ours."""
        if self._vended is not None and self._vended.failure is not None:
            raise self._vended.failure


@dataclass(frozen=True, slots=True)
class _Kept:
    store: Store
    until: float


_kept: dict[tuple[int, str], _Kept] = {}
_lock = threading.Lock()


def store_for(place: ObjectUrl, options: Mapping[str, str], *, strict: bool = False, below: str = "") -> Store:
    """A store for this place, opened at most once in a while. Raises ConfigError naming a wrong option."""
    clock = SystemClock()
    # A fork must not use its parent's connections. The digest keeps secrets out of the keys.
    facts = json.dumps([place.kind, place.bucket, place.account, place.host, strict, below, sorted(options.items())])
    key = (os.getpid(), hashlib.sha256(facts.encode()).hexdigest())
    now = clock.monotonic()
    with _lock:
        kept = _kept.get(key)
        if kept is not None and now < kept.until:
            return kept.store
    settings = store_settings(place, options, strict=strict)
    store = Store(place, settings, clock, below=below)
    with _lock:
        for old in [old for old, one in _kept.items() if one.until <= now or old[0] != os.getpid()]:
            del _kept[old]
        while len(_kept) >= _KEPT_MOST:
            del _kept[next(iter(_kept))]
        _kept[key] = _Kept(store, now + _KEPT_SECONDS)
    return store


def _certificate(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the certificate authority's file {path} cannot be read: {error.strerror}",
            hint="`ca_file` must lie at this path on every machine that runs executors.",
        ) from error
