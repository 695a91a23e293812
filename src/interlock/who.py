"""Describes the holder of a claim for operators: `worker-7 pid 211 MainThread (billing/run.py:88)`."""

from __future__ import annotations

from typing import Any

from interlock._support.printable import printable
from interlock._support.record import record

ELECTION = "election"


@record
class Who:
    """The process, thread or task, and call site that made a claim. A store keeps it as one line of JSON."""

    host: str = ""
    pid: int = 0
    thread: str = ""  # the name of the thread or task
    site: str = ""  # file:line of the call, outside interlock
    kind: str = ""  # the kind of lock, if the capacity of the claim does not tell it: ELECTION

    def pack(self) -> str:
        import json  # here, not above: `import interlock` stays light

        fields = [self.host, self.pid, self.thread, self.site, *([self.kind] if self.kind else [])]
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def parse(cls, packed: str) -> Who:
        """Read what `pack` has written. Any other text, from a foreign program, becomes the host."""
        import json

        try:
            if not packed.startswith("["):  # a JSON string could be unpacked into four fields, too
                return cls(host=packed)
            fields: list[Any] = json.loads(packed)
            host, pid, thread, site, *more = fields
            return cls(str(host), int(pid), str(thread), str(site), str(more[0]) if more else "")
        except (ValueError, TypeError, OverflowError, RecursionError):  # brackets within brackets, 1e999
            return cls(host=packed)

    def __str__(self) -> str:
        text = self.host or "unknown"
        if self.pid:
            text += f" pid {self.pid}"
        if self.thread:
            text += f" {self.thread}"
        if self.site:
            text += f" ({self.site})"
        return printable(text)  # other programs chose these words
