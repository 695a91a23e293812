"""Real ZooKeeper ensembles for tests: each server on free ports, in a folder of its own, ended by its pid."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from glob import glob
from tempfile import mkdtemp
from uuid import uuid4

from interlock.testing import patience
from interlock.testing.patience import PATIENCE
from interlock.testing.servers.process import (
    ServerMissing,
    ServerProcess,
    die_with_parent,
    find_program,
    free_port,
)
from interlock.testing.servers.shared import ports_of

TICK = 0.2  # seconds; the shortest session is two of them
JARS = (
    "zookeeper.jar zookeeper-jute.jar slf4j-api.jar slf4j-simple.jar netty-all.jar netty-buffer.jar "
    "netty-codec.jar "
    "netty-common.jar netty-handler.jar netty-resolver.jar netty-transport.jar commons-cli.jar "
    "commons-lang.jar "
    "snappy-java.jar metrics-core.jar"
).split()
"""From Debian's package; those that a version of it does not have are left out."""

SETTINGS = """\
tickTime={tick}
initLimit=50
syncLimit={sync_limit}
minSessionTimeout={shortest}
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
dataDir={folder}
clientPortAddress=127.0.0.1
clientPort={port}
{more}
"""


class Node(ServerProcess):
    """One server of an ensemble; signals and ends are for tests that break it."""

    def __init__(
        self, number: int, sync_limit: int, extra: Sequence[str] = (), jvm: Sequence[str] = ()
    ) -> None:
        self.number = number
        self.port = free_port()
        self.peer_port, self.election_port = free_port(), free_port()
        self.folder = mkdtemp(prefix="interlock-zookeeper-")
        self._sync_limit, self._extra, self._jvm = sync_limit, extra, jvm
        self.environment: dict[str, str] | None = None

    def configure(self, members: Sequence[str]) -> None:
        """Write the settings; a server of its own has no members."""
        more = "\n".join([*members, *self._extra])
        with open(f"{self.folder}/zoo.cfg", "w", encoding="utf-8") as file:
            file.write(
                SETTINGS.format(
                    tick=round(TICK * 1000),
                    shortest=round(2 * TICK * 1000),
                    sync_limit=self._sync_limit,
                    folder=self.folder,
                    port=self.port,
                    more=more,
                )
            )
        with open(f"{self.folder}/myid", "w", encoding="utf-8") as file:
            file.write(f"{self.number}\n")

    def start(self) -> None:
        java = find_program("java", "default-jre-headless")
        jars = [found for jar in JARS for found in glob(f"/usr/share/java/{jar}")]
        if not jars:
            raise ServerMissing("ZooKeeper", "zookeeper")
        with open(f"{self.folder}/log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *(java, "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    # A killed process loses nothing of what the kernel has; other tests' disks must not
                    # slow ours.
                    *("-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=256", *self._jvm),
                    *("-cp", ":".join(jars), "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
                    f"{self.folder}/zoo.cfg",
                ],
                stdout=log,
                stderr=log,
                env=self.environment,
                preexec_fn=_as_a_server,
            )

    @property
    def up(self) -> bool:
        return self._process is not None

    def word(self, word: str) -> str:
        """The answer to a four-letter word; "" if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2.0) as link:
                link.settimeout(2.0)
                link.sendall(word.encode())
                parts: list[bytes] = []
                while part := link.recv(65536):
                    parts.append(part)
                return b"".join(parts).decode()
        except OSError:
            return ""

    def mode(self) -> str:
        """leader, follower, standalone; "" while it serves nobody."""
        for line in self.word("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def metric(self, name: str) -> int:
        for line in self.word("mntr").splitlines():
            key, _, value = line.partition("\t")
            if key == name:
                return int(float(value))
        raise AssertionError(f"no {name} in mntr")


class Servers:
    """Where the servers of an ensemble are."""

    @property
    def ports(self) -> list[int]:
        raise NotImplementedError

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def url(self, chroot: str = "", *, session: float = 40.0, **options: object) -> str:
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"zookeeper://{self.hosts}/{chroot}?session_timeout={session:g}{query}"

    def fresh(self, **options: object) -> str:
        """A place where nothing stands yet."""
        return self.url(f"t-{uuid4().hex[:12]}", **options)  # type: ignore[arg-type]


class Ensemble(Servers):
    """Three servers, or as many as asked; signals and ends are for tests that break them."""

    def __init__(
        self,
        size: int = 3,
        sync_limit: int = 25,
        extra: Sequence[str] = (),
        jvm: Sequence[str] = (),
        peer_ports: Callable[[Node], int] | None = None,
    ) -> None:
        self.nodes = [Node(number + 1, sync_limit, extra, jvm) for number in range(size)]
        self._peer_ports = peer_ports  # of a proxy before it, for tests that cut a server off

    @property
    def ports(self) -> list[int]:
        return [node.port for node in self.nodes]

    def start(self) -> None:
        members = []
        if len(self.nodes) > 1:
            for node in self.nodes:
                peer = node.peer_port if self._peer_ports is None else self._peer_ports(node)
                members.append(f"server.{node.number}=127.0.0.1:{peer}:{node.election_port}")
        for node in self.nodes:
            node.configure(self.members_for(node, members))
            node.start()
        self.ready()

    def members_for(self, node: Node, members: list[str]) -> list[str]:
        """What one server reads of the others and itself."""
        return members

    def ready(self, serving: int | None = None) -> None:
        """Wait until so many servers serve, all of those that run if not said."""
        wanted = sum(node.up for node in self.nodes) if serving is None else serving
        until(lambda: sum(bool(node.up and node.mode()) for node in self.nodes) >= wanted)

    def leader(self) -> Node:
        return self._with_mode("leader", "standalone")

    def follower(self) -> Node:
        return self._with_mode("follower")

    def _with_mode(self, *modes: str) -> Node:
        found: list[Node] = []

        def there() -> bool:
            found[:] = [node for node in self.nodes if node.up and node.mode() in modes]
            return bool(found)

        until(there)
        return found[0]

    def close(self) -> None:
        for node in self.nodes:
            node.close()


class SharedServers(Servers):
    """The servers that another program of this run has started."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports

    @property
    def ports(self) -> list[int]:
        return self._ports


@cache
def steady() -> Servers:
    """The ensemble for all suites of a run, which neither break it nor count what it was asked."""
    return SharedServers(ports_of("zookeeper"))


def _as_a_server() -> None:
    """In the child: end with the tests, and come before them if the system permits it. Real servers do not
    share a processor with their clients.
    """
    die_with_parent()
    with suppress(OSError):
        os.nice(-5)


def until(fact: Callable[[], bool]) -> None:
    """Wait for a fact about servers: on a busy machine a JVM may take a minute to start and to find the
    others.
    """
    patience.until(fact, 3 * PATIENCE, pause=0.02)


@contextmanager
def running(size: int = 3, **settings: object) -> Iterator[Ensemble]:
    ensemble = Ensemble(size, **settings)  # type: ignore[arg-type]
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.close()
