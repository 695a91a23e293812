"""The worker processes as their director sees them: told, stopped, resumed, killed, replaced."""

from __future__ import annotations

import json
import queue
from itertools import count
from pathlib import Path
from typing import Any

from interlock.lab.child_process import ChildProcess
from interlock.testing.journal import Journal
from interlock.testing.servers.clock import clocked, set_offset

PATIENCE = 90.0  # seconds a step may take before the worker counts as hung


class Worker(ChildProcess):
    """One worker process."""

    def __init__(
        self, name: str, kind: str, place: Any, ttl: float, folder: Path, guard: str, ahead: float | None
    ) -> None:
        self.asynchronous = kind == "async"
        self._clock = folder / f"{name}.clock"
        self._ahead = ahead
        self.furthest = self.ahead
        self._answers: queue.Queue[str] = queue.Queue()
        environment = None if ahead is None else clocked({}, self._clock, ahead)
        settings = {"name": name, "kind": kind, "place": place, "ttl": ttl, "folder": str(folder)}
        words = json.dumps({**settings, "guard": guard})
        module = "interlock.lab.storm.workers.worker"
        with (folder / f"{name}.log").open("w") as log:
            super().__init__(name, module, words, environment=environment, errors=log)
        self._log = folder / f"{name}.log"

    def _hear(self, line: str) -> None:
        self._answers.put(line)

    def send(self, what: str, **order: Any) -> None:
        """Tell it what to do, and do not wait for the answer."""
        self.say(json.dumps({"do": what, **order}))

    def answer(self, patience: float = PATIENCE) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=patience)
        except queue.Empty:
            raise AssertionError(f"worker {self.name} did not answer within {patience:g} s") from None
        assert line, self._how_it_ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _how_it_ended(self) -> str:
        told = self._log.read_text(errors="replace").strip().splitlines()[-1:]
        return f"worker {self.name} has ended with {self._process.wait(PATIENCE)}: {''.join(told)}"

    def tell(self, what: str, **order: Any) -> dict[str, Any]:
        self.send(what, **order)
        return self.answer()

    def acquire(self, resource: str, timeout: float = 0.0) -> int | None:
        """The token, or None."""
        token: int | None = self.tell("acquire", resource=resource, timeout=timeout)["token"]
        return token

    def count(self, resource: str) -> bool:
        """Read and write in one go; whether the write was accepted."""
        value = self.tell("read", resource=resource)["value"]
        return value is not None and self.write(resource, value + 1)

    def write(self, resource: str, value: int) -> bool:
        return bool(self.tell("write", resource=resource, value=value)["accepted"])

    @property
    def clock_moves(self) -> bool:
        """Whether its wall clock can be moved while it runs."""
        return self._ahead is not None

    @property
    def ahead(self) -> float:
        """By how many seconds its wall clock differs from the machine's."""
        return self._ahead or 0.0

    def jump(self, seconds: float) -> None:
        """Move its wall clock, for good."""
        assert self._ahead is not None
        self._ahead += seconds
        self.furthest = max(self.furthest, self._ahead)
        set_offset(self._clock, self._ahead)


class Crew:
    """All workers of a run; kills are written into the director's journal, in the victim's name."""

    def __init__(self, folder: Path, guard: str, journal: Journal, ttl: float) -> None:
        self.folder, self.ttl = folder, ttl
        self._guard, self._journal = guard, journal
        self._names = count(1)
        self.resources: list[str] = []  # what they work on, for faults that must hit one of those
        self.workers: list[Worker] = []
        self._made: dict[str, tuple[str, Any, float | None]] = {}
        self._level: float | None = None  # by how much later workers' clocks are ahead
        self._furthest = 0.0  # that the clock of any worker that is gone was ahead

    def level_clocks(self) -> None:
        """Set all wall clocks as far as any is, those of later workers, too.

        Where the clients' clocks are the floor under the tokens, a fault may take the memory of the tokens or
        set a clock back, and not both at once.
        """
        moving = [worker for worker in self.workers if worker.clock_moves]
        self._level = max([self._furthest, *(worker.furthest for worker in moving)])
        for worker in moving:
            worker.jump(self._level - worker.ahead)

    def hire(self, kind: str, place: Any, ahead: float | None = None) -> Worker:
        """A worker that is ready: `kind` is sync, async or a naive lock's name, `place` a URL or ports.

        Its wall clock is `ahead` of the machine's by so many seconds, and can be moved if that is said.
        """
        if ahead is not None and self._level is not None:
            ahead = self._level
        worker = Worker(f"p{next(self._names)}", kind, place, self.ttl, self.folder, self._guard, ahead)
        self.workers.append(worker)
        self._made[worker.name] = (kind, place, ahead)
        assert worker.answer()["ready"] == worker.name
        return worker

    def kill(self, worker: Worker) -> None:
        """As `kill -9`, wherever it is. From its record on it does nothing, and until then it may act.

        So it is stopped first: where the dead are free at once, the next holder may come in before we know
        that it is dead.
        """
        worker.freeze()
        self._journal.add("fault", "invoke", process=worker.name, error="kill")
        worker.close()
        self.workers.remove(worker)
        self._furthest = max(self._furthest, worker.furthest)

    def replace(self, worker: Worker) -> Worker:
        self.kill(worker)
        return self.hire(*self._made[worker.name])

    def dismiss(self) -> None:
        """All end in good order; each writes down what it could not clean up."""
        for worker in self.workers:
            worker.send("stop")
        for worker in self.workers:
            while "over" not in worker.answer():
                pass
        self.close()

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
