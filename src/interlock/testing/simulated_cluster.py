"""A simulated cluster for the shipped algorithms: a server, processes with real clients of it, and a
history.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Literal

from interlock import aio, events
from interlock._core.attempt import BLANK_GRANT
from interlock._core.client import Client
from interlock._core.cohort import Member, Turn
from interlock._core.holding import Holding
from interlock._core.lease import Lease
from interlock._core.runtime import Owner
from interlock._core.states import FINAL, LeaseEvent, State
from interlock.errors import NotHeld, StaleToken
from interlock.model import Claim, Granted
from interlock.store import Store
from interlock.testing.faults import Faults, Faulty, Link
from interlock.testing.history import History, Kind
from interlock.testing.sessions import SessionStore
from interlock.testing.simulated_runtime import SimulatedRuntime
from interlock.testing.simulated_server import SimulatedRowServer, SimulatedServer, SimulatedSessionServer
from interlock.testing.world import Killed, World


class WitnessedLease(aio.Lease):
    """A lease whose life is written into the history."""

    __slots__ = ()

    def __init__(self, holding: Holding, claim: Claim, granted: Granted, asked: float, owner: Owner) -> None:
        super().__init__(holding, claim, granted, asked, owner)
        if granted is not BLANK_GRANT:
            self._note_grant(self._began(claim))

    def _note_grant(self, began: float, error: str = "") -> None:
        permits, capacity = self._claim.permits, self._claim.capacity
        self.process.note("grant", "ok", self, began=began, permits=permits, capacity=capacity, error=error)

    def _began(self, claim: Claim) -> float:
        """When its attempt began; the claim may be older, if another attempt has left its place in the
        queue.
        """
        for attempt in list(self._holding.client.attempts):
            if attempt.claim is claim:
                return self.process.runtime.true_time(attempt.began)
        return self.process.began.get(claim.id, 0.0)

    @property
    def process(self) -> ClientProcess:
        client = self._holding.client
        assert isinstance(client, SimulatedClient)
        return client.process

    @property
    def lost(self) -> Any:
        """A signal that is set once the lease is lost."""
        return self._lost_signal()

    def _inherit(self, turn: Turn, who: str, now: float) -> float:
        assert isinstance(turn.holder, Member)
        began = self.process.runtime.true_time(turn.holder.began)
        due = super()._inherit(turn, who, now)
        self._note_grant(began, error="passed on")
        return due

    def _extend(self, asked: float, ttl: float) -> None:
        before = self._deadline
        super()._extend(asked, ttl)
        if self._deadline != before:
            self.process.note("renew", "ok", self)

    def _move(self, event: LeaseEvent, cause: str = "", reason: str = "") -> None:
        before = self._state
        super()._move(event, cause, reason)
        if before not in FINAL and self._state in FINAL:
            lost = self._state is State.LOST
            self.process.note("end", "info" if lost else "ok", self, error=cause if lost else "")

    def _let_go(self, *, pass_on: bool = False) -> State:
        before = super()._let_go(pass_on=pass_on)
        if before not in FINAL:
            self.process.note("end", "ok", self)
        return before


class SimulatedClient(Client):
    """A client that knows the process it runs in."""

    process: ClientProcess


class ClientRuntime(SimulatedRuntime):
    """A runtime that remembers when each claim id was made.

    It does not know its process: a keeper outlives its client.
    """

    began: dict[str, float]

    def fresh_id(self) -> str:
        id = super().fresh_id()
        self.began[id] = self.world.time
        return id


class ClientProcess:
    """One process with one client."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, drift: float, style: Literal["tasks", "threads"]
    ) -> None:
        world = cluster.world
        self.cluster = cluster
        self.name = name
        self.began: dict[str, float] = {}
        self.runtime = ClientRuntime(world, name, drift=drift, epoch=world.random.random() * 1e5, style=style)
        self.runtime.began = self.began
        self.link = Link(cluster.faults, world.random)
        self.core = SimulatedClient(
            cluster.connect(self),
            self.runtime,
            self.runtime,
            ttl=cluster.ttl,
            listener=self.on_event,
            lease_type=WitnessedLease,
        )
        self.core.process = self
        self.client = aio.Client(self.core)
        self.events: list[events.Event] = []

    def on_event(self, event: events.Event) -> None:
        self.events.append(event)

    def pause(self) -> None:
        """As SIGSTOP; the history says so."""
        self.runtime.pause()
        self.cluster.history.add(self.name, "fault", "invoke", error="pause")

    def resume(self) -> None:
        """As SIGCONT."""
        self.runtime.resume()
        self.cluster.history.add(self.name, "fault", "invoke", error="resume")

    def kill(self) -> None:
        """As SIGKILL."""
        self.cluster.history.add(self.name, "fault", "invoke", error="kill")
        self.runtime.kill()

    def note(self, call: str, kind: Kind, lease: Lease, **rest: Any) -> None:
        """Write down something about a lease of this process, in true time."""
        if not self.runtime.dead:
            deadline = self.runtime.true_time(lease.deadline)
            rest = {"resource": lease.resource, "token": lease.token, "deadline": deadline, **rest}
            self.cluster.history.add(self.name, call, kind, attempt=lease._claim.id, **rest)
            if call in ("grant", "renew"):
                self.cluster.believed(self, deadline)

    def check(self, lease: Lease) -> None:
        """`lease.check()`, and what it said written down."""
        lease.check()
        self.note("check", "ok", lease)

    @contextmanager
    def calling(
        self, call: str, resource: str, limit: float | None = None, *, inside: bool = False
    ) -> Iterator[Outcome]:
        """Write down a call, how it ended, and whether in time.

        `inside`: the caller holds something already.
        """
        outcome, since = Outcome(), self.cluster.world.time
        attempt = self.cluster.next_call()
        self._write(call, "invoke", attempt, resource, limit=limit)
        try:
            yield outcome
        except Killed:
            raise
        except NotHeld as error:
            self._write(call, "fail", attempt, resource, error=repr(error))
            raise
        except BaseException as error:
            outcome.ok = False
            self._write(call, "info", attempt, resource, error=repr(error))
            raise
        else:
            self._write(call, "ok" if outcome.ok else "fail", attempt, resource)
        finally:
            if self.cluster.tidy and call == "acquire" and not (outcome.ok or inside):
                self._look_for_remains(since)

    def _look_for_remains(self, since: float) -> None:
        """A call that came to nothing has left nothing in the store, at once."""
        who = self.runtime.who(self.runtime.owner())
        for name, queue in self.cluster.server.space.queues.items():
            for row in queue:
                lingers = row.id != row.claim.id  # for its min_hold
                ours = row.claim.who == who and self.began.get(row.id, 0.0) >= since
                if ours and not lingers and not self.runtime.dead:
                    self._write(
                        "left", "fail", row.id, name, error="its claim stands though the call has ended"
                    )

    def _write(self, call: str, kind: Kind, attempt: str, resource: str, **rest: Any) -> None:
        if not self.runtime.dead:
            self.cluster.history.add(self.name, call, kind, attempt=attempt, resource=resource, **rest)


