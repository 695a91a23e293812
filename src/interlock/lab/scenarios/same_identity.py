"""same-identity: the owner is the machine and the thread, and two containers have both in common."""

from __future__ import annotations

import time
import uuid

from interlock.lab.judge import Run
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import Held, Look, redis_key
from interlock.lab.worker import KEY, Me


def naive(me: Me) -> None:
    server = me.redis()
    owner = f"{uuid.getnode():x}:1"  # the network card, and the process: every container has a process 1
    me.begins()
    while not server.set("report", owner, nx=True, px=int(3 * me.ttl * 1000)):
        if server.get("report") == owner:
            break  # mine already: come in again
        time.sleep(0.02)
    with me.inside():
        for _ in range(3):
            me.add_one()
    if server.get("report") == owner:
        server.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.rlock("report") as lease, me.inside(lease):
        for _ in range(3):
            me.add_one(lease.token)


class SameIdentity(RedisScenario):
    number = 12
    name = "same-identity"
    title = Text("Two containers with the same name", "两个容器，同一个身份")
    story = Text(
        "A lock that may be entered again must know its owner, and takes the network card and the process number for that. "
        "In a second container both are the same: B is taken for A, and comes in.",
        "可重入的锁必须认得主人，于是用网卡地址和进程号来认。在第二个容器里两者完全相同：B 被当成 A，直接进来了。",
    )
    lesson = Text(
        "An owner is whoever was given this very claim: a random number for each attempt, not a name of the machine.",
        "主人就是拿到这一次批准的那一位：每次请求用一个随机数，而不是机器的名字。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 2.0
    captions = (
        Caption("naive", {"process": "A", "call": "grant"},
                Text("A has set the key; its value is the name of its machine.", "A 设置了键；值是它那台机器的名字。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("B finds its own name in the key, and comes in: two at work for {overlap}.",
                     "B 在键里看到自己的名字，于是进来：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("B's claim is another one: it waits until A has released.", "B 的请求是另一个：它等到 A 释放。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        stage.witness(_first_owner(stage))
        a = self.client(stage, "A", "before the write")
        b = self.client(stage, "B")
        a.go()
        a.reach("before the write")
        b.go()
        stage.until(lambda: stage.told("B", "grant" if stage.naive else "acquire"))
        a.go()
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and run.lost_updates > 0

    def ours_survived(self, run: Run) -> bool | None:
        return not run.two_at_work and run.lost_updates == 0 and run.granted("B")


def _first_owner(stage: Stage) -> Look:
    """Read the key; the naive owner's name does not tell who it is, but A has set it."""
    look = redis_key(stage.servers.port, KEY, stage.ttl)

    def named() -> Held | None:
        held = look()
        return held._replace(holder="A") if held and stage.naive else held

    return named
