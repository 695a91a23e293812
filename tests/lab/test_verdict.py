"""The demo's judge says false when a claim is false: each test doctors a true run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from interlock.lab.demo.ledger import Write
from interlock.lab.demo.report import LEDGER, PRINTERS, Kind, Report
from interlock.lab.demo.verdict import Crash, Evidence, Nap, judged, overlaps


def report(kind: Kind, at: float, worker: str, token: int, resource: str = LEDGER) -> Report:
    return Report(kind, at, worker, resource, token, deadline=at + 1.0)


def true_run() -> Evidence:
    """Worker a writes; b is killed; c is paused from 4 to 8; d writes meanwhile; c's late write is refused."""
    return Evidence(
        ttl=2.0,
        workers=4,
        reports=[
            report("entered", 1.0, "a", 10),
            report("left", 1.5, "a", 10),
            report("entered", 2.0, "b", 20),
            report("entered", 3.9, "c", 30),
            report("entered", 6.0, "d", 40),
            report("left", 6.5, "d", 40),
            Report("left", 8.1, "c", LEDGER, 30, deadline=5.9),
            report("entered", 1.6, "a", 15, PRINTERS),
            report("entered", 1.7, "d", 16, PRINTERS),
            report("left", 2.1, "a", 15, PRINTERS),
            report("left", 2.2, "d", 16, PRINTERS),
        ],
        writes=[
            Write(1, "a", 10, 0, 1, True, 1, 10),
            Write(2, "d", 40, 1, 2, True, 2, 40),
            Write(3, "c", 30, 1, 2, False, 2, 40),
        ],
        crash=Crash("b", 20, 2.1),
        nap=Nap("c", 30, 4.0, 8.0),
    )


def verdicts(evidence: Evidence) -> dict[str, bool]:
    return {finding.text: finding.holds for finding in judged(evidence)}


def test_a_true_run_is_acquitted_in_sentences_with_its_numbers() -> None:
    told = verdicts(true_run())
    assert all(told.values())
    text = " ".join(told)
    assert "4 processes took the lock 4 times; 0 overlaps" in text
    assert "the queue went on after 1.8 s (ttl 2 s)" in text
    assert "c was paused for 4.0 s" in text
    assert "would have undone 1 update." in text


def overlap(evidence: Evidence) -> None:
    evidence.reports = [*evidence.reports, report("entered", 1.2, "d", 11), report("left", 1.4, "d", 11)]


def three_printers(evidence: Evidence) -> None:
    evidence.reports = [*evidence.reports, report("entered", 1.8, "c", 17, PRINTERS)]


def early_heir(evidence: Evidence) -> None:
    """d enters while c's lease, by c's own deadline, is still valid."""
    evidence.reports = [
        replace(r, at=5.5) if (r.kind, r.token) == ("entered", 40) else r for r in evidence.reports
    ]


def repeated_token(evidence: Evidence) -> None:
    evidence.reports = [*evidence.reports, report("entered", 9.0, "a", 40)]


def lost_update(evidence: Evidence) -> None:
    evidence.writes = [*evidence.writes, Write(4, "a", 50, 1, 2, True, 2, 50)]


def jammed_queue(evidence: Evidence) -> None:
    assert evidence.crash is not None
    evidence.crash = replace(evidence.crash, at=0.5)
    evidence.reports = [r for r in evidence.reports if r.at > 3.8]


def accepted_late_write(evidence: Evidence) -> None:
    evidence.writes = [*evidence.writes[:2], Write(3, "c", 30, 2, 3, True, 3, 40)]


def leftover(evidence: Evidence) -> None:
    evidence.left_behind = ["a claim on 'ledger'"]


def trouble(evidence: Evidence) -> None:
    evidence.trouble = ["it did not happen"]


@pytest.mark.parametrize(
    ("doctor", "convicted"),
    [
        (overlap, "One at a time"),
        (early_heir, "One at a time"),
        (three_printers, "The semaphore"),
        (repeated_token, "Tokens"),
        (lost_update, "No update was lost"),
        (jammed_queue, "b was killed"),
        (accepted_late_write, "c was paused"),
        (leftover, "Left behind"),
        (trouble, "it did not happen"),
    ],
)
def test_a_false_claim_is_convicted(doctor: Callable[[Evidence], None], convicted: str) -> None:
    evidence = true_run()
    doctor(evidence)
    assert any(text.startswith(convicted) for text, holds in verdicts(evidence).items() if not holds)


def test_a_run_without_any_grant_proves_nothing() -> None:
    assert not all(verdicts(Evidence(ttl=2.0, workers=4)).values())


def test_overlaps_counts_those_who_came_while_it_was_full() -> None:
    leases = [(0.0, 2.0, 1), (1.0, 3.0, 2), (1.5, 1.6, 3), (3.0, 4.0, 4)]
    assert overlaps(leases, 1) == (2, 3)
    assert overlaps(leases, 3) == (0, 3)
