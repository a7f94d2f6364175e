"""Who may read, and from what: users, TLS, servers that tell no changes, collections that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mongo_sources import MakeSource, follow, walk, walk_on
from pymongo import MongoClient
from pymongo.database import Database
from servers.certificates import loopback_tls
from servers.mongod import Mongod, mongod_server

from frazil.errors import ConfigError, SourceUnavailable
from frazil.sources.mongodb.decode.document_ids import id_text
from frazil.sources.mongodb.position import ClusterTime

pytestmark = [pytest.mark.servers]

Documents = Database[dict[str, Any]]


def test_a_server_that_stands_alone_is_refused_with_what_to_do(make: MakeSource) -> None:
    with mongod_server(replica_set=False) as server, pytest.raises(ConfigError, match="stands alone") as refused:
        make(server.uri, "db.orders").tables()
    assert "rs.initiate()" in refused.value.hint


def test_wrong_credentials_are_told_without_the_password(mongodb: Mongod, make: MakeSource) -> None:
    uri = mongodb.uri.replace("127.0.0.1", "frazil:wr0ng@127.0.0.1")
    with pytest.raises(ConfigError, match="refused the user or password") as refused:
        make(uri, "db.orders").tables()
    assert "wr0ng" not in str(refused.value)


def test_a_collection_that_is_not_there_yet_is_said_to_be_missing(
    mongodb: Mongod, database: Documents, make: MakeSource
) -> None:
    name = f"{database.name}.ordres"
    source = make(mongodb.uri, name)
    assert "no such collection" in source.remarks(name)[0]
    source.initial({name: None})
    assert not any(rows for _, rows in walk(source, mongodb.uri, name, until=1))
    database["ordres"].insert_one({"_id": 1})
    assert walk_on(source, mongodb.uri, name, ClusterTime(0), wanted=1)


def test_a_user_with_a_password_reads_what_it_may(make: MakeSource) -> None:
    """SCRAM, and the role that the documentation asks for."""
    with mongod_server(auth=True) as server:
        admin = server.uri.replace("127.0.0.1", "root:pw@127.0.0.1")
        uri = server.uri.replace("127.0.0.1", "frazil:s%40crt@127.0.0.1") + "&authSource=admin"
        with MongoClient[dict[str, Any]](server.uri) as client:
            client.admin.command("createUser", "root", pwd="pw", roles=["root"])
        with MongoClient[dict[str, Any]](admin) as client:
            client["shop"]["orders"].insert_one({"_id": 1})
            roles = [{"role": "read", "db": "shop"}]
            client.admin.command("createUser", "frazil", pwd="s@crt", roles=roles)
            source = make(uri, "shop.orders")
            source.initial({"shop.orders": None})
            loaded = walk(source, uri, "shop.orders", until=1)
            assert [row["key"] for _, rows in loaded for row in rows] == [id_text(1)]
            client["shop"]["orders"].update_one({"_id": 1}, {"$set": {"v": 1}})
            told = follow(source, uri, loaded[-1][0], lambda told: told["shop.orders"], "shop.orders")
            assert told == {"shop.orders": [id_text(1)]}
        with pytest.raises(ConfigError, match="refused the user or password"):
            make(uri.replace("crt", "cret"), "shop.orders").tables()
        other = make(uri, "other.orders")
        with pytest.raises(ConfigError, match="may not do") as refused:
            other.tables()
        assert "role `read`" in refused.value.hint


def test_tls_is_set_in_the_uri(make: MakeSource, tmp_path: Path) -> None:
    _, authority = loopback_tls(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "server.pem").read_bytes() + (tmp_path / "server.key").read_bytes())
    with mongod_server(tls=both) as server:
        uri = f"{server.uri}&tls=true&tlsCAFile={authority}"
        with MongoClient[dict[str, Any]](uri) as client:
            client["shop"]["orders"].insert_one({"_id": 1})
        source = make(uri, "shop.orders")
        source.initial({"shop.orders": None})
        assert [row["key"] for _, rows in walk(source, uri, "shop.orders") for row in rows] == [id_text(1)]
        with pytest.raises(SourceUnavailable, match="did not answer"):
            make(f"{server.uri}&serverSelectionTimeoutMS=1000", "shop.orders").tables()
