"""The pictures: marks that merge, windows of time, figures for other pages, labels and numbers."""

from __future__ import annotations

import time
from xml.etree import ElementTree

import pytest

from interlock.lab.judge import Run
from interlock.lab.report import figure, storm_figure
from interlock.lab.report.canvas import NARROW, WIDE, Canvas
from interlock.lab.report.crowd import WINDOWS, CrowdPicture, Windows, curves, rarities
from interlock.lab.report.entry import MOST_EVENTS, is_crowded
from interlock.lab.report.picture import Picture, spread
from interlock.lab.report.svg import element, number
from interlock.lab.report.words import short_token, version_name
from interlock.lab.scenario import Finding, Outcome
from interlock.lab.texts import LANGUAGES, Language, Text
from interlock.testing.history import Record
from tests.lab.report import samples


def drawn(run: Run, narrow: bool = False) -> Picture:
    return Picture(run, NARROW if narrow else WIDE, run.end * 1.02, link=lambda index: f"e{index}")


def many(count: int) -> Run:
    """Two clients that take turns, with as many events as asked for."""
    found = [
        samples.record(0.0, "store", "hold", holder="A", deadline=100.0),
        samples.record(0.0, "A", "grant"),
    ]
    found += [
        samples.record(0.001 * turn, "resource", "accept", holder="A", value=turn + 1)
        for turn in range(count)
    ]
    return Run("naive", found, 1.0)


def test_a_long_verdict_of_a_figure_has_a_line_of_its_own() -> None:
    result = samples.gc_pause()
    for words, beside in (("It held.", True), ("It held. " * 14, False)):
        result.findings["ours"] = Finding(Outcome.AS_EXPECTED, Text(words, words))
        assert ('class="verdict good" dx=' in figure(result, ["ours"], "en")) is beside


def test_all_events_of_a_short_run_are_drawn() -> None:
    run = samples.gc_pause().runs["naive"]
    assert drawn(run).inner().count('class="ev') == len(run.records)
    assert drawn(run).marks.merged == 0


@pytest.mark.parametrize("narrow", [False, True])
def test_marks_that_would_touch_become_one(narrow: bool) -> None:
    picture = drawn(many(1500), narrow)
    marks = picture.inner().count('class="ev')
    assert marks + picture.marks.merged == 1502
    assert marks < (140 if narrow else 320)


def test_a_late_write_is_drawn_however_close_others_are() -> None:
    run = many(1500)
    late = [Record(0.7501 + 0.0001 * turn, "resource", "accept", "ok", holder="B") for turn in range(3)]
    picture = drawn(Run("naive", [*run.records, *late], 1.0))
    assert picture.inner().count('href="#m-harm"') == 3


def test_a_run_of_many_events_or_clients_is_drawn_as_windows() -> None:
    assert not is_crowded(many(MOST_EVENTS - 2))
    assert is_crowded(many(MOST_EVENTS - 1))
    assert is_crowded(Run("naive", [samples.record(0.0, f"w{index}", "grant") for index in range(13)], 1.0))


def test_windows_count_every_event_once() -> None:
    run = Run("ours", samples.soak_records(500), 1.0)
    cut = Windows(run)
    grants = [one for one in run.records if one.call == "grant"]
    assert len(cut.counted(grants)) == WINDOWS
    assert sum(cut.counted(grants)) == len(grants) == 500


def test_the_mean_of_a_window_is_the_time_covered_in_it() -> None:
    run = Run("ours", [samples.record(0.0, "A", "grant"), samples.record(10.0, "A", "body")], 1.0)
    assert Windows(run, 10).mean([(0.5, 2.5), (2.0, 3.0)]) == pytest.approx(
        [0.5, 1.0, 1.5, 0, 0, 0, 0, 0, 0, 0]
    )
    assert Windows(run, 10).longest([(0.5, 2.5), (2.0, 2.6)])[2] == pytest.approx(2.0)


def test_what_happens_rarely_keeps_a_mark_of_its_own() -> None:
    run = Run("ours", samples.soak_records(500), 1.0)
    found = {rarity.key: len(rarity.times) for rarity in rarities(run)}
    assert found["late"] == 1
    assert found["refused"] == len(run.writes("fail")) > 0
    assert {curve.key for curve in curves(run)} == {"grants", "at-work", "waiting", "longest", "writes"}
    for layout in (WIDE, NARROW):
        assert CrowdPicture(run, layout, run.end).svg(Text("a", "b")).count("#m-broken") == 1


def test_a_storm_of_ten_thousand_events_is_drawn_in_seconds() -> None:
    began = time.process_time()
    text = storm_figure(samples.soak_records(1500), 1.0, Text("A storm", "风暴"), "en")
    assert time.process_time() - began < 5.0
    assert len(text) < 200_000
    ElementTree.fromstring(text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_figure_is_a_whole_file_in_one_language(language: Language) -> None:
    text = figure(samples.gc_pause(), ["naive", "guard"], language)
    ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    assert "<a " not in text
    assert ("late write" in text) == (language == "en")
    assert ("迟到的写入" in text) == (language == "zh")
    assert text.count("http") == 1  # the name of the format


def test_strange_names_make_a_figure_that_can_be_read() -> None:
    ElementTree.fromstring(figure(samples.strange(), ["naive"], "en"))


def test_a_label_is_the_longest_text_that_fits() -> None:
    canvas = Canvas(WIDE, 10.0, "en")
    texts = Text("still believes", "仍然相信"), Text("wrong", "错")
    assert "still believes" in canvas.label((0.0, 5.0), 0, "x", *texts)
    assert "wrong" in canvas.label((0.0, 0.7), 0, "x", *texts)
    assert canvas.label((0.0, 0.1), 0, "x", *texts) == ""


def test_a_language_whose_words_are_shorter_may_say_more() -> None:
    label = Canvas(WIDE, 10.0).label(
        (0.0, 1.2), 0, "x", Text("nobody gets in here", "无人进入"), Text("none", "无")
    )
    assert ">none<" in label
    assert ">无人进入<" in label


def test_numbers_of_captions_do_not_cover_each_other() -> None:
    assert spread([10, 12, 50], 20, 100) == [10, 30, 50]
    assert spread([90, 95, 99], 20, 100) == [60, 80, 100]
    assert spread([], 20, 100) == []


def test_tokens_are_shortened_to_the_digits_that_differ() -> None:
    tokens = [1794988822760168, 1794988822761769]
    assert [short_token(token, tokens) for token in tokens] == ["…0168", "…1769"]
    assert short_token(42, [42, 43]) == "42"
    assert short_token(1794988822760168, [1794988822760168]) == "…68"


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0", "Redis 7.0.15"),
        ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", "PostgreSQL 15.14"),
        ("something else", "something else"),
    ],
)
def test_a_version_is_a_product_and_a_number(told: str, name: str) -> None:
    assert version_name(told) == name


def test_numbers_are_as_short_as_they_can_be() -> None:
    assert [number(value) for value in (1.0, 1.25, 0.04, -3.0)] == ["1", "1.2", "0", "-3"]
    assert element("rect", kind="a", view_box="<", rx=None) == '<rect class="a" viewBox="&lt;"/>'
