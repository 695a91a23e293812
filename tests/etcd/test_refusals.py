"""Answers that mean "not now": they are asked again, and nobody takes them for an unfit server."""

from __future__ import annotations

import threading

import pytest

import interlock
from interlock.backends.etcd.errors import NotProcessed, Refused, status_error
from interlock.backends.etcd.wire import grpc
from interlock.backends.etcd.wire.grpc import Call, Status
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.testing.servers.etcd import EtcdCluster
from tests.patience import PATIENCE

MOVES = 12


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (grpc.UNKNOWN, "not a primary lessor"),
        (grpc.UNKNOWN, "lease: not a primary lessor"),
        (grpc.FAILED_PRECONDITION, "etcdserver: not leader"),
        (grpc.UNKNOWN, "context canceled"),
        (grpc.FAILED_PRECONDITION, "etcdserver: rpc not supported for learner"),
        (grpc.UNAVAILABLE, "etcdserver: leader changed"),
    ],
)
def test_a_member_that_cannot_serve_now_is_asked_again(code: int, said: str) -> None:
    assert isinstance(status_error("etcd://here", Status(code, said)), Refused)


def test_a_dropped_proposal_may_be_repeated_whatever_it_was() -> None:
    error = status_error("etcd://here", Status(grpc.UNKNOWN, "raft proposal dropped"))
    assert isinstance(error, NotProcessed)


@pytest.mark.parametrize("http", [b"429", b"502", b"503", b"504"])
def test_a_gateway_that_is_overloaded_is_not_another_product(http: bytes) -> None:
    call = Call()
    call.on_headers({b":status": http, b"content-type": b"text/html"}, False)
    assert call.status is not None
    assert isinstance(status_error("etcd://here", call.status), StoreUnavailable)
    assert http.decode() in call.status.text


def test_another_product_is_named_at_once() -> None:
    call = Call()
    call.on_headers({b":status": b"404", b"content-type": b"text/html"}, False)
    assert call.status is not None
    assert isinstance(status_error("etcd://here", call.status), StoreUnfit)


@pytest.mark.slow
@pytest.mark.chaos
def test_locks_go_on_while_the_leader_is_moved(fragile: EtcdCluster) -> None:
    """While a leader hands its office over, it drops proposals."""
    failed: list[str] = []
    over = threading.Event()

    def work(number: int) -> None:
        with interlock.connect(fragile.url("moved/")) as client:
            while not over.is_set():
                try:
                    with client.lock(f"x{number}", timeout=PATIENCE):
                        pass
                except StoreUnfit as error:
                    failed.append(str(error))
                except StoreUnavailable:
                    pass  # it took too long: the machine is busy

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(MOVES):
            status = fragile.followers()[0].status()
            assert status is not None
            fragile.ctl("move-leader", f"{status.member % (1 << 64):x}")
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert not failed
