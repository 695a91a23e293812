"""one-server-dies: the only server is killed, and the holder does not hear of it."""

from __future__ import annotations

import time
from typing import Any

from interlock.errors import AcquireTimeout, StoreUnavailable
from interlock.lab.judge import Run, seconds
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import ETCD, NAIVE, Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import store_of
from interlock.lab.worker import KEY, Me


def naive(me: Me) -> None:
    from redis import RedisError

    server = me.redis()
    me.begins()
    while True:
        try:
            if server.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
                break
        except RedisError:
            pass  # perhaps it comes back
        time.sleep(0.02)
    with me.inside():
        while me.busy():  # it asks the server for nothing, so nothing tells it
            me.add_one()


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    try:
        with client.lock("report", timeout=3 * me.ttl) as lease, me.inside(lease):
            while me.busy():
                value = me.read(lease.token)
                me.think()
                lease.check()  # raises LeaseLost, by the holder's own clock
                me.write(value + 1, lease.token)
    except (AcquireTimeout, StoreUnavailable) as error:
        me.refused(error)


class OneServerDies(RedisScenario):
    number = 15
    name = "one-server-dies"
    title = Text("The only server dies", "唯一的服务器死了")
    story = Text(
        "All locks are on one Redis server, and it is killed. Nobody else can get a lock now, "
        "and the holder, who asks the server for nothing, goes on long after its key would have expired.",
        "所有的锁都在一台 Redis 上，而它被杀死。别人再也拿不到锁；持有者不向服务器询问任何事，键早该过期了，它还在继续。",
    )
    lesson = Text(
        "One server is one point of failure: the holder must know the end of its lease by its own clock. "
        "Where work must go on, ask a majority.",
        "一台服务器就是一个单点：持有者必须凭自己的时钟知道租约何时结束。如果工作不能停，就去问多数派。",
    )
    others = {ETCD: "etcd"}
    programs = {"naive": naive, "ours": ours, "etcd": ours}
    guarded = ("ours", "etcd")
    takes = 16.0
    ttl = 2.0
    captions = (
        Caption("naive", {"process": "store", "call": "fault"},
                Text("The only server is killed.", "唯一的服务器被杀死。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B asks in vain for {waited}.", "B 白问了 {waited}。")),
        Caption("naive", {"process": "A", "call": "body"},
                Text("A has worked on all the time: {late} writes after its key would have expired.",
                     "A 一直在工作：键本该过期之后又写了 {late} 次。")),
        Caption("ours", {"process": "A", "call": "end", "kind": "info"},
                Text("Its renewals are not answered: A stops by its own clock.", "续约得不到回答：A 凭自己的时钟停下。")),
        Caption("ours", {"process": "B", "call": "acquire", "kind": "fail"},
                Text("B is told that the store is away, not that the lock is taken.",
                     "B 得知存储不在，而不是锁被占用。")),
        Caption("etcd", {"process": "store", "call": "fault"},
                Text("One of three members is killed: A keeps its lock.", "三个成员之一被杀死：A 保住了锁。")),
        Caption("etcd", {"process": "B", "call": "grant"},
                Text("A releases, and B enters.", "A 释放，B 进入。")),
    )  # fmt: skip

    def where(self, stage: Stage) -> dict[str, Any]:
        return {"url": stage.servers.url()} if stage.run == ETCD else super().where(stage)

    def play(self, stage: Stage) -> None:
        on_etcd = stage.run == ETCD
        if on_etcd:
            stage.witness(store_of(stage.servers.url(), KEY))
        else:
            self.watch(stage)
        a, b = (self.client(stage, name, thinks=0.1 * stage.ttl) for name in "AB")
        a.go()
        stage.until(lambda: stage.writes("A") >= 2)
        (stage.servers.members[0] if on_etcd else stage.servers).kill()
        stage.begin_fault("store", "crashed" if not on_etcd else "lost one of three")
        b.go()
        if on_etcd:
            stage.until(lambda: stage.told("B", "acquire"))
            stage.lapse(1.2)
            a.go()  # enough
            stage.until(lambda: stage.writes("B"))
            b.go()
        elif stage.naive:
            stage.granted_within("B", 2.3)
            a.go()
            stage.finish(a)
            return  # B would ask for ever
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return run.stuck("B") and bool(run.late_writes())

    def ours_survived(self, run: Run) -> bool | None:
        if run.two_at_work or run.lost_updates or run.late_writes():
            return False
        if run.name == ETCD:
            return not run.told and run.granted("A") and run.granted("B")
        return bool(run.knew_before()) and not run.granted("B") and bool(run.refused)

    def verdict(self, run: Run) -> Text:
        if run.name == NAIVE and run.stuck("B") and run.late_writes():
            late, waited = len(run.late_writes()), run.facts()["waited"]
            return Text(
                f"Nobody gets a lock for {waited}, and the holder goes on: {late} late writes.",
                f"{waited} 内没有人拿到锁，而持有者继续工作：{late} 次迟到的写入。",
            )
        if run.name == ETCD and run.granted("B") and not run.told:
            return Text("Nobody noticed: the holder went on, and the next one followed.",
                        "没有人察觉：持有者继续工作，下一个随后进入。")  # fmt: skip
        if known := run.knew_before():
            early = seconds(known[0][1][1] - known[0][1][0])
            return Text(
                f"The holder stopped {early} before its lease would have ended.",
                f"持有者在租约本应结束之前 {early} 就停下了。",
            )
        return run.verdict()
