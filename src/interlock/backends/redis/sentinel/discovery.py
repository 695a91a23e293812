"""Finds the present master: asks the sentinels whenever a connection is made, then checks the role of the
server they name.

A sentinel that was cut off names the old master. So more than half of them are asked, if they answer, and the
latest epoch counts. A client that knows a new master does not follow outdated sentinels back to the old one.
When a majority of all sentinels last agreed on the master is noted, too, and a client leaves a master for
another that they name: see `agreement`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from interlock._core.drive import drive
from interlock._support import clock, native
from interlock.backends.kit.connect_pace import ConnectPace
from interlock.backends.redis.address import Address
from interlock.backends.redis.errors import understood
from interlock.backends.redis.sentinel.agreement import Agreement
from interlock.backends.redis.sentinel.views import (
    HELLO_S,
    NEVER,
    ReportedMaster,
    SentinelView,
    agreed_at,
    counted,
    majority,
    read_view,
)
from interlock.backends.redis.transport.handshake import (
    AsyncHandshake,
    BlockingHandshake,
    Handshake,
    info_lines,
    one_then_all,
)
from interlock.errors import StoreUnavailable, Unsupported
from interlock.store import CONNECT_TIMEOUT

SENTINEL_TIMEOUT_S = 0.5  # seconds that one sentinel may take before the others are asked
# Seconds for which an older epoch counts as outdated; later it means that the sentinels were set up anew.
OUTDATED_S = 30.0
COUNT_KEPT_S = 10.0  # seconds for which a count of replicas is reused
PORT = 26379


class Sentinels:
    """The route to the master of one service."""

    def __init__(
        self, sentinels: Sequence[Address], service: str, server: Address, host: str | None = None
    ) -> None:
        self._sentinels = list(sentinels)  # those that failed to answer come last
        self._labels = frozenset(sentinel.label for sentinel in sentinels)
        self._service = service
        self._server = server  # how to log in to the master: user, password, TLS, database
        self._host = host  # overrides the host that the sentinels report
        self.label = f"Redis master {service!r}"
        self.pace = ConnectPace(server.connect_timeout)
        self.changes = 0  # counts how often the master was another one, or had lost its memory
        self.on_change: Callable[[], None] | None = None
        self.agreement = Agreement(self)
        # The last instant, on the boot clock, at which a majority of the sentinels is known to have agreed on
        # our master.
        self.agreed = NEVER
        self.disagreement = (
            f"no majority of the sentinels of {self.label} is in reach and agrees on it, so what it says "
            f"does not count; see SENTINEL CKQUORUM {service}, and SENTINEL RESET {service} if some that it "
            "counts are gone for good; the URL must not name those either"
        )
        self.after_fork()
        self._epoch, self._epoch_seen = 0, 0.0
        self._known, self._known_at = -1, 0.0  # replicas
        self._identity = ""
        self._master: ReportedMaster | None = (
            None  # the one that we are connected to, as the sentinels report it
        )
        self._counted = 0  # all sentinels, as those that answer count them
        self._ids: dict[str, str] = {}  # of the sentinels that have answered, by address

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.label}>"

    @property
    def service(self) -> str:
        """What Sentinel calls the master."""
        return self._service

    def sentinels(self) -> list[Address]:
        """The sentinels that the URL names."""
        with self._mutex:
            return list(self._sentinels)

    def server_at(self, host: str, port: int) -> Address:
        """How to log in to a server that the sentinels name."""
        return self._server.at(self._host or host, port)

    def after_fork(self) -> None:
        self._mutex = native.mutex()
        self.agreement.after_fork()

    def inside(self) -> bool:
        return self._mutex._is_owned() or self.agreement.inside()

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
        """Seconds that connecting may take; less once a master was reached, since a slow one is then
        probably gone.
        """
        return self.pace.limit

    def connect(self, timeout: float) -> Any:
        return drive(self._open(BlockingHandshake(), timeout), nested=True)

    async def connect_async(self, timeout: float) -> Any:
        return await self._open(AsyncHandshake(), timeout)

    async def _open(self, handshake: Handshake, timeout: float) -> Any:
        began = time.monotonic()
        until, asked = began + timeout, clock.now()
        # The rest of the time is for connecting to the master.
        views = await self._views(handshake, began + 0.6 * timeout)
        master = self._latest(views)
        server = self.server_at(master.host, master.port)
        connection = await handshake.connect(server, max(0.001, until - time.monotonic()))
        try:
            left = max(0.001, until - time.monotonic())
            words = await handshake.ask(server, connection, left, b"INFO", b"replication")
            facts = understood(server.label, info_lines, words)
            if facts.get(b"role") != b"master":
                raise StoreUnavailable(
                    f"{self.label}: the sentinels name {master.host}:{master.port}, which is a replica; "
                    "a failover is under way, try again in a moment"
                )
        except BaseException:
            await handshake.close(connection)
            raise
        replication = facts.get(b"master_replid", b"").decode(errors="replace")
        self._met(master, replication, self._agreed_at(views, master, asked))
        self.pace.reached(time.monotonic() - began)
        return connection

    def _met(self, master: ReportedMaster, replication: str, agreed: float) -> None:
        """Remember the master we are connected to. Another replication id means another memory."""
        with self._mutex:
            self._known, self._known_at = master.replicas, time.monotonic()
            identity = replication or f"{master.host}:{master.port}"
            changed = self._identity not in ("", identity)
            self._identity, self._master = identity, master
            self.agreed = agreed if changed else max(self.agreed, agreed)
            self.changes += changed
        if changed and self.on_change is not None:
            self.on_change()

    async def replica_count(self, handshake: Handshake, timeout: float, known: bool) -> int:
        """How many replicas the master has, dead ones included, since a majority is counted over all of them.

        If the last count is old, the sentinels are asked: in the background if it is `known` that this will
        do.
        """
        now = time.monotonic()
        if self._known >= 0 and (known or now - self._known_at <= COUNT_KEPT_S):
            if now - self._known_at > COUNT_KEPT_S:
                self.agreement.ask_soon()
            return self._known
        try:
            self._known = self._latest(await self._views(handshake, now + timeout)).replicas
        except StoreUnavailable:
            if self._known < 0:
                raise
        self._known_at = now
        return self._known

    # ---- the sentinels ----------------------------------------------------------------

    async def check(self) -> None:
        """Find out whether a majority of the sentinels still agrees on our master; if they name another,
        leave ours.
        """
        master, asked = self._master, clock.now()
        views = await self._views(BlockingHandshake(), time.monotonic() + self.connect_timeout)
        with self._mutex:
            if master is None or self._master != master:
                return  # we have gone to another meanwhile
            self.agreed = max(self.agreed, self._agreed_at(views, master, asked))
            self._known, self._known_at = max(views, key=_epoch).master.replicas, time.monotonic()
            others = [view for view in views if not view.master.same_as(master)]
            other = max(others, key=_epoch, default=None)
            if other is None:
                return
            if (
                other.master.epoch <= master.epoch
                and self._agreed_at(views, other.master, asked) < asked - HELLO_S
            ):
                return  # a sentinel that was cut off, and has not heard of our master yet
            self._master, self._identity, self.agreed = None, "", NEVER
            self.changes += 1
        if self.on_change is not None:
            self.on_change()

    async def _views(self, handshake: Handshake, until: float) -> list[SentinelView]:
        """The answers of more than half of the sentinels, or of all that answer."""
        sentinels = list(self._sentinels)
        asks = [partial(self._ask, handshake, sentinel) for sentinel in sentinels]
        # Two addresses may lead to one sentinel.
        enough = min(len(sentinels), majority(self._all()) + len(sentinels) - self._named())
        enough = max(majority(len(sentinels)), enough)
        found, errors = await one_then_all(
            handshake, asks, enough, self.pace.share(SENTINEL_TIMEOUT_S), until
        )
        for number, _ in errors:
            self._last(sentinels[number])
        if not found:
            said = "; ".join(dict.fromkeys(str(error) for _, error in errors))
            raise StoreUnavailable(
                f"{self.label}: no sentinel names it ({said or 'there was no time to ask'})"
            )
        with self._mutex:
            self._counted = counted(found, self._counted)
        return found

    def _named(self) -> int:
        """How many sentinels the URL names; those that have not answered yet are taken for different ones."""
        return len({self._ids.get(label) or label for label in self._labels})

    def _all(self) -> int:
        """How many sentinels there are, by all that we know: one that lost its memory counts itself alone."""
        return max(self._counted, self._named())

    def _agreed_at(self, views: Sequence[SentinelView], master: ReportedMaster, asked: float) -> float:
        """When a majority agreed on a master; if we know the addresses of fewer, the others are known by
        hearsay only.
        """
        known = self._all()
        hearsay = HELLO_S if self._named() < majority(known) else 0.0
        return agreed_at(views, master, asked, known, hearsay)

    def _latest(self, views: Sequence[SentinelView]) -> ReportedMaster:
        """The master with the latest epoch among the answers."""
        master = max(views, key=_epoch).master
        self._check_epoch(master)
        return master

    def _check_epoch(self, master: ReportedMaster) -> None:
        now = time.monotonic()
        with self._mutex:
            if master.epoch < self._epoch and now - self._epoch_seen < OUTDATED_S:
                raise StoreUnavailable(
                    f"{self.label}: the sentinels that answer have not heard of its last failover; try again"
                )
            self._epoch, self._epoch_seen = master.epoch, now

    def _last(self, sentinel: Address) -> None:
        with self._mutex:
            self._sentinels.remove(sentinel)
            self._sentinels.append(sentinel)

    async def _ask(self, handshake: Handshake, sentinel: Address, timeout: float) -> SentinelView:
        connection = await handshake.connect(sentinel, timeout)
        service = self._service.encode()
        try:
            # A user who may ask for nothing but the master gets on, too.
            replies = await handshake.ask_several(
                sentinel,
                connection,
                timeout,
                (b"SENTINEL", b"MASTER", service),
                (b"SENTINEL", b"MYID"),
                (b"SENTINEL", b"SENTINELS", service),
            )
        finally:
            await handshake.close(connection)
        view = understood(sentinel.label, read_view, *replies)
        self._ids[sentinel.label] = view.id
        return view


def _epoch(view: SentinelView) -> int:
    return view.master.epoch
