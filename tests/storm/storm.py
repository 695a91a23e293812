"""A storm: workers at work, a director that breaks things by a seed, peace, and the verdict."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import interlock
from interlock._support import clock
from interlock.errors import InterlockError
from interlock.testing.lag import stretched
from tests.storm.crew import Crew, Hand
from tests.storm.faults import FAULTS, Fault
from tests.storm.field import field
from tests.storm.guard import GuardProcess
from tests.storm.journal import Journal
from tests.storm.verdict import Verdict, verdict

KEYS_LEFT = 20  # what servers may keep once all is idle: counters and marks, not one a name


class Scene:
    """Servers of one kind, a guarded resource, a crew and the director's journal, in a folder of their own."""

    def __init__(self, kind: str, ttl: float, started: Any = None, prefix: str = "") -> None:
        self.folder = Path(mkdtemp(prefix="interlock-storm-"))
        self.ttl = ttl
        self.field = started or field(kind)
        self.settles = stretched(self.field.settles)
        self.journal = Journal(self.folder / "director.jsonl", "director")
        self.guard = GuardProcess(self.folder)
        self.crew = Crew(self.folder, self.guard.path, self.journal, ttl)
        self.resources = [prefix + name for name in RESOURCES]
        self.thinks = THINKS
        self._faults = 0

    def hire(self, kind: str = "sync", place: int = 0, ahead: float = 0.0) -> Hand:
        return self.crew.hire(kind, self.field.places()[place], ahead)

    def strike(self, fault: Fault, chance: Random) -> None:
        """Let it happen; the history says when it began and when it had healed, and what is promised meanwhile."""
        promise = fault.promise() if callable(fault.promise) else fault.promise
        with self.suffering(fault.name, promise):
            fault.strike(self.field, self.crew, chance)

    @contextmanager
    def suffering(self, name: str, promise: str) -> Iterator[None]:
        self._faults += 1
        said: dict[str, Any] = {"attempt": f"fault-{self._faults}", "error": f"{promise}: {name}"}
        self.journal.add("fault", "invoke", **said)
        yield
        self.journal.add("fault", "ok", **said)

    def await_counts(self, resources: list[str], patience: float) -> float | None:
        """Seconds until each counter was written again; None when not all were within `patience`."""
        began, before = clock.now(), self.guard.counters.counts()
        while clock.now() < began + patience:
            after = self.guard.counters.counts()
            if all(after.get(name, 0) > before.get(name, 0) for name in resources):
                return clock.now() - began
            time.sleep(0.02)
        return None

    def finish(self) -> None:
        """All workers end in good order; then nothing may be left on the servers."""
        for hand in self.crew.hands:
            hand.send("stop")
        for hand in list(self.crew.hands):
            answer = hand.answer()
            while "over" not in answer:
                answer = hand.answer()
            hand.close()
        self._look_at_servers()

    def _look_at_servers(self) -> None:
        with interlock.connect(self.field.places()[0], ttl=self.ttl) as client:
            until = clock.now() + 5 * self.ttl + 60.0  # what the dead left lapses, places too
            while (left := self._standing(client)) and clock.now() < until:
                time.sleep(0.1)
        if left:
            self.journal.add("left", "fail", error=left)

    def _standing(self, client: interlock.Client) -> str:
        try:
            names = list(client.scan(""))
        except InterlockError as error:
            return repr(error)
        if names:
            return f"claims stand on {names}"
        keys = self.field.keys()
        return f"{keys} keys are on a server" if keys > KEYS_LEFT else ""

    def verdict(self, resources: list[str], progress: float) -> Verdict:
        return verdict(self.folder, self.ttl, progress, resources)

    def close(self) -> None:
        self.crew.close()
        self.guard.close()
        self.field.close()
        self.journal.close()

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def scene(kind: str, ttl: float = 1.0) -> Iterator[Scene]:
    """A scene that is gone afterwards, and with it its history."""
    made = Scene(kind, ttl)
    try:
        made.field.start()
        yield made
    finally:
        made.close()
        made.forget()


RESOURCES = ["orders", "stock", "ledger"]
LIMITS = [0.3, 1.5, 4.0]
THINKS = 0.012  # seconds for which a worker holds a lock at most
THINKS_LONGER = 0.06  # in a short storm: as many wait when a fault strikes, and a third of the grants costs a third of the computing
CREW = (("sync", 1), ("async", 2), ("sync", 1), ("async", 2))
CLOCKS = (
    0.0,
    -3600.0,
    7.0,
    -0.5,
)  # how wrong the workers' wall clocks are, where a compiler is needed anyhow


def set_to_work(made: Scene, seed: int, hands: list[Hand], size: int = 1) -> None:
    for hand in hands:
        order: dict[str, Any] = {"resources": made.resources, "limits": LIMITS, "thinks": made.thinks}
        hand.tell("loop", seed=f"storm-{seed}", hands=size, **order)


def hire_all(made: Scene, seed: int) -> None:
    places = made.field.places()
    made.crew.resources = made.resources
    wrong = made.field.kind == "redlock"  # whose tokens begin with the clients' clocks
    for number, (kind, size) in enumerate(CREW):
        way = number // 2 % len(places)  # one of each colour on each
        hand = made.hire(kind, way, CLOCKS[number] if wrong else 0.0)
        set_to_work(made, seed, [hand], size)


def rage(
    made: Scene,
    seed: int,
    grants: int,
    faults: int,
    say: Callable[[str], object] = lambda text: None,
    *,
    once: bool = False,
) -> Verdict:
    """`faults` faults, one after the other, and work until there are `grants` counted updates; then the verdict.

    They come by their weights, or each `once`, in a short storm whose workers take their time.
    """
    made.thinks = THINKS_LONGER if once else THINKS
    chance = Random(seed)
    choice = FAULTS[made.field.kind]
    progress = made.ttl + made.settles
    if hasattr(made.field, "watch"):
        made.field.watch(made.journal)
    hire_all(made, seed)
    made.await_counts(made.resources, progress)
    deck: list[Fault] = []
    for number in range(1, faults + 1):
        if not deck:  # every kind in turn, in an order of the seed's: chance alone would leave some out
            deck = [fault for fault in choice for _ in range(1 if once else fault.weight)]
            chance.shuffle(deck)
        fault = deck.pop()
        known = {hand.name for hand in made.crew.hands}
        made.strike(fault, chance)
        set_to_work(made, seed, [hand for hand in made.crew.hands if hand.name not in known])
        took = made.await_counts(made.resources, progress + fault.slow)
        done = sum(made.guard.counters.counts().values())
        say(
            f"{number:4}/{faults} {fault.name:24} all on again after {took or float('nan'):5.2f} s; {done} updates"
        )
        time.sleep(chance.uniform(0.0, 0.3))
    made.journal.add("heal", "ok")
    _work_on(made, grants, say)
    made.finish()
    return made.verdict(made.resources, progress + max(fault.slow for fault in choice))


def _work_on(made: Scene, grants: int, say: Callable[[str], object]) -> None:
    """In peace, for as long as updates are missing, and for a moment at least."""
    until = clock.now() + 1.0
    stuck = clock.now() + 600.0
    while (done := sum(made.guard.counters.counts().values())) < grants or clock.now() < until:
        assert clock.now() < stuck, f"{done} of {grants} updates after ten minutes of peace"
        time.sleep(0.1)
    say(f"peace: {done} updates")