class Outcome:
    """The outcome of a call: set `ok` to False when its answer was no."""

    ok = True


class Guarded:
    """A counter that checks tokens, also when it is read: else a late write could fall between the two."""

    def __init__(self, history: History, name: str) -> None:
        self._history = history
        self.name = name
        self.value = 0
        self.mark = 0

    def read(self, token: int) -> int:
        if token < self.mark:
            raise StaleToken(self.name, token, self.mark)
        self.mark = token
        return self.value

    def write(self, token: int, value: int, attempt: str) -> None:
        stale = token < self.mark
        kind: Kind = "fail" if stale else "ok"
        self._history.add(
            "guard", "accept", kind, attempt=attempt, resource=self.name, token=token, value=value
        )
        if stale:
            raise StaleToken(self.name, token, self.mark)
        self.mark, self.value = token, value


class SimulatedCluster:
    """A world with one server, a network, client processes, and a history of what they do."""

    def __init__(self, seed: int, *, ttl: float = 1.0, faults: Faults = Faults()) -> None:  # noqa: B008  (frozen)
        self.world = world = World(seed)
        self.random = world.random
        self.history = History(lambda: world.time)
        self.ttl = ttl
        self.faults = faults
        self.network = SimulatedRuntime(self.world, "network")
        self.server = self.make_server(pushes=self.random.random() < 0.4)
        # From a source of its own: the worlds of all other seeds stay as they were.
        self.server.decides_here = Random(f"{seed}: beside the server").random() < 0.25
        self.tidy = (
            False  # whether a call that ends leaves nothing at once: nothing happens that could excuse it
        )
        self.processes: list[ClientProcess] = []
        self._calls = 0
        self._guarded: dict[str, Guarded] = {}

    def make_server(self, *, pushes: bool) -> SimulatedServer:
        return SimulatedServer(self.world, self.history, drift=self.drift(), pushes=pushes)

    @property
    def outlives(self) -> float:
        """Seconds for which a claim stands, at most, after its process was killed."""
        return self.ttl

    def believed(self, process: ClientProcess, deadline: float) -> None:
        """Called when a process comes to believe that a lease of its own lives until `deadline`, in true
        time.
        """

    def drift(self) -> float:
        """A clock's error, within what the margin of a lease allows for."""
        return (self.random.random() - 0.5) * 0.01

    def next_call(self) -> str:
        self._calls += 1
        return f"call-{self._calls}"

    def add_process(self) -> ClientProcess:
        style: Literal["tasks", "threads"] = "tasks" if self.random.random() < 0.7 else "threads"
        process = ClientProcess(self, f"p{len(self.processes) + 1}", self.drift(), style)
        self.processes.append(process)
        return process

    def connect(self, process: ClientProcess) -> Store:
        """The store of a process's client."""
        return Faulty(self.server.store(process.runtime), process.runtime, process.link, self.network)

    def guarded(self, name: str) -> Guarded:
        if name not in self._guarded:
            self._guarded[name] = Guarded(self.history, name)
        return self._guarded[name]

    def left_behind(self) -> Iterator[tuple[str, str, str]]:
        """(process, resource, what) of everything that is still there; run it once all is over."""
        yield from self.left_in_store()
        for process in self.processes:
            if process.runtime.dead:
                continue
            for lease in process.core.leases:
                yield process.name, lease.resource, f"{lease!r} is still held"
            for kept in process.core.keeper.kept():
                yield process.name, "", f"the keeper still keeps {kept!r}"
            for job in process.runtime.jobs:
                if job.name != "interlock-keeper":
                    yield process.name, "", f"{job!r} still runs"

    def left_in_store(self) -> Iterator[tuple[str, str, str]]:
        """Yield every claim and every waiter that is still on the server."""
        space = self.server.space
        for name in list(space.queues):
            for row in space.live(name, space.now()):
                yield (
                    "server",
                    name,
                    f"claim {row.id} stands, {'inside' if row.admitted_at else 'waiting'}",
                )
        for topic in space.waiters.topics:
            yield "server", topic, "somebody still listens"


