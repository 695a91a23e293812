"""zk-crash: a persistent node is the lock, and its owner dies."""

from __future__ import annotations

import time

from interlock.lab.held_for_ever import HeldForEver
from interlock.lab.scenario import Caption
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
            server.create("/lock", me.name.encode())  # not ephemeral
            break
        except NodeExistsError:
            time.sleep(0.05)
    with me.inside():
        me.add_one()
    server.delete("/lock")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.add_one(lease.token)


class ZkCrash(HeldForEver, ZooKeeperScenario):
    number = 32
    name = "zk-crash"
    title = Text("A node that outlives its owner", "比主人活得久的节点")
    story = Text(
        "A makes a node in ZooKeeper and is killed before it deletes it. The node is persistent, so the ensemble "
        "keeps it on three disks, with great care, for ever.",
        "A 在 ZooKeeper 里建了一个节点，还没删除就被杀死。这个节点是持久的，于是集群在三块磁盘上小心翼翼地永远保存它。",
    )
    lesson = Text(
        "The node must be ephemeral: it goes with the session of its owner.",
        "节点必须是临时的：它随主人的会话一起消失。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 14.0
    ttl = 2.0
    captions = (
        Caption("naive", {"process": "A", "call": "fault"},
                Text("A is killed; its session ends, its node stays.", "A 被杀死；会话结束了，节点还在。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B tries for {waited} in vain.", "B 白试了 {waited}。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("interlock's node goes with A's session, and B enters.", "interlock 的节点随 A 的会话消失，B 进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        a = self.client(stage, "A", "thinking")
        b = self.client(stage, "B")
        self.watch(stage)
        a.go()
        a.reach("thinking")
        stage.kill(a)
        self.let_b_try(stage, b)
