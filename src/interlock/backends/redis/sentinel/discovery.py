"""Finds the present master: asks the sentinels whenever a connection is made, then checks the role of the server they name.

A sentinel that was cut off names the old master. So more than half of them are asked, if they answer, and the latest
epoch counts. A client that knows a new master does not follow outdated sentinels back to the old one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from interlock import native
from interlock._core.drive import drive
from interlock.backends.redis.address import Address
from interlock.backends.redis.transport.handshake import (
    AsyncHandshake,
    BlockingHandshake,
    ConnectPace,
    Handshake,
    one_then_all,
)
from interlock.errors import StoreUnavailable, Unsupported
from interlock.ports import CONNECT_TIMEOUT
from interlock.record import record

SHARE = 0.5  # seconds that one sentinel may take before the others are asked
BEHIND = 30.0  # seconds for which an older epoch counts as outdated; later it means that the sentinels were set up anew
COUNTED = 10.0  # seconds for which a count of replicas is reused
PORT = 26379


@record
class ReportedMaster:
    """The master of a service as one sentinel reports it."""

    epoch: int  # of the failover that made it master
    host: str
    port: int
    replicas: int  # all known ones, dead ones included


class Sentinels:
    """The route to the master of one service."""

    def __init__(
        self, sentinels: Sequence[Address], service: str, server: Address, host: str | None = None
    ) -> None:
        self._sentinels = list(sentinels)  # those that failed to answer come last
        self._service = service
        self._server = server  # how to log in to the master: user, password, TLS, database
        self._host = host  # overrides the host that the sentinels report
        self.place = f"Redis master {service!r}"
        self._pace = ConnectPace(server.connect_timeout)
        self.changes = 0  # counts how often the master was another one, or had lost its memory
        self.on_change: Callable[[], None] | None = None
        self.after_fork()
        self._epoch, self._epoch_seen = 0, 0.0
        self._known, self._known_at = -1, 0.0  # replicas
        self._identity = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.place}>"

    def after_fork(self) -> None:
        self._guard = native.guard()

    def inside(self) -> bool:
        return self._guard._is_owned()

    @classmethod
    def of_client(cls, client: Any, connect_timeout: float = CONNECT_TIMEOUT) -> Sentinels:
        """The service behind a client that redis-py's `Sentinel.master_for` made, sync or async."""
        pool = client.connection_pool
        if not pool.is_master:
            raise Unsupported("this client is for replicas, which keep no locks; use Sentinel.master_for")
        manager = pool.sentinel_manager
        sentinels = [Address.of_client(sentinel, connect_timeout) for sentinel in manager.sentinels]
        host = getattr(manager, "_force_master_ip", None)
        return cls(sentinels, pool.service_name, Address.of_client(client, connect_timeout), host)

    # ---- connections ------------------------------------------------------------------

    @property
    def connect_timeout(self) -> float:
        """Seconds that connecting may take; less once a master was reached, since a slow one is then probably gone."""
        return self._pace.limit

    def connect(self, timeout: float) -> Any:
        return drive(self._open(BlockingHandshake(), timeout), nested=True)

    async def connect_async(self, timeout: float) -> Any:
        return await self._open(AsyncHandshake(), timeout)

    async def _open(self, handshake: Handshake, timeout: float) -> Any:
        began = time.monotonic()
        until = began + timeout
        master = await self._find(handshake, until)
        server = self._server.at(self._host or master.host, master.port)
        connection = await handshake.connect(server, max(0.001, until - time.monotonic()))
        try:
            left = max(0.001, until - time.monotonic())
            words = await handshake.ask(server, connection, left, b"INFO", b"replication")
            facts = dict(line.partition(b":")[::2] for line in words.splitlines())
            if facts.get(b"role") != b"master":
                raise StoreUnavailable(
                    f"{self.place}: the sentinels name {master.host}:{master.port}, which is a replica; "
                    "a failover is under way, try again in a moment"
                )
        except BaseException:
            await handshake.close(connection)
            raise
        self._met(master, facts.get(b"master_replid", b"").decode())
        self._pace.reached(began)
        return connection

    def _met(self, master: ReportedMaster, replication: str) -> None:
        """Remember the master we are connected to. Another replication id means another memory."""
        with self._guard:
            self._known, self._known_at = master.replicas, time.monotonic()
            identity = replication or f"{master.host}:{master.port}"
            changed = self._identity not in ("", identity)
            self._identity = identity
            self.changes += changed
        if changed and self.on_change is not None:
            self.on_change()

    async def replica_count(self, handshake: Handshake, timeout: float) -> int:
        """How many replicas the master has, dead ones included, since a majority is counted over all of them."""
        now = time.monotonic()
        if self._known < 0 or now - self._known_at > COUNTED:
            try:
                self._known = (await self._find(handshake, now + timeout)).replicas
            except StoreUnavailable:
                if self._known < 0:
                    raise
            self._known_at = now
        return self._known

    # ---- the sentinels ----------------------------------------------------------------

    async def _find(self, handshake: Handshake, until: float) -> ReportedMaster:
        """The master with the latest epoch among the answers of more than half of the sentinels, or of all that answer."""
        sentinels = list(self._sentinels)
        asks = [partial(self._ask, handshake, sentinel) for sentinel in sentinels]
        # The rest of the time is for connecting to the master.
        half = time.monotonic() + 0.6 * (until - time.monotonic())
        found, errors = await one_then_all(
            handshake, asks, len(sentinels) // 2 + 1, self._pace.share(SHARE), half
        )
        for number, _ in errors:
            self._last(sentinels[number])
        if not found:
            said = "; ".join(dict.fromkeys(str(error) for _, error in errors))
            raise StoreUnavailable(
                f"{self.place}: no sentinel names it ({said or 'there was no time to ask'})"
            )
        master = max(found, key=lambda master: master.epoch)
        self._check_epoch(master)
        return master

    def _check_epoch(self, master: ReportedMaster) -> None:
        now = time.monotonic()
        with self._guard:
            if master.epoch < self._epoch and now - self._epoch_seen < BEHIND:
                raise StoreUnavailable(
                    f"{self.place}: the sentinels that answer have not heard of its last failover; try again"
                )
            self._epoch, self._epoch_seen = master.epoch, now

    def _last(self, sentinel: Address) -> None:
        with self._guard:
            self._sentinels.remove(sentinel)
            self._sentinels.append(sentinel)

    async def _ask(self, handshake: Handshake, sentinel: Address, timeout: float) -> ReportedMaster:
        connection = await handshake.connect(sentinel, timeout)
        try:
            words = await handshake.ask(
                sentinel, connection, timeout, b"SENTINEL", b"MASTER", self._service.encode()
            )
        finally:
            await handshake.close(connection)
        facts = dict(zip(words[::2], words[1::2], strict=True))
        return ReportedMaster(
            int(facts.get(b"config-epoch", 0)),
            facts[b"ip"].decode(),
            int(facts[b"port"]),
            int(facts.get(b"num-slaves", 0)),
        )
