"""Deliberate bugs in what the core does where claims live as long as their client's session."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, mutant


def simulated(names: str) -> Tests:
    return Tests("tests/simulation/test_sessions.py", names)


MUTANTS: list[Mutant] = [
    mutant(
        "a lost lease is left to its session",
        "others wait for a holder that forgot its lease for as long as the holder's program lives",
        (
            "_core/holding.py",
            'if self.client.sessions and lease._cause not in ("refused", "evicted", "session"):',
            "if False:",
        ),
        tests=simulated("our_own_clock"),
    ),
    mutant(
        "the deadline counts from the answer to a renewal",
        "a holder believes in its lease when the session has lapsed and another was let in",
        (
            "_core/lease.py",
            "self._extend(asked if answer.sent is None else answer.sent, answer.ttl)",
            "self._extend(self._runtime.now(), answer.ttl)",
        ),
        tests=simulated("slow_answer"),
    ),
    mutant(
        "a grant's ttl counts from the claim, though the session was kept long before",
        "a holder believes in its lease when the session has lapsed and another was let in",
        (
            "_core/attempt.py",
            "asked = self.asked if granted.sent is None else granted.sent",
            "asked = self.asked",
        ),
        tests=simulated("no_longer_than_the_session"),
    ),
    mutant(
        "the end of a session is told to nobody",
        "holders go on until each of their leases is refused or lapses by itself",
        (
            "_core/keeper.py",
            "            if ids is None or kept.id in ids:\n                kept._on_session_lost()",
            "            continue",
        ),
        tests=simulated("lost_at_once"),
    ),
    mutant(
        "a pending release ends with the ttl",
        "a claim whose release was not answered stands until its client's program ends",
        (
            "_core/removal.py",
            "until = FOR_EVER if client.sessions else due + claim.ttl",
            "until = due + claim.ttl",
        ),
        tests=simulated("not_answered"),
    ),
]
