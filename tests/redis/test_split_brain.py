"""The network is cut between a master with its client and everybody else: the client knows in time that it may have lost.

`python -m tests.redis.test_split_brain 20` repeats it, and prints what it measures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from interlock.backends.redis.wire.keys import slot
from interlock.testing.servers import namespaces as zones
from interlock.testing.servers.namespaces import Zone, Zones
from tests.patience import until

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.skipif(bool(zones.missing()), reason=zones.missing()),
]

TTL = 3.0
NODE_TIMEOUT = 1.0  # seconds after which a node of the Cluster is suspected
LATE = 0.1  # seconds from the cut of the link to the instant that is noted for it, and between two looks at a lease

Apart = AbstractContextManager["Deployment"]


class Deployment:
    """Servers in two zones: the master of `name` is near, and what can take over is far."""

    def __init__(self, made: Zones, url: str, name: str, servers: list[tuple[Zone, int]]) -> None:
        self.zones, self.url, self.name = made, url, name
        self._far = [(zone, port) for zone, port in servers if zone is made.far]

    def await_promoted(self) -> None:
        """Wait until a server on the far side has become master."""
        until(lambda: self._masters() > self._before)

    def cut(self) -> float:
        self._before = self._masters()
        return self.zones.cut()

    def _masters(self) -> int:
        said = (self.zones.says(zone, port, "info", "replication") for zone, port in self._far)
        return sum("role:master" in words for words in said)


@contextmanager
def behind_sentinels() -> Iterator[Deployment]:
    """A master and a sentinel near; two replicas and two sentinels far."""
    made = zones.SplitSentinels()
    try:
        made.start()
        assert made.zones is not None
        yield Deployment(made.zones, made.url(), "x", made.servers)
    finally:
        made.close()


@contextmanager
def on_a_cluster() -> Iterator[Deployment]:
    """One master near; two more, and the replica of the first, far."""
    with zones.zones() as made:
        near, far = made.near, made.far
        servers = [(near, 7001), (far, 7002), (far, 7003), (far, 7004)]
        timeout = str(round(1000 * NODE_TIMEOUT))
        for zone, port in servers:
            made.server(
                *(zone, port, "--cluster-enabled", "yes", "--cluster-node-timeout", timeout),
                *("--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"),
            )
        masters = [f"{zone.host}:{port}" for zone, port in servers[:3]]
        near.run("redis-cli", "--cluster", "create", *masters, "--cluster-yes")
        for zone, port in servers[:3]:
            made.await_answer(zone, port, "cluster_state:ok", "cluster", "info")
        near.run("redis-cli", "--cluster", "add-node", f"{far.host}:7004", masters[0], "--cluster-slave")
        made.await_answer(near, 7001, "state=online", "info", "replication")
        for zone, port in servers:
            made.await_answer(zone, port, "cluster_known_nodes:4", "cluster", "info")
            made.await_answer(zone, port, "cluster_state:ok", "cluster", "info")
        name = next(f"x{n}" for n in range(100) if slot(f"x{n}".encode()) < 5000)
        yield Deployment(made, f"redis+cluster://{','.join(masters)}", name, servers)


def split(apart: Deployment, query: str) -> tuple[float, float, float]:
    """Cut the network under a holder; the seconds from the cut to its loss, the other's grant, and how long both held."""
    old = apart.zones.client(apart.zones.near, apart.url + query, apart.name, TTL, again=True)
    old.next("granted")
    cut = apart.cut()
    apart.await_promoted()
    new = apart.zones.client(apart.zones.far, apart.url, apart.name, TTL)
    granted = new.next("granted")
    lost = old.next("lost")
    # The holder that was lost asks again and again, and its master still answers, for longer than a ttl.
    time.sleep(max(0.0, lost + 1.5 * TTL - time.monotonic()))
    apart.zones.heal()
    time.sleep(2.0)
    assert new.rest() == [], "the other lost its lock"
    assert old.rest() == [], "the old master granted the lock again"
    return lost - cut, granted - cut, max(0.0, lost - granted)


CASES: list[tuple[Callable[[], Apart], str, float, bool]] = [
    (behind_sentinels, "?replicas=majority", TTL, True),
    (behind_sentinels, "?replicas=1", TTL, True),
    (behind_sentinels, "", 2 * TTL, False),
    (on_a_cluster, "?replicas=majority", TTL, True),
    (on_a_cluster, "", 1.5 * NODE_TIMEOUT + TTL, False),
]


@pytest.mark.parametrize(("make", "query", "bound", "alone"), CASES)
def test_a_holder_that_is_cut_off_with_its_master_is_lost_in_time(
    make: Callable[[], Apart], query: str, bound: float, alone: bool
) -> None:
    with make() as apart:
        lost, _, both = split(apart, query)
    assert lost <= bound + LATE
    if alone:
        assert both <= LATE, "two held"


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        for make, query, bound, _ in CASES:
            with make() as apart:
                lost, granted, both = split(apart, query)
            print(
                f"{number} {make.__name__} {query or '(plain)'}: lost {lost:.2f} s after the cut (at most {bound:g}), "
                f"another granted after {granted:.2f} s, both held for {both:.2f} s",
                flush=True,
            )
