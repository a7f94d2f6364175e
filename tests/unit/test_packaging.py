"""What is released agrees with itself: pages, hints, Dockerfile, workflow and lock name what there is."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from frazil.iceberg.jvm import jars

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCK = (ROOT / "requirements.lock").read_text()
LICENCES = (ROOT / "docs" / "licences.md").read_text()
_NAME = re.compile(r"[A-Za-z0-9-]+")


def name_of(requirement: str) -> str:
    found = _NAME.match(requirement)
    assert found is not None, requirement
    return found[0]


def texts() -> list[Path]:
    """Files that tell people or machines what to do."""
    kept = {".py", ".md", ".sh", ".yaml", ".yml", ".service", ""}
    roots = [ROOT / name for name in ("src", "docs", ".github", "bench")]
    found = [path for root in roots for path in root.rglob("*") if path.is_file() and path.suffix in kept]
    return [*found, *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "Dockerfile"]


def test_no_text_installs_frazil_as_if_it_were_published() -> None:
    published = re.compile(r"pip install [^\n`]*(?<![/\w.-])frazil(?![\w-]*[-*].*\.whl)(?=['\"\[\s,.`=<>]|$)")
    told = [f"{path.name}: {hit[0]}" for path in texts() for hit in published.finditer(path.read_text())]
    assert told == []


@pytest.mark.parametrize("command", ["pip install frazil", "pip install -U 'frazil[aws]'", "pip install frazil==0.1"])
def test_a_text_that_did_would_be_found(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"Then `{command}`.\n")
    monkeypatch.setattr("test_packaging.texts", lambda: [tmp_path / "page.md"])
    with pytest.raises(AssertionError, match=r"page\.md"):
        test_no_text_installs_frazil_as_if_it_were_published()


def test_hints_name_the_requirements_of_the_extras() -> None:
    extras = {needed for group in PROJECT["project"]["optional-dependencies"].values() for needed in group}
    told = [
        requirement
        for path in (ROOT / "src").rglob("*.py")
        for command in re.findall(r"pip install((?: '[^']+')+)", path.read_text())
        for requirement in re.findall(r"'([^']+)'", command)
    ]
    assert told
    assert set(told) <= extras


def test_every_dependency_is_locked_and_has_its_licence_told() -> None:
    for requirement in PROJECT["project"]["dependencies"]:
        name = name_of(requirement)
        assert re.search(rf"^{name}(\[\w+\])?==", LOCK, re.MULTILINE), f"{name} is not locked"
        assert re.search(rf"\b{name}\b", LICENCES), f"docs/licences.md does not name {name}"


def test_every_jar_has_its_licence_told() -> None:
    known = [value for value in vars(jars).values() if isinstance(value, jars.Jar)]
    for jar in known:
        assert f"`{jar.coordinate.rpartition(':')[0]}`" in LICENCES, jar.coordinate
    assert len(known) == len(re.findall(r"^\| `[\w.]+:", LICENCES, re.MULTILINE))


def test_the_licence_is_the_whole_apache_licence() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert all(f"\n   {number}. " in text for number in range(1, 10))
    assert "END OF TERMS AND CONDITIONS" in text


def test_nothing_of_others_lies_in_the_package() -> None:
    """NOTICE says so. Whatever is no source text of ours would have to be named there."""
    kinds = {path.suffix for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {kind for kind in kinds if "egg" not in kind} <= {
        ".py", ".pyi", ".proto", ".properties", ".html", ".css", ".js", ".typed",
    }  # fmt: skip


def test_the_dockerfile_copies_what_there_is_and_installs_what_make_does() -> None:
    context = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert context == ["requirements.lock", "dist/*.whl"]
    allowed = (ROOT / ".dockerignore").read_text().split()
    assert allowed == ["*", *(f"!{source}" for source in context)]
    assert (ROOT / "requirements.lock").is_file()
    assert "--out-dir dist" in MAKEFILE
    assert re.search(r"^image: wheel ", MAKEFILE, re.MULTILINE)
    (pin,) = re.findall(r"^UV +:= (\S+)$", MAKEFILE, re.MULTILINE)
    assert f" {pin}\n" in DOCKERFILE
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert f"EXTRAS ?= {extras}\n" in MAKEFILE
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    made, taken = (
        re.findall(r"--python (/\S+)/bin/python", DOCKERFILE),
        re.findall(r"^COPY --from=build (\S+) (\S+)$", DOCKERFILE, re.MULTILINE),
    )
    assert taken == [(made[0], made[0])]
    assert f"ENV PATH={made[0]}/bin:$PATH" in DOCKERFILE
    assert 'ENTRYPOINT ["frazil"]' in DOCKERFILE
    assert "frazil" in PROJECT["project"]["scripts"]
    assert len(set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))) == 1, (
        "an environment moves only to the same Python"
    )


def test_the_image_runs_as_the_user_that_the_deployment_names() -> None:
    deployment = (ROOT / "docs" / "deploy" / "kubernetes.yaml").read_text()
    (user,) = re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
    assert f"useradd --uid {user} " in DOCKERFILE
    assert f"runAsUser: {user}\n" in deployment


def test_the_workflow_runs_targets_that_exist_with_the_history_that_tells_the_version() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    assert "make test" in commands
    for command in commands:
        assert re.search(rf"^{command.removeprefix('make ')}:.*## ", MAKEFILE, re.MULTILINE), command
    for step in steps:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["fetch-depth"] == 0
    (python,) = {step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")}
    assert PROJECT["project"]["requires-python"] == f">={python}"


def test_make_explains_and_builds_the_wheel_and_the_image() -> None:
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"wheel", "image"} <= {line.split()[1] for line in told.splitlines()}
    plan = subprocess.run(
        ["make", "-n", "image", "ENGINE=podman", "IMAGE=shop/frazil:1", "STAMP=Makefile"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert plan.index("uv build") < plan.index("podman build --tag shop/frazil:1 --build-arg EXTRAS=mongodb .")


def test_the_changelog_goes_by_version_and_says_nothing_twice() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    versions = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \((?:unreleased|\d{4}-\d\d-\d\d)\)", head) for head in heads]
    assert all(versions), heads
    numbers = [tuple(map(int, found.groups())) for found in versions if found]
    assert numbers == sorted(set(numbers), reverse=True)
    for version in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        parts = re.findall(r"^### (.*)$", version, re.MULTILINE)
        assert len(parts) == len(set(parts)), parts
    entries = [" ".join(entry.split()) for entry in re.split(r"^- |^#.*$", text, flags=re.MULTILINE)]
    entries = [entry for entry in entries if entry]
    assert len(entries) == len(set(entries))


def test_nothing_is_invented_about_where_the_project_lives() -> None:
    """Until it has a home, there is no address of one: add `urls` and `authors` when there is."""
    assert not {"urls", "authors", "maintainers"} & set(PROJECT["project"])


def test_the_changelog_tells_of_a_subject_once_in_a_section() -> None:
    for section in (ROOT / "CHANGELOG.md").read_text().split("\n### ")[1:]:
        subjects = re.findall(r"^- ([^:.,;(]+):", section, re.MULTILINE)
        assert len(subjects) == len(set(subjects)), sorted(subjects)
