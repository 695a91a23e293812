"""split-brain: a network is cut in two, and each half has a master that grants the lock."""

from __future__ import annotations

import time
from typing import Any

from interlock.lab.judge import Run
from interlock.lab.scenario import MAJORITY, Caption, Link
from interlock.lab.sentinel_scenario import SentinelScenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import Look, first_of, redis_key
from interlock.lab.worker import KEY, Me
from interlock.lab.worker_process import WorkerProcess


def naive(me: Me) -> None:
    from redis import RedisError

    master = me.sentinel()
    me.begins()
    while True:
        try:
            if master.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
                break
        except RedisError:
            pass  # a failover is under way: ask again
        time.sleep(0.02)
    with me.inside():
        while me.busy():
            me.add_one()
            master.pexpire("report", int(me.ttl * 1000))  # cut off or not
    master.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    lock = client.lock("report", on_lost=me.is_told)
    me.begins()
    with lock as lease, me.inside(lease):
        while me.busy():
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.at("before the write")
            me.write(value + 1, lease.token)


def majority(me: Me) -> None:
    client = me.interlock()  # redis+sentinel://...?replicas=majority
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        while me.busy():
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.write(value + 1, lease.token)


class SplitBrain(SentinelScenario):
    number = 17
    name = "split-brain"
    title = Text("The network is cut, and both halves have a master", "网络被切断，两边各有一个主节点")
    story = Text(
        "The link between two halves of a network is cut. The half with most of the sentinels makes a master of its own and lets B in; "
        "the old master, alone with A, goes on renewing A's lock.",
        "网络被切成两半。拥有多数哨兵的一半选出自己的主节点，让 B 进入；旧的主节点独自和 A 在一起，继续为 A 的锁续期。",
    )
    lesson = Text(
        "A master cannot know that it was replaced. Ask for replicas at every renewal, and one holder is left; "
        "else only the token tells old from new.",
        "主节点不可能知道自己已被取代。每次续约都要求副本确认，就只剩一个持有者；否则只有令牌能分清新旧。",
    )
    needs = "sentinel-zones"
    programs = {"naive": naive, "ours": ours, "majority": majority}
    guarded = ("ours", "majority")
    takes = 28.0
    ttl = 1.5
    links = (Link("Jepsen: Redis", "https://aphyr.com/posts/283-jepsen-redis"),)
    captions = (
        Caption("naive", {"process": "network", "call": "fault"},
                Text("The link is cut; A is alone with the old master.", "链路被切断；A 独自和旧的主节点在一起。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("The far half has a master now, which lets B in. The old one goes on renewing for A.",
                     "另一半有了主节点，它让 B 进入。旧的主节点继续为 A 续期。")),
        Caption("naive", {"process": "A", "call": "body"},
                Text("Two at work for {overlap}, and for as long as the cut lasts.", "两者同时工作 {overlap}，切断多久就多久。")),
        Caption("ours", {"process": "A", "call": "note"},
                Text("A's client does not reach a majority of the sentinels: A is told that its lease is lost.",
                     "A 的客户端联系不上多数哨兵：A 得知租约已失去。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("A was past its check. The resource has seen B's token, and refuses.",
                     "A 已越过检查。资源见过 B 的令牌，予以拒绝。")),
        Caption("majority", {"process": "A", "call": "end", "kind": "info"},
                Text("No replica confirms A's renewals: A stops within one ttl.", "没有副本确认 A 的续约：A 在一个 ttl 之内停下。")),
        Caption("majority", {"process": "B", "call": "grant"},
                Text("Only after that does B get in: one holder at any time.", "在此之后 B 才进入：任何时候只有一个持有者。")),
    )  # fmt: skip

    def client(self, stage: Stage, name: str, *stops_at: str, **settings: Any) -> WorkerProcess:
        """A is near, B is far."""
        zones = stage.servers.zones
        zone = zones.near if name == "A" else zones.far
        where = {"launcher": tuple(zone.enter()), "thinks": 0.06 * stage.ttl}
        return super().client(stage, name, *stops_at, **where, **settings)

    def play(self, stage: Stage) -> None:
        for side in ("near", "far"):
            stage.witness(_master_of(stage, side), side)
        careful = stage.run == MAJORITY
        a = self.client(stage, "A", *(() if stage.naive or careful else ("before the write",)))
        b = self.client(stage, "B")
        a.go()
        if stage.naive or careful:
            stage.until(lambda: stage.writes("A") >= 2)
        else:
            a.reach("before the write")
        b.go()
        stage.until(lambda: stage.told("B", "acquire"))
        with stage.fault("network", "cut"):
            stage.servers.zones.cut()
            stage.until(stage.servers.promoted)
            stage.add("promote", "ok", process="far", error="promoted")
            stage.until(lambda: stage.writes("B") >= 3)
            if not stage.naive:
                stage.until(lambda: stage.told("A", "end" if careful else "note"))
            if not careful:
                a.go()
            stage.finish(a)
            b.go()
            stage.finish(b)
        stage.servers.zones.heal()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and run.lost_updates > 0

    def ours_survived(self, run: Run) -> bool | None:
        tokens = run.tokens()
        safe = run.lost_updates == 0 and not run.late_writes() and tokens == sorted(set(tokens))
        if run.name == MAJORITY:
            return safe and not run.two_believe and bool(run.told) and run.granted("B")
        return safe and bool(run.writes("fail")) and run.granted("B")


def _master_of(stage: Stage, side: str) -> Look:
    """Read the key on the master of one half; where there is none, on a replica, which has what it was sent."""
    zones = stage.servers.zones
    zone = zones.near if side == "near" else zones.far
    ports = [port for place, port in stage.servers.servers if place is zone]
    return first_of([redis_key(port, KEY, stage.ttl, socket=zones.socket(zone, port)) for port in ports])
