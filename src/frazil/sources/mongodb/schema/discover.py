"""What collections look like: by a sample of their documents, by the documents of a window, by what the server says.

sampled documents --+
looked-at partitions ---+--> kinds --shape_of--> SourceSchema       conflicts and fields that nobody maps are told once
target table -------+
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from frazil.model.change import PartitionReport
from frazil.model.schema import KnownTable, SourceSchema
from frazil.sources.base import InputPartition
from frazil.sources.mongodb.client.deployment import CollectionFacts, Sample
from frazil.sources.mongodb.decode.document_ids import CANONICAL
from frazil.sources.mongodb.schema.bson_types import BsonType, DocumentOf, OnConflict, shown
from frazil.sources.mongodb.schema.profile import joined
from frazil.sources.mongodb.schema.schema import CollectionSettings, missing_paths, schema_of, unmapped

_COUNTED_MAX = 10_000
_CANONICAL_KEY = (
    "ids that are strings but look like another type's (24 hex digits, true, null, or beginning with {, [ or a quote) "
    "stand in JSON quotes in this table: docs/mongodb.md, 'The key', says what to do"
)
Look = Callable[[Sequence[InputPartition]], Sample]
Tell = Callable[..., None]


class Describer:
    """`look` tells what the documents of partitions are like; `sample` some documents of a collection."""

    def __init__(
        self,
        settings: Mapping[str, CollectionSettings],
        look: Look,
        sample: Callable[[str, OnConflict], Sample],
        tell: Tell,
    ) -> None:
        self._settings = settings
        self._look = look
        self._take_sample = sample
        self._tell = tell
        self._told: set[tuple[str, str]] = set()
        self._counted: dict[str, None] = {}
        self._left_out: dict[str, Counter[str]] = {}

    def schemas(
        self, partitions: Sequence[InputPartition], targets: Mapping[str, KnownTable], look: bool
    ) -> Mapping[str, SourceSchema]:
        """Raises ConfigError for an impossible mapping."""
        by_table: dict[str, list[InputPartition]] = {}
        for partition in partitions:
            facts = json.loads(partition.facts)
            by_table.setdefault(facts.get("ranged") or facts["spooled"], []).append(partition)
        found = {}
        for name, own in by_table.items():
            target = targets.get(name)
            sample = Sample(DocumentOf(), None)
            if target is None or self._settings[name].is_explicit:
                sample = self.sample(name)
            if look or (target is None and sample.id_type is None):
                sample = joined([sample, self._look(own)])
            source_schema = self.source_schema(name, sample, target)
            if source_schema is not None:
                found[name] = source_schema
        return found

    def source_schema(self, name: str, sample: Sample, target: KnownTable | None) -> SourceSchema | None:
        source_schema = schema_of(name, self._settings[name], sample.seen, sample.id_type, target, self._conflict(name))
        if source_schema is not None and any(column.source_type == CANONICAL for column in source_schema.key_columns):
            self.tell_once(_CANONICAL_KEY, name)
        return source_schema

    def sample(self, name: str) -> Sample:
        sample = self._take_sample(name, self._conflict(name))
        fields = self._settings[name].fields
        if fields is not None:
            for path in missing_paths(fields, sample.seen):
                self.tell_once(f"no document of the sample has {path!r}", name)
            for left in unmapped(fields, sample.seen):
                self.tell_once(_left_out(left), name)
        return sample

    def remarks(self, name: str, facts: CollectionFacts | None) -> Sequence[str]:
        """What `frazil check` says of a collection beside its columns."""
        if facts is None:
            return ["there is no such collection yet: check the name, or wait for its first document"]
        notes = []
        if facts.has_images:
            notes.append("post-images are on: every epoch shows each document as it was then")
        else:
            notes.append(
                "updates are looked up, as with updateLookup: a document that changes again before the look is shown "
                "as it is then, so an epoch is exact once its keys are quiet. For exact epochs: "
                f"{turn_images_on(name)}"
            )
        settings = self._settings[name]
        if settings.wants_before and not facts.has_images:
            notes.append("it has no pre-images, which a changelog needs: the pipeline will not follow it")
        if settings.fields is not None:
            seen = self.sample(name).seen
            notes += [f"no document of the sample has {path!r}" for path in missing_paths(settings.fields, seen)]
            left = unmapped(settings.fields, seen)
            notes += [f"not mapped, and left out: {', '.join(left)}"] if left else []
        return notes

    def count(self, name: str, reports: Sequence[PartitionReport]) -> None:
        """Fields that the mapping leaves out: told when they are first met, and counted once for each partition."""
        for report in reports:
            if report.left_out and report.partition not in self._counted:
                self._counted[report.partition] = None
                self._left_out.setdefault(name, Counter()).update(report.left_out)
                for field in report.left_out:
                    self.tell_once(_left_out(field), name)
        while len(self._counted) > _COUNTED_MAX:
            del self._counted[next(iter(self._counted))]

    def left_out(self, name: str) -> Mapping[str, int]:
        """Fields that the mapping left out since the start, each with the number of documents that had a value."""
        return dict(self._left_out.get(name, {}))

    def tell_once(self, sentence: str, name: str) -> None:
        if (name, sentence) not in self._told:
            self._told.add((name, sentence))
            self._tell(sentence, table=name)

    def _conflict(self, name: str) -> OnConflict:
        def tell(path: str, one: BsonType, other: BsonType) -> None:
            self.tell_once(f"{path} is {shown(one)} and {shown(other)}: its column holds JSON", name)

        return tell


def _left_out(field: str) -> str:
    return f"the field {field!r} is not mapped and is left out"


def turn_images_on(name: str) -> str:
    """The command that lets the server keep pre- and post-images of a collection."""
    return f'db.runCommand({{collMod: "{name.partition(".")[2]}", changeStreamPreAndPostImages: {{enabled: true}}}})'
