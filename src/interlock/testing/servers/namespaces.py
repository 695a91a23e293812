"""Two zones of a network that can be cut apart, each a network namespace with servers and clients of its own.

The namespaces are below one of their own, so nothing of this machine's network is touched, and all of it
goes with the test. Whoever wants to be in a zone asks `python -m interlock.testing.servers.namespaces`,
which holds a lock there and tells when it is lost.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import interlock
from interlock.errors import InterlockError
from interlock.testing.patience import PATIENCE, until
from interlock.testing.servers.process import FaultUnavailable, start_program

SERVICE = "mymaster"
DOWN_AFTER = 500  # milliseconds
PAUSE = 0.005  # seconds between two looks at a lease


@cache
def missing() -> str:
    """Why there can be no zones here; empty if there can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    for program in ("ip", "nsenter", "unshare", "redis-server"):
        if shutil.which(program) is None:
            return f"{program} is not installed: apt-get install iproute2 util-linux redis-server"
    tried = subprocess.run(
        ["unshare", "-n", "ip", "link", "add", "name", "zone1", "type", "veth"], capture_output=True
    )
    return "" if tried.returncode == 0 else f"no namespace can be made: {tried.stderr.decode().strip()}"


class Zone:
    """One namespace. A process that sleeps keeps it, and its end is the end of the namespace."""

    def __init__(self, number: int) -> None:
        self.host = f"10.9.0.{number}"
        self.device = f"zone{number}"
        self._keeper = start_program(["unshare", "-n", "sleep", "100000"])
        own = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{self.pid}/ns/net") != own)

    @property
    def pid(self) -> int:
        return self._keeper.pid

    def run(self, *argv: str) -> None:
        subprocess.run([*self.enter(), *argv], check=True, capture_output=True)

    def start(self, argv: Sequence[str], **settings: Any) -> subprocess.Popen[Any]:
        return start_program([*self.enter(), *argv], **settings)

    def enter(self) -> list[str]:
        """The words before a command that is to run in this zone."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net"]

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.wait()


class Zones:
    """A near zone and a far one, with a link between them."""

    def __init__(self) -> None:
        self.near, self.far = Zone(1), Zone(2)
        self.folder = mkdtemp(prefix="interlock-zones-")
        self._processes: list[subprocess.Popen[Any]] = []
        self._clients: list[ZoneClient] = []
        self.near.run(
            "ip",
            "link",
            "add",
            "name",
            "zone1",
            "type",
            "veth",
            "peer",
            "name",
            "zone2",
            "netns",
            str(self.far.pid),
        )
        for zone in (self.near, self.far):
            zone.run("ip", "address", "add", f"{zone.host}/24", "dev", zone.device)
            zone.run("ip", "link", "set", zone.device, "up")
            zone.run("ip", "link", "set", "lo", "up")

    def cut(self) -> float:
        """Cut the link; returns when."""
        self.near.run("ip", "link", "set", self.near.device, "down")
        return time.monotonic()

    def heal(self) -> None:
        self.near.run("ip", "link", "set", self.near.device, "up")

    def server(self, zone: Zone, port: int, *options: str) -> None:
        """A redis-server in a zone."""
        self._start(
            zone,
            *(
                "redis-server",
                "--port",
                str(port),
                "--bind",
                zone.host,
                "127.0.0.1",
                "--protected-mode",
                "no",
            ),
            *("--save", "", "--dir", self._folder(f"{zone.device}-{port}")),
            *("--unixsocket", self.socket(zone, port), *options),
        )
        self.await_answer(zone, port, "PONG", "ping")

    def socket(self, zone: Zone, port: int) -> str:
        """Where a server of a zone can be asked from everywhere on this machine."""
        return f"{self.folder}/{zone.device}-{port}/socket"

    def sentinel(self, zone: Zone, port: int) -> None:
        """A sentinel of the service whose master is in the near zone."""
        folder = self._folder(f"{zone.device}-{port}")
        file = Path(folder, "sentinel.conf")
        file.write_text(
            f"port {port}\nbind {zone.host} 127.0.0.1\nprotected-mode no\ndir {folder}\n"
            f"sentinel monitor {SERVICE} {self.near.host} 6379 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
        )
        self._start(zone, "redis-server", str(file), "--sentinel")

    def _start(self, zone: Zone, *argv: str) -> None:
        process = zone.start(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._processes.append(process)

    def _folder(self, name: str) -> str:
        folder = Path(self.folder, name)
        folder.mkdir()
        return str(folder)

    def says(self, zone: Zone, port: int, *words: str) -> str:
        """What a server in a zone answers to somebody in that zone."""
        asked = [*zone.enter(), "redis-cli", "-h", zone.host, "-p", str(port), *words]
        return subprocess.run(asked, capture_output=True, text=True).stdout

    def await_answer(self, zone: Zone, port: int, answer: str, *words: str) -> None:
        until(lambda: answer in self.says(zone, port, *words))

    def client(self, zone: Zone, url: str, name: str, ttl: float, again: bool = False) -> ZoneClient:
        made = ZoneClient(zone, url, name, ttl, again)
        self._clients.append(made)
        return made

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for process in self._processes:
            process.kill()
            process.wait()
        for zone in (self.near, self.far):
            zone.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def zones() -> Iterator[Zones]:
    made = Zones()
    try:
        yield made
    finally:
        made.close()


class SplitSentinels:
    """A master and a sentinel near; two replicas and two sentinels far, which can go on alone."""

    def __init__(self) -> None:
        self.zones: Zones | None = None
        self.servers: list[tuple[Zone, int]] = []
        self._sentinels: list[tuple[Zone, int]] = []

    def start(self) -> None:
        if why := missing():
            raise FaultUnavailable(why)
        self.zones = made = Zones()
        near, far = made.near, made.far
        self.servers = [(near, 6379), (far, 6379), (far, 6380)]
        self._sentinels = [(near, 26379), (far, 26379), (far, 26380)]
        for zone, port in self.servers:
            follows = () if zone is near else ("--replicaof", near.host, "6379")
            made.server(zone, port, "--repl-diskless-sync-delay", "0", *follows)
        made.await_answer(near, 6379, "connected_slaves:2", "info", "replication")
        for zone, port in self._sentinels:
            made.sentinel(zone, port)
        for zone, port in self._sentinels:
            made.await_answer(zone, port, "slaves=2,sentinels=3", "info", "sentinel")

    def promoted(self) -> bool:
        """Whether a server on the far side has become a master."""
        assert self.zones is not None
        far = [(zone, port) for zone, port in self.servers if zone is self.zones.far]
        return any("role:master" in self.zones.says(*place, "info", "replication") for place in far)

    def url(self, **options: str) -> str:
        hosts = ",".join(f"{host}:{port}" for host, port in self.addresses())
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis+sentinel://{hosts}/{SERVICE}/0{'?' if query else ''}{query}"

    def addresses(self) -> list[tuple[str, int]]:
        return [(zone.host, port) for zone, port in self._sentinels]

    def close(self) -> None:
        if self.zones is not None:
            self.zones.close()


class ZoneClient:
    """A process in a zone that holds a lock, and tells when it was granted and lost by the clock of this
    machine.

    With `again`, it asks for the lock again whenever it has lost it.
    """

    def __init__(self, zone: Zone, url: str, name: str, ttl: float, again: bool) -> None:
        argv = [
            sys.executable,
            "-m",
            "interlock.testing.servers.namespaces",
            url,
            name,
            str(ttl),
            "again" if again else "once",
        ]
        self._process = zone.start(argv, stdout=subprocess.PIPE, text=True)

    def next(self, wanted: str) -> float:
        """When the next thing happened, which must be this: granted, or lost."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the client has ended"
        what, when = json.loads(line)
        assert what == wanted
        return float(when)

    def rest(self) -> list[tuple[str, float]]:
        """End it, and return what it has told since."""
        self._process.kill()
        assert self._process.stdout is not None
        told = [json.loads(line) for line in self._process.stdout]
        return [(what, when) for what, when in told]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _hold(url: str, name: str, ttl: float, again: bool) -> None:
    def tell(what: str, when: float) -> None:
        print(json.dumps([what, when]), flush=True)

    client = interlock.connect(url, ttl=ttl)
    while True:
        try:
            lease = client.lock(name).acquire(timeout=PATIENCE)
        except InterlockError:
            continue
        assert lease
        held = time.monotonic()
        tell("granted", held)
        try:
            while True:
                lease.check()
                held = time.monotonic()
                time.sleep(PAUSE)
        except InterlockError:
            tell("lost", held + PAUSE)  # not now: the machine may have been late
        if not again:
            time.sleep(PATIENCE)


if __name__ == "__main__":
    _hold(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4] == "again")
