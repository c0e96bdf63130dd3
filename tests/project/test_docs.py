"""The documentation: links and anchors resolve, and citations in the code have headings."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.paths import ROOT

PAGES = sorted(
    path.relative_to(ROOT)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("service/**/*.md")]
)
CITING_FOLDERS = ("service", "tests", "sql", "bench", "schemas")
CITING_SUFFIXES = {".py", ".sql", ".json", ".html", ".css", ".js"}
INSTALLED = {".venv", "node_modules"}  # packages of others
MOST_README_LINES = 150

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: A file or folder in a code span or a fence, without placeholders such as <resource>.
NAMED_FILE = re.compile(
    r"(?<![\w/.-])((?:service|sql|schemas|tests|bench|docs|deploy)/[\w./-]*[\w/])(?![\w<*{])"
)
SECTION = r"Appendix [A-Z]|\d+(?:\.\d+)?"
PORTAL_CITATION = re.compile(rf"\bPortal: ((?:{SECTION})(?:, (?:{SECTION})\b)*)")
#: Names of headings up to a full stop or another mark, or an address like docs/api.md#invoices.
SPEC_CITATION = re.compile(r"\bSpec: (docs/api\.md#[\w-]+|[^.;:\"*\n]+)")
ANY_CITATION = re.compile(r"\b(?:Portal|Spec): (?=[A-Z0-9]|docs/)")


def _read(page: str | Path) -> str:
    """Return the text of a page without fenced code, whose lines are neither headings nor links."""
    return FENCE.sub("", (ROOT / page).read_text())


def _headings(page: str | Path) -> list[str]:
    return [heading.replace("`", "") for heading in HEADING.findall(_read(page))]


def find_anchors(page: str | Path) -> set[str]:
    """Return the anchors of a page as GitHub makes them: a repeated one gets a number."""
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in _headings(page):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def _broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(CODE_SPAN.sub("", _read(page))):
        if re.match(r"[a-z]+:", target):
            continue  # another site
        path, _, anchor = target.partition("#")
        linked = (ROOT / page.parent / path).resolve() if path else ROOT / page
        if not linked.is_relative_to(ROOT) or not linked.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in find_anchors(linked):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_and_anchors_resolve(page: Path) -> None:
    assert list(_broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_named_files_exist(page: Path) -> None:
    named = {path.rstrip(".") for path in NAMED_FILE.findall((ROOT / page).read_text())}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        links = LINK.findall(CODE_SPAN.sub("", _read(page)))
        paths = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:", link)]
        left += [(page.parent / path).resolve() for path in paths if path]
    assert {ROOT / page for page in PAGES if page.parts[0] != "service"} - reached == set()


# Citations


def _sources() -> Iterator[Path]:
    for folder in CITING_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if INSTALLED.intersection(path.relative_to(ROOT).parts):
                continue
            if path.suffix in CITING_SUFFIXES and path != Path(__file__).resolve():
                yield path


def _lines() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of every line that cites."""
    for path in _sources():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if ANY_CITATION.search(line):
                yield f"{path.relative_to(ROOT)}:{number}", line


def _cited_names(citation: str) -> list[str]:
    """Return the headings that a citation names: `Invoices, create adjustment note` names one."""
    first, *others = [name.strip() for name in citation.split(", ")]
    return [first, *(name for name in others if name[:1].isupper())]


def test_portal_citations_have_a_heading() -> None:
    headings = _headings("docs/portal-protocol.md")
    numbers = {match[1] for heading in headings if (match := re.match(rf"({SECTION})\b", heading))}
    cited = [
        (place, number)
        for place, line in _lines()
        for citation in PORTAL_CITATION.findall(line)
        for number in citation.split(", ")
    ]
    assert len(cited) > 100
    assert [(place, number) for place, number in cited if number not in numbers] == []


def test_specification_citations_have_a_heading() -> None:
    headings, anchors = set(_headings("docs/api.md")), find_anchors("docs/api.md")
    unknown = []
    cited = [(place, text) for place, line in _lines() for text in SPEC_CITATION.findall(line)]
    for place, citation in cited:
        if citation.startswith("docs/"):
            unknown += [place] if citation.partition("#")[2] not in anchors else []
        else:
            unknown += [(place, name) for name in _cited_names(citation) if name not in headings]
    assert len(cited) > 30
    assert unknown == []


def test_citations_have_a_known_form() -> None:
    odd = [
        place
        for place, line in _lines()
        if len(ANY_CITATION.findall(line))
        != len(PORTAL_CITATION.findall(line)) + len(SPEC_CITATION.findall(line))
    ]
    assert odd == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_README_LINES
