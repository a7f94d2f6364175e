from __future__ import annotations

import pytest

from frazil.iceberg.tables.storage import is_local, nearest_credentials, table_location, with_vended

UUID_TABLE = "s3://63a8e430-6e0b-46f5-bucket--table-s3"


@pytest.mark.parametrize(
    ("reported", "location"),
    [
        (f"{UUID_TABLE}/metadata/00001-0c1f.metadata.json", UUID_TABLE),
        (f"{UUID_TABLE}/metadata/00001-0c1f.metadata.json.gz", UUID_TABLE),
        (f"{UUID_TABLE}/", UUID_TABLE),
        ("s3://b/ns/metadata/table", "s3://b/ns/metadata/table"),
        ("/w/ns/t", "/w/ns/t"),
    ],
)
def test_a_metadata_file_reported_as_the_location_becomes_the_directory_of_the_table(
    reported: str, location: str
) -> None:
    """S3 Tables may do that."""
    assert table_location(reported) == location


def test_of_vended_credentials_the_longest_prefix_is_taken() -> None:
    vended = [("s3", {"k": "any"}), ("s3://b/ns/t", {"k": "table"}), ("s3://b/ns", {"k": "namespace"})]
    assert nearest_credentials(vended, "s3://b/ns/t") == {"k": "table"}
    assert nearest_credentials(vended, "s3://other/t") == {"k": "any"}
    assert nearest_credentials(vended, "gs://other/t") == {}


def test_only_local_tables_need_no_storage_properties() -> None:
    assert is_local("/w/t")
    assert is_local("file:///w/t")
    assert not is_local("s3://b/t")


def test_a_session_token_goes_with_its_key() -> None:
    static = {"s3.access-key-id": "A", "s3.secret-access-key": "a", "s3.session-token": "of A", "s3.endpoint": "e"}
    vended = {"s3.access-key-id": "B", "s3.secret-access-key": "b"}
    assert with_vended(static, vended) == {**vended, "s3.endpoint": "e"}
    assert with_vended(static, {}) == static
