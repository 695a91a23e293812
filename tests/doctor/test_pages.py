"""Every finding has a page that says what it means, how to see it and how to mend it."""

from __future__ import annotations

import re

import pytest

from interlock.doctor import pages
from tests.house.source import SRC

FAMILIES = "redis|sentinel|cluster|redlock|etcd|zk|pg|mysql|sqlite"
AN_ID = re.compile(rf'"((?:{FAMILIES})-[a-z]+(?:-[a-z]+)*|scope|ttl-budget|wake-ups|probe)"')


def ids_in_the_source() -> set[str]:
    """The ids that findings are made with."""
    sources = [*(SRC / "interlock" / "backends").rglob("checks.py"), SRC / "interlock/doctor/examination.py"]
    found = {id for path in sources for id in AN_ID.findall(path.read_text(encoding="utf-8"))}
    assert len(found) > 25
    return found


def test_every_finding_has_a_page_and_every_page_a_finding() -> None:
    assert ids_in_the_source() == set(pages.ids())


@pytest.mark.parametrize("id", pages.ids())
def test_a_page_says_what_it_is_about(id: str) -> None:
    text = pages.page(id)
    assert text.startswith(f"# {id}: ")
    assert len(text.split()) > 30
    if id != "probe":
        assert "**Mend it.**" in text


def test_a_page_that_there_is_not_is_told_with_the_nearest() -> None:
    with pytest.raises(pages.UnknownFinding, match="did you mean redis-eviction"):
        pages.page("redis-evictions")
    with pytest.raises(pages.UnknownFinding, match="use cluster-coverage"):
        pages.page("xyzzy")
