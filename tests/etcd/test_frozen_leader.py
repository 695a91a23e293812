"""A leader that was frozen still answers keep-alives when it wakes up: they must not count."""

from __future__ import annotations

import threading
import time

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.algorithm import keeping
from interlock.backends.etcd.algorithm.sessions import Session, Sessions
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.messages import LeaseAnswer
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.runtime import ThreadRuntime
from interlock.errors import InterlockError
from interlock.testing.servers.etcd import EtcdCluster, Member
from tests.patience import until

pytestmark = pytest.mark.chaos


def side_at(*members: Member) -> Side:
    endpoints = tuple(Endpoint("127.0.0.1", member.port) for member in members)
    transport, keys = BlockingTransport(Address(endpoints), Credentials("", "")), Keys()
    return Side(transport, ThreadRuntime(time.monotonic), keys, Sessions(keys))


def granted(side: Side, ttl: int) -> Session:
    deadline = drive(side.begin(10.0))
    return drive(keeping.session_for(side, float(ttl), deadline))


def asked_while_frozen(cluster: EtcdCluster) -> tuple[int, bool]:
    """A keep-alive that was sent to a leader while it was frozen, and replaced: the ttl it is told, and whether ours counts."""
    leader = cluster.leader()
    others = [member for member in cluster.members if member is not leader]
    side = side_at(leader)
    session = granted(side, 60)
    line = drive(side.connection(5.0))
    told: list[int] = []
    counted: list[bool] = []

    def naively() -> None:
        answer = drive(line.call(messages.KEEP_ALIVE, messages.of_lease(session.lease), 20.0))
        told.append(LeaseAnswer(answer).ttl)

    def ours() -> None:
        try:
            deadline = Deadline(time.monotonic, 20.0)
            counted.append(drive(keeping._confirmed(side, line, session, deadline, False)))
        except (InterlockError, LeaseNotFound):
            counted.append(False)

    threads = [threading.Thread(target=work) for work in (naively, ours)]
    with leader.frozen():
        until(lambda: any(s is not None and s.leader == s.member for s in [m.status() for m in others]))
        for thread in threads:
            thread.start()
        time.sleep(0.3)  # both are in the socket of the frozen leader now
    for thread in threads:
        thread.join(30.0)
    cluster.await_leader()
    drive(side.transport.close())
    return (told or [0])[0], counted[0]


def test_a_keep_alive_that_a_deposed_leader_answers_does_not_count(fragile: EtcdCluster) -> None:
    """The server that wakes up answers with the whole ttl, though its successor may give the lease up: seen 8 of 8 times."""
    answers = [asked_while_frozen(fragile) for _ in range(3)]
    assert any(ttl > 0 for ttl, _ in answers), "the server did not answer: this shows nothing"
    assert not any(counts for ttl, counts in answers)


def test_a_session_past_its_own_deadline_is_never_revived(cluster: EtcdCluster) -> None:
    side = side_at(*cluster.members)
    session = granted(side, 20)
    side.sessions.enter(session, "x", "a-claim")
    lost: list[object] = []
    side.sessions.on_lost(lost.append)
    session.kept -= 25.0  # as if we had been stopped; the server still has the lease
    with pytest.raises(LeaseNotFound):
        drive(keeping.keep(side, session, Deadline(time.monotonic, 5.0)))
    assert lost == [frozenset({"a-claim"})]
    assert session.over
    assert drive(keeping.session_for(side, 20.0, Deadline(time.monotonic, 5.0))) is not session
    drive(side.transport.close())


def test_a_term_that_changed_between_keep_alive_and_confirmation_does_not_count(cluster: EtcdCluster) -> None:
    side = side_at(*cluster.members)
    session = granted(side, 20)
    line = drive(side.connection(5.0))
    line.term -= 1  # what the member told us before was of an older term
    kept = session.kept
    assert drive(keeping._confirmed(side, line, session, Deadline(time.monotonic, 5.0), False)) is False
    assert session.kept == kept
    assert drive(keeping._confirmed(side, line, session, Deadline(time.monotonic, 5.0), False)) is True
    drive(side.transport.close())


@pytest.mark.slow
def test_a_client_whose_leader_freezes_keeps_its_lease(fragile: EtcdCluster) -> None:
    with interlock.connect(fragile.url("frozen/"), ttl=6) as client:
        with client.lock("x") as lease:
            with fragile.leader().frozen():
                time.sleep(4.0)
            until(lambda: lease.remaining() > 3.5, 20.0)
            lease.check()
    fragile.await_leader()
