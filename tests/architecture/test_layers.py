"""The layers of ARCHITECTURE.md in one list, and the rules that keep the house readable, each held by a test.

errors clock paths < model < ... < app < demo < cli         a package imports what stands before it, and nothing behind

An import counts wherever it stands: at the top, under TYPE_CHECKING, or as the name of a module in a text
(`frazil.clock`, `frazil.cli.main:main`).
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "frazil"
GENERATED = SOURCE / "model" / "messages_pb2.py"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != GENERATED)

LAYERS = (
    *("errors", "clock", "threads", "paths", "plugins", "model", "retry", "observability", "storage", "config"),
    *("iceberg", "data", "spark", "sources", "config.pipeline_config", "config.load", "commit", "ingest"),
    *("maintenance", "doctor", "serve", "app", "demo", "cli"),
)
"""Packages, and single modules that stand apart from their package: the whole configuration knows the sources, and a
source the blocks that it is made of (decision 13)."""
UPWARD = {
    ("iceberg/jvm/warm_start.py", "frazil.ingest.write.write_task"): "what tasks import is loaded before they start",
    ("iceberg/jvm/warm_start.py", "frazil.ingest.write.write_job"): "what tasks import is loaded before they start",
}
PURE_PACKAGES = ("model", "commit")
PERFORMERS = {"commit/publisher.py", "commit/resync_runner.py", "commit/fence.py"}
ARROW_TYPES = {"model/arrow.py", "model/position.py"}
WORLD = {
    *("time", "random", "secrets", "os", "pathlib", "shutil", "glob", "tempfile", "mmap", "fcntl", "ctypes", "signal"),
    *("socket", "select", "http", "requests", "subprocess", "multiprocessing", "threading", "concurrent", "queue"),
    *("asyncio", "logging", "importlib", "pyspark", "py4j", "obstore", "boto3", "psycopg", "pymongo"),
}
"""What reaches beyond values: clock, chance, files, network, processes, threads."""
WORLDLY = {
    ("storage/errors.py", "obstore.exceptions"): "it names errors and calls nothing",
    ("iceberg/catalogs/settings.py", "pathlib"): "a path is spelled, nothing is opened",
    ("model/position.py", "frazil.plugins"): "which sources are installed, and so which positions there are",
    ("app/pin_block.py", "frazil.sources.registry"): "a kind of source is a value",
    ("commit/machine.py", "frazil.retry"): "how long a wait is, not the waiting",
    ("iceberg/tables/fields.py", "frazil.iceberg.tables.tables"): "a loaded table is a value",
    ("ingest/loop/table_state.py", "frazil.retry"): "how long a wait is, not the waiting",
}
"""What pure modules import all the same."""
JVM_PACKAGE = "iceberg"
LINES_MAX = 500
FILES_MAX = 18
CROWDED = {"model": 22}
"""Folders that hold more than they should, with how much at most."""


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def package_of(name: str) -> str:
    return name.split("/", maxsplit=1)[0].removesuffix(".py")


def layer_of(module: str) -> int:
    """Of a module without `frazil.` before it, by the longest name in the list that it begins with."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return LAYERS.index(next((name for name in names if name in LAYERS), parts[0]))


