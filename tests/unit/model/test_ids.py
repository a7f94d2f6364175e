"""Names that outlive a process."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

import pytest

from frazil.model.ids import (
    BadName,
    JobId,
    TableName,
    batch_id,
    data_path,
    epoch_prefix,
    equality_delete_path,
)
from frazil.sources.cockroachdb.position import Hlc

R = Hlc(1701102296662969433, 1)


def test_a_job_names_its_property_and_its_tag() -> None:
    """H7: the configured name, and nothing of the process."""
    job = JobId("shop")
    assert (job.ledger_property, job.fence_property, job.tag) == (
        "frazil.shop.ledger",
        "frazil.shop.fence",
        "frazil_shop",
    )


@pytest.mark.parametrize("text", ["", "1shop", "shop/x", "shop x", "a" * 64, "shöp"])
def test_a_job_name_that_cannot_be_a_path_is_refused(text: str) -> None:
    with pytest.raises(BadName):
        JobId(text)


def test_a_table_name_reads_back() -> None:
    name = TableName.parse("a.b.orders")
    assert (name.namespace, name.name, name.text, name.sql) == (("a", "b"), "orders", "a.b.orders", "`a`.`b`.`orders`")


@pytest.mark.parametrize("text", ["orders", "a..b", ".a", "a.b c", "a.b/c", "a.`b`"])
def test_a_table_name_that_cannot_be_quoted_is_refused(text: str) -> None:
    with pytest.raises(BadName):
        TableName.parse(text)


def test_a_batch_id_names_one_epoch_of_one_table_forever() -> None:
    job, orders = JobId("shop"), TableName.parse("a.orders")
    expected = uuid5(NAMESPACE_URL, "frazil:shop:a.orders:1701102296662969433.0000000001")
    assert batch_id(job, orders, R) == expected
    others = {
        batch_id(JobId("s2"), orders, R),
        batch_id(job, TableName.parse("a.o2"), R),
        batch_id(job, orders, Hlc(1)),
    }
    assert len(others | {expected}) == 4


def test_paths_have_a_prefix_to_sweep_and_a_leaf_of_their_own() -> None:
    """H46"""
    prefix = epoch_prefix("s3://lake/a/orders/data", JobId("shop"), R, "3-0a11ce00")
    assert prefix == ("s3://lake/a/orders/data/frazil_job=shop/epoch=1701102296662969433.0000000001/fence=3-0a11ce00")
    assert data_path(prefix, 2, "att", 0) == f"{prefix}/shard=2/data-att-0.parquet"
    assert equality_delete_path(prefix, 2, "att", 0) == f"{prefix}/shard=2/deletes/eqdel-att-0.parquet"
    leaves = {data_path(prefix, s, a, n) for s in (0, 1) for a in ("x", "y") for n in (0, 1)}
    assert len(leaves) == 8
