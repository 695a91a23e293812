"""A floor under the tokens, for a move from another store: set by an operator, and obeyed by everybody at once."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

import interlock
from interlock.errors import StoreUnfit
from interlock.testing.servers.etcd import EtcdCluster


def test_tokens_go_on_above_the_floor_for_clients_that_knew_the_old_one(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    with (
        interlock.connect(cluster.url(f"{prefix}/")) as one,
        interlock.connect(cluster.url(f"{prefix}/")) as two,
    ):
        with one.lock("x") as lease:
            before = lease.token
        with two.lock("x"):
            pass
        floor = int(time.time() * 1e6)
        cluster.ctl("put", f"{prefix}-token-floor", str(floor))
        tokens: list[int] = []
        for client in (one, two, one):
            with client.lock("x") as lease:
                tokens.append(lease.token)
                assert client.inspect("x").holders[0].token == lease.token
                assert client.semaphore("s", capacity=9).acquire(blocking=False)
        assert before < floor < tokens[0] < tokens[1] < tokens[2]


def test_a_claim_that_waited_across_the_change_keeps_its_token_and_the_next_has_a_higher_one(
    cluster: EtcdCluster,
) -> None:
    prefix = uuid4().hex
    with interlock.connect(cluster.url(f"{prefix}/")) as client:
        first = client.lock("x").acquire()
        assert first
        cluster.ctl("put", f"{prefix}-token-floor", "1000000000")
        assert client.lock("x").acquire(blocking=False) is None
        first.renew()
        first.release()
        with client.lock("x") as second:
            assert first.token < 1_000_000_000 < second.token
            second.renew()
        client.lock("x").acquire()
        client.evict("x", reason="drill")
        with client.lock("x") as third:
            assert third.token > second.token


def test_a_floor_that_is_no_number_is_refused(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    cluster.ctl("put", f"{prefix}-token-floor", "many")
    with interlock.connect(cluster.url(f"{prefix}/")) as client:
        with pytest.raises(StoreUnfit, match="whole number"):
            client.lock("x").acquire()


@pytest.mark.parametrize("floor", ["-1", str(2**62), "1795012473000000000000000"])
def test_a_floor_above_which_tokens_do_not_fit_is_refused(cluster: EtcdCluster, floor: str) -> None:
    """With too many digits typed, guards compared the first 20 digits of tokens alone."""
    prefix = uuid4().hex
    cluster.ctl("put", f"{prefix}-token-floor", "--", floor)
    with interlock.connect(cluster.url(f"{prefix}/")) as client:
        with pytest.raises(interlock.StoreUnfit, match="between 0 and"):
            client.lock("x").acquire()
