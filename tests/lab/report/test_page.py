"""The report as one page: whole, the same in both languages, safe, and silent towards the network."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from html import escape

import pytest

from interlock.lab.report.page import page
from interlock.lab.scenario import Link, Result
from interlock.lab.texts import Text
from tests.lab.report import samples
from tests.lab.report.document import Document

MADE = datetime(2026, 11, 19, 2, 0, tzinfo=UTC)


def drawn(*results: Result, **rest: str) -> str:
    return page(results, made=MADE, machine="two cores", history="lab.jsonl", **rest)  # type: ignore[arg-type]


@cache
def whole() -> str:
    few = samples.Sample(99, "storm", Text("A storm", "风暴"))
    storm = samples.judged(few, samples.in_run("ours", samples.soak_records(300, 16)))
    return drawn(
        samples.no_lock(), samples.crash_before_del(), samples.poll_or_push(), samples.split_brain(), samples.gc_pause(),
        samples.missing(), samples.flash_sale(), samples.strange(), storm,
    )  # fmt: skip


@cache
def document() -> Document:
    return Document(whole())


def test_every_element_is_closed() -> None:
    assert document().unclosed == []


def test_no_id_stands_twice_even_if_a_scenario_was_played_twice() -> None:
    again = Document(drawn(samples.gc_pause(), samples.gc_pause()))
    for one in (document(), again):
        assert len(one.ids) == len(set(one.ids))
    assert {"gc-pause", "gc-pause-again-2"} <= set(again.ids)


def test_every_link_into_the_page_leads_somewhere() -> None:
    inside = {said["href"][1:] for said in document().all("a") if said["href"].startswith("#")}
    uses = {said["href"][1:] for said in document().all("use")}
    patterns = set(re.findall(r"url\(#([\w-]+)\)", whole()))
    assert (inside | uses | patterns) - set(document().ids) == set()
    assert inside
    assert uses
    assert patterns


def test_nothing_is_loaded_from_anywhere() -> None:
    """Addresses of other hosts stand in links alone, which load nothing before somebody follows them."""
    links = {said["href"] for said in document().all("a") if said["href"].startswith("http")}
    assert links
    text = re.sub(r'<a href="https?://[^"]*"', "<a", whole())
    assert not re.findall(r"https?://", text)
    loading = {
        tag
        for tag, said in document().elements
        if "src" in said or tag in ("img", "iframe", "object", "base")
    }
    assert not loading
    assert "@import" not in whole()
    assert "default-src 'none'" in document().all("meta")[1]["content"]


def test_names_and_errors_are_only_text() -> None:
    assert len(document().all("script")) == 1
    assert "<script>alert" not in whole()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in whole()
    assert not [said for _, said in document().elements if any(name.startswith("on") for name in said)]


def test_a_link_of_another_kind_than_the_web_is_not_made() -> None:
    scenario = samples.Sample(1, "x", Text("x", "x"), links=(Link("read", "javascript:alert(1)"),))
    text = drawn(samples.judged(scenario, samples.in_run("naive", samples.soak_records(5))))
    assert "javascript:" not in text
    assert "read" in text


def test_both_languages_are_there_and_one_is_chosen() -> None:
    english, chinese = (Document(drawn(samples.gc_pause(), language=language)) for language in ("en", "zh"))
    assert english.all("html")[0]["lang"] == "en"
    assert chinese.all("html")[0]["lang"] == "zh"
    for one, chosen in ((english, "en"), (chinese, "zh")):
        assert [
            said["id"] for said in one.all("input") if said.get("name") == "language" and "checked" in said
        ] == [chosen]
    said = [
        attrs["lang"] for tag, attrs in document().elements if tag in ("span", "tspan") and "lang" in attrs
    ]
    assert said.count("en") > 200
    assert abs(said.count("en") - said.count("zh")) < 30  # a label that fits in one language only
    assert "A gets the lock\n1" not in whole()
    assert re.search(r"<title>0\.001 s: A gets the lock\n0\.001 s：A 得到锁</title>", whole())


def test_every_event_of_a_picture_has_its_row() -> None:
    rows = {said["id"] for said in document().all("tr") if "id" in said}
    events = {said["href"][1:] for said in document().all("a", "ev")}
    assert events
    assert events <= rows
    recorded = samples.gc_pause()
    count = sum(len(run.records) for run in recorded.runs.values())
    assert len([one for one in rows if one.startswith("gc-pause-")]) == count == 79


def test_the_matrix_says_how_each_lock_ended() -> None:
    cells = document().all("td")
    kinds = [said.get("class", "") for said in cells]
    assert kinds.count("bad") >= 4
    assert kinds.count("good") >= 5
    assert "unknown" in kinds
    assert "etcd is not installed" in whole()
    assert "etcd-server" in whole()
    assert "9 scenarios · 6 as expected · 1 not as expected · 1 cannot say · 1 not played" in whole()


def test_what_is_more_than_a_guard_is_named_in_the_matrix() -> None:
    """Else the cell below "interlock with guard or more" would not say what it shows."""
    result = samples.split_brain()
    result.runs["majority"] = result.runs.pop("ours")
    result.findings["majority"] = result.findings.pop("ours")
    (lock,) = Document(drawn(result)).all("small", "more")
    assert lock
    assert "interlock with replicas=majority" in drawn(result)
    assert not Document(drawn(samples.gc_pause())).all("small", "more")


def test_a_naive_lock_that_is_not_expected_to_fail_is_not_called_a_failure() -> None:
    result = samples.gc_pause()
    del result.runs["ours"], result.runs["guard"], result.findings["ours"], result.findings["guard"]
    assert "fails" in drawn(result)
    result.scenario.naive_fails = False  # type: ignore[misc]
    (cell,) = [one for one in Document(drawn(result)).all("td") if one.get("class") in ("good", "bad")]
    assert cell["class"] == "good"


def test_the_verdict_and_the_band_name_the_same_length() -> None:
    for result in (samples.gc_pause(), samples.split_brain(), samples.no_lock()):
        text = drawn(result)
        (said,) = set(re.findall(r"Two at work at once for ([\d.]+ m?s)", text))
        assert f"two at work · {said}" in text


def test_a_run_in_which_nobody_gets_in_has_a_picture_of_its_own() -> None:
    text = drawn(samples.crash_before_del())
    assert "nobody gets in · 3.00 s" in text
    assert "still A, who is gone: 3.00 s" in text
    assert "waits in vain: 3.30 s" in text
    assert "Never two at work; the next one got in 0.60 s after the death of A." in text


def test_captions_are_numbered_through_all_runs_and_name_numbers_of_the_run() -> None:
    text = drawn(samples.gc_pause())
    numbers = [int(said["value"]) for said in Document(text).all("li") if "value" in said]
    assert numbers == [1, 2, 3, 4, 5, 6, 7]
    assert "it goes on believing for 0.71 s." in text


def test_a_caption_whose_event_did_not_happen_is_left_out() -> None:
    result = samples.gc_pause()
    del result.runs["naive"]
    numbers = [said["value"] for said in Document(drawn(result)).all("li") if "value" in said]
    assert numbers == ["1", "2", "3", "4"]


def test_a_line_of_code_knows_its_number() -> None:
    lines = [said["data-line"] for said in Document(drawn(samples.gc_pause())).all("span", "l")]
    assert lines[:8] == [str(number) for number in range(20, 28)]


def test_each_store_of_a_split_brain_has_a_bar() -> None:
    text = drawn(samples.split_brain())
    assert ">left</text>" in text
    assert ">right</text>" in text
    assert "left names A" in text
    assert "right names B" in text


def test_a_sale_says_how_many_were_sold_too_many() -> None:
    text = drawn(samples.flash_sale())
    assert "672 too many" in text
    assert text.count(">exactly<") == 4
    assert "9,100" in text


@pytest.mark.parametrize("name", ["gc-pause", "strange"])
def test_the_command_can_be_copied(name: str) -> None:
    result = samples.gc_pause() if name == "gc-pause" else samples.strange()
    assert document().all("code", "command")
    assert escape(result.command) in whole()


def test_a_page_of_all_scenarios_stays_below_eight_megabytes() -> None:
    each = len(drawn(samples.gc_pause()).encode()) - len(drawn().encode())
    assert 46 * each < 8_000_000
    assert len(whole().encode()) < 1_000_000


def test_a_report_of_nothing_is_a_page() -> None:
    assert Document(drawn()).unclosed == []
