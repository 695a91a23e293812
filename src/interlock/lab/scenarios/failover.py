"""failover: the master dies with its last write, and a replica that never saw it takes over."""

from __future__ import annotations

from interlock.errors import StoreUnavailable
from interlock.lab.judge import Run
from interlock.lab.scenario import MAJORITY, Caption, Link
from interlock.lab.sentinel_scenario import OLD, SentinelScenario, naive_at_master, ours
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def majority(me: Me) -> None:
    client = me.interlock()  # redis+sentinel://...?replicas=majority
    me.begins()
    try:
        with client.lock("report") as lease, me.inside(lease):
            for _ in range(3):
                value = me.read(lease.token)
                me.think()
                lease.check()
                me.write(value + 1, lease.token)
    except StoreUnavailable as error:  # too few replicas have confirmed
        me.refused(error)


class Failover(SentinelScenario):
    number = 16
    name = "failover"
    title = Text("The master dies with its last write", "主节点带着最后一次写入死去")
    story = Text(
        "A gets the lock from a Redis master, which answers before its replicas have the key, and dies. "
        "The sentinels promote a replica that has never heard of A, and it gives the same lock to B.",
        "A 从 Redis 主节点拿到锁；主节点不等副本收到键就已回答，随后死去。哨兵把一个从未听说过 A 的副本升为主节点，它把同一把锁给了 B。",
    )
    lesson = Text(
        "Replication that nobody waits for keeps no lock: wait for replicas, or check tokens at the resource; best do both.",
        "没有人等待的复制保不住锁：要么等副本确认，要么在资源处检查令牌；最好两样都做。",
    )
    programs = {"naive": naive_at_master, "ours": ours, "majority": majority}
    guarded = ("ours", "majority")
    takes = 24.0
    ttl = 5.0
    links = (
        Link("Redis: Distributed locks, why failover-based implementations are not enough",
             "https://redis.io/docs/latest/develop/use/patterns/distributed-locks/"),
    )  # fmt: skip
    captions = (
        Caption("naive", {"process": "master", "call": "fault"},
                Text("The master dies; A's key was on no other server.", "主节点死去；A 的键不在任何别的服务器上。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("The new master knows of no lock, and lets B in beside A.", "新的主节点不知道有锁，让 B 进来与 A 并存。")),
        Caption("naive", {"process": "resource", "call": "accept", "holder": "A"},
                Text("A writes over what B wrote: two at work for {overlap}.", "A 覆盖了 B 写的内容：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "A", "call": "note"},
                Text("The new master does not have A's lease: A is told.", "新的主节点没有 A 的租约：A 得到通知。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("A was past its check: B's token is higher, and the resource refuses A's write.",
                     "A 已越过检查：B 的令牌更大，资源拒绝了 A 的写入。")),
        Caption("majority", {"process": OLD, "call": "hold"},
                Text("The master has A's claim, but no replica confirms it: A is not let in.",
                     "主节点有 A 的请求，但没有副本确认：A 没有获准进入。")),
        Caption("majority", {"process": "A", "call": "grant"},
                Text("The new master has a replica that confirms. A and B enter one after the other.",
                     "新的主节点有副本可以确认。A 和 B 依次进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        old = self.watch(stage)
        point = () if stage.run == MAJORITY else ("thinking" if stage.naive else "before the write",)
        a = self.client(stage, "A", *point)
        b = self.client(stage, "B")
        with stage.servers.deaf():
            a.go()
            if stage.run == MAJORITY:
                stage.until(lambda: stage.told(OLD, "hold", "ok"))  # the claim, which nobody confirms
            else:
                a.reach(*point)
            master = stage.servers.master()
            self.crash(stage, master, old)
        self.promoted(stage, master)
        b.go()
        if stage.run != MAJORITY:
            stage.until(lambda: stage.writes("B"))
            if not stage.naive:
                stage.until(lambda: stage.told("A", "note"))
            a.go()
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and bool(run.late_writes() or run.lost_updates)

    def ours_survived(self, run: Run) -> bool | None:
        tokens = run.tokens()
        safe = run.lost_updates == 0 and not run.late_writes() and tokens == sorted(set(tokens))
        if run.name == MAJORITY:
            if not safe or run.two_believe:
                return False
            return run.granted("B") or None  # A may have been refused, and B is to get through
        return safe and bool(run.writes("fail")) and run.granted("B")
