"""What a store's client said, as one of a few kinds, and how to say it to a person. Pure.

    exception --failure_of--> StorageFailure --explained--> text, hint: who, against what, what to do
                              kind, status, code, text

The client's own texts hold whole answers and requests; of them only the store's code and its sentence are passed on,
never a query string, which may carry a signature.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from obstore.exceptions import AlreadyExistsError, NotSupportedError, PermissionDeniedError, UnauthenticatedError

from frazil.storage.options import StoreSettings
from frazil.storage.url import StoreKind


class FailureKind(Enum):
    """By what can be done about it."""

    GONE = auto()
    EXISTS = auto()
    NO_BUCKET = auto()
    DENIED = auto()
    BAD_KEY = auto()
    EXPIRED = auto()
    NO_CREDENTIALS = auto()
    WRONG_REGION = auto()
    UNTRUSTED = auto()
    CLOCK = auto()
    UNSUPPORTED = auto()
    EMPTY_RANGE = auto()
    REFUSED = auto()
    UNAVAILABLE = auto()


@dataclass(frozen=True, slots=True)
class StorageFailure:
    kind: FailureKind
    text: str
    status: int | None = None
    code: str = ""

    @property
    def transient(self) -> bool:
        return self.kind is FailureKind.UNAVAILABLE


class StoreFailed(Exception):
    """A request that was not answered as hoped, after as many tries as it deserves."""

    def __init__(self, failure: StorageFailure) -> None:
        super().__init__(failure.text)
        self.failure = failure


_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_QUERY = re.compile(r"\?[^\s\"']*")
_BY_CODE = {
    "NoSuchKey": FailureKind.GONE,
    "BlobNotFound": FailureKind.GONE,
    "NoSuchBucket": FailureKind.NO_BUCKET,
    "ContainerNotFound": FailureKind.NO_BUCKET,
    "InvalidBucketName": FailureKind.NO_BUCKET,
    "AccessDenied": FailureKind.DENIED,
    "AllAccessDisabled": FailureKind.DENIED,
    "AuthorizationPermissionMismatch": FailureKind.DENIED,
    "AuthorizationFailure": FailureKind.DENIED,
    "InvalidAccessKeyId": FailureKind.BAD_KEY,
    "SignatureDoesNotMatch": FailureKind.BAD_KEY,
    "InvalidToken": FailureKind.BAD_KEY,
    "InvalidClientTokenId": FailureKind.BAD_KEY,
    "AuthenticationFailed": FailureKind.BAD_KEY,
    "ExpiredToken": FailureKind.EXPIRED,
    "ExpiredTokenException": FailureKind.EXPIRED,
    "TokenRefreshRequired": FailureKind.EXPIRED,
    "RequestExpired": FailureKind.EXPIRED,
    "RequestTimeTooSkewed": FailureKind.CLOCK,
    "PermanentRedirect": FailureKind.WRONG_REGION,
    "AuthorizationHeaderMalformed": FailureKind.WRONG_REGION,
    "IllegalLocationConstraintException": FailureKind.WRONG_REGION,
    "NotImplemented": FailureKind.UNSUPPORTED,
    "InvalidRange": FailureKind.EMPTY_RANGE,
    "SlowDown": FailureKind.UNAVAILABLE,
    "Throttling": FailureKind.UNAVAILABLE,
    "ServerBusy": FailureKind.UNAVAILABLE,
    "RequestTimeout": FailureKind.UNAVAILABLE,
    "IncompleteBody": FailureKind.UNAVAILABLE,
    "BadDigest": FailureKind.UNAVAILABLE,
    "OperationAborted": FailureKind.UNAVAILABLE,
    "ConditionalRequestConflict": FailureKind.UNAVAILABLE,
}
_BY_STATUS = {
    301: FailureKind.WRONG_REGION,
    401: FailureKind.BAD_KEY,
    403: FailureKind.DENIED,
    404: FailureKind.GONE,
    408: FailureKind.UNAVAILABLE,
    412: FailureKind.EXISTS,
    416: FailureKind.EMPTY_RANGE,
    425: FailureKind.UNAVAILABLE,
    429: FailureKind.UNAVAILABLE,
    501: FailureKind.UNSUPPORTED,
}
_METADATA_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "metadata/identity")
_BAD_CERTIFICATE = ("UnknownIssuer", "InvalidCertificate", "NotValidForName", "CertExpired", "invalid peer certificate")


def failure_of(error: BaseException) -> StorageFailure:
    """What an exception of the client means. Anything that is not understood may be tried again: it was no answer."""
    text = str(error)
    head = text.partition("Debug source:")[0]
    status = int(found[1]) if (found := _STATUS.search(head)) else None
    code = found[1] if (found := _CODE.search(head)) else ""
    said = html.unescape(found[1]) if (found := _MESSAGE.search(head)) else ""
    shown = _shown(head, status, code, said)
    if isinstance(error, AlreadyExistsError):
        return StorageFailure(FailureKind.EXISTS, shown, status, code)
    if isinstance(error, NotSupportedError | NotImplementedError):
        return StorageFailure(FailureKind.UNSUPPORTED, shown, status, code)
    if any(service in head for service in _METADATA_SERVICES):
        return StorageFailure(FailureKind.NO_CREDENTIALS, "no credentials were found", status, code)
    if any(sign in text for sign in _BAD_CERTIFICATE):
        return StorageFailure(FailureKind.UNTRUSTED, "its certificate is not trusted", status, code)
    if code in _BY_CODE:
        return StorageFailure(_BY_CODE[code], shown, status, code)
    if isinstance(error, FileNotFoundError):
        return StorageFailure(FailureKind.GONE, shown, status, code)
    if isinstance(error, PermissionDeniedError | PermissionError):
        return StorageFailure(FailureKind.DENIED, shown, status, code)
    if isinstance(error, UnauthenticatedError):
        return StorageFailure(FailureKind.BAD_KEY, shown, status, code)
    if status is not None and status < 500:
        return StorageFailure(_BY_STATUS.get(status, FailureKind.REFUSED), shown, status, code)
    if status == 501:
        return StorageFailure(FailureKind.UNSUPPORTED, shown, status, code)
    return StorageFailure(FailureKind.UNAVAILABLE, shown if status else _why_no_answer(text, shown), status, code)


def explained(failure: StorageFailure, settings: StoreSettings, path: str, verb: str) -> tuple[str, str]:
    """The error's text and its hint: what failed, as whom, where, and what to do. No secret in either."""
    text = f"cannot {verb} {path} as {settings.identity} at {settings.endpoint}: {failure.text}"
    return text, _HINTS[failure.kind](settings)


