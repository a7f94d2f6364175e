"""Which catalog has a table, and commits that go to several."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import ConfigError
from frazil.ingest.catalog_handles import Catalogs, RoutedCommitter, settings_of, used_catalogs
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, Refused, Unknown
from frazil.model.ids import TableName


def config(**more: Any) -> PipelineConfig:
    document = {
        "pipeline": "shop",
        "source": {"type": "cockroachdb", "feed": "./feed"},
        "catalogs": {
            "hot": {"type": "rest", "uri": "http://localhost:1", "volume": "lake"},
            "cold": {"type": "rest", "uri": "http://localhost:2"},
        },
        "volumes": {
            "lake": {"location": "s3://lake/tables", "region": "eu-central-1"},
            "attic": {"location": "s3://attic", "region": "eu-central-1"},
            "abroad": {"location": "s3://abroad", "region": "us-east-1"},
            "cluster": {"location": "hdfs://name/lake"},
        },
        "tables": [
            {"source": "shop.public.orders", "target": "analytics.orders"},
            {"source": "audit_*", "target": "audits.{table}", "catalog": "cold"},
            {"source": "*", "target": "analytics.{table}"},
        ],
        **more,
    }
    return PipelineConfig.model_validate(document)


@dataclass(eq=False)
class Recorded:
    """The lake of one place; answers as told."""

    answer: CommitAnswer = field(default_factory=lambda: Accepted(1))
    asked: list[list[str]] = field(default_factory=list)

    def commit_many(self, commits: Any) -> list[CommitAnswer]:
        self.asked.append([table.name for table, _, _ in commits])
        return [self.answer] * len(commits)


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ("analytics.orders", "hot"),
        ("analytics.orders__changelog", "hot"),
        ("audits.audit_login", "cold"),
        ("audits.audit_login__quarantine", "cold"),
        ("analytics.customers", "hot"),
        ("_frazil.pipelines", "hot"),
    ],
)
def test_a_table_and_its_companions_are_in_the_catalog_that_their_entry_names(table: str, place: str) -> None:
    opened: dict[str, Any] = {"hot": "hot", "cold": "cold"}
    places = Catalogs(config(), opened["hot"], opened)
    assert places.of(TableName.parse(table)) == place  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("answer", [Conflicted("409"), Unknown("timeout"), Refused("no")])
def test_what_one_catalog_does_not_accept_keeps_the_part_of_the_next_back(answer: CommitAnswer) -> None:
    first, second = Recorded(answer), Recorded()
    committers: dict[str, Any] = {"a": first, "b": second, "c": first}
    committer = RoutedCommitter(lambda table: SimpleNamespace(committer=committers[table.name]))  # type: ignore[arg-type, return-value]
    commits: Any = [(TableName(("n",), name), None, None) for name in ("a", "b", "c")]
    answers = committer.commit_many(commits)
    assert first.asked == [["a", "c"]]
    assert second.asked == []
    assert [answers[0], answers[2]] == [answer, answer]
    assert isinstance(answers[1], Conflicted)


def test_commits_to_several_catalogs_are_answered_in_their_order() -> None:
    first, second = Recorded(Accepted(1)), Recorded(Accepted(2))
    committers: dict[str, Any] = {"a": first, "b": second, "c": first}
    committer = RoutedCommitter(lambda table: SimpleNamespace(committer=committers[table.name]))  # type: ignore[arg-type, return-value]
    commits: Any = [(TableName(("n",), name), None, None) for name in ("a", "b", "c")]
    assert committer.commit_many(commits) == [Accepted(1), Accepted(2), Accepted(1)]


def test_a_catalog_has_the_storage_settings_of_all_its_volumes() -> None:
    tables = [{"source": "a", "volume": "attic"}, {"source": "b", "volume": "cluster"}]
    loaded = config(tables=tables)
    (hot,) = used_catalogs(loaded)
    properties = settings_of(loaded, hot).properties
    assert properties["client.region"] == "eu-central-1"
    assert properties["io-impl"] == "org.apache.iceberg.io.ResolvingFileIO", "one for each scheme"


def test_volumes_of_one_catalog_that_contradict_each_other_are_named() -> None:
    loaded = config(tables=[{"source": "a", "volume": "abroad"}])
    with pytest.raises(ConfigError, match=r"lake and abroad of catalog hot .* client.region") as refused:
        settings_of(loaded, loaded.catalog)
    assert "two catalogs" in refused.value.hint
