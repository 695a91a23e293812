"""What scenarios with many waiters have in common: how they are started, and what is measured of them.

One client holds while groups of waiters come, one group after the other. Then it lets go, and each waiter
enters once. Counted are the requests that the servers receive, and who overtakes whom.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any, ClassVar

import interlock
from interlock._support import clock
from interlock.lab.judge import Run
from interlock.lab.scenario import NAIVE, Measure, Scenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import KEY, Me
from interlock.lab.worker_process import WorkerProcess

FIRST = "first"  # who holds while the others come
GROUPS = 4

MEASURES = {
    "requests": Measure(Text("requests for each hand-over", "每次交接的请求数")),
    "overtaken": Measure(Text("pairs that entered in the wrong order", "进入顺序颠倒的对数")),
    "median": Measure(Text("a hand-over takes (median)", "一次交接的时间（中位数）"), "s"),
}
SLOWEST = Measure(Text("the slowest hand-over", "最慢的一次交接"), "s")


def ours(me: Me) -> None:
    def wait(one: Me) -> None:  # each of many
        client = one.interlock()
        one.begins()
        with client.lock("report") as lease, one.inside(lease):
            one.think()

    me.in_crowd(wait)


class CrowdScenario(Scenario):
    """A scenario with many waiters, in several processes."""

    waiters: ClassVar[int] = 60
    works: ClassVar[float] = 0.002
    """Seconds that each holds."""
    measures = MEASURES
    measured = tuple(MEASURES)
    guarded = ()

    @abstractmethod
    def client(self, stage: Stage, name: str, *stops_at: str, **settings: Any) -> WorkerProcess:
        """A process with so many `waiters`."""

    @abstractmethod
    def url(self, stage: Stage) -> str:
        """Where interlock keeps the queue."""

    @abstractmethod
    def received(self, stage: Stage) -> int:
        """How many requests the servers have received so far."""

    def while_they_wait(self, stage: Stage) -> None:
        """Everybody waits now, and nothing moves."""

    def play(self, stage: Stage) -> None:
        first = self.client(stage, FIRST, "thinking", thinks=self.works)
        groups = [
            self.client(stage, f"g{number}", waiters=self.waiters // GROUPS, thinks=self.works)
            for number in range(1, GROUPS + 1)
        ]
        first.go()
        first.reach("thinking")
        with self.counting(stage) as standing:
            for number, group in enumerate(groups, 1):
                group.go()
                stage.until(partial(_is, standing, 1 + number * self.waiters // GROUPS))
        self.while_they_wait(stage)
        before = self.received(stage)
        first.go()
        stage.finish()
        requests = (self.received(stage) - before) / self.waiters
        handed = hand_overs(stage)
        for name, amount in (
            ("requests", requests),
            ("overtaken", overtakings(stage)),
            ("median", median(handed)),
            ("slowest", max(handed)),
        ):
            stage.add("measure", "ok", attempt=name, amount=float(amount))

    @contextmanager
    def counting(self, stage: Stage) -> Iterator[Callable[[], int]]:
        """How many have asked for the lock; where there is a queue, how many stand in it."""
        if stage.naive:
            yield lambda: sum(record.call == "acquire" for record in stage.history())
            return
        with interlock.connect(self.url(stage)) as client:
            yield lambda: len(client.inspect(KEY).standings)

    def rate(self, stage: Stage, name: str, ttls: float) -> None:
        """Measure how many requests come in a second while nothing moves."""
        before, began = self.received(stage), clock.now()
        stage.lapse(ttls)
        amount = (self.received(stage) - before) / (clock.now() - began)
        stage.add("measure", "ok", attempt=name, amount=amount)

    def all_entered(self, run: Run) -> bool:
        """Whether each entered once, and never two at once."""
        grants = [record.process for record in run.records if record.call == "grant"]
        return len(set(grants)) == len(grants) == 1 + self.waiters and not run.two_at_work

    def verdict(self, run: Run) -> Text:
        found = run.measures()
        if "requests" not in found:
            return run.verdict()
        requests, overtaken = found["requests"], int(found["overtaken"])
        order = (
            Text(f"and {overtaken:,} pairs entered in the wrong order", f"有 {overtaken:,} 对顺序颠倒")
            if overtaken or run.name == NAIVE
            else Text("in the order in which they came", "按到达的先后进入")
        )
        return Text(
            f"{requests:.1f} requests for each hand-over, {order.en}.",
            f"每次交接 {requests:.1f} 个请求，{order.zh}。",
        )


class HerdScenario(CrowdScenario):
    """Everybody watches the same thing, and everybody is woken by each release."""

    ttl = 10.0
    waiters = 40
    works = 0.06  # seconds: the herd has settled before the next release

    def naive_failed(self, run: Run) -> bool | None:
        return run.measures().get("requests", 0.0) > self.waiters / 2

    def ours_survived(self, run: Run) -> bool | None:
        found = run.measures()
        if not self.all_entered(run) or found.get("overtaken", 1.0) > 0:
            return False
        return found["requests"] < self.waiters / 2


def hand_overs(stage: Stage) -> list[float]:
    """Seconds from the end of each body to the next grant."""
    grants = sorted(record.time for record in stage.records if record.call == "grant")
    ends = sorted(record.time for record in stage.records if record.call == "body")
    return [max(0.0, entered - left) for left, entered in zip(ends, grants[1:], strict=False)]


def overtakings(stage: Stage) -> int:
    """How many pairs of two groups entered in the wrong order; the second group came later."""
    entered = sorted((record.time, record.process) for record in stage.records if record.call == "grant")
    groups = [name.partition(".")[0] for _, name in entered if name != FIRST]
    return sum(earlier > later for index, earlier in enumerate(groups) for later in groups[index + 1 :])


def _is(count: Callable[[], int], number: int) -> bool:
    return count() == number
