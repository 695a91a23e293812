"""Requests of one store, as its callers await them: on threads an await blocks, on a loop it suspends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlock._core.runtime import Signal
from interlock._support.wording import duration
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.errors import SessionReplaced, cut_off, translated
from interlock.backends.zookeeper.library import NodeExists, NoNode, Unimplemented
from interlock.backends.zookeeper.requests import Request
from interlock.backends.zookeeper.session_client import Answer, Session, SessionClient, late
from interlock.errors import StoreUnavailable, Unreached
from interlock.store import IO_TIMEOUT

READS_PER_REQUEST = 200  # reads in one request
RETRY_PAUSE_S = 0.02  # seconds before something is asked again whose connection was lost
# Seconds that a request gets if the servers have lately needed them, however little time is left.
MAX_TRIP_S = 0.5


class StrictDeadline(Deadline):
    """A deadline that no request may overrun, and within which no read is asked again.

    The calls of the keeper have it, because other leases wait for their renewal meanwhile.
    """

    __slots__ = ()


class Requester:
    """Sends requests over the session, and waits for their answers in the way of one runtime."""

    def __init__(self, session_client: SessionClient, runtime: WaitRuntime) -> None:
        self.session_client = session_client
        self.runtime = runtime
        self._no_multi_read = False  # a server below 3.6

    async def connect(self, deadline: Deadline, *, connecting_is_extra: bool = True) -> Session:
        """The session, connected.

        If `connecting_is_extra`, its pace says how long that may take, and whether it
        counts.
        """
        session_client = self.session_client
        began, timeout = session_client.now(), deadline.left()
        counts = not connecting_is_extra or session_client.pace.counts(timeout)
        session = await session_client.connect(
            self.runtime,
            session_client.pace.within(timeout) if connecting_is_extra else deadline.for_request(),
        )
        if not counts:
            deadline.at += session_client.now() - began
        return session

    async def ask(self, asked: Sequence[Request], deadline: Deadline) -> list[Answer]:
        """Send requests back to back, and wait for all answers: one round trip, however many they are.

        Reads whose connection ends before their answers are asked again on the next one, while there is time.
        A write is not: it may have been applied, and its caller knows how to find out.
        """
        answers = await self._ask_once(asked, deadline)
        if isinstance(deadline, StrictDeadline) or any(request.type in requests.WRITES for request in asked):
            return answers
        while any(cut_off(answer.error) for answer in answers) and await self.reconnected(deadline):
            answers = await self._ask_once(asked, deadline)
        return answers

    async def reconnected(self, deadline: Deadline) -> bool:
        """Wait for the next connection after one that was lost; False if there is no time for that."""
        if deadline.left() <= RETRY_PAUSE_S:
            return False
        # kazoo settles what was under way before it tells that the connection is lost.
        await self.runtime.wait(self.runtime.signal(), RETRY_PAUSE_S)
        try:
            await self.session_client.connect(self.runtime, deadline.left())
        except Unreached:
            return False
        return True

    async def _ask_once(self, asked: Sequence[Request], deadline: Deadline) -> list[Answer]:
        timeout, signal = self.request_timeout(deadline), self.runtime.signal()
        answers = self.session_client.send(asked, signal)
        await self.answered(signal, timeout)
        if not all(answer.done for answer in answers):
            raise late(self.session_client.label, timeout)
        return answers

    def request_timeout(self, deadline: Deadline) -> float:
        """Seconds that a request may take: what is left, but always as long as two round trips take."""
        left = deadline.for_request()
        return left if isinstance(deadline, StrictDeadline) else max(left, self._trips())

    def _trips(self) -> float:
        return min(MAX_TRIP_S, 2 * self.session_client.trip)

    def strictly_within(self, timeout: float) -> StrictDeadline:
        """A deadline for all requests of a call together, not less than two round trips."""
        return StrictDeadline(self.runtime.now, max(timeout, self._trips()))

    async def answered(self, signal: Signal, timeout: float) -> None:
        """Wait for the signal of a request that was sent just now; `StoreUnavailable` if it does not come."""
        began = self.session_client.now()
        came = await self.runtime.wait(signal, timeout)
        if not came:
            raise late(self.session_client.label, timeout)  # silence does not tell how long a trip takes
        self.session_client.trips.append(self.session_client.now() - began)

    async def one(self, request: Request, deadline: Deadline) -> Answer:
        return (await self.ask([request], deadline))[0]

    async def make_parents(self, folder: str, deadline: Deadline) -> None:
        """Make a folder, and all above it; those that are there already stay."""
        answers = await self.ask(self.session_client.parents(folder), deadline)
        if answers[-1].error is not None:
            self.raise_refusal(answers)

    def raise_refusal(self, made: Sequence[Answer]) -> None:
        """Raise the reason for which one of these folders was not made, if it is not there already."""
        for answer in made:
            if answer.failed(Unimplemented):
                raise StoreUnavailable(f"{self.session_client.label}: interlock needs ZooKeeper 3.5 or later")
            if answer.error is not None and not (answer.failed(NodeExists) or answer.failed(NoNode)):
                raise translated(self.session_client.label, answer.error)

    async def children(self, folder: str, deadline: Deadline) -> list[str]:
        """The nodes in a folder, as the leader knows them now; none if there is no such folder."""
        _, answer = await self.ask([requests.sync(folder), requests.get_children(folder)], deadline)
        return [] if answer.failed(NoNode) else answer.get()

    async def data(self, path: str, deadline: Deadline) -> tuple[bytes, Any] | None:
        """The data and the Stat of a node, as the leader knows them now; None if there is none."""
        _, answer = await self.ask([requests.sync(path), requests.get_data(path)], deadline)
        return None if answer.failed(NoNode) else answer.get()

    async def read_all(self, reads: Sequence[Request], deadline: Deadline) -> list[Any]:
        """The results of many reads, with None for nodes that are gone."""
        found: list[Any] = []
        for start in range(0, len(reads), READS_PER_REQUEST):
            found += await self._read_some(reads[start : start + READS_PER_REQUEST], deadline)
        return found

    async def _read_some(self, reads: Sequence[Request], deadline: Deadline) -> list[Any]:
        if not self._no_multi_read:
            answer = await self.one(requests.MultiRead(reads), deadline)
            if not answer.failed(Unimplemented):
                return [None if isinstance(part, Exception) else part for part in answer.get()]
            self._no_multi_read = True
        answers = await self.ask(reads, deadline)
        return [None if answer.failed(NoNode) else answer.get() for answer in answers]

    def reading(self, reads: Sequence[Request]) -> list[Request]:
        """A few reads as requests to be sent with others: one request, if the servers know such ones.

        See `read_together`.
        """
        return [requests.MultiRead(reads)] if reads and not self._no_multi_read else list(reads)

    def read_together(self, answers: Sequence[Answer]) -> list[Any] | None:
        """The results of such requests, with None for nodes that are gone; None if they must be sent one
        by one.
        """
        if len(answers) == 1 and answers[0].failed(Unimplemented):
            self._no_multi_read = True
            return None
        if self._no_multi_read:
            return [None if answer.failed(NoNode) else answer.get() for answer in answers]
        return [None if isinstance(part, Exception) else part for answer in answers for part in answer.get()]

    async def server_now(self, deadline: Deadline) -> float:
        """The servers' own time, seconds: ages are counted on one clock. Only a write tells it."""
        if self.session_client.clock_offset is None:
            session = await self.connect(deadline)
            await self.beat(session, deadline)
        return self.session_client.now() + (self.session_client.clock_offset or 0.0)

    async def beat(self, session: Session, deadline: Deadline) -> None:
        """Write to the session's own node, and wait until that is confirmed."""
        timeout, signal = self.request_timeout(deadline), self.runtime.signal()
        self.session_client.beat(session, signal)
        await self.answered(signal, timeout)

    async def freshen(self, session: Session, needed: float, deadline: Deadline) -> None:
        """See to it that the session is known to live for `needed` seconds more.

        Usually it is: its own node is written to all the time. After a long outage two writes must be
        confirmed, a quarter of the timeout apart.
        """
        now = self.session_client.now
        while session.writes.ends - now() < needed:
            if self.session_client.session is not session:  # no write will ever prove an old one
                raise SessionReplaced(f"{self.session_client.label}: the session was replaced meanwhile")
            if deadline.passed():
                raise Unreached(f"{self.session_client.label}: the session was not verified in time")
            await self.beat(session, deadline)
            if session.writes.ends - now() >= needed:
                return
            proof = session.writes.next_proof()
            pause = 0.0 if proof is None else proof - now()
            if pause > deadline.left():
                raise StoreUnavailable(
                    f"{self.session_client.label}: the connection was away for long, and the session "
                    f"is verified in {duration(pause)}"
                )
            await self.runtime.wait(self.runtime.signal(), max(0.001, pause))


def within(requester: Requester, timeout: float = IO_TIMEOUT) -> Deadline:
    return Deadline(requester.runtime.now, timeout)
