from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from frazil.errors import CatalogRefused, CatalogUnavailable, ConfigError, TableChanged
from frazil.iceberg.jvm.errors import JAVA_ERRORS, JavaFailure, as_error, commit_answer, failure_of
from frazil.model.commit import Conflicted, Refused, Unknown

ICEBERG = "org.apache.iceberg.exceptions."
LOST = (
    Py4JNetworkError("Answer from Java side is empty"),
    Py4JError("An error occurred while calling o33.loadTable"),  # the connection broke during the call
    ConnectionRefusedError("refused"),
    ConnectionResetError("reset by peer"),
    OSError(24, "Too many open files"),
)


def failure(name: str, *causes: str, message: str = "said so") -> JavaFailure:
    return JavaFailure((name, "java.lang.RuntimeException", "java.lang.Throwable"), causes, message)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (ICEBERG + "CommitFailedException", Conflicted),
        (ICEBERG + "ValidationException", Conflicted),
        (ICEBERG + "NoSuchTableException", Refused),
        (ICEBERG + "ForbiddenException", Refused),
        (ICEBERG + "NotAuthorizedException", Refused),
        (ICEBERG + "CommitStateUnknownException", Unknown),
        (ICEBERG + "ServiceFailureException", Unknown),
        (ICEBERG + "ServiceUnavailableException", Unknown),
        (ICEBERG + "BadRequestException", Unknown),
        ("org.apache.iceberg.jdbc.UncheckedSQLException", Unknown),
        ("java.net.SocketTimeoutException", Unknown),
        ("java.lang.OutOfMemoryError", Unknown),
        ("somebody.else.CommitFailedException", Unknown),
    ],
)
def test_only_a_closed_list_of_exceptions_proves_anything(name: str, answer: type) -> None:
    assert isinstance(commit_answer(failure(name)), answer)


def test_a_commit_that_failed_on_its_way_to_storage_proves_nothing() -> None:
    """A rename that threw may have happened."""
    lost = failure(ICEBERG + "CommitFailedException", "java.io.FileNotFoundException", "java.io.IOException")
    assert isinstance(commit_answer(lost), Unknown)


def test_a_lost_jvm_is_an_unknown_outcome() -> None:
    """H56"""
    for error in (*LOST, EOFError()):
        assert isinstance(commit_answer(failure_of(error)), Unknown)


@pytest.mark.parametrize("error", LOST, ids=repr)
def test_a_question_that_a_lost_jvm_did_not_answer_may_be_asked_again(error: Exception) -> None:
    """H56"""
    assert isinstance(error, JAVA_ERRORS), "otherwise nobody would look at it"
    told = as_error(failure_of(error), "read the table", "jdbc:permission denied")
    assert isinstance(told, CatalogUnavailable)
    assert "jvm_memory" in told.hint


def test_what_java_threw_without_an_exception_object_is_not_a_lost_jvm() -> None:
    missing = Py4JError("An error occurred while calling o1.x. Trace:\npy4j.Py4JException: Method x([]) does not exist")
    assert "jvm_memory" not in as_error(failure_of(missing), "read the table", "http://h:1").hint


def test_a_refusal_says_what_to_do() -> None:
    answer = commit_answer(failure(ICEBERG + "NotAuthorizedException"))
    assert isinstance(answer, Refused)
    assert "credential" in answer.hint


@pytest.mark.parametrize(
    ("name", "message", "kind"),
    [
        (ICEBERG + "NoSuchTableException", "", TableChanged),
        (ICEBERG + "NoSuchNamespaceException", "", CatalogRefused),
        (ICEBERG + "ForbiddenException", "", CatalogRefused),
        ("java.io.UncheckedIOException", "Mkdirs failed to create /x", CatalogRefused),
        ("org.apache.iceberg.jdbc.UncheckedSQLException", "attempt to write a readonly database", CatalogRefused),
        ("java.net.ConnectException", "refused", CatalogUnavailable),
    ],
)
def test_other_questions_become_errors_that_say_where(name: str, message: str, kind: type) -> None:
    error = as_error(failure(name, message=message), "read the table", "http://h:1", "shop.orders")
    assert isinstance(error, kind)
    assert "http://h:1" in str(error)
    assert "shop.orders" in str(error)
    assert error.hint


def test_values_of_secret_properties_are_masked() -> None:
    secrets = {"credential": "id:hunter2", "token": "abcdef", "s3.secret-access-key": "zzzz", "uri": "http"}
    error = failure_of(Py4JError("id:hunter2 hunter2 abcdef zzzz http"), secrets)
    assert error.message == "*** *** *** *** http"


@pytest.mark.parametrize(
    ("name", "message", "kind", "hint"),
    [
        (ICEBERG + "NotAuthorizedException", "expired", CatalogRefused, "renew"),
        (ICEBERG + "ForbiddenException", "no", CatalogRefused, "docs/catalogs.md"),
        (ICEBERG + "RESTException", "Unable to process (code: 403, type: null): x", CatalogRefused, "docs/catalogs.md"),
        (ICEBERG + "RESTException", "Unable to process (code: 401, type: null): x", CatalogRefused, "renew"),
        (ICEBERG + "RESTException", "Unable to process (code: 404, type: null): <html>", CatalogRefused, "catalog.uri"),
        (ICEBERG + "RESTException", "Unable to process (code: 500, type: null): x", CatalogUnavailable, "reachable"),
        (ICEBERG + "NoSuchNamespaceException", "", CatalogRefused, "create the namespace"),
        ("x.UncheckedSQLException", "FATAL: password authentication failed for user", CatalogRefused, "renew"),
        ("x.S3Exception", "Access Denied (Service: S3, Status Code: 403)", CatalogRefused, "not allowed"),
        ("x.SdkClientException", "Unable to load region from any of the providers", ConfigError, "region"),
        ("x.SdkClientException", "Unable to load credentials from any", ConfigError, "AWS_ACCESS_KEY_ID"),
        ("java.lang.IllegalArgumentException", "Cannot set retries to 0", ConfigError, "catalog.properties"),
        ("java.lang.NoClassDefFoundError", "software/amazon/awssdk/X", ConfigError, "iceberg-aws-bundle"),
    ],
)
def test_every_kind_of_trouble_says_as_whom_and_what_to_do(name: str, message: str, kind: type, hint: str) -> None:
    trouble = failure(name, message=message)
    error = as_error(trouble, "open the catalog", "http://h:1", who="OAuth2 client me", jars=["iceberg-aws-bundle"])
    assert type(error) is kind
    assert hint in error.hint
    assert "as OAuth2 client me" in str(error)
    assert error.facts["identity"] == "OAuth2 client me"


def test_a_cause_tells_as_much_as_the_exception_itself() -> None:
    wrapped = failure("java.lang.RuntimeException", "javax.net.ssl.SSLHandshakeException", message="PKIX")
    assert "tls.ca" in as_error(wrapped, "open the catalog", "https://h").hint


def test_headers_are_secrets_and_words_of_the_protocol_are_not() -> None:
    properties = {
        "header.X-Tenant": "shop-7",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "token-refresh-enabled": "false",
    }
    error = failure_of(Py4JError("shop-7 has no vended-credentials: false"), properties)
    assert error.message == "*** has no vended-credentials: false"
