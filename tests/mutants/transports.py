"""Deliberate bugs in the transports of Redlock and Redis: in the shortcuts that every pair takes."""

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
]
