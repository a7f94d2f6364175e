"""Commits to a REST catalog with every requirement on the wire, and what the server says of itself.

    start, staged --requirements--> assert-table-uuid, assert-ref-snapshot-id           what iceberg-java derives
                                    + assert-current-schema-id, assert-default-spec-id,
                                      assert-default-sort-order-id                      what our files were written for
                                    + assert-ref-snapshot-id of further branches        what must not have moved either
         one table     --> POST .../namespaces/{ns}/tables/{table}   through the table's own client
         several       --> POST .../transactions/commit              RESTCatalog.commitTransaction
    GET /v1/config     --> the server's own list of endpoints

For a snapshot alone, iceberg-java asserts the table and the branch. The other three make a changed schema, partitioning
or order a conflict too, also where somebody changed it without a snapshot. Its commit offers no way to add them, so the
request is made here and sent by the client that iceberg-java gave the table: same address, token, signature, headers.
That client is a private field, in a jar whose version we pin; in a session with another one the fields may be missing,
and then iceberg-java's own commit is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog, catalog_error, iceberg_properties
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.iceberg.jvm.method_handles import Handles, handles_of, made_once

COMMIT_TRANSACTION = "POST /v1/{prefix}/transactions/commit"
RENAME_TABLE = "POST /v1/{prefix}/tables/rename"
CREATE_VIEW = "POST /v1/{prefix}/namespaces/{namespace}/views"
_OPERATIONS = "org.apache.iceberg.rest.RESTTableOperations"
_REQUIREMENT = "org.apache.iceberg.UpdateRequirement$"


@dataclass(frozen=True, slots=True)
class StagedCommit:
    """One table's staged metadata, by its Java handles; nothing of it was sent yet."""

    identifier: Any
    operations: Any
    start: Any
    metadata: Any
    snapshot_id: int
    sequence_number: int
    unmoved: Mapping[str, int | None] = field(default_factory=dict)
    """Branches, by the snapshot that each must still be at, beside those that the commit itself moves."""


def send(catalog: Catalog, staged: StagedCommit) -> None:
    """Commits, exactly once. Raises what Java raises: whether anything landed is for `jvm.errors` to say."""
    private = _table_fields(catalog, staged.operations) if catalog.settings.type.speaks_rest else None
    if private is None:
        staged.operations.commit(staged.start, staged.metadata)
        return
    client, path, headers = private
    iceberg = catalog.iceberg
    request = iceberg.rest.requests.UpdateTableRequest(requirements(catalog, staged), staged.metadata.changes())
    answer = handles_of(catalog).iceberg("rest.responses.LoadTableResponse")
    client.post(path, request, answer, headers, iceberg.rest.ErrorHandlers.tableCommitHandler())


def can_assert(catalog: Catalog, staged: StagedCommit) -> bool:
    """Whether everything that must hold reaches the server. Every other catalog compares the whole metadata."""
    if not staged.unmoved or not catalog.settings.type.speaks_rest:
        return True
    return _table_fields(catalog, staged.operations) is not None


def send_many(catalog: Catalog, commits: Sequence[StagedCommit]) -> None:
    """All tables in one request. Raises what Java raises."""
    iceberg, many = catalog.iceberg, catalog.spark._jvm.java.util.ArrayList()
    for staged in commits:
        plain = iceberg.catalog.TableCommit.create(staged.identifier, staged.start, staged.metadata)
        many.add(plain.withRequirements(requirements(catalog, staged)))
    catalog.java.commitTransaction(many)


def requirements(catalog: Catalog, staged: StagedCommit) -> Any:
    """A java.util.List of what must hold of the table for the commit to land."""
    derived = catalog.iceberg.UpdateRequirements.forUpdateTable(staged.start, staged.metadata.changes())
    whole = catalog.spark._jvm.java.util.ArrayList(derived)
    for name, value in (
        ("AssertCurrentSchemaID", staged.start.currentSchemaId()),
        ("AssertDefaultSpecID", staged.start.defaultSpecId()),
        ("AssertDefaultSortOrderID", staged.start.defaultSortOrderId()),
    ):
        whole.add(made_once(catalog, name, partial(_requirement, catalog, name))(value))
    for branch, snapshot_id in staged.unmoved.items():
        name = "AssertRefSnapshotID"
        whole.add(made_once(catalog, name, partial(_requirement, catalog, name))(branch, snapshot_id))
    return whole


def _requirement(catalog: Catalog, name: str, _: Handles) -> Any:
    return getattr(catalog.spark._jvm, _REQUIREMENT + name)


def endpoints(catalog: Catalog) -> frozenset[str]:
    """What the server itself says it offers, now: `POST /v1/{prefix}/transactions/commit`, ... Empty if it says
    nothing, or does not speak REST. Raises CatalogUnavailable or CatalogRefused."""
    if not catalog.settings.type.speaks_rest:
        return frozenset()
    try:
        session = _field(catalog, catalog.java.getClass(), "sessionCatalog").get(catalog.java)
        client = _field(catalog, session.getClass(), "client").get(session)
        auth = _field(catalog, session.getClass(), "catalogAuth").get(session)
        rest = catalog.iceberg.rest
        warehouse = iceberg_properties(catalog.settings).get("warehouse")
        answer = client.withAuthSession(auth).get(
            rest.ResourcePaths.config(),
            catalog.java_map({"warehouse": warehouse} if warehouse else {}),
            handles_of(catalog).iceberg("rest.responses.ConfigResponse"),
            catalog.java_map({}),
            rest.ErrorHandlers.configErrorHandler(),
        )
        document = json.loads(rest.responses.ConfigResponseParser.toJson(answer))
    except JAVA_ERRORS as error:
        raise catalog_error(catalog, error, "read the configuration of the catalog") from None
    return frozenset(document.get("endpoints", ()))


def declares_transactions(catalog: Catalog) -> bool:
    """Whether the server itself says that it commits several tables at once; what a client takes for granted of a
    server that says nothing does not count. Raises like `endpoints`."""
    return COMMIT_TRANSACTION in endpoints(catalog)


def _table_fields(catalog: Catalog, operations: Any) -> tuple[Any, Any, Any] | None:
    """The client, path and headers of a REST table's operations; None if it has none of those names."""
    kind = operations.getClass()
    if kind.getName() != _OPERATIONS:
        return None
    try:
        client, path, headers = (_field(catalog, kind, name) for name in ("client", "path", "mutationHeaders"))
    except JAVA_ERRORS:
        return None
    return client.get(operations), path.get(operations), headers.get(operations)


def _field(catalog: Catalog, kind: Any, name: str) -> Any:
    def find(_: Any) -> Any:
        found = kind.getDeclaredField(name)
        found.setAccessible(True)
        return found

    return made_once(catalog, f"field {kind.getName()}.{name}", find)
