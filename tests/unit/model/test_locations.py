"""Which files are a table's own: by the parts of their paths, not by how they begin."""

from __future__ import annotations

import pytest

from frazil.storage.table_locations import lies_in, own_locations


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/w/t/data/a", "/w/t"),
        ("/w/t/data/a", "/w/t/"),
        ("/w//t/./data/a", "/w/t"),
        ("file:/w/t/a", "/w/t"),
        ("file:///w/t/a", "file:/w/t"),
        ("file://localhost/w/t/a", "/w/t"),
        ("s3a://b/t/a", "s3://b/t"),
        ("s3n://b/t/a", "s3a://b/t"),
        ("S3://b/t/a", "s3://b/t"),
        ("abfs://c@x.dfs.core.windows.net/t/a", "abfss://c@x.dfs.core.windows.net/t"),
        ("s3://b/a", "s3://b"),
        ("gs://b/t/a", "gs://b/t"),
        ("/w/t/x/../a", "/w/t"),
    ],
)
def test_what_is_below_a_location_is_its_own(path: str, location: str) -> None:
    assert lies_in(path, [location])


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/w/t2/data/a", "/w/t"),
        ("/w/t", "/w/t"),
        ("/w/t/../t2/a", "/w/t"),
        ("s3://b2/t/a", "s3://b/t"),
        ("s3://b/t/a", "gs://b/t"),
        ("/b/t/a", "s3://b/t"),
        ("s3://b/t/a", "/t"),
        ("/W/t/a", "/w/t"),
        ("t/a", "s3://b/t"),
    ],
)
def test_what_only_looks_like_it_is_not(path: str, location: str) -> None:
    assert not lies_in(path, [location])


def test_a_table_has_its_location_and_what_its_properties_name() -> None:
    properties = {
        "write.data.path": "s3://fast/t",
        "write.metadata.path": "s3://meta/t",
        "write.object-storage.path": "s3://old/t",
        "comment": "/elsewhere",
    }
    assert own_locations("s3://b/t", properties) == ("s3://b/t", "s3://fast/t", "s3://meta/t", "s3://old/t")
    assert not lies_in("/a", [])