class RowCluster(SimulatedCluster):
    """A cluster whose server notices lapses only when it is asked: see `Traits.renewals_wake`."""

    def make_server(self, *, pushes: bool) -> SimulatedServer:
        return SimulatedRowServer(self.world, self.history, drift=self.drift(), pushes=pushes)


class SessionCluster(SimulatedCluster):
    """A cluster whose server keeps sessions. `pings`: each session is also kept by its program, as kazoo
    does.

    Then nothing that a living process forgets to release ever lapses. Deadlines must not count on pings:
    nobody is told whether one has arrived.
    """

    def __init__(self, seed: int, *, ttl: float = 1.0, faults: Faults = Faults()) -> None:  # noqa: B008  (frozen)
        super().__init__(seed, ttl=ttl, faults=faults)
        self.pings = self.random.random() < 0.5
        self.stretch = self.random.choice((1.0, 1.5, 2.5))  # a session's timeout, in ttls

    def make_server(self, *, pushes: bool) -> SimulatedServer:
        return SimulatedSessionServer(self.world, self.history, drift=self.drift())

    @property
    def outlives(self) -> float:
        return self.ttl * self.stretch

    def connect(self, process: ClientProcess) -> Store:
        server = self.server
        assert isinstance(server, SimulatedSessionServer)
        server.timeout = self.outlives
        store = SessionStore(
            server.space,
            process.runtime,
            timeout=server.timeout,
            connect=lambda session: Faulty(
                server.view(process.runtime, session), process.runtime, process.link, self.network
            ),
        )
        if self.pings:
            self.network.spawn(f"pings of {process.name}", self._ping(process, store, server))
        return store

    def believed(self, process: ClientProcess, deadline: float) -> None:
        """Check that the session lives at least as long as what its client believes to hold."""
        store, server = process.core.store, self.server
        session = store.known.session if isinstance(store, SessionStore) else None
        if session is not None and session.lapses is not None and session.alive(server.now()):
            if (ends := server.true_time(session.lapses)) < deadline and not server.jumped:
                text = f"a lease is believed until {deadline:.6f}, its session lapses at {ends:.6f}"
                self.history.add(process.name, "broken", "fail", error=text)

    async def _ping(
        self, process: ClientProcess, store: SessionStore, server: SimulatedSessionServer
    ) -> None:
        while not process.runtime.dead:
            stalled = process.link.stalled_until > self.network.now()
            if not (process.runtime.paused or process.link.severed or stalled):
                server.ping(store.known.session)
            await self.network.sleep(server.timeout / 4)
