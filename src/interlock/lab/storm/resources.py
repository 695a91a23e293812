"""The names of the resources that a storm works on: what stands before the colon says which synchronizer is
used.
"""

from __future__ import annotations

from typing import Literal, get_args

Synchronizer = Literal["lock", "rlock", "rwlock", "semaphore", "election", "register"]
SYNCHRONIZERS: tuple[Synchronizer, ...] = get_args(Synchronizer)
NAMES = ("orders", "stock", "ledger")
CAPACITY = 3  # of the semaphores


def resources(synchronizer: Synchronizer) -> list[str]:
    """The resources for workers that use this synchronizer."""
    return list(NAMES) if synchronizer == "lock" else [f"{synchronizer}:{name}" for name in NAMES]


def synchronizer_of(resource: str) -> Synchronizer:
    """Which synchronizer a resource is for."""
    for one in SYNCHRONIZERS:
        if resource.startswith(f"{one}:"):
            return one
    return "lock"


def resource_of(key: str) -> str:
    """The resource to which a register belongs: each has many registers, one after the other."""
    return key.partition("/")[0]
