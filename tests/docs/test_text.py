"""Links lead somewhere, every page is reachable, and one word has one meaning (see the list of words)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import chart
from interlock import urls
from tests.docs.pages import FENCE, links, name, pages, prose
from tests.house.source import ROOT

# What the words of interlock are never called: a lease lapses, a resource has a name, a lease is no handle.
NEVER = (
    r"\bexpir(e[sd]?|y|ation)\b|\block names?\b|\block keys?\b|\bwait_time\b|\bfencing epochs?\b|\bhandles?\b"
)

PAGES = pytest.mark.parametrize("page", pages(), ids=name)


@PAGES
def test_every_link_leads_to_a_file(page: Path) -> None:
    missing = [link for link in links(page) if not (page.parent / link.partition("#")[0]).exists()]
    assert not missing


@PAGES
def test_a_page_calls_things_by_their_one_name(page: Path) -> None:
    found = re.findall(NEVER, prose(page), re.IGNORECASE)
    assert not found, f"{name(page)}: {list(re.finditer(NEVER, prose(page), re.IGNORECASE))}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in seen and page.suffix == ".md" and page.exists():
            seen.add(page)
            todo += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
    assert not set(pages()) - seen


@PAGES
def test_no_page_installs_what_no_package_index_has(page: Path) -> None:
    """interlock is installed from a clone, as the README says; only its client libraries come from an index."""
    assert not re.findall(r"pip install\s+'?interlock\b", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", ["guide/which-store.md", "guide/locks.md"])
def test_the_tables_of_stores_have_every_store(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    stores: dict[object, list[str]] = {}
    for scheme, opener in urls._OPENERS.items():
        stores.setdefault(opener, []).append(scheme)
    assert not [
        schemes
        for schemes in stores.values()
        if not any(re.search(rf"^\|.*`{re.escape(scheme)}://", text, re.MULTILINE) for scheme in schemes)
    ]


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
STATUS = re.compile(r"# .+\n\nStatus: (accepted|superseded by|accepted, supersedes)\b.*; \d{4}-\d\d-\d\d\n\n")


@pytest.mark.parametrize("page", DECISIONS, ids=name)
def test_every_decision_has_a_status_and_a_date(page: Path) -> None:
    assert STATUS.match(page.read_text(encoding="utf-8"))


def test_the_list_of_decisions_has_them_all() -> None:
    assert links(ROOT / "docs" / "decisions" / "README.md") == [page.name for page in DECISIONS]


def test_the_chart_of_times_is_drawn_from_its_page() -> None:
    assert (ROOT / "docs" / "performance.svg").read_text(encoding="utf-8") == chart.drawn()


@PAGES
def test_no_line_of_a_page_is_longer_than_160_columns(page: Path) -> None:
    """Tables and code aside."""
    lines = FENCE.sub("", page.read_text(encoding="utf-8")).splitlines()
    assert not [line for line in lines if len(line) > 160 and not line.startswith("|")]
