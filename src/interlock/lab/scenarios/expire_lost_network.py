"""expire-lost-network: SETNX is answered, and from then on nothing arrives."""

from __future__ import annotations

import time

from interlock.lab.held_for_ever import HeldForEver
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me
from interlock.testing.servers.proxy import Proxy


def naive(me: Me) -> None:
    server = me.redis(timeout=0.3)
    me.begins()
    while not server.setnx("report", me.name):
        time.sleep(0.02)
    with me.inside():
        me.at("between")  # from here on the network is mute
        server.pexpire("report", int(me.ttl * 1000))  # raises TimeoutError
        me.add_one()
    server.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.at("between")
        while True:
            me.think(0.05)
            lease.check()  # raises LeaseLost, by the holder's own clock
            if me.name == "B":
                break


class ExpireLostNetwork(HeldForEver, RedisScenario):
    number = 5
    name = "expire-lost-network"
    title = Text("The network falls silent between SETNX and EXPIRE", "网络在 SETNX 与 EXPIRE 之间沉默")
    story = Text(
        "A has its key, and then nothing that it sends arrives any more: not EXPIRE, and not DEL. "
        "A is alive and gets an error; the key stays without an expiry.",
        "A 拿到了键，随后它发出的东西都不再到达：EXPIRE 没有，DEL 也没有。A 还活着并得到一个错误；键却留了下来，没有过期时间。",
    )
    lesson = Text(
        "Clean-up that must cross the network may not arrive. The end must already be on the server.",
        "需要穿过网络的清理可能永远到不了。终点必须早已在服务器上。",
    )
    programs = {"naive": naive, "ours": ours}
    captions = (
        Caption("naive", {"process": "network", "call": "fault"},
                Text("From here on nothing of A's arrives.", "从这里开始，A 发出的一切都不再到达。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B finds a key without an end: {waited} in vain.", "B 遇到一个没有终点的键：白等了 {waited}。")),
        Caption("ours", {"process": "A", "call": "end", "kind": "info"},
                Text("Nobody answers A's renewals: by its own clock it knows that its lease is over.",
                     "没有谁回应 A 的续约：凭自己的时钟，它知道租约已经结束。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("Then the key lapses, and B enters.", "随后键过期，B 进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        with Proxy(stage.servers.port) as way:
            a = self.client(stage, "A", "between", port=way.port, url=f"redis://127.0.0.1:{way.port}")
            b = self.client(stage, "B")
            a.go()
            a.reach("between")
            with stage.fault("network", "mute"):
                way.requests.lose()
                way.replies.lose()
                a.go()
                self.let_b_try(stage, b)
                stage.until(lambda: stage.told("A", "end"))
