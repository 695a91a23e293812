"""A worker's reports to the director: one line of JSON for each thing it did, the moment it did it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal["ready", "entered", "read", "left", "refused", "failed"]

LEDGER = "ledger"  # the resource under a lock
PRINTERS = "printers"  # the resource under a semaphore
CAPACITY = 2


@dataclass(frozen=True, slots=True)
class Report:
    """One thing a worker did. Times are of one clock, the same for all processes of the machine."""

    kind: Kind
    at: float
    worker: str
    resource: str = ""
    token: int = 0
    deadline: float = 0.0  # left: when the lease ended at the latest, as its holder knew it
    text: str = ""

    def pack(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> Report:
        return cls(**json.loads(line))
