"""Random epochs interleaved with other writers equal the model after every snapshot, for Spark and for PyIceberg."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from vector_builders import Meddling, Stage

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.model.ids import TableName

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STEPS = 15
NUMBERS = 40
MERGE_ON_READ = {"write.delete.mode": "merge-on-read"}
SEQUENCES = [
    # seed, key, version, partition, properties
    (1, "int", 3, (), MERGE_ON_READ),
    (2, "string", 3, (), {}),
    (3, "uuid", 3, ("bucket(3, id)",), MERGE_ON_READ),
    (4, "decimal", 3, ("part",), MERGE_ON_READ),
    (5, "composite", 3, ("shop",), {}),
    (6, "int", 2, (), MERGE_ON_READ),
    (7, "string", 2, ("truncate(39, id)",), MERGE_ON_READ),
    (8, "uuid", 2, ("part",), {}),
    (9, "composite", 2, ("shop", "part"), MERGE_ON_READ),
    (10, "decimal", 2, (), MERGE_ON_READ),
]


class Walk:
    """What happens to a stage, by chance."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.chance = random.Random(seed)
        self.versions = 0

    def step(self) -> None:
        acts = [self.epoch, self.raced_epoch, self.append, self.delete, self.rewrite]
        self.chance.choices(acts, (8, 3, 2, 1, 1))[0]()

    def epoch(self) -> None:
        self.stage.epoch(self.names(self.chance.randint(0, 12)), self.some(self.chance.randint(0, 4)))

    def raced_epoch(self) -> None:
        """H47: somebody commits between lookup and commit."""
        act = self.chance.choice([self.append, self.delete, self.rewrite])
        upserts, deletes = self.names(6), self.some(2)
        meddling = Meddling(self.stage.locator, [act])
        self.stage.epoch(upserts, [n for n in deletes if n not in upserts], meddling)

    def append(self) -> None:
        self.stage.append(self.names(self.chance.randint(1, 3)))

    def delete(self) -> None:
        names = sorted({name for _, name in self.stage.rows})
        if names:
            self.stage.delete(self.chance.sample(names, min(len(names), 3)))

    def rewrite(self) -> None:
        self.stage.rewrite()

    def names(self, count: int) -> dict[int, str]:
        self.versions += 1
        return {n: f"{n}@{self.versions}" for n in self.some(count)}

    def some(self, count: int) -> list[int]:
        return self.chance.sample(range(NUMBERS), count)


@pytest.mark.parametrize(
    ("seed", "kind", "version", "partition", "properties"),
    SEQUENCES,
    ids=[f"{kind}-v{version}-{'by-' + '-'.join(by) if by else 'whole'}" for _, kind, version, by, _ in SEQUENCES],
)
def test_random_epochs_among_other_writers_equal_the_model(
    catalog: Catalog,
    namespace: str,
    tmp_path: Path,
    seed: int,
    kind: str,
    version: int,
    partition: tuple[str, ...],
    properties: dict[str, str],
) -> None:
    """H1, H2, H22, H23, H47, H51: after every snapshot."""
    stage = Stage(
        catalog,
        TableName((namespace,), "walked"),
        tmp_path,
        kind,
        format_version=version,
        partition=partition,
        properties=properties,
    )
    walk = Walk(stage, seed)
    stage.epoch({n: f"{n}@0" for n in range(0, NUMBERS, 2)})
    stage.check()
    for _ in range(STEPS):
        walk.step()
        stage.check()


def test_a_table_upgraded_to_version_3_keeps_its_older_deletes(
    catalog: Catalog, namespace: str, tmp_path: Path
) -> None:
    """H24: the first vector of a data file contains the position deletes of version 2."""
    name = TableName((namespace,), "upgraded")
    stage = Stage(catalog, name, tmp_path, format_version=2, properties=MERGE_ON_READ)
    stage.epoch({n: f"{n}@0" for n in range(20)})
    stage.epoch({1: "1@1", 2: "2@1"}, [3, 4])
    stage.delete(["5@0", "6@0"])
    stage.check()
    stage.upgrade()
    stage.epoch({7: "7@2"}, [8])
    stage.check()
    walk = Walk(stage, 24)
    for _ in range(6):
        walk.step()
        stage.check()
