"""The demo's three acts: a rush for the lock, a holder that crashes, a holder that is paused.

The director only looks at the store, at the ledger and at what the workers report. It waits for facts, each
with a limit; what does not happen in time is a finding, not a hang.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from interlock._support import clock
from interlock.blocking import connect
from interlock.lab.demo.crew import CAN_PAUSE, Crew, Member
from interlock.lab.demo.ledger import Ledger, Write, free
from interlock.lab.demo.pace import Pace
from interlock.lab.demo.report import LEDGER, PRINTERS, Report
from interlock.lab.demo.scene import Scene, Sleeper
from interlock.lab.demo.screen import Screen
from interlock.lab.demo.verdict import Crash, Evidence, Nap

WORKERS = 6


class DidNotHappen(Exception):
    """Something the demo waited for did not come about in time."""


class Story:
    """Tells it once, in a folder of its own."""

    def __init__(self, folder: Path, pace: Pace, screen: Screen) -> None:
        self.pace = pace
        self.screen = screen
        self.locks = str(folder / "locks.db")
        url = "sqlite:///" + self.locks
        self.client = connect(url, ttl=pace.ttl, log=False)
        self.ledger = Ledger(str(folder / "ledger.db"))
        self.crew = Crew(folder, url, self.ledger.path, pace)
        self.evidence = Evidence(pace.ttl, WORKERS)
        self.reports: list[Report] = []
        self.writes: list[Write] = []
        self.began = clock.now()
        self.act = ""
        self.text = ""
        self.sleeper: Sleeper | None = None
        self._next_frame = 0.0

    def tell(self) -> Evidence:
        """Run all acts and return what can be known about them."""
        trouble: list[str] = []
        try:
            self.ledger.create()
            self.crew.start(WORKERS)
            self.until(lambda: len(self.heard("ready")) == WORKERS, "all workers started")
            self.rush()
            self.crash()
            self.nap()
            self.finish()
        except DidNotHappen as failure:
            trouble = [str(failure)]
        self.evidence.trouble = [*trouble, *self.crew.failures()]
        self.evidence.reports, self.evidence.writes = self.reports, self.writes
        return self.evidence

    def close(self) -> None:
        """End every process, whatever happened."""
        self.crew.end()
        self.client.close()

    # ---- the acts ------------------------------------------------------------------

    def rush(self) -> None:
        self.begin(
            f"act 1 of 3: {WORKERS} processes, one lock, one semaphore",
            "Each worker takes the lock, reads the balance, thinks, writes balance + 1, and then prints a "
            "page under the semaphore. All they share is one SQLite file.",
        )
        self.watch(self.pace.rush)
        self.until(lambda: len(self.writes) >= WORKERS, "a few writes were made")

    def crash(self) -> None:
        self.begin("act 2 of 3: the holder crashes", "Waiting for a worker that holds the lock ...")
        victim, token = self.frozen_holder()
        self.evidence.crash = crash = Crash(victim.name, token, clock.now())
        victim.kill()
        victim.fate = "killed"
        self.narrate(
            f"{victim.name} was killed (kill -9) while it held the lock. Nobody releases its lease. Where "
            "the kernel can tell that it is dead (Linux) the next is let in at once; elsewhere at the "
            f"latest {self.pace.ttl:g} s after its last renewal."
        )
        self.until(lambda: self.next_grant(crash.at) is not None, "the queue went on after the crash")
        heir = self.next_grant(crash.at)
        assert heir is not None
        self.narrate(
            f"After {heir.at - crash.at:.1f} s the queue went on by itself: {heir.worker} got the lock."
        )
        self.watch(self.pace.read)

    def nap(self) -> None:
        if not CAN_PAUSE:
            self.narrate("This system cannot stop a process: the third act is left out.")
            return
        self.begin("act 3 of 3: the holder is paused", "Waiting for a worker that holds the lock ...")
        victim, token = self.frozen_holder()
        paused = clock.now()
        victim.fate = "paused"
        self.sleeper = Sleeper(victim.name, token)
        self.narrate(
            f"{victim.name} was stopped (SIGSTOP) between its read and its write, as by a frozen virtual "
            "machine or a long garbage collection. It cannot renew, and cannot know that time passes."
        )
        self.until(lambda: self.written_after(token), "another worker wrote meanwhile")
        self.narrate(
            f"The lease lapsed, and others have written, with higher tokens. {victim.name} still believes "
            "that it holds the lock. In a moment it is resumed (SIGCONT) ..."
        )
        self.watch(self.pace.read)
        self.evidence.nap = Nap(victim.name, token, paused, clock.now())
        victim.fate, self.sleeper = "", None
        victim.thaw()
        self.until(lambda: self.refused(token), "the late write reached the ledger")
        self.narrate(
            "... and its next line is the late write. The ledger compares tokens in its own update: "
            "StaleToken, refused. No lease can prevent such a write; the token, checked at the resource, "
            "does."
        )
        self.watch(self.pace.read * 1.5)

    def finish(self) -> None:
        self.begin("the end", "The workers finish their round and go.")
        if not self.crew.dismiss(self.pace.longest_wait):
            raise DidNotHappen("the workers did not end when they were told to")
        self.watch(0.2)
        self.evidence.left_behind = [f"a claim on {name!r}" for name in self.client.scan()]

    def frozen_holder(self) -> tuple[Member, int]:
        """Stop a worker between its read and its write, with no transaction open."""
        until = clock.now() + self.pace.longest_wait
        while clock.now() < until:
            report = self.listen()
            if report is None or report.kind != "read":
                continue
            member = self.crew.members[report.worker]
            if not CAN_PAUSE:
                return member, report.token
            member.freeze()
            if self.holds(member, report.token):
                return member, report.token
            member.thaw()  # too late, or in the middle of a transaction: the next one, then
        raise DidNotHappen("no worker could be met between its read and its write")

    def holds(self, member: Member, token: int) -> bool:
        holders = [standing.token for standing in self.client.inspect(LEDGER).holders]
        written = any(write.token == token for write in self.ledger.log())
        return holders == [token] and not written and free(self.locks) and free(self.ledger.path)

    # ---- what is known -----------------------------------------------------------------

    def heard(self, kind: str) -> list[Report]:
        return [report for report in self.reports if report.kind == kind]

    def next_grant(self, after: float) -> Report | None:
        entered = (r for r in self.heard("entered") if r.resource == LEDGER and r.at > after)
        return next(entered, None)

    def written_after(self, token: int) -> bool:
        return sum(write.accepted and write.token > token for write in self.writes) >= 2

    def refused(self, token: int) -> bool:
        return any(write.token == token for write in self.writes)

    # ---- telling it ---------------------------------------------------------------------

    def begin(self, act: str, text: str) -> None:
        self.act = act
        self.screen.tell(self.elapsed(), f"-- {act}")
        self.narrate(text)

    def narrate(self, text: str) -> None:
        self.text = text
        self.screen.tell(self.elapsed(), text)
        self.draw()

    def elapsed(self) -> float:
        return clock.now() - self.began

    def watch(self, seconds: float) -> None:
        """Let things go on for a while."""
        until = clock.now() + seconds
        while clock.now() < until:
            self.listen()

    def until(self, fact: Callable[[], bool], what: str) -> None:
        """Let things go on until something is the case."""
        limit = clock.now() + self.pace.longest_wait
        while not fact():
            if clock.now() >= limit:
                raise DidNotHappen(f"it did not happen within {self.pace.longest_wait:.0f} s that {what}")
            if self.crew.failures():
                raise DidNotHappen(f"a worker failed before {what}")
            self.listen()

    def listen(self) -> Report | None:
        """Take in the next report, if there is one before the next picture is due."""
        report = self.crew.hear(self._next_frame - clock.now())
        if report is not None:
            self.reports.append(report)
            if report.kind == "left" and report.resource == LEDGER:
                self.read_ledger()
        if clock.now() >= self._next_frame:
            self.read_ledger()
            self.draw()
        return report

    def read_ledger(self) -> None:
        for write in self.ledger.log(after=self.writes[-1].seq if self.writes else 0):
            self.writes.append(write)
            outcome = "accepted" if write.accepted else "REFUSED (StaleToken)"
            asks = f"{write.worker} writes {write.was} -> {write.becomes} with token {write.token}"
            self.screen.tell(self.elapsed(), f"   {asks}: {outcome}")

    def draw(self) -> None:
        self._next_frame = clock.now() + self.pace.frame
        last = self.writes[-1] if self.writes else None
        self.screen.draw(
            Scene(
                self.act,
                self.text,
                self.elapsed(),
                self.pace,
                self.client.inspect(LEDGER),
                self.client.inspect(PRINTERS),
                {member.name: member.fate for member in self.crew.members.values()},
                self.sleeper,
                last.balance if last else 0,
                last.highest if last else 0,
                self.writes,
            )
        )
