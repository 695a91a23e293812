"""fast-clock: the server's clock runs a tenth too fast, so its leases are shorter than their holders think."""

from __future__ import annotations

import time

from interlock.lab.judge import Run
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import GUARDED, Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me

FAST = 0.1


def naive(me: Me) -> None:
    server = me.redis()
    me.begins()
    while True:
        asked = time.monotonic()
        if server.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
            break
        time.sleep(0.01)
    with me.inside(believes_for=me.ttl):
        while me.busy() and time.monotonic() < asked + me.ttl:  # careful, by its own clock
            me.add_one()
    if server.get("report") == me.name:
        server.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        while me.busy():
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.write(value + 1, lease.token)


def guarded(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report", renew=False) as lease, me.inside(lease):
        while me.busy():
            value = me.read(lease.token)
            me.think()
            lease.check()  # says yes
            me.at("before the write")
            me.write(value + 1, lease.token)


class FastClock(RedisScenario):
    number = 27
    name = "fast-clock"
    title = Text("The server's clock runs a tenth too fast", "服务器的时钟快了十分之一")
    story = Text(
        "A looks at its own clock before each piece of work, and stops in time. But the server's clock runs a tenth faster: "
        "it ends A's key when A still has a tenth of its ttl left, and lets B in.",
        "A 每做一段工作之前都看自己的时钟，并且准时停下。但服务器的时钟快十分之一：A 还剩十分之一个 ttl 时，服务器就结束了它的键，让 B 进入。",
    )
    lesson = Text(
        "Renew long before the end, and keep a margin for drift; beyond that, only the token knows better than a clock.",
        "离终点还远就续约，并为时钟偏差留出余量；再往外，只有令牌比时钟可靠。",
    )
    needs = "redis-clock"
    programs = {"naive": naive, "ours": ours, "guard": guarded}
    guarded = ("ours", "guard")
    takes = 11.0
    ttl = 2.0
    captions = (
        Caption("naive", {"process": "clock", "call": "fault"},
                Text("The server's clock runs a tenth too fast.", "服务器的时钟快十分之一。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("For the server A's time is over, for A it is not: two at work for {overlap}.",
                     "对服务器来说 A 的时间到了，对 A 来说还没有：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "A", "call": "renew"},
                Text("A's lease is renewed at a third of its ttl: a tenth does not matter.",
                     "A 的租约在三分之一个 ttl 时续约：差十分之一无关紧要。")),
        Caption("guard", {"process": "B", "call": "grant"},
                Text("Without renewal B is in too early here, too.", "不续约时，B 在这里同样进得太早。")),
        Caption("guard", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("A's check has said yes, its token says no: the resource refuses.",
                     "A 的检查说可以，令牌说不行：资源予以拒绝。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        thinks = 0.02 * stage.ttl
        a = self.client(stage, "A", *(("before the write",) if stage.run == GUARDED else ()), thinks=thinks)
        b = self.client(stage, "B", thinks=thinks)
        with stage.fault("clock", "too fast"), stage.servers.running_fast(FAST):
            a.go()
            stage.until(lambda: stage.told("A", "grant"))
            b.go()
            if stage.run == GUARDED:
                a.reach("before the write")
                stage.until(lambda: stage.writes("B"))
                a.go()
            elif stage.naive:
                stage.until(lambda: stage.told("A", "end") and stage.writes("B"))
            else:
                stage.lapse(1.3)
                a.go()  # enough
                stage.until(lambda: stage.writes("B"))
            stage.finish(a)
            b.go()  # enough
            stage.finish(b)

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and bool(run.late_writes() or run.lost_updates)

    def ours_survived(self, run: Run) -> bool | None:
        if run.lost_updates or run.late_writes() or not run.granted("B"):
            return False
        if run.name == GUARDED:
            return bool(run.writes("fail"))
        return not run.two_at_work and not run.told
