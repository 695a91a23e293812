"""Where one run of a scenario is played: servers, a resource, clients, witnesses, and their history."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from interlock._support import clock
from interlock.lab.resource import Counters, ResourceServer
from interlock.lab.scenario import NAIVE, Scenario
from interlock.lab.witness import Look, Witness
from interlock.lab.worker import KEY
from interlock.lab.worker_process import WorkerProcess
from interlock.testing.history import Kind, Record
from interlock.testing.patience import PATIENCE, until

FIRST_INSTANT_S = 0.0001  # seconds by which a store knows of a grant before its client does


class Stage:
    """One run. `play` of a scenario gets it, and breaks things on it."""

    def __init__(
        self,
        scenario: Scenario,
        run: str,
        ttl: float,
        servers: Any,
        seed: int,
        watching: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self.scenario, self.run, self.ttl, self.servers, self.seed = scenario, run, ttl, servers, seed
        self.folder = Path(mkdtemp(prefix="interlock-lab-"))
        self.records: list[Record] = []
        self.clients: dict[str, WorkerProcess] = {}
        self._watching = watching
        self._mutex = threading.Lock()
        self._witnesses: list[Witness] = []
        self._faults = count(1)
        self.counters = Counters(self, checks=run in scenario.guarded)
        self._resource = ResourceServer(self.folder / "resource", self.counters)
        self._resource.start()

    @property
    def naive(self) -> bool:
        return self.run == NAIVE

    # -- the history -----------------------------------------------------------------------------

    def add(self, call: str, kind: Kind, at: float | None = None, **rest: Any) -> None:
        """Write down what the director, the resource or a witness saw."""
        process = rest.pop("process", "resource" if call == "accept" else "director")
        said = {name: value for name, value in rest.items() if name in Record.__slots__}
        self._keep(Record(clock.now() if at is None else at, process, call, kind, run=self.run, **said))

    def _hear(self, name: str, said: dict[str, Any]) -> None:
        self._keep(Record(process=said.pop("process", name), run=self.run, **said))

    def _keep(self, record: Record) -> None:
        with self._mutex:
            self.records.append(record)
        self._watching(record)

    def told(self, process: str, call: str, kind: str = "") -> int:
        """How many such records there are."""
        with self._mutex:
            return sum(
                record.process == process and record.call == call and kind in ("", record.kind)
                for record in self.records
            )

    def writes(self, holder: str, kind: str = "ok") -> int:
        """How many writes of a client the resource has accepted."""
        with self._mutex:
            return sum(
                record.call == "accept" and record.holder == holder and record.kind == kind
                for record in self.records
            )

    def history(self) -> list[Record]:
        """All records in the order of time, with holders named as clients instead of by their claims."""
        with self._mutex:
            records = list(self.records)
        # Naive locks stand in the store under the names of their clients, interlock's under their claims.
        grants = {record.attempt or record.process: record for record in records if record.call == "grant"}
        bodies = {record.process: record.time for record in records if record.call == "body"}
        seen = set[tuple[str, str]]()
        named = [self._dated(record, grants, bodies, seen) for record in records]
        return sorted(named, key=lambda record: record.time)

    def _dated(
        self,
        record: Record,
        grants: dict[str, Record],
        bodies: dict[str, float],
        seen: set[tuple[str, str]],
    ) -> Record:
        """What a witness saw, with the client's name, at the moment that agrees with what the client says:
        its store knew of a grant before the client did, and of a release after the client's work was done.
        """
        if record.call != "hold":
            return record
        asked, answered = record.began or record.time, record.time
        grant = grants.get(record.holder)
        if grant is None:
            return replace(record, time=asked, began=0.0)
        time = asked
        if record.kind == "fail":
            done = bodies.get(grant.process, 0.0)
            time = done + FIRST_INSTANT_S if asked <= done <= answered else asked
        elif (record.process, record.holder) not in seen:
            time = min(answered, grant.time - FIRST_INSTANT_S)
        seen.add((record.process, record.holder))
        return replace(record, time=time, began=0.0, holder=grant.process, token=record.token or grant.token)

    # -- who plays -------------------------------------------------------------------------------

    def client(
        self,
        name: str,
        *,
        stops_at: tuple[str, ...] = (),
        launcher: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        **settings: Any,
    ) -> WorkerProcess:
        """Start a client that runs this run's program; return when it is connected and waits for `go`."""
        order = {
            "name": name,
            "scenario": self.scenario.name,
            "run": self.run,
            "ttl": self.ttl,
            "resource": self._resource.path,
            "stops_at": stops_at,
            "settings": settings,
        }
        made = WorkerProcess(order, self._hear, launcher, environment)
        self.clients[name] = made
        made.reach("start")
        return made

    def witness(self, look: Look, store: str = "store") -> Witness:
        """Write down what a store says from now on."""
        made = Witness(store, look, self)
        self._witnesses.append(made)
        made.start()
        return made

    # -- what is broken --------------------------------------------------------------------------

    @contextmanager
    def fault(self, process: str, what: str) -> Iterator[None]:
        """While this lasts, a process or the network suffers from `what`."""
        end = self.begin_fault(process, what)
        try:
            yield
        finally:
            end()

    def begin_fault(self, process: str, what: str) -> Callable[[], None]:
        """A fault has begun; call what is returned when it is over."""
        attempt = f"fault {next(self._faults)}"
        self.add("fault", "invoke", process=process, attempt=attempt, error=what)
        return lambda: self.add("fault", "ok", process=process, attempt=attempt, error=what)

    @contextmanager
    def paused(self, client: WorkerProcess) -> Iterator[None]:
        """A client is stopped (SIGSTOP) while this lasts."""
        client.freeze()
        with self.fault(client.name, "paused"):
            yield
        client.thaw()

    def kill(self, client: WorkerProcess) -> None:
        """A client dies as by `kill -9`, wherever it is; it is stopped first, so that the record is exact."""
        client.freeze()
        self.begin_fault(client.name, "killed")
        client.kill()

    # -- waiting ---------------------------------------------------------------------------------

    def until(self, fact: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """Wait for a fact."""
        return until(fact, patience)

    def granted_within(self, client: str, ttls: float) -> bool:
        """Wait until a client is granted, for so many ttls at most; whether it was."""
        end = clock.now() + ttls * self.ttl
        self.until(
            lambda: self.told(client, "grant") or clock.now() >= end, patience=PATIENCE + ttls * self.ttl
        )
        return bool(self.told(client, "grant"))

    def lapse(self, ttls: float = 1.0) -> None:
        """Let so many ttls pass, counted from now: the only waiting for time in the lab."""
        end = clock.now() + ttls * self.ttl
        self.until(lambda: clock.now() >= end, patience=PATIENCE + ttls * self.ttl)

    def finish(self, *clients: WorkerProcess, patience: float | None = None) -> bool:
        """Wait for the end of these clients, or of all; whether they ended."""
        ended = [client.finish(patience) for client in clients or tuple(self.clients.values())]
        return all(ended)

    def close(self) -> None:
        """End everybody, and remove all files."""
        for witness in self._witnesses:
            witness.stop()
        for client in self.clients.values():
            with suppress(OSError):
                client.close()
        self._resource.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


__all__ = ["KEY", "Stage"]
