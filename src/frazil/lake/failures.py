"""What a Java exception means: for a commit an answer, for everything else an error of ours.

    Py4JJavaError ---------+
    Py4JNetworkError ------+--> Failure (class names, message without secrets)
                                   |
                                   +-- commit_answer --> Conflicted | Refused | Unknown
                                   +-- as_error -------> CatalogUnavailable | CatalogRefused | TableChanged | ...

The list of classes that prove something is closed. Whatever is not on it proves nothing: the commit may have landed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors.exceptions.captured import CapturedException

from frazil.errors import CatalogRefused, CatalogUnavailable, FrazilError, TableChanged
from frazil.model.commit import CommitAnswer, Conflicted, Refused, Unknown

# PySpark turns some Java exceptions into its own; a connection that breaks shows as any of the others.
JAVA_ERRORS = (Py4JError, CapturedException, ConnectionError)

_EXCEPTIONS = "org.apache.iceberg.exceptions."
COMMIT_FAILED = _EXCEPTIONS + "CommitFailedException"
VALIDATION = _EXCEPTIONS + "ValidationException"
NO_SUCH_TABLE = _EXCEPTIONS + "NoSuchTableException"
NO_SUCH_NAMESPACE = _EXCEPTIONS + "NoSuchNamespaceException"
ALREADY_EXISTS = _EXCEPTIONS + "AlreadyExistsException"
FORBIDDEN = _EXCEPTIONS + "ForbiddenException"
NOT_AUTHORIZED = _EXCEPTIONS + "NotAuthorizedException"
BAD_REQUEST = _EXCEPTIONS + "BadRequestException"
UNSUPPORTED = "java.lang.UnsupportedOperationException"
LOST_JVM = "lost connection to the JVM"

_REFUSALS = {
    NO_SUCH_TABLE: "the table is gone: restore it, or use `frazil resync` to load it anew",
    FORBIDDEN: "grant the catalog's credential the right to commit to this table",
    NOT_AUTHORIZED: "the catalog does not accept the credential: renew it in catalog.properties",
}
_IO_ERROR = "java.io.IOException"
_SECRET_WORDS = ("token", "secret", "password", "credential", "key", "signature")
_SHORTEST_SECRET = 4
_NOT_WRITABLE = ("readonly", "read-only", "permission denied", "mkdirs failed", "sqlite_cantopen")
_MASK = "****"


@dataclass(frozen=True, slots=True)
class Failure:
    """A Java exception as values: its own class and superclasses, those of its causes, and a message to show."""

    classes: tuple[str, ...]
    causes: tuple[str, ...]
    message: str

    @property
    def name(self) -> str:
        return self.classes[0].rpartition(".")[2] if self.classes else "unknown"

    def is_a(self, *names: str) -> bool:
        return any(name in self.classes for name in names)

    def caused_by(self, *names: str) -> bool:
        return any(name in self.causes for name in names)

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


def failure_of(error: BaseException, properties: Mapping[str, str] | None = None) -> Failure:
    """Reads a Py4J error. `properties` are the catalog's: values that look secret are masked in the message."""
    secrets = secrets_in(properties or {})
    match error:
        case Py4JJavaError() | CapturedException():
            exception = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
            try:
                return _java_failure(exception, secrets)
            except (Py4JError, OSError, AttributeError):
                return Failure((LOST_JVM,), (), "the JVM ended while it was asked about an exception")
        case Py4JNetworkError() | OSError():
            return Failure((LOST_JVM,), (), masked(str(error), secrets) or "no answer")
        case _:
            return Failure((type(error).__name__,), (), masked(str(error), secrets))


def commit_answer(failure: Failure) -> CommitAnswer:
    """What a failed commit proves. A failed rename inside a file system's commit proves nothing, though it is
    reported as a failed commit."""
    if failure.is_a(COMMIT_FAILED):
        return Unknown(str(failure)) if failure.caused_by(_IO_ERROR) else Conflicted(str(failure))
    if failure.is_a(VALIDATION):
        return Conflicted(str(failure))
    for name, hint in _REFUSALS.items():
        if failure.is_a(name):
            return Refused(str(failure), hint)
    return Unknown(str(failure))


def as_error(failure: Failure, doing: str, endpoint: str, table: str | None = None) -> FrazilError:
    """The error for a question or a definition that failed, saying what, against which endpoint, and what to do."""
    what = doing if table is None else f"{doing} {table}"
    message = f"cannot {what} at {endpoint}: {failure}"
    facts = {"endpoint": endpoint, "table": table, "java": failure.name}
    if failure.is_a(NO_SUCH_TABLE):
        return TableChanged(message, hint=f"the table {table} does not exist (any more): restore it or resync", **facts)
    if failure.is_a(NO_SUCH_NAMESPACE):
        return CatalogRefused(message, hint="create the namespace, or let the credential create namespaces", **facts)
    if failure.is_a(FORBIDDEN, NOT_AUTHORIZED):
        return CatalogRefused(message, hint="check the credential in catalog.properties and its rights", **facts)
    text = failure.message.lower()
    if any(sign in text for sign in _NOT_WRITABLE):
        return CatalogRefused(message, hint=f"make {endpoint} and the warehouse writable for this user", **facts)
    if failure.is_a(BAD_REQUEST):
        return CatalogRefused(message, hint="the catalog does not accept the request: check its settings", **facts)
    return CatalogUnavailable(message, hint=f"check that the catalog at {endpoint} runs and is reachable", **facts)


def secrets_in(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must not be shown, the longest first; a credential id:secret hides its secret as well."""
    found: set[str] = set()
    for key, value in properties.items():
        if any(word in key.lower() for word in _SECRET_WORDS):
            found.update(part for part in (value, value.partition(":")[2]) if len(part) >= _SHORTEST_SECRET)
    return tuple(sorted(found, key=len, reverse=True))


def masked(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, _MASK)
    return text


def _java_failure(exception: Any, secrets: tuple[str, ...]) -> Failure:
    causes: list[str] = []
    messages = [exception.getMessage() or ""]
    cause = exception.getCause()
    while cause is not None:
        causes.extend(_class_chain(cause))
        if (message := cause.getMessage()) and message not in messages[-1]:
            messages.append(message)
        cause = cause.getCause()
    text = "; ".join(message for message in messages if message).splitlines()
    return Failure(tuple(_class_chain(exception)), tuple(causes), masked(text[0] if text else "no message", secrets))


def _class_chain(exception: Any) -> list[str]:
    chain = []
    kind = exception.getClass()
    while kind is not None:
        chain.append(kind.getName())
        kind = kind.getSuperclass()
    return chain
