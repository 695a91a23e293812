"""Who holds a claim, as the operator reads it: `worker-7 pid 211 MainThread (billing/run.py:88)`."""

from __future__ import annotations

from typing import Any

from interlock.record import record


@record
class Who:
    """A caller, packed into one line of JSON on its way through a store."""

    host: str = ""
    pid: int = 0
    thread: str = ""  # the name of the thread or task
    site: str = ""  # file:line of the call, outside interlock
    kind: str = ""  # the synchronizer, where the capacity of the claim does not tell it: "election"

    def pack(self) -> str:
        import json  # here, not above: `import interlock` stays light

        fields = [self.host, self.pid, self.thread, self.site, *([self.kind] if self.kind else [])]
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def parse(cls, packed: str) -> Who:
        """Read what `pack` wrote; a foreign claim that says nothing of the kind reads as unknown."""
        import json

        try:
            if not packed.startswith("["):  # a text in quotes could be taken apart, too
                return cls(host=packed)
            fields: list[Any] = json.loads(packed)
            host, pid, thread, site, *more = fields
            return cls(str(host), int(pid), str(thread), str(site), str(more[0]) if more else "")
        except (ValueError, TypeError):
            return cls(host=packed)

    def __str__(self) -> str:
        text = self.host or "unknown"
        if self.pid:
            text += f" pid {self.pid}"
        if self.thread:
            text += f" {self.thread}"
        if self.site:
            text += f" ({self.site})"
        return text
