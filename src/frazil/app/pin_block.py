"""The block that `frazil check` prints: `tables:` as it is, with what was discovered written down.

    entries of the configuration, what each source table looks like --> YAML that may take the place of `tables:`

Every setting of an entry stays; its names, its key and its columns are spelled out, each with who told it. A table that
a pattern took gets an entry of its own, and the pattern stays behind it for tables to come. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from frazil.config.pipeline_config import PipelineConfig
from frazil.config.routing import Route, is_pattern
from frazil.config.table_entries import TableEntry
from frazil.model.schema import SourceSchema
from frazil.sources.registry import SourceKind, kind_of

_PLAIN_TYPE = re.compile(r"[A-Z][A-Z0-9_ ]*(\(\d+(,\s*\d+)?\))?")


def pin_block(config: PipelineConfig, found: Sequence[tuple[Route, SourceSchema]]) -> str:
    """Empty if nothing was found."""
    if not found:
        return ""
    kind = kind_of(config.source)
    lines = ["tables:"]
    for taken, source_schema in found:
        lines += _pinned(taken, source_schema, kind)
    spelled_out = {id(taken.entry) for taken, _ in found}
    for entry in config.tables:
        if is_pattern(entry.source) or id(entry) not in spelled_out:
            lines += _entry(_settings(entry))
    return "\n".join(lines) + "\n"


def _pinned(taken: Route, source_schema: SourceSchema, kind: SourceKind) -> Iterator[str]:
    entry, names = taken.entry, {column.name: column.carried_as[0] for column in source_schema.columns}
    settings = _settings(entry) | {"source": full_name(entry.source, taken.source), "target": taken.target.text}
    origins: dict[str, str] = {}
    if not kind.config.has_documents:  # the key of a document is given
        settings["key"] = [names[name] for name in source_schema.key]
        origins["key"] = source_schema.key_origin
    columns: dict[str, tuple[str, str]] = {}
    if entry.mapping is None or entry.mapping.mode == "auto":
        columns = {names[c.name]: (text, c.origin) for c in source_schema.columns if (text := kind.type_name(c))}
    settings.pop("columns", None)
    return _entry(settings, origins, columns)


def full_name(entry_source: str, name: str) -> str:
    """The table's name, with the parts that the feed does not tell and the entry names."""
    known, written = name.split("."), entry_source.split(".")
    for part in reversed(written[: max(0, len(written) - len(known))]):
        if is_pattern(part):
            break
        known.insert(0, part)
    return ".".join(known)


def _settings(entry: TableEntry) -> dict[str, Any]:
    """What differs from the default, or was said although it does not: another source may have other defaults."""
    plain = entry.model_dump(mode="json")
    defaults = type(entry).model_construct(source=entry.source).model_dump(mode="json")
    wanted = [name for name in plain if name in entry.model_fields_set or plain[name] != defaults[name]]
    return {name: plain[name] for name in wanted if plain[name] is not None}


def _entry(
    settings: Mapping[str, Any],
    origins: Mapping[str, str] | None = None,
    columns: Mapping[str, tuple[str, str]] | None = None,
) -> Iterator[str]:
    dash = "  - "
    for name, value in settings.items():
        comment = f"  # {origins[name]}" if origins and name in origins else ""
        yield f"{dash}{name}: {_yaml(_without_variables(value))}{comment}"
        dash = "    "
    if columns:
        yield "    columns:"
        for name, (text, origin) in columns.items():
            yield f"      {_yaml(name)}: {text if _PLAIN_TYPE.fullmatch(text) else json.dumps(text)}  # {origin}"


def _without_variables(value: Any) -> Any:
    """So that nothing is looked for in the environment, which is done in values, not in keys."""
    match value:
        case str():
            return value.replace("${", "$${")
        case list():
            return [_without_variables(item) for item in value]
        case dict():
            return {key: _without_variables(item) for key, item in value.items()}
        case _:
            return value


def _yaml(value: Any) -> str:
    """In one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1_000_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
