"""Which function runs which step of `interlock.backends.sql.steps`, inside a transaction on the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from interlock.backends.sql import steps
from interlock.backends.sql.sqlite.tables import claims, reading, registers
from interlock.backends.sql.sqlite.tables.sweep import sweep
from interlock.backends.sql.steps import Rows

Work: TypeAlias = Callable[..., Rows]
"""Takes the transaction and the arguments of the step."""

READS: dict[str, Work] = {
    steps.QUEUE: reading.queue,
    steps.NAMES: reading.names,
    steps.READ: registers.read,
}

WRITES: dict[str, Work] = {
    steps.CLAIM: claims.claim,
    steps.RELEASE: claims.release,
    steps.RENEW: claims.renew,
    steps.EVICT: claims.evict,
    steps.WRITE: registers.write,
    steps.WATCH: registers.watch,
    steps.SWEEP: sweep,
}

NUMBERED = frozenset({steps.CLAIM, steps.WRITE})
"""These give a token or a version; they are told the lowest one that the clock allows, before their
arguments.
"""
