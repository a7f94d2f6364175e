"""What a Java exception means: for a commit an answer, for everything else an error of ours.

    Py4JJavaError ---------+
    Py4JNetworkError ------+--> JavaFailure (class names, message without secrets)
                                   |
                                   +-- commit_answer --> Conflicted | Refused | Unknown
                                   +-- as_error -------> CatalogUnavailable | CatalogRefused | TableChanged | ...

The list of classes that prove something is closed. Whatever is not on it proves nothing: the commit may have landed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors.exceptions.captured import CapturedException

from frazil.config.secrets import Redactor
from frazil.errors import CatalogRefused, CatalogUnavailable, ConfigError, FrazilError, TableChanged
from frazil.model.commit import CommitAnswer, Conflicted, Refused, Unknown

# PySpark turns some Java exceptions into its own; a connection that breaks, or cannot be made, shows as the others.
JAVA_ERRORS = (Py4JError, CapturedException, OSError)

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
NO_BUCKET = "software.amazon.awssdk.services.s3.model.NoSuchBucketException"
NO_JSON = "org.apache.iceberg.shaded.com.fasterxml.jackson.core.JsonProcessingException"
NO_FILE = (
    _EXCEPTIONS + "NotFoundException",
    "java.io.FileNotFoundException",
    "java.nio.file.NoSuchFileException",
)
_MISSING_CLASS = ("java.lang.NoClassDefFoundError", "java.lang.ClassNotFoundException")
LOST_JVM = "lost connection to the JVM"
_RESTART_JVM = (
    "Spark's Java process ended or hung, and must be started again; if it lacked memory, raise spark.jvm_memory"
)
_CALLING, _TRACE = "An error occurred while calling", "Trace:"

_REFUSALS = {
    NO_SUCH_TABLE: "the table is gone: restore it, or start the pipeline again, which makes it anew",
    FORBIDDEN: "grant the catalog's credential the right to commit to this table",
    NOT_AUTHORIZED: "the catalog does not accept the credential: renew it under catalog.auth or in catalog.properties",
}
_GONE = "the table {table} does not exist (any more): restore it, or start the pipeline again, which makes it anew"
_IO_ERROR = "java.io.IOException"


@dataclass(frozen=True, slots=True)
class JavaFailure:
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

    def has(self, *names: str) -> bool:
        """It is one, or one of its causes is."""
        return self.is_a(*names) or self.caused_by(*names)

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


@dataclass(frozen=True, slots=True)
class _Sign:
    """By what a failure is recognised (classes of itself or of a cause, or words of its message), and what it means."""

    error: type[FrazilError]
    hint: str
    classes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def fits(self, failure: JavaFailure) -> bool:
        text = failure.message.lower()
        return failure.has(*self.classes) or any(word in text for word in self.words)


_SIGNS = (
    _Sign(
        CatalogRefused,
        "create the namespace (CREATE NAMESPACE in Spark SQL, or in the catalog's own console), or grant {who} the "
        "right to create namespaces",
        (NO_SUCH_NAMESPACE,),
    ),
    _Sign(
        CatalogRefused,
        "{endpoint} does not accept the credential of {who}: it is wrong, revoked or has expired; renew it under "
        "catalog.auth or in catalog.properties",
        (NOT_AUTHORIZED,),
        (
            "password authentication failed",
            "access denied for user",
            "invalid_client",
            "unauthorized_client",
            "fatal: role ",
            "(code: 401",
        ),
    ),
    _Sign(
        CatalogRefused,
        "{who} is known to {endpoint} but not allowed to do this: grant it the rights that docs/catalogs.md lists",
        (FORBIDDEN,),
        ("accessdenied", "access denied", "status code: 403", "(code: 403", "is not authorized to perform"),
    ),
    _Sign(
        CatalogRefused,
        "Iceberg finds the fields within a column by dotted names: rename the column that is called like one of them",
        words=("invalid schema: multiple fields for name",),
    ),
    _Sign(CatalogRefused, "create the bucket, or correct catalog.warehouse or the volume's location", (NO_BUCKET,)),
    _Sign(
        CatalogRefused,
        "the storage does not accept the access key: check the volume's credentials",
        (),
        ("invalidaccesskeyid", "signaturedoesnotmatch", "access key id you provided does not exist"),
    ),
    _Sign(
        ConfigError,
        "set the region: catalog.region, the volume's region, or AWS_REGION",
        (),
        ("unable to load region", "region must be specified", "unable to load a region"),
    ),
    _Sign(
        ConfigError,
        "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or those of the "
        "volume",
        (),
        ("unable to load credentials",),
    ),
    _Sign(
        CatalogRefused,
        "make {endpoint} and the warehouse writable for this user",
        (),
        ("readonly", "read-only", "permission denied", "mkdirs failed", "sqlite_cantopen"),
    ),
    _Sign(
        CatalogUnavailable,
        "{endpoint} shows a certificate that is not trusted: set catalog.tls.ca to the authority's PEM file",
        ("javax.net.ssl.SSLHandshakeException",),
    ),
    _Sign(
        CatalogUnavailable,
        "check that the catalog at {endpoint} runs and is reachable",
        ("java.net.ConnectException", "java.net.UnknownHostException", "java.net.SocketTimeoutException"),
    ),
    _Sign(
        CatalogRefused,
        "{endpoint} answers, but not as an Iceberg catalog: check catalog.uri (port and path) and catalog.warehouse",
        (NO_JSON,),
        ("(code: 404", "(code: 405", "(code: 301", "(code: 302"),
    ),
    _Sign(CatalogRefused, "the catalog does not accept the request: check its settings", (BAD_REQUEST,)),
    _Sign(
        ConfigError,
        "Iceberg does not take the settings of this catalog: correct what the message names, under catalog or in "
        "catalog.properties",
        ("java.lang.IllegalArgumentException",),
    ),
)


def failure_of(error: BaseException, properties: Mapping[str, str] | None = None) -> JavaFailure:
    """Reads a Py4J error. `properties` are the catalog's: values that look secret are masked in the message."""
    hide = Redactor(properties)
    match error:
        case Py4JJavaError() | CapturedException():
            exception = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
            try:
                return _java_failure(exception, hide)
            except (Py4JError, OSError, AttributeError):
                return JavaFailure((LOST_JVM,), (), "the JVM ended while it was asked about an exception")
        case Py4JNetworkError() | OSError():
            return JavaFailure((LOST_JVM,), (), hide(str(error)) or "no answer")
        case Py4JError() if _has_no_answer(error):
            return JavaFailure((LOST_JVM,), (), hide(str(error)))
        case _:
            return JavaFailure((type(error).__name__,), (), hide(str(error)))


