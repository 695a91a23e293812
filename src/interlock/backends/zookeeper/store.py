"""The store port over a ZooKeeper ensemble, put together from the calls in the modules beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from weakref import WeakMethod, finalize

from interlock._support.record import replaced
from interlock.backends.kit.examining import QUESTION_S, Examiner
from interlock.backends.kit.resolver import on_thread
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.zookeeper import checks
from interlock.backends.zookeeper.checks import ServerFacts
from interlock.backends.zookeeper.own_claims import Ledger
from interlock.backends.zookeeper.registers import Registers
from interlock.backends.zookeeper.renewals import Renewals
from interlock.backends.zookeeper.session_client import SessionClient
from interlock.backends.zookeeper.waits import Waits
from interlock.model import Examination, Traits
from interlock.store import IO_TIMEOUT, Store, StoreDefaults

TRAITS = Traits(
    backend="zookeeper",
    fair=True,
    shares="any",
    lapses="session",
    wakes="server",
    reach="network",
    survives="minority",
    two_holders=(
        "an operator evicts the holder, deletes its node or ends its session",
        "the ensemble is restored from a snapshot",
        "a URL names servers of two ensembles",
        (
            "servers permit sessions of different length, and the answer of one that permits less is "
            "lost when "
            "the client connects to it"
        ),
    ),
    min_ttl=0.5,
    max_ttl=86400.0,
    blocks=False,
)

VALUE_OVERHEAD_BYTES = 8_192  # bytes of a request that a register's path, the ids and the ACL may take


class ZooKeeperStore(Waits, Renewals, Registers, StoreDefaults):
    """Claims and registers on an ensemble, for programs anywhere on the network."""

    def __init__(
        self,
        session_client: SessionClient,
        runtime: WaitRuntime,
        ledger: Ledger | None = None,
        blocking_side: ZooKeeperStore | None = None,
    ) -> None:
        super().__init__(session_client, runtime, ledger, blocking_side)
        said = session_client.address.session_timeout
        self.traits = replaced(
            TRAITS,
            max_ttl=TRAITS.max_ttl if said is None else said,
            largest_value=session_client.address.jute_maxbuffer - VALUE_OVERHEAD_BYTES,
        )
        self._blocking_side = blocking_side  # the blocking side of an asyncio store
        if blocking_side is None:
            session_client.on_session_lost.insert(0, self._ledger.lose)
            # The connection's thread refers to the session client, and so do the stores, but the session
            # client refers to no store. So when nobody refers to the client any more, its stores are
            # collected, and the thread is told to end. The store for tasks refers to this one, and is
            # collected first.
            finalize(self, session_client.stop_soon).atexit = False
        tell = WeakMethod(self._on_session)
        session_client.on_session.append(lambda timeout: _called(tell(), timeout))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._session_client.label}>"

    def expect_ttl(self, ttl: float, *, at_most: bool) -> None:
        session_client = self._session_client
        if session_client.address.session_timeout is None:
            session_client.session_timeout = ttl
        for store in (self, self._blocking_side):
            if store is not None:
                store.traits = replaced(self.traits, max_ttl=session_client.session_timeout)
                store._usual = ttl if at_most else 0.0

    def _on_session(self, timeout: float) -> None:
        """Called on the connection's thread, with the time that the servers have granted the session."""
        self.traits = replaced(self.traits, max_ttl=min(self._session_client.session_timeout, timeout))

    def node_of(self, id: str) -> str | None:
        """The path of a claim's node, if it stands in the present session; for guards that check it."""
        own = self._ledger.claims.get(id)
        return own.path if own is not None and own.stands_in(self._session_client.session) else None

    async def examine(self, timeout: float = IO_TIMEOUT) -> Examination:
        """Look at the session, and ask each server that the URL names."""
        examiner, client = Examiner(self._runtime.now, timeout), self._session_client
        session = await examiner.answer(partial(client.connect, self._runtime), "zk-session")
        if session is not None:
            examiner.extend(list(checks.session(session.timeout, client.session_timeout)))
            found: list[ServerFacts] = []
            for host, port in client.address.hosts:
                share = examiner.deadline.for_request(QUESTION_S)
                found.append(await self._ask(partial(checks.ask_server, host, port), share))
            examiner.extend(list(checks.ensemble(found, len(client.address.hosts))))
            checks.expect(examiner, found)
        return examiner.result()

    async def _ask(self, question: Callable[[float], ServerFacts], timeout: float) -> ServerFacts:
        """Ask a question that blocks, on a thread if this side is that of an event loop."""
        if self._blocking_side is None:
            return question(timeout)
        return await on_thread(partial(question, timeout), 2 * timeout)

    # ---- housekeeping ------------------------------------------------------------------

    def on_doubt(self, call: Callable[[], None]) -> None:
        self._session_client.on_doubt.append(call)

    def on_session_shortened(self, call: Callable[[float, float], None]) -> None:
        self._session_client.on_session_shortened.append(call)

    def on_session_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        self._session_client.on_session_lost.append(call)

    def inside(self) -> bool:
        return self._session_client.inside()

    def blocking(self) -> Store:
        return self if self._blocking_side is None else self._blocking_side

    def after_fork(self) -> None:
        if self._blocking_side is None:
            self._ledger.after_fork()
            self._queue_reads.after_fork()
            self._send_slots.after_fork()
            self._session_client.after_fork()

    async def close(self) -> None:
        """End the session: every claim of this client is gone at once."""
        await self._session_client.close(self._runtime)


def _called(call: Callable[[float], None] | None, timeout: float) -> None:
    if call is not None:
        call(timeout)
