"""Deliberate bugs in what the core does where claims live as long as their client's session."""

from __future__ import annotations

from tests.mutants.mutant import Code, Mutant, Tests, mutant


def simulated(names: str) -> Tests:
    return Tests("tests/simulation/test_sessions.py", names)


MUTANTS: list[Mutant] = [
    mutant(
        "a lost lease is left to its session",
        "others wait for a holder that forgot its lease for as long as the holder's program lives",
        Code(
            "_core/holding.py",
            "Holding.lost",
            "if lease._cause == 'refused' or (session is not None and session.carries_on(lease)):\n    ...",
            "if lease._cause == 'refused':\n    ...",
        ),
        tests=simulated("our_own_clock"),
    ),
    mutant(
        "a lease that the store refuses leaves its claim where it is",
        "a claim that only waits is let in for nobody, and keeps the others out for a whole ttl",
        Code(
            "_core/holding.py",
            "Holding.lost",
            "if lease._cause == 'refused' or (session is not None and session.carries_on(lease)):\n    ...",
            "if session is not None and session.carries_on(lease):\n    ...",
        ),
        tests=Tests("tests/conformance/test_memory.py", "only_waits_loses"),
    ),
    mutant(
        "the deadline counts from the answer to a renewal",
        "a holder believes in its lease when the session has lapsed and another was let in",
        Code(
            "_core/lease.py",
            "Lease._on_reply",
            "self._extend(asked if answer.sent is None else answer.sent, answer.ttl)",
            "self._extend(self._runtime.now(), answer.ttl)",
        ),
        tests=simulated("slow_answer"),
    ),
    mutant(
        "a grant's ttl counts from the claim, though the session was kept long before",
        "a holder believes in its lease when the session has lapsed and another was let in",
        Code(
            "_core/lease.py",
            "Lease.__init__",
            "self._counts_from = self._last_try = counts_from = asked if granted.sent is None else granted.sent",
            "self._counts_from = self._last_try = counts_from = asked",
        ),
        tests=simulated("no_longer_than_the_session"),
    ),
    mutant(
        "the end of a session is told to nobody",
        "holders go on until each of their leases is refused or lapses by itself",
        Code(
            "_core/session.py",
            "Session.lose",
            "if ids is None or kept.id in ids:\n    kept._on_session_lost()",
            "continue",
        ),
        tests=simulated("lost_at_once"),
    ),
    mutant(
        "a pending release ends with the ttl",
        "a claim whose release was not answered stands until its client's program ends",
        Code(
            "_core/removal.py",
            "release_later",
            "until = due + claim.ttl if client.session is None else FOR_EVER",
            "until = due + claim.ttl",
        ),
        tests=simulated("not_answered"),
    ),
    mutant(
        "a place whose waiter has ended is left to its session",
        "others wait behind a place of nobody for as long as its client's program lives",
        Code(
            "_core/session.py",
            "Session.left_behind",
            "if not kept._left_behind():\n    ...",
            "if True:\n    ...",
        ),
        tests=Tests("tests/attacks/test_sessions.py", "waiter_that_has_ended"),
    ),
    mutant(
        "a session that is shortened shortens no lease",
        "a holder believes in its lease when the servers have ended the session, and another was let in",
        Code("_core/session.py", "Session.shorten", "lease._on_session_shortened(since, seconds)", "pass"),
        tests=Tests("tests/attacks/test_sessions.py", "shortens_its_leases"),
    ),
    mutant(
        "an answer from before the session was shortened counts",
        "a holder believes in its lease when the servers have ended the session, and another was let in",
        Code(
            "_core/session.py",
            "Session.bound",
            "if shortened is not None and asked < shortened.found:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/attacks/test_sessions.py", "an_answer_from_before"),
    ),
    mutant(
        "a grant from before the session was shortened counts",
        "a holder believes in its lease when the servers have ended the session, and another was let in",
        Code(
            "_core/session.py",
            "Session.adapt",
            "if shortened is not None and lease._counts_from < shortened.found:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/attacks/test_sessions.py", "a_grant_that_arrives"),
    ),
]
