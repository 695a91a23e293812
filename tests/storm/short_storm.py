"""A short storm for every run: as many faults as a minute has room for, in an order of the seed's; all with --full."""

from __future__ import annotations

from interlock.lab.storm.director import Storm, rage, scene
from interlock.lab.storm.resources import Synchronizer
from interlock.testing.lag import stretched
from tests.full import FULL


def assert_nothing_forbidden(
    kind: str, ttl: float, faults: int, grants: int = 60, synchronizer: Synchronizer = "lock"
) -> None:
    """Let a storm take place, and find nothing that must never happen."""
    with scene(kind, stretched(ttl)) as made:
        count = len(made.field.faults) if FULL else faults
        storm = Storm(seed=1, synchronizer=synchronizer, faults=count, grants=grants, once=True)
        verdict = rage(made, storm)
        assert not verdict.rules, str(verdict)
        assert verdict.numbers["faults"] == count
