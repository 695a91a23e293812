"""The scenarios: rounds that workers repeat.

A round is one turn of one worker, written as a user would write it.
"""

from __future__ import annotations

from interlock.errors import AcquireTimeout, BrokenBarrier, LeaseLost
from interlock.testing.scenario_run import Scenario
from interlock.testing.scenarios import leases, register_based

SCENARIOS: dict[str, Scenario] = {
    "lock": Scenario(leases.lock),
    "cohort": Scenario(leases.cohort, processes=2, workers=6),
    "unfair": Scenario(leases.unfair, workers=1),
    "plain": Scenario(leases.plain, check=leases.notified_once, usual=(AcquireTimeout, LeaseLost)),
    "semaphore": Scenario(leases.semaphore),
    "rwlock": Scenario(leases.rwlock),
    "downgrade": Scenario(leases.downgrade),
    "rlock": Scenario(leases.rlock),
    "multilock": Scenario(leases.multilock),
    "election": Scenario(leases.election),
    "register": Scenario(register_based.register, workers=1, check=register_based.counted),
    "latch": Scenario(register_based.latch, workers=1, check=register_based.counted_down),
    "event": Scenario(register_based.event, close=register_based.raise_the_flag),
    "barrier": Scenario(register_based.barrier, processes=4, workers=1, usual=(BrokenBarrier,)),
    "condition": Scenario(register_based.condition, close=register_based.notify_everybody),
}

SESSION_SCENARIOS: dict[str, Scenario] = {**SCENARIOS, "forgotten": Scenario(leases.forgotten)}
"""Also what only sessions make hard: where claims lapse by themselves, a holder that forgets its lease
does no harm.
"""
