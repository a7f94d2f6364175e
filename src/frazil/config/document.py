"""A YAML file as plain values that still know their lines.

    text --read--> YamlDocument(values, lines) --substituted--> ${ENV} filled in --overridden--> --set applied

Only what YAML 1.2 calls a boolean is one: a column named `on` or `no` stays a name. Keys are always text.
A key that appears twice is an error, since one of the two would be lost. Environment variables are filled into
values after parsing, so that no password can change the structure of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

Path = tuple[str | int, ...]

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_VARIABLE_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where."""

    text: str
    path: Path = ()
    line: int | None = None
    from_override: bool = False

    def __str__(self) -> str:
        at = f"line {self.line}: " if self.line else "--set " if self.from_override else ""
        return f"{at}{path_text(self.path)}: {self.text}" if self.path else f"{at}{self.text}"


class BadDocument(Exception):
    """The file cannot be understood; holds every problem that was found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


def path_text(path: Path) -> str:
    """`tables[0].key`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True, slots=True)
class YamlDocument:
    values: Any
    lines: Mapping[Path, int] = field(default_factory=dict)
    overridden: frozenset[Path] = frozenset()

    def problem(self, text: str, path: Path) -> Problem:
        """A problem at `path`, with the line of its nearest ancestor that stands in the file."""
        if any(path[: len(set_path)] == set_path for set_path in self.overridden):
            return Problem(text, path, from_override=True)
        nearest = next((path[:n] for n in range(len(path), 0, -1) if path[:n] in self.lines), ())
        return Problem(text, path, self.lines.get(nearest))


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def read(text: str) -> YamlDocument:
    """Raises BadDocument with the line of what is not YAML, or not a mapping, or twice there."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise BadDocument([Problem("the file is empty")])
        lines: dict[Path, int] = {}
        problems: list[Problem] = []
        values = _values(loader, node, (), lines, problems, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "cannot be read"
        raise BadDocument([Problem(f"not valid YAML: {what}", line=mark.line + 1 if mark else None)]) from error
    except yaml.YAMLError as error:
        raise BadDocument([Problem(f"not valid YAML: {error}")]) from error
    finally:
        loader.dispose()
    if problems:
        raise BadDocument(problems)
    if not isinstance(values, dict):
        raise BadDocument([Problem("must be a mapping that starts with pipeline:", line=node.start_mark.line + 1)])
    return YamlDocument(values, lines)


def _values(
    loader: _Loader,
    node: yaml.Node,
    path: Path,
    lines: dict[Path, int],
    problems: list[Problem],
    above: tuple[yaml.Node, ...],
) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if any(node is ancestor for ancestor in above):
        problems.append(Problem("an alias must not contain itself", path, line))
        return None
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                problems.append(Problem("a key must be a plain name", path, key_line))
                continue
            key = str(key_node.value)
            if key in mapping:
                first = lines[(*path, key)]
                problems.append(Problem(f"is there twice, first in line {first}", (*path, key), key_line))
                continue
            lines[(*path, key)] = key_line
            mapping[key] = _values(loader, value_node, (*path, key), lines, problems, (*above, node))
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [
            _values(loader, item, (*path, index), lines, problems, (*above, node))
            for index, item in enumerate(node.value)
        ]
    return loader.construct_object(node)


def substituted(document: YamlDocument, environ: Mapping[str, str]) -> YamlDocument:
    """Fills in ${NAME} and ${NAME:-default}; $${ is a literal ${.

    Raises BadDocument naming every variable that is missing and the key that wants it.
    """
    problems: list[Problem] = []

    def fill(text: str, path: Path) -> str:
        def value_of(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name = _VARIABLE_NAME.fullmatch(match[1] or "")
            if name is None:
                problems.append(document.problem("${ must be followed by a variable's name and }", path))
                return ""
            variable, default = name[1], name[2]
            value = environ.get(variable)
            if default is not None:
                return value or default
            if value is None:
                problems.append(document.problem(f"the environment variable {variable} is not set", path))
                return ""
            return value

        return _VARIABLE.sub(value_of, text)

    values = _mapped(document.values, (), fill)
    if problems:
        raise BadDocument(problems)
    return replace(document, values=values)


def _mapped(value: Any, path: Path, change: Callable[[str, Path], str]) -> Any:
    match value:
        case dict():
            return {key: _mapped(item, (*path, key), change) for key, item in value.items()}
        case list():
            return [_mapped(item, (*path, index), change) for index, item in enumerate(value)]
        case str():
            return change(value, path)
        case _:
            return value


def overridden(document: YamlDocument, overrides: Sequence[str], whole_keys: frozenset[str]) -> YamlDocument:
    """Applies `a.b.0.c=value` in order; the value is read as YAML.

    `whole_keys` name maps of the user's own keys, which may hold dots (`spark.conf.spark.sql.x=1`). Raises
    BadDocument for an override that leads nowhere.
    """
    values = _mapped(document.values, (), lambda text, _: text)
    touched = set(document.overridden)
    problems: list[Problem] = []
    for override in overrides:
        name, equals, text = override.partition("=")
        path = _override_path(name.strip(), whole_keys)
        if not equals or not path:
            problems.append(Problem(f"{name!r} must be written key=value, such as tables.0.target=lake.orders"))
            continue
        try:
            loader = _Loader(text)
            node = loader.get_single_node()
            value = "" if node is None else _values(loader, node, (), {}, problems, ())
        except yaml.YAMLError:
            value = text
        trouble = _put(values, path, value)
        if trouble:
            problems.append(Problem(trouble, path, from_override=True))
        touched.add(path)
    if problems:
        raise BadDocument(problems)
    return replace(document, values=values, overridden=frozenset(touched))


def _override_path(name: str, whole_keys: frozenset[str]) -> Path:
    parts = name.split(".")
    for index, part in enumerate(parts):
        if part in whole_keys and len(parts) > index + 1:
            parts[index + 1 :] = [".".join(parts[index + 1 :])]
            break
    if not all(parts):
        return ()
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _put(values: Any, path: Path, value: Any) -> str:
    """Sets `value` in place; answers what is wrong, or nothing."""
    for depth, part in enumerate(path):
        last = depth == len(path) - 1
        here = path_text(path[:depth]) or "the configuration"
        if isinstance(values, list):
            if not isinstance(part, int):
                return f"{here} is a list: name one of its entries by number"
            if part > len(values):
                return f"{here} has {len(values)} entries, so there is no entry {part}"
            if part == len(values):
                values.append({})
            if last:
                values[part] = value
            values = values[part]
        elif isinstance(values, dict):
            key = str(part)
            if last:
                values[key] = value
            elif values.get(key) is None:
                values[key] = [] if path[depth + 1] == 0 else {}
            values = values[key]
        else:
            return f"{here} is a single value and has no {part}"
    return ""
