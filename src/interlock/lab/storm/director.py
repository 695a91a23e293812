"""A storm: workers at work, a director that breaks things by a seed, peace, and the verdict.

The director joins the parts, which do not know each other: the `schedule` says which fault comes next,
`faults` breaks servers and clients, `workers` work, and the `verdict` reads what all of them wrote.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import interlock
from interlock._support import clock
from interlock.errors import InterlockError
from interlock.lab.child_process import program_environment
from interlock.lab.resource import ResourceClient
from interlock.lab.storm.deployments import deployment
from interlock.lab.storm.faults.fault import CONNECT_S, Deployment, Fault
from interlock.lab.storm.resources import Synchronizer, resources
from interlock.lab.storm.schedule import drawn
from interlock.lab.storm.verdict import StormTerms, Verdict, verdict
from interlock.lab.storm.workers.crew import Crew, Worker
from interlock.testing.history import Record, read
from interlock.testing.journal import Journal
from interlock.testing.lag import stretched
from interlock.testing.servers.clock import shim
from interlock.testing.servers.process import FaultUnavailable, start_program

KEYS_LEFT = 20  # what servers may keep once all is idle: counters and marks, not one a name
REGISTERS_A_SECOND = 2  # that workers use one after the other, and whose deletion stays readable for a minute
LIMITS = [0.3, 1.5, 4.0]
THINKS_S = 0.012  # for which a worker holds a lock at most
THINKS_LONGER_S = (
    0.06  # in a short storm: as many wait when a fault strikes, and it costs a third of the computing
)
PEACE_S = 1.0  # that workers work on once the last fault has healed
CREW = (("sync", 1), ("async", 2), ("sync", 1), ("async", 2))
CLOCKS = (0.0, -3600.0, 7.0, -0.5)  # how wrong the workers' wall clocks are where tokens begin with them


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a storm is."""

    grants: int
    faults: int
    last: str = ""
    """The fault that happened last."""
    pause: float | None = None
    """Seconds until every resource was granted again after it; None if not all were."""


@dataclass(slots=True)
class Storm:
    """What is asked for: faults one after the other, until there are enough of them, or for some time."""

    seed: int = 1
    synchronizer: Synchronizer = "lock"
    faults: int | None = None
    seconds: float | None = None
    grants: int = 0
    """Work goes on in peace until there are so many."""
    once: bool = False
    """Each fault once, and workers that take their time: a short storm."""
    watching: Callable[[Progress], object] = field(default=lambda progress: None)

    def chosen(self, faults: Sequence[Fault], chance: Random) -> Iterator[Fault]:
        end = clock.now() + (float("inf") if self.seconds is None else self.seconds)
        for fault in islice(drawn(faults, chance, once=self.once), self.faults):
            if clock.now() >= end:
                return
            yield fault


