"""The protocol of the quorum, searched whole within small bounds: what is shipped is safe, what must not be is found out.

With `dev.py test --full` the bounds are larger, and it takes minutes. `python -m interlock.lab.model`
prints the traces.
"""

from __future__ import annotations

import pytest

from interlock.lab.model import shipped
from interlock.lab.model.table import CASES, Case
from interlock.lab.model.variants import BROKEN, SHIPPED
from tests.full import FULL


@pytest.mark.timeout(7200 if FULL else 600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_search_finds_what_it_should(case: Case) -> None:
    found = case.search(FULL)
    assert not case.wrong(found)
    if found.crime:
        assert len(found.trace) >= 2, "a crime takes two"
        assert all(line for line in found.trace)


def test_every_rule_of_a_safe_variant_is_the_shipped_one() -> None:
    for variant in SHIPPED:
        assert variant.accept is shipped.accept
        assert variant.fill is shipped.fill
        assert variant.exceed is shipped.exceed
        assert variant.prune in (None, shipped.pruned)
        assert variant.usual in (None, shipped.usual)
        assert variant.admitted is shipped.admitted
    assert {variant.name for variant in BROKEN}.isdisjoint(variant.name for variant in SHIPPED)


def test_a_node_accepts_a_number_once() -> None:
    for seen in range(4):
        for ballot in range(1, 5):
            assert (shipped.accept(seen, 2, ballot, 2) is not None) == (ballot > seen)
            assert (shipped.usual(seen, 0, ballot) is not None) == (ballot > seen)
            assert shipped.fill(seen, ballot) == max(seen, ballot)
            assert shipped.pruned(ballot, seen) == max(seen, ballot)
            assert shipped.exceed(*shipped.admitted(ballot, seen)) == max(seen, ballot)
            assert shipped.admitted(ballot, seen)[0] == 0, "a usual vote could meet what was rolled back"
