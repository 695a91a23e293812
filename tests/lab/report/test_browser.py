"""The page in a real browser, on demand: no script error, no request, keys, lanes, languages, a phone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from interlock.lab.report import write_report
from tests.lab.report import samples
from tests.lab.report.chromium import Page, browser, program

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "lab.html"
    made = datetime(2026, 11, 19, tzinfo=UTC)
    write_report(path, [*samples.results(), samples.strange()], made=made, machine="here")
    return path.as_uri()


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Page]:
    if program() is None:
        pytest.skip("needs chromium: apt-get install chromium")
    with browser(tmp_path / "profile") as page:
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_has_no_error_asks_nobody_and_does_not_scroll_sideways(
    tab: Page, address: str, width: int, scheme: str
) -> None:
    tab.size(width, 1000)
    tab.media(scheme)
    tab.open(address)
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.errors == []
    assert {one for one in tab.requests if not one.startswith(("about:", "data:"))} == {address}


def test_keys_and_clicks_choose_events(tab: Page, address: str) -> None:
    tab.size(1400, 1000)
    tab.open(f"{address}#gc-pause-naive-8")
    tab.until("!!document.querySelector('tr.on')")
    assert "A's lease" in tab.run("document.querySelector('.deck output').textContent")
    tab.press("ArrowRight")
    assert tab.run("location.hash") == "#gc-pause-naive-9"
    tab.press("v")
    assert tab.run("!!document.querySelector('a.ev.on use[href=\"#m-harm\"]')")
    tab.press("e")
    assert tab.run("document.body.classList.contains('even')")
    tab.press("Escape")
    assert tab.run("location.hash") == ""
    assert tab.errors == []


def test_an_event_marks_its_line_of_code(tab: Page, address: str) -> None:
    tab.open(f"{address}#crash-before-del-naive-3")
    tab.until("!!document.querySelector('tr.on')")
    assert tab.run("[...document.querySelectorAll('.l.on')].map(l => l.dataset.line).join()") == "22"
    assert tab.run("document.querySelectorAll('svg .arrow.on').length") == 2


def test_a_lane_can_be_hidden_and_shown_again(tab: Page, address: str) -> None:
    tab.open(address)
    height = "document.querySelector('#gc-pause svg.wide').viewBox.baseVal.height"
    before = tab.run(height)
    tab.run(
        "document.querySelector('#gc-pause svg.wide [data-lane=\"client:B\"] .name').dispatchEvent(new Event('click'))"
    )
    assert tab.run(height) < before - 30
    assert tab.run("document.querySelectorAll('#gc-pause .lane.off').length") == 6
    tab.run("document.querySelector('[data-do=lanes]').click()")
    assert tab.run(height) == before
    assert tab.errors == []


def test_the_language_changes_without_a_script(tab: Page, address: str) -> None:
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    tab.open(address)
    shown = "getComputedStyle(document.querySelector('h2 [lang={}]')).display"
    assert tab.run(shown.format("zh")) == "none"
    tab.run("document.getElementById('zh').click()")
    assert tab.run(shown.format("en")) == "none"
    assert tab.run(shown.format("zh")) != "none"


@pytest.mark.parametrize(("width", "named"), [(1400, False), (390, True)])
def test_a_cell_names_its_lock_where_the_matrix_has_no_columns(
    tab: Page, address: str, width: int, named: bool
) -> None:
    tab.size(width, 1000)
    tab.open(address)
    locks = "[...document.querySelectorAll('.matrix small.lock:not(.more)')]"
    assert tab.run(f"{locks}.length") > 0
    shown = f"{locks}.filter(one => getComputedStyle(one).display !== 'none').length"
    assert tab.run(f"{shown} === {locks}.length") is named
