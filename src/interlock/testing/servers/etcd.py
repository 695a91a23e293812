"""Real etcd clusters for tests: members on free ports with folders of their own, ended by their pids.

`ETCD_PROGRAM=/folder/etcd` before the command of the tests runs them on another version than the installed
one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from tempfile import mkdtemp
from urllib.request import urlopen

from interlock._core.drive import drive
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire.messages import STATUS, StatusAnswer
from interlock.errors import InterlockError
from interlock.testing.patience import PATIENCE, until
from interlock.testing.servers.process import ServerProcess, find_program, free_port, start_program
from interlock.testing.servers.shared import ports_of

MEMORY = "/dev/shm"  # where there is one: three members that share one busy disk wait for it most of the time
RECEIVED = re.compile(
    r'^grpc_server_msg_received_total\{grpc_method="(\w+)",grpc_service="etcdserverpb\.\w+",'
    r'grpc_type="\w+"\} (\S+)$',
    re.MULTILINE,
)
BACKGROUND = ("Status", "LeaseGrant", "LeaseKeepAlive", "LeaseTimeToLive")
"""Sent by clients whether or not anything is handed on. (A Range confirms a keep-alive, and is counted.)"""
QUICK = ("--heartbeat-interval", "50", "--election-timeout", "500")


class Member(ServerProcess):
    """One etcd process."""

    def __init__(self, name: str, folder: str, options: Sequence[str] = (), *, tls: bool = False) -> None:
        self.name = name
        self.port, self.peer_port = free_port(), free_port()
        self.folder = f"{folder}/{name}"
        self._scheme = "https" if tls else "http"
        self._options = options
        self.peers = ""
        self.peer_address = f"http://127.0.0.1:{self.peer_port}"  # as the others are told

    def start(self) -> None:
        program = os.environ.get("ETCD_PROGRAM") or find_program("etcd", "etcd-server")
        client = f"{self._scheme}://127.0.0.1:{self.port}"
        with open(f"{self.folder}.log", "ab") as log:
            self._process = start_program(
                [
                    *(program, "--name", self.name, "--data-dir", self.folder),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", f"http://127.0.0.1:{self.peer_port}"),
                    *("--initial-advertise-peer-urls", self.peer_address),
                    *("--initial-cluster", self.peers, "--initial-cluster-token", "interlock-tests"),
                    *QUICK,
                    *self._options,
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "GOMAXPROCS": "1"},
            )

    def status(self, timeout: float = 1.0) -> StatusAnswer | None:
        """What it says of itself; None if it does not answer."""
        if self._scheme == "https":
            return None
        transport = BlockingTransport(
            Address((Endpoint("127.0.0.1", self.port),), connect_timeout=timeout), Credentials("", "")
        )
        try:
            return StatusAnswer(drive(transport.ask(STATUS, b"", timeout), nested=True))
        except InterlockError:
            return None
        finally:
            drive(transport.close(), nested=True)


class EtcdCluster:
    """Three members, or another number; `members` are for tests that break them."""

    def __init__(self, size: int = 3, options: Sequence[str] = (), *, tls: bool = False) -> None:
        self.folder = mkdtemp(prefix="interlock-etcd-", dir=MEMORY if os.path.isdir(MEMORY) else None)
        self._tls = tls
        self.members = [Member(f"m{n}", self.folder, options, tls=tls) for n in range(size)]

    def start(self) -> None:
        peers = ",".join(f"{member.name}={member.peer_address}" for member in self.members)
        for member in self.members:
            member.peers = peers
            member.start()
        self.await_leader()

    def await_leader(self) -> Member:
        """The member that leads, once all running ones agree on it."""
        if self._tls:
            return self._await_health()
        found: list[Member] = []

        def agreed() -> bool:
            running = [member for member in self.members if member.running]
            answers = [member.status() for member in running]
            leaders = {0 if answer is None else answer.leader for answer in answers}
            found[:] = [
                m for m, a in zip(running, answers, strict=True) if a is not None and a.member == a.leader
            ]
            return len(leaders) == 1 and 0 not in leaders and len(found) == 1

        until(agreed)
        return found[0]

    def _await_health(self) -> Member:
        def answers() -> bool:
            return all(b"ready to serve client requests" in _read(f"{m.folder}.log") for m in self.members)

        until(answers)
        return self.members[0]

    def leader(self) -> Member:
        return self.await_leader()

    def followers(self) -> list[Member]:
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    @property
    def ports(self) -> list[int]:
        return [member.port for member in self.members]

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def url(self, prefix: str = "interlock/", login: str = "", **options: object) -> str:
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"{'etcds' if self._tls else 'etcd'}://{login}{self.hosts}?prefix={prefix}{query}"

    def received(self) -> Counter[str]:
        """How many messages all members have received from clients, by method."""
        found: Counter[str] = Counter()
        for member in self.members:
            with urlopen(f"http://127.0.0.1:{member.port}/metrics", timeout=PATIENCE) as answer:
                for method, number in RECEIVED.findall(answer.read().decode()):
                    if method not in BACKGROUND:
                        found[method] += int(float(number))
        return found

    def ctl(self, *words: str, input: str | None = None) -> str:
        """What etcdctl answers."""
        done = subprocess.run(
            ["etcdctl", "--endpoints", self.hosts, *words],
            capture_output=True,
            text=True,
            input=input,
            timeout=PATIENCE,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        for member in self.members:
            member.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


@contextmanager
def running(size: int = 3, options: Sequence[str] = (), *, tls: bool = False) -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(size, options, tls=tls)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


class SharedMember(Member):
    """A member that another program of this run has started."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._scheme = "http"

    @property
    def running(self) -> bool:
        return True


class SharedCluster(EtcdCluster):
    """The members that another program of this run has started."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._tls = False
        self.members = [SharedMember(port) for port in ports]


@cache
def steady() -> EtcdCluster:
    """The cluster for all tests of a run that neither break it nor count what it was asked."""
    return SharedCluster(ports_of("etcd"))
