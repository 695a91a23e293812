"""zk-silence: a server that is cut off from its leader goes on answering pings."""

from __future__ import annotations

import time

from interlock.lab.judge import Run
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
            server.create("/lock", me.name.encode(), ephemeral=True)
            break
        except NodeExistsError:
            time.sleep(0.02)
    with me.inside():
        while me.busy() and server.connected:  # pings are answered
            me.add_one()


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        while me.busy():
            value = me.read(lease.token)
            me.think()
            lease.check()  # counts from writes that a majority has confirmed
            me.write(value + 1, lease.token)


class ZkSilence(ZooKeeperScenario):
    number = 31
    name = "zk-silence"
    title = Text("A server that answers pings, and knows nothing", "会回答 ping，却一无所知的服务器")
    story = Text(
        "A is connected to a follower that is cut off from its leader. For some seconds the follower still answers A's pings; "
        "the leader, which hears nothing of A, ends its session and lets B in.",
        "A 连着一个跟随者，而它与领导者断开了。几秒之内跟随者仍会回答 A 的 ping；领导者听不到 A，结束它的会话，让 B 进入。",
    )
    lesson = Text(
        "An answer proves what its sender knows, and no more: count a session from what a majority has confirmed.",
        "一个回答只能证明回答者所知道的：会话要从多数派确认过的事情开始计时。",
    )
    needs = "zookeeper-parted"
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 14.0
    ttl = 2.0
    captions = (
        Caption("naive", {"process": "follower", "call": "fault"},
                Text("A's server is cut off from the others; its pings go on.", "A 的服务器与其他服务器断开；ping 照常。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("The leader has ended A's session: B is in, and A is wrong for {wrong}.",
                     "领导者结束了 A 的会话：B 进入，A 错了 {wrong}。")),
        Caption("naive", {"process": "A", "call": "body"},
                Text("Two at work for {overlap}, with every ping answered.", "每个 ping 都有回答，两者却同时工作 {overlap}。")),
        Caption("ours", {"process": "A", "call": "body", "kind": "fail"},
                Text("No write is confirmed, so A stops by its own clock, whatever the pings say.",
                     "没有写入得到确认，A 凭自己的时钟停下，不管 ping 怎么说。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("Only then is B let in.", "在此之后 B 才获准进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        follower = stage.servers.follower()
        others = ",".join(f"127.0.0.1:{node.port}" for node in stage.servers.nodes if node is not follower)
        thinks = 0.06 * stage.ttl
        self.watch(stage, others)
        a = self.client(stage, "A", hosts=f"127.0.0.1:{follower.port}", thinks=thinks)
        b = self.client(stage, "B", hosts=others, thinks=thinks)
        a.go()
        stage.until(lambda: stage.writes("A") >= 2)
        b.go()
        with stage.fault("follower", "cut off"):
            stage.servers.set_ways(follower, "hole")
            stage.until(lambda: stage.writes("B") >= 3)
            if stage.naive:
                a.go()
            stage.until(lambda: stage.told("A", "body"))
            b.go()
            stage.finish(b)
        stage.servers.set_ways(follower, "pass")
        stage.finish(a)

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and bool(run.late_writes() or run.lost_updates)

    def ours_survived(self, run: Run) -> bool | None:
        if run.two_believe or run.lost_updates or run.late_writes():
            return False
        return bool(run.told) and run.granted("B")
