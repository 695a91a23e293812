"""ttl-too-short: work that takes longer than the expiry that somebody once guessed."""

from __future__ import annotations

import time

from interlock.lab.judge import Run
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    server = me.redis()
    me.begins()
    while not server.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
        time.sleep(0.01)
    with me.inside():
        for _ in range(5):
            me.add_one()
    if server.get("report") == me.name:
        server.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):  # renewed while the body runs
        for _ in range(5):
            me.add_one(lease.token)


class TtlTooShort(RedisScenario):
    number = 7
    name = "ttl-too-short"
    title = Text("The work takes longer than the expiry", "工作比过期时间更久")
    story = Text(
        "The expiry was chosen for the work as it once was. Today it takes one and a half times as long: "
        "the key is gone in the middle, the next one enters, and nobody has done anything wrong.",
        "过期时间是按当年的工作量定的。今天的工作要花一倍半的时间：键在中途消失，下一个进来了，而谁都没有做错什么。",
    )
    lesson = Text(
        "A longer expiry makes it rarer, not impossible. A lease is renewed while its owner lives.",
        "更长的过期时间只会让它少见，而不会让它消失。租约要在持有者活着的时候续约。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 7.0
    captions = (
        Caption("naive", {"process": "B", "call": "grant"},
                Text("A's key is over and A is not: two at work for {overlap}.",
                     "A 的键过期了，A 的工作却没有：两者同时工作 {overlap}。")),
        Caption("naive", {"process": "A", "call": "body"},
                Text("{late} writes came too late, and {lost} updates are lost.", "{late} 次写入来得太晚，丢失了 {lost} 次更新。")),
        Caption("ours", {"process": "A", "call": "renew"},
                Text("At a third of its ttl the lease is renewed, again and again.", "每过三分之一个 ttl，租约就续一次。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        a = self.client(stage, "A", thinks=0.3 * stage.ttl)
        b = self.client(stage, "B", thinks=0.1 * stage.ttl)
        a.go()
        stage.until(lambda: stage.told("A", "grant"))
        b.go()
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and bool(run.late_writes())

    def ours_survived(self, run: Run) -> bool | None:
        return not run.two_at_work and run.lost_updates == 0 and run.granted("B")
