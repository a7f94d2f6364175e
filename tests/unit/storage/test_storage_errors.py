"""What clients of stores say, sorted by what can be done, and said without a secret."""

from __future__ import annotations

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, NotSupportedError, PermissionDeniedError

from frazil.storage.errors import FailureKind, explained, failure_of
from frazil.storage.options import store_settings
from frazil.storage.url import parse_place


def answer(status: str, code: str = "", message: str = "") -> str:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>" if code else ""
    return (
        f"Generic S3 error: Error performing PUT https://h/b/k?X-Amz-Signature=abcdef0123 in 1ms - Server returned"
        f" non-2xx status code: {status}: {body}\n\nDebug source:\nGeneric {{ <Code>Misleading</Code> }}"
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (GenericError(answer("503 Service Unavailable", "SlowDown")), FailureKind.UNAVAILABLE),
        (GenericError(answer("500 Internal Server Error", "InternalError")), FailureKind.UNAVAILABLE),
        (GenericError(answer("502 Bad Gateway")), FailureKind.UNAVAILABLE),
        (GenericError(answer("429 Too Many Requests")), FailureKind.UNAVAILABLE),
        (GenericError(answer("400 Bad Request", "RequestTimeout")), FailureKind.UNAVAILABLE),
        (GenericError(answer("409 Conflict", "ConditionalRequestConflict")), FailureKind.UNAVAILABLE),
        (GenericError(answer("400 Bad Request", "ExpiredToken")), FailureKind.EXPIRED),
        (PermissionDeniedError(answer("403 Forbidden", "AccessDenied")), FailureKind.DENIED),
        (PermissionDeniedError(answer("403 Forbidden", "SignatureDoesNotMatch")), FailureKind.BAD_KEY),
        (PermissionDeniedError(answer("403 Forbidden", "InvalidAccessKeyId")), FailureKind.BAD_KEY),
        (PermissionDeniedError(answer("403 Forbidden", "RequestTimeTooSkewed")), FailureKind.CLOCK),
        (PermissionDeniedError(answer("403 Forbidden")), FailureKind.DENIED),
        (FileNotFoundError(answer("404 Not Found", "NoSuchBucket")), FailureKind.NO_BUCKET),
        (GenericError(answer("404 Not Found", "NoSuchBucket")), FailureKind.NO_BUCKET),
        (FileNotFoundError(answer("404 Not Found", "NoSuchKey")), FailureKind.GONE),
        (FileNotFoundError(answer("404 Not Found")), FailureKind.GONE),
        (GenericError(answer("301 Moved Permanently", "PermanentRedirect")), FailureKind.WRONG_REGION),
        (GenericError(answer("400 Bad Request", "AuthorizationHeaderMalformed")), FailureKind.WRONG_REGION),
        (AlreadyExistsError(answer("412 Precondition Failed", "PreconditionFailed")), FailureKind.EXISTS),
        (NotSupportedError("no such thing"), FailureKind.UNSUPPORTED),
        (GenericError(answer("501 Not Implemented", "NotImplemented")), FailureKind.UNSUPPORTED),
        (GenericError(answer("416 Range Not Satisfiable", "InvalidRange")), FailureKind.EMPTY_RANGE),
        (GenericError(answer("400 Bad Request", "MalformedXML")), FailureKind.REFUSED),
        (
            GenericError("Error performing PUT http://169.254.169.254/latest/api/token - HTTP error"),
            FailureKind.NO_CREDENTIALS,
        ),
        (GenericError("HTTP error: error sending request\n\nDebug source: UnknownIssuer"), FailureKind.UNTRUSTED),
        (GenericError("HTTP error: error sending request\n\nDebug source: kind: Timeout"), FailureKind.UNAVAILABLE),
        (ConnectionResetError(104, "Connection reset by peer"), FailureKind.UNAVAILABLE),
    ],
)
def test_every_answer_is_of_one_kind(error: BaseException, kind: FailureKind) -> None:
    assert failure_of(error).kind is kind


@pytest.mark.parametrize(
    ("debug", "said"),
    [
        ('ConnectError("tcp connect error", Os { kind: ConnectionRefused })', "the connection was refused"),
        ('ConnectError("dns error")', "no such host"),
        ("HttpError { kind: Timeout }", "no answer in time"),
        ("HttpError { kind: Interrupted }", "the connection was cut"),
    ],
)
def test_why_nobody_answered_is_said_in_words(debug: str, said: str) -> None:
    error = GenericError(f"Generic S3 error: HTTP error: error sending request\n\nDebug source:\n{debug}")
    assert failure_of(error).text == said


def test_a_signature_in_an_address_is_not_passed_on() -> None:
    for error in (
        GenericError(answer("400 Bad Request")),
        GenericError("Error at https://h/k?sig=abcdef0123 something"),
    ):
        assert "abcdef0123" not in failure_of(error).text


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_says_who_where_and_what_to_do(kind: FailureKind) -> None:
    options = {
        "s3.access-key-id": "AKIAIOSFODNN7EXAMPLE",
        "s3.secret-access-key": "hunter22hunter22",
        "s3.endpoint": "https://s3.example.com",
    }
    settings = store_settings(parse_place("s3://lake/t/x"), options)
    failure = failure_of(GenericError(answer("400 Bad Request", "Odd", "that is odd.")))
    text, hint = explained(type(failure)(kind, failure.text), settings, "s3://lake/t/x", "write")
    assert text == ("cannot write s3://lake/t/x as access key AKIA...MPLE at https://s3.example.com: Odd (that is odd)")
    assert hint
    assert "hunter22" not in text + hint