def _bucket(settings: StoreSettings) -> str:
    word = "container" if settings.kind is StoreKind.AZURE else "bucket"
    return f"{word} {settings.bucket!r}"


_HINTS: Mapping[FailureKind, Callable[[StoreSettings], str]] = {
    FailureKind.GONE: lambda s: f"See whether the file was removed from the {_bucket(s)}.",
    FailureKind.EXISTS: lambda s: (
        "A path is written once only. Another process uses this pipeline's fence and attempt; stop it."
    ),
    FailureKind.NO_BUCKET: lambda s: (
        f"There is no {_bucket(s)} at {s.endpoint}: create it, or correct the location, the endpoint or the region."
    ),
    FailureKind.DENIED: lambda s: (
        f"Allow {s.identity} to list the {_bucket(s)} and to read, write and delete objects"
        " below the table's location; docs/storage.md has a policy to copy."
    ),
    FailureKind.BAD_KEY: lambda s: (
        f"The storage does not accept {s.identity}: correct access key id and secret (or the"
        " profile, token, account key), or use the endpoint that they belong to."
    ),
    FailureKind.EXPIRED: lambda s: (
        "The session token has ended: log in again, or give credentials that are renewed (a"
        " role, a profile, or a catalog that vends them)."
    ),
    FailureKind.NO_CREDENTIALS: lambda s: (
        "Set access_key_id and secret_access_key, a profile, or the environment's"
        " variables where Frazil is started (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_CLIENT_ID, ...)."
    ),
    FailureKind.WRONG_REGION: lambda s: (
        f"The {_bucket(s)} belongs to another region: set `region` to the one it was created in."
    ),
    FailureKind.UNTRUSTED: lambda s: (
        f"The certificate of {s.endpoint} is of an authority that this machine does not"
        " know, or for another name: set `ca_file` to the authority's PEM file, or correct the endpoint."
    ),
    FailureKind.CLOCK: lambda s: "The clock of this machine is off by more than the storage allows: set it right.",
    FailureKind.UNSUPPORTED: lambda s: (
        f"{s.endpoint} does not have this operation: see docs/storage.md for what is needed of an S3-compatible store."
    ),
    FailureKind.EMPTY_RANGE: lambda s: "The file is shorter than it was said to be: see whether it was replaced.",
    FailureKind.REFUSED: lambda s: f"See what {s.endpoint} says about it, and correct the location or the options.",
    FailureKind.UNAVAILABLE: lambda s: (
        f"See whether {s.endpoint} is the right endpoint and can be reached from every"
        " machine that runs executors, then run again."
    ),
}


def _shown(head: str, status: int | None, code: str, said: str) -> str:
    if code or said:
        return " ".join(filter(None, (code, f"({said.strip().rstrip('.')})" if said else "")))
    if status is not None:
        return f"it answered {status}"
    return _QUERY.sub("", " ".join(head.split()))[:300]


def _why_no_answer(text: str, shown: str) -> str:
    if "dns error" in text:
        return "no such host"
    if "ConnectionRefused" in text or "Connection refused" in text:
        return "the connection was refused"
    if "kind: Timeout" in text or "timed out" in text:
        return "no answer in time"
    if "kind: Interrupted" in text or "ConnectionReset" in text or "IncompleteMessage" in text:
        return "the connection was cut"
    return shown
