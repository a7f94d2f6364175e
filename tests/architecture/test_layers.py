"""The layer table of ARCHITECTURE.md, held by a test: who may import whom, and who must stay pure.

cli, demo  ->  daemon  ->  sources | epochs | workers | coordinator | lake   ->  model, errors, clock
                           (no stage imports another stage)        sources, workers, lake, config  ->  storage
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "frazil"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py"))

BASE = {"model", "errors", "clock"}
STAGES = {"sources", "epochs", "workers", "coordinator", "lake", "maintenance", "transactions"}
MAY_IMPORT = {
    "model": {"model", "errors"},
    "errors": set(),
    "clock": set(),
    "storage": {"storage", "errors", "clock"},
    **{stage: {stage, *BASE} for stage in STAGES},
    **{stage: {stage, "storage", *BASE} for stage in ("sources", "workers", "lake")},
    "config": {"config", "storage", *BASE},
    "observability": {"observability", *BASE},
}
PURE = ("model/", "epochs/", "coordinator/")
PERFORMERS = {"coordinator/publisher.py", "coordinator/resyncer.py", "coordinator/fence.py"}
ARROW_TYPES = "model/arrow.py"
IMPURE_MODULES = {"time", "random", "os", "socket", "subprocess", "pathlib", "pyspark", "py4j", "pyarrow", "threading"}
PY4J_ROOMS = {"lake"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Imports that run; those under TYPE_CHECKING are for readers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_stage_imports_the_model_and_itself_only(path: Path) -> None:
    allowed = MAY_IMPORT.get(room_of(path))
    if allowed is None:
        return
    for module, _ in imports_of(path):
        parts = module.split(".")
        if parts[0] == "frazil" and len(parts) > 1:
            assert parts[1] in allowed, f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", [p for p in MODULES if name_of(p).startswith(PURE)], ids=name_of)
def test_decisions_touch_neither_clock_nor_chance_nor_the_world(path: Path) -> None:
    if name_of(path) in PERFORMERS:
        return
    allowed = {"pyarrow"} if name_of(path) == ARROW_TYPES else set()
    for module, _ in imports_of(path):
        assert module.split(".")[0] not in IMPURE_MODULES - allowed, f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_the_jvm_is_reached_through_the_lake_alone(path: Path) -> None:
    if room_of(path) in PY4J_ROOMS:
        return
    text = path.read_text(encoding="utf-8")
    assert "_jvm" not in text, name_of(path)
    assert "py4j" not in text.lower(), name_of(path)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_time_and_chance_are_read_in_clock_py_alone(path: Path) -> None:
    if name_of(path) == "clock.py" or room_of(path) == "demo":
        return
    text = path.read_text(encoding="utf-8")
    for reading in ("datetime.now(", "time.time(", "time.monotonic(", "time.sleep(", "random.random(", "uuid4("):
        assert reading not in text, f"{name_of(path)} calls {reading})"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_import_hides_inside_a_function(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                hidden = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("frazil")
                assert not hidden, f"{name_of(path)}: {function.name} imports at run time"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_is_for_and_stays_readable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), f"{name_of(path)} has no docstring"
    assert len(text.splitlines()) <= 500, f"{name_of(path)} is too long to read in one sitting"
    assert path.name not in {"utils.py", "common.py", "helpers.py"}
