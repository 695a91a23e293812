"""What scenarios with replicas and sentinels have in common, and a lock that trusts the master."""

from __future__ import annotations

import time
from typing import Any

from interlock.lab.scenario import MAJORITY, Scenario
from interlock.lab.stage import Stage
from interlock.lab.witness import Witness, first_of, redis_key
from interlock.lab.worker import KEY, Me
from interlock.lab.worker_process import WorkerProcess
from interlock.testing.servers.redis import Server

OLD, NEW = "old master", "new master"


def naive_at_master(me: Me) -> None:
    from redis import RedisError

    master = me.sentinel()  # asks who is master when it connects
    me.begins()
    while True:
        try:
            if master.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
                break
        except RedisError:
            pass  # a failover is under way: ask again
        time.sleep(0.02)
    with me.inside(believes_for=me.ttl):
        for _ in range(3):
            me.add_one()
    if master.get("report") == me.name:
        master.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    lock = client.lock("report", on_lost=me.is_told)
    me.begins()
    with lock as lease, me.inside(lease):
        for _ in range(3):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.at("before the write")
            me.write(value + 1, lease.token)


class SentinelScenario(Scenario):
    """A scenario on one master, two replicas and three sentinels."""

    needs = "sentinel"

    def client(self, stage: Stage, name: str, *stops_at: str, **settings: Any) -> WorkerProcess:
        """A client of the master that stops at these points."""
        options = {"replicas": "majority"} if stage.run == MAJORITY else {}
        where = {"sentinels": stage.servers.addresses(), "url": stage.servers.url(**options)}
        return stage.client(name, stops_at=stops_at, **{**where, **settings})

    def watch(self, stage: Stage) -> Witness:
        """Write down what the master says from now on, and in a lane of its own whoever takes its place."""
        master = stage.servers.master()
        heirs = [
            redis_key(server.port, KEY, stage.ttl, if_master=True)
            for server in stage.servers.servers.values()
            if server is not master
        ]
        stage.witness(first_of(heirs), NEW)
        return stage.witness(redis_key(master.port, KEY, stage.ttl), OLD)

    def crash(self, stage: Stage, master: Server, witness: Witness) -> None:
        """The master dies, with all that only it knew."""
        master.kill()
        stage.begin_fault("master", "crashed")
        witness.dies("crashed")

    def promoted(self, stage: Stage, old: Server) -> None:
        """Wait until the sentinels have made a replica the master."""
        stage.servers.await_other_than(old)
        stage.add("promote", "ok", process=NEW, error="promoted")
