"""Deliberate bugs in how Redlock and Redis are asked: in the shortcuts that every pair takes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, mutant

MUTANTS: list[Mutant] = [
    mutant(
        "redis, asyncio: a request overtakes those that wait for the end of the turn",
        "replies are matched in order, so tasks get each other's answers",
        (
            "backends/redis/transport/multiplexed.py",
            "if not pending:  # as",
            "if len(pending) != 1:  # as",
        ),
        tests=Tests("tests/redis/test_multiplexed_order.py"),
    ),
    mutant(
        "redlock: a release does not see who waits",
        "a waiter of redis:// on a node of the quorum sleeps on, for up to ten seconds",
        (
            "backends/redlock/wire/packing.py",
            "self.keys.waiters_keys(request.resource)",
            "self.keys.holder_keys(request.resource)",
        ),
        tests=Tests("tests/redlock/test_scripts.py", "refuses_to_hand"),
    ),
]
