"""What a client sends to the servers, recorded; the test can send it again, hold it back, or lose its answer."""

from __future__ import annotations

from collections.abc import Callable

from interlock._core.drive import drive
from interlock.backends.etcd.algorithm.sessions import Session
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.store import EtcdStore
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.messages import TXN, Method, get
from interlock.backends.etcd.wire.values import ClaimKey
from interlock.backends.kit.deadline import Deadline
from interlock.blocking import Client, Lease
from interlock.errors import StoreUnavailable
from tests.patience import PATIENCE


class Wire:
    """What a client sends to the servers: it is recorded, and can be sent again, held back, or left without an answer."""

    def __init__(self, client: Client) -> None:
        store = client._core.store
        assert isinstance(store, EtcdStore)
        self.store = store
        self.side: Side = store._side
        self._call = self.side.transport.call
        self.sent: list[bytes] = []
        self._answers_to_lose = self._requests_to_hold = 0
        self.held_back: list[bytes] = []
        self.side.transport.call = self._recorded  # type: ignore[method-assign]

    async def _recorded(
        self,
        method: Method,
        body: bytes,
        deadline: Deadline,
        *,
        again: bool = True,
        low_priority: bool = False,
        unsure: Callable[[], object] | None = None,
    ) -> bytes:
        if method != TXN:
            return await self._call(method, body, deadline, again=again, low_priority=low_priority)
        self.sent.append(body)
        if self._requests_to_hold:
            self._requests_to_hold -= 1
            self.held_back.append(body)
            if unsure is not None:
                unsure()
            if not again:
                raise StoreUnavailable("no answer, says the test")
        answer = await self._call(
            method, body, deadline, again=again, low_priority=low_priority, unsure=unsure
        )
        if self._answers_to_lose:
            self._answers_to_lose -= 1
            raise StoreUnavailable("the answer is lost, says the test")
        return answer

    def lose_answer(self) -> None:
        """The next Txn is applied, and its answer is lost."""
        self._answers_to_lose = 1

    def hold_back(self) -> None:
        """The next Txn is on its way for long. If it may be repeated, the repetition is answered meanwhile."""
        self._requests_to_hold = 1

    def send(self, body: bytes) -> None:
        """What was sent before arrives, late or for the second time."""
        drive(self.side.transport.ask(TXN, body, PATIENCE), nested=True)

    def standing(self, resource: str) -> list[ClaimKey]:
        """The keys under a name."""
        request = get(*self.side.keys.folder(resource), order=messages.UPWARDS)
        return [ClaimKey(kv) for kv in drive(self.side.range(request, self.time()), nested=True).kvs]

    def key(self, resource: str) -> bytes:
        (entry,) = self.standing(resource)
        return entry.key

    def session(self, lease: Lease) -> Session:
        session = self.side.sessions.of_claim(lease.id)
        assert session is not None
        return session

    def time(self) -> Deadline:
        return self.side.within(PATIENCE)


def used(wire: Wire, client: Client, resource: str = "x") -> bytes:
    """Take a lock and give it back; the key that was used."""
    with client.lock(resource, timeout=PATIENCE):
        return wire.key(resource)
