"""The pictures of the documentation, which the lab has drawn from real runs."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from interlock.lab.scenarios import NAMES, load
from tests.docs.pages import name, pages
from tests.house.source import ROOT

FOLDER = ROOT / "docs" / "pictures"
PICTURES = sorted(FOLDER.glob("*.svg"))
SHOWN = re.compile(r"!\[([^\]]+)\]\(([^)]+\.svg)\)")
MOST = 48 * 1024


def words(picture: Path) -> list[str]:
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    return [text for found in root.iter("{http://www.w3.org/2000/svg}text") for text in found.itertext()]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
class TestAPicture:
    def test_it_is_of_a_scenario_and_has_its_title(self, picture: Path) -> None:
        scenario, _, language = picture.stem.partition(".")
        assert scenario in NAMES
        root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
        title = root.findtext("{http://www.w3.org/2000/svg}title")
        assert title == load(scenario).title.in_language("zh" if language == "zh" else "en")

    def test_it_is_small_light_and_dark_and_asks_nobody(self, picture: Path) -> None:
        text = picture.read_text(encoding="utf-8")
        assert len(text) < MOST
        assert "prefers-color-scheme: dark" in text
        assert not re.findall(r"(?:href|src)=.https?:|@import|<script", text)
        assert "url(http" not in text

    def test_a_page_shows_it(self, picture: Path) -> None:
        assert [
            name(page) for page in pages() if f"pictures/{picture.name})" in page.read_text(encoding="utf-8")
        ]

    def test_it_is_there_in_both_languages_if_a_page_in_chinese_shows_it(self, picture: Path) -> None:
        if picture.stem.endswith(".zh"):
            assert picture.with_name(picture.name.replace(".zh", "")) in PICTURES


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_picture_of_a_page_is_there_and_has_a_text_for_those_who_do_not_see_it(page: Path) -> None:
    for text, target in SHOWN.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
        assert len(text) > 20, text


def test_the_table_of_the_sale_has_the_numbers_of_its_picture() -> None:
    page = (ROOT / "docs" / "guide" / "do-you-need-a-lock.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \(([^)]+)\) \|(.+)\|$", page, re.MULTILINE)
    table = [[strategy, sold, told, *map(str.strip, rest.split("|"))] for strategy, sold, told, rest in rows]
    assert len(table) >= 10
    drawn = words(FOLDER / "flash-sale.svg")[4:]  # after the heads
    assert [cell for row in table for cell in row] == drawn
