from __future__ import annotations

import pytest

from frazil.errors import ConfigError
from frazil.iceberg.catalogs.capabilities import Capabilities, by_type, check_deletes, check_version, refined
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType
from frazil.iceberg.catalogs.rest import COMMIT_TRANSACTION, RENAME_TABLE
from frazil.model.ids import TableName
from frazil.model.write import DeleteMode, TableOptions


def test_a_hadoop_catalog_renames_nothing_and_has_several_writers_on_hdfs_alone() -> None:
    local = by_type(CatalogSettings(type=CatalogType.HADOOP, warehouse="w"))
    hdfs = by_type(CatalogSettings(type=CatalogType.HADOOP, warehouse="hdfs://n/w"))
    assert (local.rename, local.several_writers) == (False, False)
    assert (hdfs.rename, hdfs.several_writers) == (False, True)
    assert any("one writer process" in note for note in local.notes)


def test_the_server_own_list_decides() -> None:
    assert refined(Capabilities(), [COMMIT_TRANSACTION, RENAME_TABLE]) == Capabilities(multi_table=True)
    assert not refined(Capabilities(), [COMMIT_TRANSACTION]).rename


def test_a_server_without_a_list_is_believed_to_rename_and_not_to_commit_several_tables() -> None:
    found = refined(Capabilities(multi_table=True), [])
    assert found.rename
    assert not found.multi_table
    assert any("one by one" in note for note in found.notes)


def test_a_version_that_was_asked_for_is_given_or_refused() -> None:
    table = TableName(("shop",), "orders")
    check_version(table, TableOptions(), given=2)
    check_version(table, TableOptions(format_version=2, insists_on_version=True), given=2)
    check_version(table, TableOptions(insists_on_version=True), given=3)
    with pytest.raises(ConfigError, match="position deletes instead of deletion vectors") as refused:
        check_version(table, TableOptions(insists_on_version=True), given=2)
    assert "set it to 2" in refused.value.hint


def test_a_table_whose_version_has_no_deletes_takes_a_changelog_alone() -> None:
    table = TableName(("shop",), "orders")
    check_deletes(table, TableOptions(mode=DeleteMode.APPEND_ONLY), given=1)
    check_deletes(table, TableOptions(), given=2)
    with pytest.raises(ConfigError, match=r"shop.orders is a table of format version 1") as refused:
        check_deletes(table, TableOptions(mode=DeleteMode.EQUALITY), given=1)
    assert "'format-version' = '2'" in refused.value.hint


def test_every_ability_has_a_name_for_people() -> None:
    assert dict(Capabilities(rename=False).as_table())["rename"] is False
    assert len(Capabilities().as_table()) == len(Capabilities.__slots__) - 1
