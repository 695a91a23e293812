"""Stages etcd 20418: an old acknowledgement of a read's id that is used twice confirms another read, at a leader that was replaced.

The leader L leads in term T; F1 and F2 follow. There are only delays and one loss of messages between members, and one pause of L:

 1. Somebody reads at F1. It sends ReadIndex(X) to L, L sends heartbeats with X, and F1 acknowledges; so L answers, and its answer is lost.
    F2's acknowledgement of X is delayed.
 2. F1 asks again after 500 ms, and before etcd 3.4.42, 3.5.28 and 3.6.9 with the same id X; that message is delayed, too. L is paused.
    F1 and F2 elect one of them in term T + 1, and its leases begin anew.
 3. L continues, and hears nobody. It answers a keep-alive in term T. A read Y that is to confirm this waits in L.
 4. F1's second ReadIndex(X) arrives, and then F2's acknowledgement of X, which it gave in term T: X and all reads before it count as
    confirmed, Y among them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from interlock._core.drive import drive
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.algorithm import keeping
from interlock.backends.etcd.algorithm.sessions import Session, Sessions
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.messages import KEEP_ALIVE, LeaseAnswer, RangeAnswer
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.runtime import ThreadRuntime
from interlock.errors import InterlockError
from interlock.testing.servers.etcd import EtcdCluster, Member
from tests.etcd.peer_messages import Fate, PeerMessage, PeerWays
from tests.patience import until

TTL = 60


class NotStaged(Exception):
    """The members did not send what was waited for: this try shows nothing."""


class StaleRead:
    """One try: a keep-alive at a leader that was replaced without noticing, and a plain read `beside` it.

    The old acknowledgement confirms one of the two reads, if a keep-alive makes one: it is that of the keep-alive in half of
    the tries only, and always if there is no other.
    """

    def __init__(self, cluster: EtcdCluster, ways: PeerWays, *, beside: bool = True) -> None:
        self._beside = beside
        self._cluster, self._ways = cluster, ways
        self._leader = cluster.leader()
        self._follower, self._third = [m for m in cluster.members if m is not self._leader]
        self._read_id = b""
        self._first: PeerMessage | None = None
        self._again: PeerMessage | None = None
        self._acknowledged: PeerMessage | None = None
        self._let_go = 0  # how many of the two old messages may pass
        self.same_id = False  # the follower used the id of its read twice
        self.answered = False  # the deposed leader answered the keep-alive
        self.counted = False  # and it counted
        self.stale = (
            False  # a plain linearizable read at the deposed leader did not see its successor's write
        )

    def run(self) -> None:
        side = side_at(self._leader)
        try:
            session, line = granted(side, TTL), drive(side.connection(5.0))
            drive(keeping.keep(side, session, Deadline(time.monotonic, 5.0), listed=True))
            term, revision = line.term, self._revision(self._leader)
            self._delay()
            successor = until(self._successor)
            assert successor is not None
            written = self._write(successor)
            assert written > revision
            began = time.monotonic()
            keeper = threading.Thread(target=self._keep, args=(side, line, session))
            threads = [
                keeper,
                *([threading.Thread(target=self._read, args=(written,))] if self._beside else []),
            ]
            self._leader.thaw()
            for thread in threads:
                thread.start()
            self._let_old_messages_arrive(began)
            for thread in threads:
                thread.join(30.0)
            status = successor.status()
            assert status is not None
            assert status.term > term, "nobody has replaced the leader"
        finally:
            drive(side.transport.close())
            self._mend()

    def _delay(self) -> None:
        """Steps 1 and 2, until the leader is paused."""
        ways, leader = self._ways, self._leader.name
        follower, third = self._follower.name, self._third.name
        ways.seen.clear()
        ways.watching = True
        ways.rule(leader, follower, lambda m: "lose" if m.type == "ReadIndexResp" else "pass")
        ways.rule(follower, leader, self._from_follower)
        ways.rule(third, leader, self._from_third)
        threading.Thread(target=self._somebody_reads, daemon=True).start()
        if not ways.until(lambda: self._again is not None and self._acknowledged is not None, 6.0):
            raise NotStaged([seen.message for seen in ways.seen[-30:]])
        assert self._again is not None
        self.same_id = self._again.context == self._read_id
        for other in (follower, third):
            ways.rule(leader, other, lambda m: "lose")
            ways.block((leader, other), (other, leader))
        self._leader.freeze()

    def _from_follower(self, message: PeerMessage) -> Fate:
        if message.type == "ReadIndex" and self._first is None:
            self._first, self._read_id = message, message.context
        elif message.type == "ReadIndex" and self._again is None and message is not self._first:
            self._again = message
        if self._again is None:
            return "pass"
        return "pass" if self._let_go >= 1 and message is self._again else "hold"

    def _from_third(self, message: PeerMessage) -> Fate:
        if self._acknowledged is None and self._read_id and message.context == self._read_id:
            self._acknowledged = message
        if self._acknowledged is None:
            return "pass"
        return "pass" if self._let_go >= 2 and message is self._acknowledged else "hold"

    def _let_old_messages_arrive(self, since: float) -> None:
        """Step 4, as soon as the leader has a read under way; and if it has none, too."""
        known = {self._read_id, b""}
        self._ways.until(
            lambda: [
                seen
                for seen in self._ways.seen
                if seen.when > since
                and seen.sender == self._leader.name
                and seen.message.type == "Heartbeat"
                and seen.message.context not in known
            ],
            0.4,
        )
        self._let_go = 1
        self._ways.ask_again()
        time.sleep(0.02)  # the two come over different ways, and this one first
        self._let_go = 2
        self._ways.ask_again()

    def _successor(self) -> Member | None:
        for member in (self._follower, self._third):
            status = member.status()
            if status is not None and status.leader == status.member:
                return member
        return None

    # ---- who asks -----------------------------------------------------------------------

    def _somebody_reads(self) -> None:
        _read_at(self._follower, 6.0)

    def _keep(self, side: Side, line: MemberConnection, session: Session) -> None:
        plain = line.call

        async def listening(
            method: bytes, body: bytes, timeout: float, *, low_priority: bool = False
        ) -> bytes:
            answer = await plain(method, body, timeout, low_priority=low_priority)
            if method == KEEP_ALIVE:
                self.answered = LeaseAnswer(answer).ttl > 0
            return answer

        line.call = listening  # type: ignore[method-assign]
        before = session.kept
        try:
            drive(keeping.keep(side, session, Deadline(time.monotonic, 1.5), listed=True))
        except (InterlockError, LeaseNotFound):
            pass  # it was not confirmed
        self.counted = session.kept > before

    def _read(self, written: int) -> None:
        found = _read_at(self._leader, 1.5)
        self.stale = found is not None and found < written

    def _revision(self, member: Member) -> int:
        found = _read_at(member, 5.0)
        assert found is not None
        return found

    def _write(self, member: Member) -> int:
        side = side_at(member)
        try:
            body = messages.txn([], [messages.put_op(messages.put(b"staged", b"by the successor"))])
            return drive(side.txn(body, Deadline(time.monotonic, 10.0))).revision
        finally:
            drive(side.transport.close())

    def _mend(self) -> None:
        self._ways.watching = False
        self._leader.thaw()
        self._ways.free()
        self._cluster.await_leader()


def side_at(*members: Member) -> Side:
    endpoints = tuple(Endpoint("127.0.0.1", member.port) for member in members)
    transport, keys = BlockingTransport(Address(endpoints), Credentials("", "")), Keys()
    return Side(transport, ThreadRuntime(time.monotonic), keys, Sessions(keys))


def granted(side: Side, ttl: int) -> Session:
    deadline = drive(side.begin(10.0))
    return drive(keeping.session_for(side, float(ttl), deadline))


def _read_at(member: Member, timeout: float) -> int | None:
    """The revision that a linearizable read at one member sees; None if it is not answered."""
    side = side_at(member)
    try:
        line = drive(side.connection(timeout))
        answer = drive(line.call(messages.RANGE, messages.get(b"staged"), timeout))
        return RangeAnswer.of(answer).header.revision
    except InterlockError:
        return None
    finally:
        drive(side.transport.close())


@contextmanager
def staged() -> Iterator[tuple[EtcdCluster, PeerWays]]:
    """A cluster whose members speak over ways that can be stopped."""
    cluster = EtcdCluster()
    ways = PeerWays(cluster)
    try:
        cluster.start()
        ways.know(cluster)
        yield cluster, ways
    finally:
        cluster.close()
        ways.close()
