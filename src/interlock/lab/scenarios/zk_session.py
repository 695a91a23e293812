"""zk-session: a holder is frozen for longer than its session lives."""

from __future__ import annotations

import time

from interlock.lab.judge import Run
from interlock.lab.scenario import Caption, Link
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me
from interlock.lab.zookeeper_scenario import ZooKeeperScenario


def naive(me: Me) -> None:
    from kazoo.exceptions import NodeExistsError

    server = me.zookeeper()
    me.begins()
    while True:
        try:
            server.create("/lock", me.name.encode(), ephemeral=True)
            break
        except NodeExistsError:
            time.sleep(0.02)
    with me.inside():
        for _ in range(4):
            me.add_one()


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(4):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.at("before the write")
            me.write(value + 1, lease.token)  # the resource raises StaleToken


class ZkSession(ZooKeeperScenario):
    number = 29
    name = "zk-session"
    title = Text("A pause longer than the session", "停顿比会话更长")
    story = Text(
        "A's ephemeral node is the lock. A is frozen for longer than its session lives: the ensemble removes the "
        "node and lets B in, and A wakes up inside the lock that it no longer has.",
        "A 的临时节点就是锁。A 被冻结的时间超过了会话：集群删除节点并让 B 进入，而 A 在一把已不属于它的锁里醒来。",
    )
    lesson = Text(
        "Consensus does not help a process that is asleep: here, too, the resource must compare tokens.",
        "共识帮不了一个睡着的进程：在这里，资源同样必须比较令牌。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 18.0
    ttl = 2.0
    links = (Link("Flavio Junqueira: Note on fencing and distributed locks",
                  "https://fpj.me/2016/02/10/note-on-fencing-and-distributed-locks/"),)  # fmt: skip
    captions = (
        Caption("naive", {"process": "A", "call": "fault", "kind": "invoke"},
                Text("A is frozen, and sends no heartbeats.", "A 被冻结，不再发送心跳。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("Its session expires, its node goes, and B enters.", "会话过期，节点消失，B 进入。")),
        Caption("naive", {"process": "A", "call": "fault", "kind": "ok"},
                Text("A wakes up and writes before it hears of it: {late} late writes.",
                     "A 醒来，在得知之前就已写入：{late} 次迟到的写入。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("The resource has seen B's token, and refuses A's.", "资源见过 B 的令牌，拒绝了 A 的。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        a = self.client(stage, "A", "before the write")
        b = self.client(stage, "B", thinks=0.25)
        self.watch(stage)
        a.go()
        a.reach("before the write")
        b.go()
        with stage.paused(a):
            a.go()
            stage.until(lambda: stage.writes("B") >= 2)
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.late_writes())

    def ours_survived(self, run: Run) -> bool | None:
        return bool(run.writes("fail")) and not run.late_writes() and run.lost_updates == 0
