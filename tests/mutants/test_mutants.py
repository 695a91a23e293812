"""Deliberate bugs are noticed: each turns a test red that is green without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.full import FULL
from tests.mutants.all import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.run import attempt, copy_of_source, healthy, main


def test_there_are_enough_of_them_and_no_two_share_a_name() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 14


def test_every_one_of_them_fits_the_source(tmp_path: Path) -> None:
    """Each run plants one of two, so the others would be found to be stale much later."""
    source = copy_of_source(tmp_path)
    for one in MUTANTS:
        files = {edit.file: (source / "interlock" / edit.file).read_bytes() for edit in one.edits}
        for edit in one.edits:
            edit.plant(source)
        for file, content in files.items():
            (source / "interlock" / file).write_bytes(content)


@pytest.mark.soak  # in a usual run they are run as they stand
@pytest.mark.timeout(600)
def test_without_a_mutant_their_tests_are_green() -> None:
    assert healthy(MUTANTS) == []


# They judge the tests, which change less often than they run: each run takes one of two, and `dev.py test --full` all.
@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("one", MUTANTS if FULL else MUTANTS[::2], ids=lambda one: one.name)
def test_the_suite_notices(one: Mutant) -> None:
    result = attempt(one)
    assert result.verdict == "caught", f"{one.victim}\n{result.output[-3000:]}"


def test_a_mutant_that_fits_no_longer_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    one = MUTANTS[0]
    edit = replace(one.edits[0], old="no_such_code()")
    stale = Mutant("stale", "nobody", (edit,), one.tests)
    assert attempt(stale).verdict == "DOES NOT FIT"
    assert main(["no such mutant"]) == 2
    assert "no mutant has such a name" in capsys.readouterr().out
