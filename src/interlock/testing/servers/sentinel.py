"""A real Sentinel set-up for tests: a master, two replicas, three sentinels, each ended by its pid."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from interlock.testing import patience
from interlock.testing.patience import PATIENCE
from interlock.testing.servers.process import find_program, free_port, start_program
from interlock.testing.servers.redis import Server

if TYPE_CHECKING:
    import redis

SERVICE = "mymaster"


def until(fact: Callable[[], Any], longest: float = PATIENCE) -> Any:
    """Return what `fact` answers once that is true; a server that is not there yet answers nothing."""
    import redis

    def told() -> Any:
        try:
            return fact()
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError):
            return None

    return patience.until(told, longest, pause=0.01)


class Watcher:
    """One sentinel. It writes into its configuration, so none is ever used twice."""

    def __init__(
        self, master: int, password: str | None = None, host: str = "127.0.0.1", quorum: int = 2
    ) -> None:
        self.port = free_port()
        self._host = host
        self._password = password
        self._folder = mkdtemp(prefix="interlock-sentinel-")
        file = Path(self._folder, "sentinel.conf")
        file.write_text(
            f"port {self.port}\nbind {host}\ndir {self._folder}\n"
            f"sentinel monitor {SERVICE} {host} {master} {quorum}\n"
            f"sentinel down-after-milliseconds {SERVICE} 500\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
            + (f"sentinel auth-pass {SERVICE} {password}\n" if password else "")
            + (f"requirepass s-{password}\nsentinel sentinel-pass s-{password}\n" if password else "")
        )
        program = find_program("redis-server", "redis-server")
        self._process = start_program(
            [program, str(file), "--sentinel"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self) -> redis.Redis:
        import redis

        password = f"s-{self._password}" if self._password else None
        return redis.Redis(
            host=self._host, port=self.port, password=password, socket_timeout=1, decode_responses=True
        )

    def master(self) -> Any:
        """What it knows of the master, by name."""
        with self.ask() as sentinel:
            return sentinel.sentinel_master(SERVICE)

    def hears(self, others: int) -> bool:
        """Whether it reaches so many others, each of which has told it its master lately: they do so every
        2 s.
        """
        with self.ask() as sentinel:
            entries: Any = sentinel.sentinel_sentinels(SERVICE)
        heard = [entry for entry in entries if entry["flags"] == "sentinel" and _young(entry)]
        return len(heard) == others

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _young(entry: dict[str, Any]) -> bool:
    return int(entry["last-hello-message"]) < 2000


@contextmanager
def alone(master: Server, host: str = "127.0.0.1") -> Iterator[Watcher]:
    """One sentinel is enough for a master that stays."""
    watcher = Watcher(master.port, host=host, quorum=1)
    try:
        until(watcher.master)
        yield watcher
    finally:
        watcher.close()


class SentinelSet:
    """Servers by port, and the sentinels that watch them. They have a password, or none; theirs begins with
    s-.
    """

    server_type: type[Server] = Server

    def __init__(self, replicas: int = 2, password: str | None = None) -> None:
        self.servers: dict[int, Server] = {}
        self.sentinels: list[Watcher] = []
        self._replicas = replicas
        self._password = password

    def start(self) -> None:
        master = self._add()
        for _ in range(self._replicas):
            self._add("--replicaof", "127.0.0.1", str(master.port))
        self.sentinels = [Watcher(master.port, self._password) for _ in range(3)]
        for sentinel in self.sentinels:
            until(partial(self._sees_all, sentinel))
        self.await_attached(self._replicas)

    def _add(self, *options: str) -> Server:
        guarded = ("--requirepass", self._password, "--masterauth", self._password) if self._password else ()
        server = self.server_type(
            "--repl-diskless-sync-delay", "0", "--appendonly", "yes", *guarded, *options
        )
        self.servers[server.port] = server
        server.start()
        return server

    def await_hearing(self) -> None:
        """Wait until each sentinel hears all others.

        One that is stopped for two seconds does not notice for half a minute afterwards who has come back:
        it must not be stopped while it takes another for dead.
        """
        for sentinel in self.sentinels:
            until(partial(sentinel.hears, len(self.sentinels) - 1))

    def _sees_all(self, sentinel: Watcher) -> bool:
        facts = sentinel.master()
        return bool(facts["num-other-sentinels"] == 2 and facts["num-slaves"] == self._replicas)

    def url(self, prefix: str = "", database: int = 0, **options: str) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redis+sentinel://{hosts}/{SERVICE}/{database}?prefix={prefix}{query}"

    def addresses(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", sentinel.port) for sentinel in self.sentinels]

    def master(self) -> Server:
        """Whom the first sentinel names."""
        return self.servers[int(self.sentinels[0].master()["port"])]

    def replicas(self) -> list[Server]:
        master = self.master()
        return [server for server in self.servers.values() if server is not master]

    def admin(self, server: Server | None = None) -> redis.Redis:
        import redis

        port = (server or self.master()).port
        return redis.Redis(port=port, password=self._password, socket_timeout=2, decode_responses=True)

    def await_attached(self, count: int) -> None:
        """Wait until so many replicas, and no more, follow the master, and have what it has now."""
        with self.admin() as admin:
            now: Any = admin.info("replication")
            until(partial(self._attached, admin, count, now["master_repl_offset"]))

    def _attached(self, admin: redis.Redis, count: int, offset: int) -> bool:
        facts: Any = admin.info("replication")
        slaves = [facts[f"slave{n}"] for n in range(facts["connected_slaves"])]
        return bool(sum(s["state"] == "online" and s["offset"] >= offset for s in slaves) == count)

    def crash(self) -> Server:
        """Kill the master as a crash does, and wait until all sentinels name another, which agrees."""
        old = self.master()
        old.kill()
        self.await_other_than(old)
        return old

    def await_other_than(self, old: Server) -> None:
        until(lambda: all(sentinel.master()["port"] != old.port for sentinel in self.sentinels))
        until(self._has_master)

    def _has_master(self) -> bool:
        with self.admin() as admin:
            facts: Any = admin.info("replication")
            return bool(facts["role"] == "master")

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Replicas that get nothing of what is written now: stopped, and cut off, or they would read it
        later.
        """
        replicas = self.replicas()
        for replica in replicas:
            os.kill(replica.pid, signal.SIGSTOP)
        with self.admin() as admin:
            admin.client_kill_filter(_type="replica")
        try:
            yield
        finally:
            for replica in replicas:
                os.kill(replica.pid, signal.SIGCONT)

    def close(self) -> None:
        for sentinel in self.sentinels:
            sentinel.close()
        for server in self.servers.values():
            server.close()


@cache
def steady() -> SentinelSet:
    """The set-up for all tests of a worker that do not break it; started by the first that needs it."""
    made = SentinelSet()
    atexit.register(made.close)
    made.start()
    return made


@contextmanager
def watched(replicas: int = 2, password: str | None = None) -> Iterator[SentinelSet]:
    """A set-up of this test's own, to be broken."""
    made = SentinelSet(replicas, password)
    try:
        made.start()
        yield made
    finally:
        made.close()
