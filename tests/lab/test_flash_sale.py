"""The sale: how it is judged, drawn and told, and that it comes out as the page says on real servers."""

from __future__ import annotations

import json
from io import StringIO
from xml.etree import ElementTree

import pytest

from interlock.cli.output import Output
from interlock.lab.judge import Run
from interlock.lab.report import drawn
from interlock.lab.runner import played
from interlock.lab.sale import STOCK
from interlock.lab.scenario import GUARDED, NAIVE, OURS, Outcome, Result
from interlock.lab.scenarios.flash_sale import FlashSale
from interlock.lab.screen import conclusion, screen_for
from interlock.lab.texts import LANGUAGES, Language
from interlock.testing.history import Record


def sale(run: str, **sold: int) -> Run:
    """A run in which each strategy sold so many."""
    records = [Record(0.0, "shop", "measure", "ok", attempt="stock", amount=float(STOCK), run=run)]
    for key, amount in sold.items():
        strategy = key.replace("_", "-")
        records.append(Record(1.0, strategy, "measure", "ok", attempt="sold", amount=float(amount), run=run))
    return Run(run, records, 0.3)


OVERSOLD = {"no_lock": 700, "set_nx": 200, "compared": 100, "unrenewed": 90}


def result() -> Result:
    runs = {
        NAIVE: sale(NAIVE, **OVERSOLD),
        OURS: sale(OURS, interlock=60, hung=12, max_hold=60),
        GUARDED: sale(GUARDED, guard=60, script=60, counter=60),
    }
    scenario = FlashSale()
    return Result(scenario, runs, {name: scenario.judge(run) for name, run in runs.items()})


def test_every_strategy_belongs_to_one_run() -> None:
    belonging = [key for keys in FlashSale.sold_by.values() for key in keys]
    assert sorted(belonging) == sorted(FlashSale.strategies)


def test_a_sale_is_judged_by_what_was_sold() -> None:
    assert result().outcome is Outcome.AS_EXPECTED


@pytest.mark.parametrize("honest", OVERSOLD)
def test_a_naive_lock_that_sells_exactly_the_stock_was_not_seen_to_fail(honest: str) -> None:
    run = sale(NAIVE, **{**OVERSOLD, honest: STOCK})
    assert FlashSale().judge(run).outcome is Outcome.NOT_AS_EXPECTED


@pytest.mark.parametrize("sold", [STOCK - 1, STOCK + 1])
def test_interlock_sells_exactly_the_stock(sold: int) -> None:
    assert (
        FlashSale().judge(sale(OURS, interlock=sold, hung=12, max_hold=60)).outcome is Outcome.NOT_AS_EXPECTED
    )
    assert (
        FlashSale().judge(sale(GUARDED, guard=60, script=60, counter=sold)).outcome is Outcome.NOT_AS_EXPECTED
    )


def test_a_hung_buyer_whose_lease_was_not_renewed_in_time_shows_nothing() -> None:
    assert FlashSale().judge(sale(OURS, interlock=60, hung=60, max_hold=60)).outcome is Outcome.CANNOT_SAY


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_strategies_are_a_table_on_a_terminal(language: Language) -> None:
    told = "\n".join(conclusion(result(), language, Output(None, None, json=False)))
    for key, name in FlashSale.strategies.items():
        assert (name.in_language(language) in told) is (key != "row"), told


def test_each_strategy_is_one_line_while_it_sells() -> None:
    out = StringIO()
    screen = screen_for(FlashSale(), Output(out, None, json=False), "en")
    for record in result().runs[OURS].records:
        screen.show(record)
    assert out.getvalue().splitlines()[2:] == [
        "   1.00 s  interlock: sold of 60: 60",
        "   1.00 s  interlock, a buyer hangs: sold of 60: 12",
        "   1.00 s  the same with max_hold: sold of 60: 60",
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_strategies_are_a_picture_for_other_pages(language: Language) -> None:
    text = drawn(result(), language)
    words = [found.text for found in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert FlashSale.strategies["no-lock"].in_language(language) in words
    assert "700" in words
    assert len([word for word in words if word in ("exactly", "正好")]) == 5
    assert "prefers-color-scheme: dark" in text


@pytest.mark.server
def test_naive_locks_oversell_and_interlock_does_not() -> None:
    found = played(FlashSale())
    assert found.outcome is Outcome.AS_EXPECTED, json.dumps(
        {name: one.text.en for name, one in found.findings.items()}
    )
    assert found.runs[GUARDED].measures("counter")["left"] < 0
