"""The scenarios, as data: each is complete in both languages, and its programs are the code that is shown."""

from __future__ import annotations

import pytest

from interlock.lab.deployments import KINDS
from interlock.lab.judge import Run
from interlock.lab.scenario import NAIVE, OURS, RUN_NAMES, Outcome, Scenario
from interlock.lab.scenarios import NAMES, UnknownScenario, load
from interlock.lab.texts import LANGUAGES, Text

SCENARIOS = [load(name) for name in NAMES]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)
class TestAScenario:
    def test_it_has_the_name_it_is_listed_under(self, scenario: Scenario) -> None:
        assert NAMES.count(scenario.name) == 1
        assert sum(other.number == scenario.number for other in SCENARIOS) == 1

    def test_its_servers_can_be_started(self, scenario: Scenario) -> None:
        assert scenario.needs in KINDS

    def test_it_shows_a_naive_lock_and_ours(self, scenario: Scenario) -> None:
        assert set(scenario.programs) - set(RUN_NAMES) == set()
        assert {NAIVE, OURS} <= set(scenario.programs)

    def test_it_is_told_in_both_languages(self, scenario: Scenario) -> None:
        texts = [scenario.title, scenario.story, scenario.lesson, *(one.text for one in scenario.captions)]
        for text in texts:
            for language in LANGUAGES:
                assert text.in_language(language).strip()
            assert not text.zh.isascii(), f"no Chinese: {text.en}"
            assert text.en.isascii(), f"more than letters: {text.en}"

    def test_it_has_one_to_six_captions_which_name_facts_that_there_are(self, scenario: Scenario) -> None:
        for run in scenario.programs:
            assert len([one for one in scenario.captions if one.run == run]) <= 6
        facts = Run(NAIVE, [], 1.0).facts()
        for caption in scenario.captions:
            assert caption.run in scenario.programs
            caption.text.filled(**{**facts, **dict.fromkeys(scenario.measured, "")})

    def test_its_programs_are_short_enough_to_be_read(self, scenario: Scenario) -> None:
        for run in scenario.programs:
            listing = scenario.listing(run)
            assert 3 <= len(listing.lines) <= 34
            assert listing.lines[0].startswith("def ")

    def test_an_empty_run_convinces_nobody(self, scenario: Scenario) -> None:
        """A judge that is content with nothing would be content with anything."""
        for run in scenario.programs:
            finding = scenario.judge(Run(run, [], scenario.ttl))
            assert finding.outcome is not Outcome.AS_EXPECTED, f"{run}: {finding.text.en}"


def test_a_run_in_which_everybody_was_refused_is_not_called_a_broken_promise() -> None:
    """With `replicas=majority` a busy machine's replicas may confirm nothing in time."""
    assert load("failover").judge(Run("majority", [], 5.0)).outcome is Outcome.CANNOT_SAY


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownScenario, match="did you mean gc-pause"):
        load("gcpause")


def test_an_odd_name_gets_the_list() -> None:
    with pytest.raises(UnknownScenario, match="interlock lab list"):
        load("xyzzy")


def test_a_text_is_filled_in_both_languages() -> None:
    assert Text("{n} late", "迟到 {n} 次").filled(n=3) == Text("3 late", "迟到 3 次")
