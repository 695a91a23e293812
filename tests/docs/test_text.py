"""Links lead somewhere, every page is reachable, and one word has one meaning (see the list of words)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import links, name, pages, prose
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