class Scene:
    """Servers of one kind, a guarded resource, a crew and the director's journal, in a folder of its own."""

    def __init__(self, kind: str, ttl: float) -> None:
        self.folder = Path(mkdtemp(prefix="interlock-storm-"))
        self.ttl = ttl
        self.field: Deployment = deployment(kind)
        self.settles = stretched(self.field.settles)
        self.tolerance = stretched(0.25) + CONNECT_S
        self.journal = Journal(self.folder / "director.jsonl", "director")
        self.guard = GuardProcess(self.folder)
        self.crew = Crew(self.folder, self.guard.path, self.journal, ttl)
        self._faults = 0
        self._judged_by: StormTerms | None = None
        self._began = clock.now()

    def hire(self, kind: str = "sync", place: int = 0) -> Worker:
        return self.crew.hire(kind, self.field.places()[place])

    def strike(self, fault: Fault, chance: Random) -> None:
        """Let it happen; the history says when it began and when it had healed, and what is promised."""
        with self.suffering(fault.name, fault.promised()):
            fault.strike(self.field, self.crew, chance)

    @contextmanager
    def suffering(self, name: str, promise: str) -> Iterator[None]:
        self._faults += 1
        said: dict[str, Any] = {"attempt": f"fault-{self._faults}", "error": f"{promise}: {name}"}
        self.journal.add("fault", "invoke", **said)
        yield
        self.journal.add("fault", "ok", **said)

    def grants(self) -> int:
        """How often anybody was let in, or wrote a register, so far."""
        return sum(self.guard.counters.counts().values())

    def await_counts(self, names: Sequence[str], patience: float) -> float | None:
        """Seconds until each counter was written again; None when not all were within `patience`."""
        began, before = clock.now(), self.guard.counters.counts()
        while clock.now() < began + patience:
            after = self.guard.counters.counts()
            if all(after.get(name, 0) > before.get(name, 0) for name in names):
                return clock.now() - began
            time.sleep(0.02)
        return None

    def finish(self) -> None:
        """All workers end in good order; then nothing may be left on the servers."""
        self.crew.dismiss()
        with interlock.connect(self.field.places()[0], ttl=self.ttl, log=False) as client:
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
        keys, most = self.field.keys(), KEYS_LEFT
        if any(name.startswith("register:") for name in self.crew.resources):
            most += int(REGISTERS_A_SECOND * (clock.now() - self._began))
        return f"{keys} keys are on a server" if keys > most else ""

    def history(self) -> list[Record]:
        """What all processes wrote, in the order of time."""
        return read(sorted(self.folder.glob("*.jsonl")))

    def terms(self, names: Sequence[str], progress: float) -> StormTerms:
        return StormTerms(self.ttl, progress, self.tolerance, names)

    def last_terms(self) -> StormTerms:
        """What this scene was judged by, or would have been."""
        slow = max(fault.slow for fault in self.field.faults)
        return self._judged_by or self.terms(self.crew.resources, self.ttl + self.settles + slow)

    def verdict(self, names: Sequence[str], progress: float) -> Verdict:
        self._judged_by = self.terms(names, progress)
        return verdict(self.history(), self._judged_by)

    def close(self) -> None:
        """End all processes and servers; the history stays."""
        self.crew.close()
        self.guard.close()
        self.field.close()
        self.journal.close()

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class GuardProcess:
    """The guarded counters in a process of their own.

    A client that is stopped or killed in the middle of a write must not stop the resource for all others.
    """

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "guard.socket")
        self._process = start_program(
            [sys.executable, "-m", "interlock.lab.resource", self.path, str(folder / "guard.jsonl")],
            stdout=subprocess.PIPE,
            env=program_environment(),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the guarded resource did not start"
        self.counters = ResourceClient(self.path)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


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


def rage(made: Scene, storm: Storm) -> Verdict:
    """Let a storm take place on servers that are up, and judge it."""
    chance = Random(storm.seed)
    names = resources(storm.synchronizer)
    progress = made.ttl + made.settles
    if watch := getattr(made.field, "watch", None):
        watch(made.journal)
    set_to_work = _hire(made, storm, names)
    made.await_counts(names, progress)
    for number, fault in enumerate(storm.chosen(made.field.faults, chance), 1):
        known = set(made.crew.workers)
        made.strike(fault, chance)
        for worker in made.crew.workers:
            if worker not in known:
                set_to_work(worker, 1)
        took = made.await_counts(names, progress + fault.slow)
        storm.watching(Progress(made.grants(), number, fault.name, took))
        time.sleep(chance.uniform(0.0, 0.3))
    made.journal.add("heal", "ok")
    _work_on(made, storm)
    made.finish()
    return made.verdict(names, progress + max(fault.slow for fault in made.field.faults))


def _hire(made: Scene, storm: Storm, names: list[str]) -> Callable[[Worker, int], None]:
    """Hire the crew and set it to work; return what sets a later worker to the same work."""
    order: dict[str, Any] = {"resources": names, "limits": LIMITS, "seed": f"storm-{storm.seed}"}
    order["thinks"] = THINKS_LONGER_S if storm.once else THINKS_S

    def set_to_work(worker: Worker, size: int) -> None:
        worker.tell("loop", hands=size, **order)

    places = made.field.places()
    made.crew.resources = names
    wrong = made.field.kind == "redlock"  # whose tokens begin with the clients' clocks
    can_move = _clocks_move()
    for number, (kind, size) in enumerate(CREW):
        way = number // 2 % len(places)  # one of each face on each
        ahead = (CLOCKS[number] if wrong else 0.0) if can_move else None
        set_to_work(made.crew.hire(kind, places[way], ahead), size)
    return set_to_work


def _clocks_move() -> bool:
    """Whether wall clocks of workers can be moved here: that takes a compiler."""
    with suppress(FaultUnavailable):
        return bool(shim())
    return False


def _work_on(made: Scene, storm: Storm) -> None:
    """In peace, for as long as grants are missing, and for a moment at least."""
    until = clock.now() + PEACE_S
    stuck = clock.now() + 600.0
    while (done := made.grants()) < storm.grants or clock.now() < until:
        assert clock.now() < stuck, f"{done} of {storm.grants} grants after ten minutes of peace"
        time.sleep(0.1)
