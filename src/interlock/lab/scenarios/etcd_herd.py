"""etcd-herd: everybody watches the same key, and everybody is woken by each release."""

from __future__ import annotations

from interlock.lab.crowd_scenario import HerdScenario, ours
from interlock.lab.etcd_scenario import EtcdScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    def wait(one: Me) -> None:  # each of forty
        server = one.etcd()
        lease = server.lease(one.ttl)
        one.begins()
        while not server.create("lock", one.name, lease):  # one Txn: the key is new
            server.await_change("lock")  # one watch
        with one.inside():
            one.think()
        server.delete("lock")

    me.in_crowd(wait)


class EtcdHerd(EtcdScenario, HerdScenario):
    number = 36
    name = "etcd-herd"
    title = Text("Forty watch one key", "四十个客户端盯着同一个键")
    story = Text(
        "Forty clients watch one key until it is deleted. Each release wakes all of them, each sends a transaction, "
        "one of which succeeds, and whoever was first in the queue has no better chance than the last.",
        "四十个客户端监视同一个键，等它被删除。每次释放都把它们全部叫醒，每个都发出一个事务，只有一个成功；排在最前面的并不比最后来的更有机会。",
    )
    lesson = Text(
        "The store orders all keys already: put one key for each waiter, and watch only the one before yours.",
        "存储已经为所有键排好了顺序：每个等待者放一个键，只监视自己前面的那一个。",
    )
    programs = {"naive": naive, "ours": ours}
    takes = 10.0
    captions = (
        Caption("naive", {"process": "first", "call": "body"},
                Text("One deletes the key, and all are woken: {requests} requests for each hand-over.",
                     "一个删除键，全部被叫醒：每次交接 {requests} 个请求。")),
        Caption("ours", {"process": "first", "call": "body"},
                Text("One deletes its key, and one is woken: {requests} requests, in the order of the revisions.",
                     "一个删除自己的键，一个被叫醒：{requests} 个请求，按版本号的先后。")),
    )  # fmt: skip

    def url(self, stage: Stage) -> str:
        return str(stage.servers.url())

    def received(self, stage: Stage) -> int:
        return int(stage.servers.received().total())
