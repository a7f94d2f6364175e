"""The configuration that `frazil init` writes, made from the models' own descriptions.

Prose has a space behind its `#`, a key that is switched off has none: removing the `#` switches it on.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Mapping
from typing import Any, get_args

import yaml

from frazil.config.block import Settings
from frazil.config.describe import Option, options_of
from frazil.config.pipeline_config import PipelineConfig
from frazil.sources.registry import kind_named

_WIDTH = 100
_HEADER = """\
# A Frazil pipeline: one source feeding many Iceberg tables.
# Keys behind a '#' are off and show their default, or an example. ${NAME} and ${NAME:-default} are taken from the
# environment. Relative paths are relative to this file. Then: frazil check FILE; frazil run FILE
"""


def template(kind: str, *, sinkless: bool) -> str:
    """A file that loads as it is."""
    found = kind_named(kind)
    chosen = found.sinkless if sinkless and found.sinkless is not None else found.template
    on = {
        "pipeline": "shop",
        "source.type": kind,
        "catalog.type": "builtin",
        "catalog.warehouse": "./warehouse",
        "tables.target": "analytics.orders",
        **chosen.on,
    }
    lines = _block(PipelineConfig, "", "", on, chosen.left_out, chosen.examples)
    return _HEADER + "\n".join(lines) + "\n"


def _block(
    model: type[Settings],
    path: str,
    indent: str,
    on: Mapping[str, Any],
    left_out: Collection[str],
    examples: Mapping[str, Any],
    item: bool = False,
) -> Iterator[str]:
    """The lines of one block; `item` says that it is an entry of a list, whose first key carries the dash. `examples`
    are those that fit this kind of source where the model's own do not."""
    for option in options_of(model):
        here = f"{path}.{option.name}" if path else option.name
        if here in left_out:
            continue
        if option.named or option.left_out:
            yield from ["", *_prose(option, indent), f"{indent}#{option.name}: {_yaml(option.default)}"]
            continue
        if option.block is not None:
            yield from ["", *_prose(option, indent), f"{indent}{option.name}:"]
            blocks = [option.block, *option.others]
            chosen = next((one for one in blocks if on.get(f"{here}.type") in _types(one)), option.block)
            yield from _block(chosen, here, indent + "  ", on, left_out, examples, item=option.listed)
            continue
        if not path:
            yield ""
        dash = "- " if item else ""
        yield from _prose(option, indent)
        inner = indent + dash
        if here in on:
            yield f"{inner}{option.name}: {_yaml(on[here])}"
        else:
            yield f"{inner}#{option.name}: {_yaml(examples[here]) if here in examples else _switched_off(option)}"
        if item:
            item, indent = False, indent + "  "


def _types(block: type[Settings]) -> tuple[Any, ...]:
    return get_args(block.model_fields["type"].annotation) if "type" in block.model_fields else ()


def _prose(option: Option, indent: str) -> list[str]:
    named = " | " in option.type_text and option.block is None and not isinstance(option.default, bool)
    text = f"{option.description} One of: {option.type_text}." if named else option.description
    prefix = f"{indent}# "
    return textwrap.wrap(
        text, _WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_on_hyphens=False, break_long_words=False
    )


def _switched_off(option: Option) -> str:
    return option.default_text or _yaml(option.example)


def _yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")