def module_of(path: Path) -> str:
    return ".".join(("frazil", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


PATHS = {module_of(path): path for path in MODULES if path.name != "__init__.py"}
NAMES = set(PATHS)


def imports_of(path: Path) -> Iterator[str]:
    """Every module that is imported, wherever, and every module of ours that is named in a text of its own."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{name_of(path)} imports relative to itself: say from where"
            assert not node.level, f"{name_of(path)} imports relative to itself: say from where"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in NAMES else node.module for name in inner)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from {node.value.split(":")[0]} & NAMES


def all_modules(test: object) -> object:
    return pytest.mark.parametrize("path", MODULES, ids=name_of)(test)  # type: ignore[arg-type]


@all_modules
def test_a_package_imports_only_what_stands_before_it(path: Path) -> None:
    if path == SOURCE / "__init__.py":
        return
    own = package_of(name_of(path))
    for module in imports_of(path):
        parts = module.split(".")
        if parts[0] != "frazil" or len(parts) == 1 or (name_of(path), module) in UPWARD:
            continue
        assert layer_of(module.removeprefix("frazil.")) <= layer_of(module_of(path).removeprefix("frazil.")), (
            f"{name_of(path)} imports {module}"
        )
        if own == "sources":
            assert parts[1] != "spark", f"{name_of(path)} imports {module}: a source does not know Spark"
            others = {"sources"} | {name_of(path).split("/")[1]}
            assert parts[1] != "sources" or len(parts) == 3 or parts[2] in others, f"{name_of(path)} imports {module}"


def test_the_page_about_the_architecture_has_the_same_layers_in_the_same_order() -> None:
    page = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| ((?:`[a-z_]+/?` ?)+)\|", page, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`([a-z_]+)/?`", cell)]
    assert named == [layer for layer in LAYERS if "." not in layer], "modules that stand apart are told in the text"


@all_modules
def test_nobody_outside_its_folder_imports_a_source(path: Path) -> None:
    """It registers itself (decision 13). The demo writes a feed."""
    own = name_of(path)
    if own.startswith("demo/"):
        return
    for module in imports_of(path):
        parts = module.split(".")
        if parts[:2] == ["frazil", "sources"] and len(parts) > 3:
            assert own.startswith(f"sources/{parts[2]}/"), f"{own} imports {module}"


def test_no_exception_outlives_its_import() -> None:
    imported = {(name_of(path), module) for path in MODULES for module in imports_of(path)}
    assert set(UPWARD) | set(WORLDLY) <= imported
    assert all(len(list((SOURCE / folder).glob("*.py"))) > FILES_MAX for folder in CROWDED)


def claims_to_be_pure(path: Path) -> bool:
    return bool(re.search(r"\bPure\b", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""))


PURE = [
    path
    for path in MODULES
    if name_of(path) not in PERFORMERS and (package_of(name_of(path)) in PURE_PACKAGES or claims_to_be_pure(path))
]


def touches_the_world(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in WORLD or module in {"urllib.request", "frazil.clock", "frazil.threads"}


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_what_is_pure_touches_neither_clock_nor_chance_nor_the_world(path: Path) -> None:
    """Nor does it import one of our modules that does."""
    strict = package_of(name_of(path)) in PURE_PACKAGES and name_of(path) not in ARROW_TYPES
    for module in imports_of(path):
        if (name_of(path), module) not in WORLDLY:
            assert not touches_the_world(module), f"{name_of(path)} imports {module}"
            assert not strict or module.split(".")[0] != "pyarrow", f"{name_of(path)} imports {module}"
            beyond = [far for far in imports_of(PATHS[module]) if touches_the_world(far)] if module in PATHS else []
            assert not beyond, f"{name_of(path)} imports {module}, and that imports {beyond[0]}"
    calls = [node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    assert not any(isinstance(call, ast.Name) and call.id == "open" for call in calls), name_of(path)


@all_modules
def test_the_jvm_is_reached_through_one_package(path: Path) -> None:
    if package_of(name_of(path)) == JVM_PACKAGE:
        return
    text = path.read_text(encoding="utf-8")
    assert "_jvm" not in text, name_of(path)
    assert "py4j" not in text.lower(), name_of(path)


@all_modules
def test_the_loop_takes_its_threads_from_the_port(path: Path) -> None:
    """What made one itself, or waited at a lock across calls, the simulation could not put in order."""
    if not name_of(path).startswith("ingest/loop/"):
        return
    assert {"concurrent.futures", "_thread"}.isdisjoint(imports_of(path))
    named = re.findall(r"from (?:threading|queue) import (.+)", path.read_text(encoding="utf-8"))
    assert {name for line in named for name in line.split(", ")} <= {"Event", "Lock", "RLock", "Empty"}


@all_modules
def test_time_and_chance_are_read_in_clock_py_alone(path: Path) -> None:
    if name_of(path) == "clock.py" or package_of(name_of(path)) == "demo":
        return
    assert not {"time", "random", "secrets"} & set(imports_of(path)), f"{name_of(path)} imports time or chance"
    text = path.read_text(encoding="utf-8")
    for reading in ("datetime.now(", "date.today(", "uuid4(", "uuid1("):
        assert reading not in text, f"{name_of(path)} calls {reading})"


@all_modules
def test_no_import_hides_inside_a_function(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                hidden = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("frazil")
                assert not hidden, f"{name_of(path)}: {function.name} imports at run time"


@all_modules
def test_a_module_says_what_it_is_for_and_stays_readable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), f"{name_of(path)} has no docstring"
    assert len(text.splitlines()) <= LINES_MAX, f"{name_of(path)} is too long to read in one sitting"
    assert path.name not in {"utils.py", "common.py", "helpers.py"}


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    for folder in sorted({path.parent for path in MODULES}):
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py" and path != GENERATED]
        name = folder.relative_to(SOURCE).as_posix()
        assert len(files) <= CROWDED.get(name, FILES_MAX), (
            f"{name} holds {len(files)} files: which package hides there?"
        )


def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def parallel(name: str) -> str:
    """What two files may share: their way inside one source, inside one action of maintenance or the doctor."""
    package, *inner = name.split("/")
    if package == "doctor" or (package == "maintenance" and len(inner) < 3):
        return "maintenance/" + inner[-1]
    return "/".join((package, *inner[1:])) if package in {"sources", "maintenance"} else name


def test_a_file_name_repeats_only_in_parallel_folders() -> None:
    """Sources have one shape, so have the actions of maintenance; a command is called like what it calls; `errors.py`
    holds the errors of its package, `schema.py` what a schema is there,
    `position.py` what a position is."""
    places = defaultdict(set)
    for path in MODULES:
        if path.name not in {"__init__.py", "errors.py", "schema.py", "position.py"} and not name_of(path).startswith(
            "cli/commands/"
        ):
            places[path.name].add(parallel(name_of(path)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
