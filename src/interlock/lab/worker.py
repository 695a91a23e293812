"""A client of a scenario: one process that runs one program, and says what it does as it does it.

The director starts it (`interlock.lab.crew`) and talks to it by lines: a word lets it go on from a point
where it was told to stop. Its own lines are records of the history, with its own clock, which is one for all
processes of this machine.
"""

from __future__ import annotations

import json
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from interlock._support import clock
from interlock.errors import InterlockError, LeaseLost, StaleToken
from interlock.lab.resource import ResourceClient
from interlock.testing.history import Kind

if TYPE_CHECKING:
    from redis import Redis

    import interlock

KEY = "report"
"""The name that scenarios lock, and the counter that they work on."""
FOLLOW_S = 0.003  # seconds between two looks at whether a lease was renewed
RENEWED_S = 0.02  # seconds by which a deadline must have moved to be a renewal


class Me:
    """What the program of a scenario may do: ask servers, work on the resource, and tell what it believes.

    `begins`, `inside` and `at` are the words of the lab; the rest of a program is a lock as people write it.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.name: str = order["name"]
        self.ttl: float = order["ttl"]
        self.settings: dict[str, Any] = order["settings"]
        """What the scenario's `play` gave this client: the address of its server, how slow it is."""
        self._stops_at = set(order["stops_at"])
        self._resource = ResourceClient(order["resource"])
        self._file: str = order["file"]
        self._token = 0
        self._held = False
        self._inside = threading.Event()
        self._mutex = threading.Lock()

    # -- servers ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL of the deployment, for interlock."""
        return str(self.settings["url"])

    def redis(self, port: int | None = None, *, timeout: float | None = None) -> Redis:
        """A redis-py client that is connected and never retries; by default of the only server."""
        server = self._client(self.settings["port"] if port is None else port, timeout)
        server.ping()  # a later fault of the network must not hit the handshake
        return server

    def _client(self, port: int, timeout: float | None) -> Redis:
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        host = self.settings.get("host", "127.0.0.1")
        return Redis(host, port, decode_responses=True, retry=Retry(NoBackoff(), 0), **options)

    def nodes(self, *, timeout: float | None = 0.1) -> list[Redis]:
        """Clients of all servers of a quorum, connected to those that can be reached."""
        from redis import RedisError

        found: list[Redis] = []
        for port in self.settings["ports"]:
            client = self._client(port, timeout)
            with suppress(RedisError):
                client.ping()
            found.append(client)
        return found

    def sentinel(self, *, timeout: float = 0.3) -> Redis:
        """A redis-py client that asks the sentinels for the master whenever it connects."""
        from redis.backoff import NoBackoff
        from redis.retry import Retry
        from redis.sentinel import Sentinel

        options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        addresses = [tuple(address) for address in self.settings["sentinels"]]
        sentinels: Any = Sentinel(addresses, **options)  # type: ignore[no-untyped-call]
        retry = Retry(NoBackoff(), 0)
        master: Redis = sentinels.master_for("mymaster", decode_responses=True, retry=retry, **options)
        return master

    def zookeeper(self) -> Any:
        """A KazooClient that is connected, with a session as long as the ttl."""
        from kazoo.client import KazooClient

        server = KazooClient(self.settings["hosts"], timeout=self.ttl)
        server.start()
        return server

    def etcd(self) -> Any:
        """One member of etcd, by its JSON gateway."""
        from interlock.lab.etcd_scenario import Etcd

        server = Etcd(self.settings["port"], timeout=self.ttl)
        server.get(KEY)
        return server

    def interlock(self, **options: Any) -> interlock.Client:
        """A client of interlock that has reached its store."""
        import interlock

        options.setdefault("ttl", self.ttl)
        client = interlock.connect(self.url, **options)
        with suppress(InterlockError):  # of a store that is meant to be away
            client.inspect(KEY)
        return client

    # -- the resource ----------------------------------------------------------------------------

    def read(self, token: int = 0, counter: str = KEY) -> int:
        """Read the counter that the lock protects; with a token, the resource may refuse."""
        return self._resource.read(counter, token)

    def write(self, value: int, token: int = 0, counter: str = KEY) -> None:
        """Write the counter; with a token, the resource may raise `StaleToken`."""
        line = self._line()
        self._resource.write(counter, token, value, holder=self.name, line=line)

    def wrote(self, value: int, token: int = 0, *, checked: str = "") -> None:
        """The program has written to its own resource, unrefused; `checked` says how it could be refused."""
        said = {"process": "resource", "holder": self.name, "value": value, "token": token}
        self._say("accept", "ok", attempt=checked, **said)

    def was_refused(self, value: int, token: int = 0, why: object = "") -> None:
        """The program has tried to write to a resource of its own, which refused."""
        said = {"process": "resource", "holder": self.name, "value": value, "token": token}
        self._say("accept", "fail", error=str(why), **said)

    def think(self, seconds: float | None = None) -> None:
        """Work for a while; how long is the scenario's choice for this client."""
        self.at("thinking")
        time.sleep(self.settings.get("thinks", 0.15) if seconds is None else seconds)

    def busy(self) -> bool:
        """Whether there is more work, until the director says that it is enough."""
        return not select.select([sys.stdin], [], [], 0.0)[0]

    def add_one(self, token: int = 0) -> None:
        """Read the counter, think, write one more."""
        value = self.read(token)
        self.think()
        self.at("before the write")
        self.write(value + 1, token)

    # -- telling ---------------------------------------------------------------------------------

    def begins(self) -> None:
        """Everything is connected: wait for the director, then ask for the lock."""
        self._start()
        self._say("acquire", "invoke")

    def _start(self) -> None:
        self._say("at", "ok", attempt="start")
        self._heard()

    def in_crowd(self, wait: Callable[[Me], None]) -> None:
        """Let many waiters do the same, each with a name and connections of its own, in a thread of its own.

        All have connected before the first of them asks.
        """
        crowd = Crowd(self, wait, self.settings.get("waiters", 1))
        crowd.connect()
        self._start()
        crowd.run()

    def at(self, point: str) -> None:
        """Stop here until the director lets this client go on, if it wanted that for this point, and once."""
        try:
            self._stops_at.remove(point)  # one step: of several threads at this point, one stops
        except KeyError:
            return
        self._say("at", "ok", attempt=point)
        self._heard()

    @contextmanager
    def inside(
        self, lease: Any = None, *, token: int = 0, believes_for: float = 0.0, claim: str = ""
    ) -> Iterator[None]:
        """The client believes that it holds while this lasts: for good, for a while, or as its lease says.

        `claim` is the name under which the store knows it, if not its own.
        """
        deadline = clock.now() + believes_for if believes_for else 0.0
        if lease is not None:
            token, deadline = lease.token, lease.deadline
        self._token, self._held = token, True
        self._inside.set()
        attempt = claim if lease is None else lease.id
        self._say("grant", "ok", token=token, deadline=deadline, attempt=attempt)
        if lease is not None:
            threading.Thread(target=self._follow, args=(lease, deadline), daemon=True).start()
        try:
            yield
        except (InterlockError, StaleToken) as error:
            self._say("body", "fail", error=type(error).__name__)
            raise
        except BaseException as error:
            self._say("body", "fail", error=repr(error))
            raise
        else:
            self._say("body", "ok")
        finally:
            self._inside.clear()

    def renewed(self, believes_for: float) -> None:
        """The program has renewed its lock by itself."""
        self._say("renew", "ok", deadline=clock.now() + believes_for)

    def refused(self, why: object) -> None:
        """The program gave up: it has no lock."""
        self._say("acquire", "fail", error=str(why))

    def measured(self, name: str, amount: float) -> None:
        """A number for the report."""
        self._say("measure", "ok", attempt=name, amount=amount)

    def note(self, text: str) -> None:
        """Something that the picture may point at."""
        self._say("note", "ok", error=text)

    def is_told(self, lease: Any) -> None:
        """The client says that a lease is lost: for `on_lost`."""
        self.note("its lease is lost")

    def _follow(self, lease: Any, deadline: float) -> None:
        """Say when the holder's own deadline moves: its lease was renewed."""
        while self._inside.is_set():
            if lease.deadline - deadline > RENEWED_S:
                deadline = lease.deadline
                self._say("renew", "ok", token=lease.token, deadline=deadline)
            time.sleep(FOLLOW_S)

    def _say(self, call: str, kind: Kind, **rest: Any) -> None:
        said = {"time": clock.now(), "call": call, "kind": kind, "line": self._line(), **rest}
        with self._mutex:
            print(json.dumps(said), flush=True)

    def _line(self) -> int:
        """The line of the program that is being executed; 0 outside of it."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename == self._file:
                return frame.f_lineno
            frame = frame.f_back
        return 0

    def _heard(self) -> str:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)  # the director has ended
        return line.strip()

    def ends(self, error: BaseException | None) -> None:
        """Say how the program ended."""
        if error is None:
            if self._held:
                self._say("end", "ok", token=self._token)
        elif isinstance(error, LeaseLost):
            self._say("end", "info", token=self._token, error=f"LeaseLost ({error.cause})")
        elif isinstance(error, StaleToken):
            self._say("end", "info", token=self._token, error="StaleToken")
        else:
            self._say("end", "info", token=self._token, error=f"{type(error).__name__}: {error}")


class Waiter(Me):
    """One of many in the same process, with a name of its own."""

    def __init__(self, me: Me, name: str, gate: Callable[[], None]) -> None:
        self.__dict__ |= me.__dict__ | {"name": name, "_inside": threading.Event()}
        self._gate = gate

    def _start(self) -> None:
        self._gate()

    def _say(self, call: str, kind: Kind, **rest: Any) -> None:
        super()._say(call, kind, **{"process": self.name, **rest})


class Crowd:
    """The waiters of one process."""

    def __init__(self, me: Me, wait: Callable[[Me], None], size: int) -> None:
        names = [me.name] if size == 1 else [f"{me.name}.{number:02}" for number in range(1, size + 1)]
        self._connected, self._go = threading.Semaphore(0), threading.Event()
        self._errors: list[BaseException] = []
        self._waiters = [Waiter(me, name, self._gate) for name in names]
        self._threads = [
            threading.Thread(target=self._let_wait, args=(wait, one), daemon=True) for one in self._waiters
        ]

    def _gate(self) -> None:
        self._connected.release()
        self._go.wait()

    def _let_wait(self, wait: Callable[[Me], None], one: Waiter) -> None:
        try:
            wait(one)
        except BaseException as error:
            self._errors.append(error)
            self._connected.release()  # it will not connect any more
        one.ends(self._errors[-1] if self._errors else None)

    def connect(self) -> None:
        """Start all, and return when the last of them has connected."""
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            self._connected.acquire()

    def run(self) -> None:
        """Let all of them go, and wait until the last has finished; the first error is raised."""
        self._go.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


def main(order: dict[str, Any]) -> None:
    from interlock.lab.scenarios import load

    program = load(order["scenario"]).programs[order["run"]]
    me = Me({**order, "file": program.__code__.co_filename})
    try:
        program(me)
    except Exception as error:
        me.ends(error)
        if not isinstance(error, InterlockError):
            raise
    else:
        me.ends(None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
