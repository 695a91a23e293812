"""zk-herd: everybody watches the same node, and everybody is woken by each release."""

from __future__ import annotations

import threading

from interlock.lab.crowd_scenario import HerdScenario, ours
from interlock.lab.scenario import Caption, Link
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me
from interlock.lab.zookeeper_scenario import ZooKeeperScenario


def naive(me: Me) -> None:
    from kazoo.exceptions import NodeExistsError

    def wait(one: Me) -> None:  # each of forty
        server = one.zookeeper()
        one.begins()
        changed = threading.Event()

        def wake(event: object) -> None:
            changed.set()

        while True:
            changed.clear()
            try:
                server.create("/lock", one.name.encode(), ephemeral=True)
                break
            except NodeExistsError:
                if server.exists("/lock", watch=wake):
                    changed.wait()
        with one.inside():
            one.think()
        server.delete("/lock")

    me.in_crowd(wait)


class ZkHerd(ZooKeeperScenario, HerdScenario):
    number = 30
    name = "zk-herd"
    title = Text("Forty watch one node", "四十个客户端盯着同一个节点")
    story = Text(
        "Forty clients wait for one node to go away. Each release wakes all of them, all try to create the node, "
        "one succeeds, and the others ask again to be woken.",
        "四十个客户端等同一个节点消失。每次释放都把它们全部叫醒，全部去创建节点，一个成功，其余的再次登记等待叫醒。",
    )
    lesson = Text(
        "Wake only the one who is next: stand in a line, and watch the one before you.",
        "只叫醒下一个：排成队，每个只看着自己前面的那一个。",
    )
    programs = {"naive": naive, "ours": ours}
    takes = 12.0
    links = (
        Link(
            "ZooKeeper recipes: Locks",
            "https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks",
        ),
    )
    captions = (
        Caption("naive", {"process": "first", "call": "body"},
                Text("One releases, and all are woken: {requests} requests for each hand-over.",
                     "一个释放，全部被叫醒：每次交接 {requests} 个请求。")),
        Caption("ours", {"process": "first", "call": "body"},
                Text("One releases, and one is woken: {requests} requests, in the order of the queue.",
                     "一个释放，一个被叫醒：{requests} 个请求，按队列的先后。")),
    )  # fmt: skip

    def url(self, stage: Stage) -> str:
        return self._url(stage, stage.servers.hosts)

    def received(self, stage: Stage) -> int:
        return sum(node.metric("zk_packets_received") for node in stage.servers.nodes)
