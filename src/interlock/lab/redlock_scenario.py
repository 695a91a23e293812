"""What scenarios on five independent Redis servers have in common, and the Redlock of many blog posts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from interlock.lab.scenario import Scenario
from interlock.lab.stage import Stage
from interlock.lab.witness import redis_majority
from interlock.lab.worker import KEY, Me
from interlock.lab.worker_process import WorkerProcess

RETRY_S = 0.03


def naive_redlock(me: Me) -> None:
    from redis import RedisError

    nodes = me.nodes()
    me.begins()
    while True:
        began, granted = time.monotonic(), 0
        for node in nodes:
            with suppress(RedisError):
                granted += bool(node.set("report", me.name, nx=True, px=int(me.ttl * 1000)))
        valid_for = me.ttl - (time.monotonic() - began)
        if granted >= 3 and valid_for > 0:
            break
        release(nodes, me.name)
        time.sleep(RETRY_S)
    with me.inside(believes_for=valid_for):
        for _ in range(5):
            me.add_one()
    release(nodes, me.name)


def release(nodes: list[Any], name: str) -> None:
    """Delete the key on every node where it is still this client's."""
    from redis import RedisError

    script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
    for node in nodes:
        with suppress(RedisError):
            node.eval(script, 1, "report", name)


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(5):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.write(value + 1, lease.token)


class RedlockScenario(Scenario):
    """A scenario on five servers, whose truth is a majority."""

    needs = "redlock"

    def client(self, stage: Stage, name: str, *stops_at: str, **settings: Any) -> WorkerProcess:
        """A client of the five servers that stops at these points."""
        where = {"ports": [node.port for node in stage.servers.all], "url": stage.servers.url()}
        return stage.client(name, stops_at=stops_at, **{**where, **settings})

    def watch(self, stage: Stage) -> None:
        """Write down what a majority says from now on."""
        ports = [node.port for node in stage.servers.all]
        stage.witness(redis_majority(ports, KEY, stage.ttl), "majority")

    def warm_up(self, stage: Stage) -> None:
        """Five new nodes of interlock begin together; all of them must be there for that."""
        import interlock

        if not stage.naive:
            with interlock.connect(stage.servers.url(), ttl=stage.ttl) as client, client.lock("warm-up"):
                pass


@contextmanager
def down(stage: Stage, *nodes: int) -> Iterator[None]:
    """These nodes, counted from 1, are down while this lasts, and come back with what their disks have."""
    servers = [stage.servers.all[node - 1] for node in nodes]
    for server in servers:
        server.kill()
    with stage.fault(" and ".join(f"node {node}" for node in nodes), "crashed"):
        yield
    for server in servers:
        server.start()


def restart_empty(stage: Stage, node: int, *, after: float = 0.0) -> None:
    """A node crashes and comes back, so many ttls later, without anything it knew."""
    import shutil
    from pathlib import Path

    server = stage.servers.all[node - 1]
    with stage.fault(f"node {node}", "restarted empty"):
        server.kill()
        stage.lapse(after)
        shutil.rmtree(Path(server.folder, "appendonlydir"), ignore_errors=True)
        server.start()
