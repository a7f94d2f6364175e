"""From a file to a configuration one can rely on.

YAML --read--> values and lines --${ENV}--> --set a.b=c--> --validate--> PipelineConfig
                     |              |          |              |
                     +--------------+----------+--------------+--> ConfigError: file, line, key path, what to do
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_origin

from pydantic import BaseModel, ValidationError

from frazil.config.block import BASE_DIRECTORY
from frazil.config.document import BadDocument, Problem, YamlDocument, overridden, read, substituted
from frazil.config.pipeline_config import PipelineConfig
from frazil.config.problems import explain, models_in
from frazil.config.secrets import mask_text
from frazil.errors import ConfigError
from frazil.sources.registry import kind_names


def load_config(
    path: str | Path, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> PipelineConfig:
    """Reads and validates; relative paths in the file are relative to its directory.

    Raises ConfigError that lists every problem with its line and key path.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _refused(str(path), [Problem("is not UTF-8 text")]) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}",
            hint="name an existing file, or write one with: frazil init --source "
            f"{'|'.join(kind_names())} -o pipeline.yaml",
            file=str(path),
        ) from error
    return parse_config(text, name=str(path), base=file.absolute().parent, overrides=overrides, environ=environ)


def parse_config(
    text: str,
    *,
    name: str = "configuration",
    base: Path | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> PipelineConfig:
    """Like `load_config`, for a text at hand. `name` stands for the file in messages."""
    try:
        document = substituted(read(text), os.environ if environ is None else environ)
        document = overridden(document, overrides, frozenset(_maps_of_own_keys(PipelineConfig)))
    except BadDocument as error:
        raise _refused(name, error.problems) from error
    try:
        return PipelineConfig.model_validate(document.values, context={BASE_DIRECTORY: base})
    except ValidationError as error:
        raise _refused(name, explain(error, PipelineConfig, document), document) from error


def config_hash(config: PipelineConfig) -> str:
    """Names what decides the content of the tables: the same after a change of addresses, passwords or tuning."""
    content = {
        "pipeline": config.pipeline,
        "source": config.source.model_dump(mode="json", include={"type", *config.source.decides_content}),
        # The columns as pairs: in CSV files, values are told apart by the order of columns alone.
        "tables": [
            [entry.source, entry.target, entry.key, list(entry.columns.items()), entry.deletes.value]
            + ([] if entry.mapping is None else [entry.mapping.model_dump(mode="json")])
            for entry in config.tables
        ],
        "snapshot": config.snapshot.value,
        "on_error": config.on_error,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _maps_of_own_keys(model: type[BaseModel]) -> Iterator[str]:
    """The maps of a configuration whose keys are the user's own."""
    for name, info in model.model_fields.items():
        inner = list(models_in(info.annotation))
        if get_origin(info.annotation) is dict and not inner:
            yield name
        for block in inner:
            yield from _maps_of_own_keys(block)


def _refused(name: str, problems: Sequence[Problem], document: YamlDocument | None = None) -> ConfigError:
    source = None if document is None else document.values.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    shown = [mask_text(str(problem)) for problem in problems]
    if len(shown) == 1:
        message = f"{name}: {shown[0]}"
    else:
        message = f"{name} has {len(shown)} problems:" + "".join(f"\n  {line}" for line in shown)
    return ConfigError(
        message,
        hint=f"all keys are described in docs/reference/configuration.md and by: frazil init --source "
        f"{kind if kind in kind_names() else '|'.join(kind_names())}",
        file=name,
        problems=tuple(shown),
    )