def _has_no_answer(error: Py4JError) -> bool:
    """Py4J says so, and nothing else, of a call whose connection broke; of what Java threw it gives the trace."""
    return type(error) is Py4JError and str(error).startswith(_CALLING) and _TRACE not in str(error)


def commit_answer(failure: JavaFailure) -> CommitAnswer:
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


def as_error(
    failure: JavaFailure,
    doing: str,
    endpoint: str,
    table: str | None = None,
    *,
    who: str | None = None,
    jars: Sequence[str] = (),
) -> FrazilError:
    """The error for a question or a definition that failed, saying what, against which endpoint, as whom, and what to
    do. `jars` are those the catalog needs, for the case that one is missing."""
    what = doing if table is None else f"{doing} {table}"
    message = f"cannot {what} at {endpoint}{f' as {who}' if who else ''}: {failure}"
    facts = {"endpoint": endpoint, "table": table, "java": failure.name, "identity": who}
    if failure.is_a(LOST_JVM):
        return CatalogUnavailable(message, hint=_RESTART_JVM, **facts)
    if failure.is_a(NO_SUCH_TABLE):
        return TableChanged(message, hint=_GONE.format(table=table), **facts)
    if failure.has(*_MISSING_CLASS):
        wanted = (
            f"{', '.join(jars)}; start the session with them in spark.jars.packages"
            if jars
            else "the bundle of its storage: name a volume, or set properties.io-impl"
        )
        return ConfigError(message, hint=f"the Spark session lacks a jar that this catalog needs: {wanted}", **facts)
    for sign in _SIGNS:
        if sign.fits(failure):
            return sign.error(message, hint=sign.hint.format(endpoint=endpoint, who=who or "this process"), **facts)
    return CatalogUnavailable(message, hint=f"check that the catalog at {endpoint} runs and is reachable", **facts)


def _java_failure(exception: Any, hide: Redactor) -> JavaFailure:
    causes: list[str] = []
    messages = [exception.getMessage() or ""]
    cause = exception.getCause()
    while cause is not None:
        causes.extend(_class_chain(cause))
        if (message := cause.getMessage()) and message not in messages[-1]:
            messages.append(message)
        cause = cause.getCause()
    text = "; ".join(message for message in messages if message).splitlines()
    return JavaFailure(tuple(_class_chain(exception)), tuple(causes), hide(text[0] if text else "no message"))


def _class_chain(exception: Any) -> list[str]:
    chain = []
    kind = exception.getClass()
    while kind is not None:
        chain.append(kind.getName())
        kind = kind.getSuperclass()
    return chain
