"""Who holds a claim, as the operator reads it: `worker-7 pid 211 MainThread (billing/run.py:88)`."""

from __future__ import annotations

from interlock.record import record


@record
class Who:
    """A caller, packed into one line of JSON on its way through a store."""

    host: str = ""
    pid: int = 0
    thread: str = ""  # the name of the thread or task
    site: str = ""  # file:line of the call, outside interlock

    def pack(self) -> str:
        import json  # here, not above: `import interlock` stays light

        return json.dumps([self.host, self.pid, self.thread, self.site], ensure_ascii=False)

    @classmethod
    def parse(cls, packed: str) -> Who:
        """Read what `pack` wrote; a foreign claim that says nothing of the kind reads as unknown."""
        import json

        try:
            host, pid, thread, site = json.loads(packed)
            return cls(str(host), int(pid), str(thread), str(site))
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
