"""etcd-partition: the holder is cut off, and its key has no lease."""

from __future__ import annotations

import time
from urllib.error import URLError

from interlock.lab.etcd_scenario import EtcdScenario
from interlock.lab.held_for_ever import HeldForEver
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me
from interlock.testing.servers.proxy import Proxy


def naive(me: Me) -> None:
    server = me.etcd()
    me.begins()
    while not server.create("lock", me.name):  # no lease
        time.sleep(0.1)
    with me.inside():
        me.at("holds")
    try:
        server.delete("lock")  # does not arrive
    except (URLError, OSError):
        me.note("cannot reach etcd")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.at("holds")
        while me.name == "A":
            me.think(0.05)
            lease.check()  # raises LeaseLost, by the holder's own clock


class EtcdPartition(HeldForEver, EtcdScenario):
    number = 35
    name = "etcd-partition"
    title = Text("Cut off from etcd, with the lock in hand", "与 etcd 断开，锁还在手里")
    story = Text(
        "A has put a key without a lease, and is cut off from the cluster. Its delete never arrives: "
        "three members agree, for ever, that A holds.",
        "A 写入了一个不带租约的键，随后与集群断开。它的删除永远到不了：三个成员永远一致认为 A 持有锁。",
    )
    lesson = Text(
        "Consensus keeps what it was told. Only a lease ends what nobody can take back.",
        "共识会保存它得知的一切。只有租约能结束没有人收得回的东西。",
    )
    programs = {"naive": naive, "ours": ours}
    takes = 16.0
    ttl = 2.0
    captions = (
        Caption("naive", {"process": "network", "call": "fault"},
                Text("A is cut off while it holds.", "A 在持有锁时被断开。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B tries for {waited} in vain.", "B 白试了 {waited}。")),
        Caption("ours", {"process": "A", "call": "end", "kind": "info"},
                Text("A knows by its own clock that its lease is over.", "A 凭自己的时钟知道租约已经结束。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("After that etcd lets it lapse, and B enters.", "此后 etcd 让它到期，B 进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        with Proxy(*stage.servers.ports) as way:
            a = self.client(
                stage, "A", "holds", port=way.port, url=f"etcd://127.0.0.1:{way.port}?prefix=interlock/"
            )
            b = self.client(stage, "B")
            a.go()
            a.reach("holds")
            with stage.fault("network", "cut"):
                way.requests.lose()
                way.replies.lose()
                a.go()
                self.let_b_try(stage, b)
                if not stage.naive:
                    stage.until(lambda: stage.told("A", "end"))
