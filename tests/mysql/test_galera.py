"""On a Galera cluster of two real nodes: what interlock says, and what holds across the nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import interlock
from interlock.backends.sql.mysql.subscription import MAX_MAIL_POLL_S
from interlock.testing.lag import at_most
from interlock.testing.servers.galera import PROVIDER, cluster
from interlock.testing.servers.mysql import Server
from tests.mysql.processlist import asleep
from tests.patience import PATIENCE, until

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not PROVIDER.exists(), reason="Galera is not installed: apt-get install galera-4 rsync"
    ),
]
CLIENTS = 4  # of each node
TURNS = 6  # of each client


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Server, Server]]:
    with cluster() as two:
        yield two


def test_a_client_says_once_what_is_promised_there(
    nodes: tuple[Server, Server], caplog: pytest.LogCaptureFixture
) -> None:
    with interlock.connect(nodes[0].url()) as client:
        with client.lock("x"), client.lock("y"):
            pass
    (said,) = [record.getMessage() for record in caplog.records if "Galera" in record.getMessage()]
    assert said.startswith(f"mysql://root@127.0.0.1:{nodes[0].port}/app is a node of a Galera cluster")


def test_a_server_that_is_no_node_of_a_cluster_says_nothing(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with interlock.connect(url) as client, client.lock("x"):
        pass
    assert not [record for record in caplog.records if "Galera" in record.getMessage()]


def test_a_waiter_at_another_node_finds_its_grant_by_looking(nodes: tuple[Server, Server]) -> None:
    with interlock.connect(nodes[0].url()) as one, interlock.connect(nodes[1].url()) as other:
        lease = one.lock("w").acquire(timeout=PATIENCE)
        assert lease
        got = list[float]()

        def wait() -> None:
            with other.lock("w", timeout=PATIENCE):
                got.append(time.monotonic())

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: one.inspect("w").waiters and asleep(nodes[1]))
        with at_most(MAX_MAIL_POLL_S + 0.75):
            lease.release()
            until(lambda: got)
        waiting.join()


@pytest.mark.soak  # nodes that conflict all the time stand still for seconds now and then, and callers are told: see the page
def test_clients_at_both_nodes_exclude_each_other_and_tokens_rise(nodes: tuple[Server, Server]) -> None:
    inside, tokens, met = list[int](), list[int](), list[int]()

    def work(node: Server, number: int) -> None:
        with interlock.connect(node.url(), ttl=30) as client:
            for _ in range(TURNS):
                with client.lock("r", timeout=PATIENCE) as lease:
                    inside.append(number)
                    met.append(len(inside))
                    tokens.append(lease.token)
                    time.sleep(0.002)
                    inside.remove(number)

    workers = [
        threading.Thread(target=work, args=(node, number)) for number, node in enumerate(nodes * CLIENTS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(tokens) == 2 * CLIENTS * TURNS
    assert set(met) == {1}
    assert tokens == sorted(set(tokens))
