"""What a page or a comment refers to is there: files, headings, hazards, decisions, and the tests of a hazard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))]
CITING = [
    *PAGES,
    ROOT / "CHANGELOG.md",
    *(p for d in ("src", "tests", "bench") for p in sorted((ROOT / d).rglob("*.py"))),
]
HAZARDS = DOCS / "hazards.md"
DECISIONS = {int(path.name[:4]) for path in (DOCS / "decisions").glob("[0-9]*.md")}

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
_LINKED_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ANCHOR = re.compile(r'<a id="([^"]+)">')
_HAZARD = re.compile(r"\bH([1-9]\d{0,2})\b")
_DECISION = re.compile(r"\bdecisions? (\d+)(?:(?:,| and) (\d+))*")
_ENTRY = re.compile(r'^\| <a id="h(\d+)"></a>H(\d+) \|.*$', re.MULTILINE)
_TEST = re.compile(r"`(tests/[^`]+\.py)`")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors_of(page: Path) -> Iterator[str]:
    """As GitHub makes them of headings: lower case, no punctuation, spaces to dashes, -1 and so on if there already."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    yield from _ANCHOR.findall(text)
    seen: dict[str, int] = {}
    for heading in _HEADING.findall(text):
        plain = _LINKED_TEXT.sub(r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        yield f"{slug}-{seen[slug]}" if slug in seen else slug
        seen[slug] = seen.get(slug, 0) + 1


def hazards() -> dict[int, str]:
    """What stands about each, by its number."""
    return {int(entry[2]): entry[0] for entry in _ENTRY.finditer(HAZARDS.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        to = (page.parent / target).resolve() if target else page
        assert to.exists(), f"{name_of(page)} links to {target}"
        if anchor:
            assert anchor in set(anchors_of(to)), f"{name_of(page)} links to {target}#{anchor}"


def test_every_page_is_in_the_index() -> None:
    linked = {
        (DOCS / target).resolve() for target, _ in _LINK.findall((DOCS / "README.md").read_text(encoding="utf-8"))
    }
    folders = tuple(path for path in linked if path.is_dir())
    for page in PAGES:
        assert page in linked or page.parent in folders or page == DOCS / "README.md", f"docs/README.md lacks {page}"


def test_every_hazard_that_is_cited_is_listed() -> None:
    listed = hazards()
    missing = {
        (int(number), name_of(path))
        for path in CITING
        for number in _HAZARD.findall(path.read_text(encoding="utf-8"))
        if int(number) not in listed
    }
    assert not missing


def test_hazards_are_numbered_without_gaps_and_have_the_anchor_of_their_number() -> None:
    entries = _ENTRY.findall(HAZARDS.read_text(encoding="utf-8"))
    assert all(anchor == number for anchor, number in entries)
    assert sorted(int(number) for _, number in entries) == list(range(1, len(entries) + 1))


def test_the_tests_that_hold_a_hazard_cite_it() -> None:
    for number, entry in hazards().items():
        for test in _TEST.findall(entry):
            assert re.search(rf"\bH{number}\b", (ROOT / test).read_text(encoding="utf-8")), f"{test} and H{number}"


def test_every_hazard_that_a_test_cites_names_a_test() -> None:
    listed = hazards()
    for path in CITING:
        if path.is_relative_to(ROOT / "tests") and path != Path(__file__):
            for number in map(int, _HAZARD.findall(path.read_text(encoding="utf-8"))):
                assert _TEST.search(listed[number]), f"{name_of(path)} holds H{number}; docs/hazards.md does not say so"


def test_every_decision_that_is_cited_exists() -> None:
    for path in CITING:
        for cited in _DECISION.finditer(path.read_text(encoding="utf-8")):
            numbers = {int(number) for number in re.findall(r"\d+", cited[0])}
            assert numbers <= DECISIONS, f"{name_of(path)} cites {cited[0]}"
