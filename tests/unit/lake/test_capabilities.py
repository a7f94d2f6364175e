from __future__ import annotations

import pytest

from frazil.errors import ConfigError
from frazil.lake.capabilities import Capabilities, by_type, format_version, refined, without_v3
from frazil.lake.catalogs import CatalogSettings, CatalogType
from frazil.lake.rest import COMMIT_TRANSACTION, RENAME_TABLE


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


def test_without_version_three_the_default_changes_and_a_wish_is_refused() -> None:
    lacking = without_v3(Capabilities())
    assert format_version(Capabilities(), None) == 3
    assert format_version(lacking, None) == 2
    assert format_version(lacking, 2) == 2
    with pytest.raises(ConfigError, match="position deletes"):
        format_version(lacking, 3)


def test_every_ability_has_a_name_for_people() -> None:
    assert dict(Capabilities(rename=False).as_table())["rename"] is False
    assert len(Capabilities().as_table()) == len(Capabilities.__slots__) - 1
