"""etcd-pause: a holder is frozen for longer than its etcd lease lives."""

from __future__ import annotations

import time

from interlock.lab.etcd_scenario import EtcdScenario
from interlock.lab.judge import Run
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    server = me.etcd()
    me.begins()
    while not server.create("lock", me.name, server.lease(me.ttl)):  # one Txn: the key is new, with a lease
        time.sleep(0.1)
    with me.inside():
        for _ in range(4):
            me.add_one()
    server.delete("lock")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(4):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.at("before the write")
            me.write(value + 1, lease.token)  # the token is a revision of etcd


class EtcdPause(EtcdScenario):
    number = 33
    name = "etcd-pause"
    title = Text("A pause longer than an etcd lease", "停顿比 etcd 租约更长")
    story = Text(
        "A puts a key with a lease, in one transaction, as the books say. A is frozen for longer than the lease, "
        "etcd deletes the key, B puts its own; A wakes up and writes.",
        "A 按书上说的，用一个事务写入带租约的键。A 被冻结的时间超过租约，etcd 删除了键，B 写入自己的；A 醒来继续写。",
    )
    lesson = Text(
        "The revision at which you were let in is a token: give it to the resource.",
        "你被放进来时的版本号就是令牌：把它交给资源。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 16.0
    ttl = 2.0
    captions = (
        Caption("naive", {"process": "A", "call": "fault", "kind": "invoke"},
                Text("A is frozen; nobody keeps its lease alive.", "A 被冻结；没有谁为它续租。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("etcd has deleted A's key, and B is in.", "etcd 删除了 A 的键，B 进入。")),
        Caption("naive", {"process": "A", "call": "fault", "kind": "ok"},
                Text("A wakes up: {late} late writes.", "A 醒来：{late} 次迟到的写入。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("The resource has seen a higher revision, and refuses A's.", "资源见过更高的版本号，拒绝了 A 的。")),
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
