"""slow-quorum: grants that are as old as the lease by the time the last of them arrives."""

from __future__ import annotations

from contextlib import ExitStack

from interlock.errors import InterlockError
from interlock.lab.judge import Run
from interlock.lab.redlock_scenario import RedlockScenario, release
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me
from interlock.testing.servers.proxy import Proxy


def naive(me: Me) -> None:
    nodes = me.nodes(timeout=10.0)
    me.begins()
    granted = 0
    for node in nodes:
        granted += bool(node.set("report", me.name, nx=True, px=int(me.ttl * 1000)))
    if granted >= 3:
        with me.inside(believes_for=me.ttl):  # counted from the last answer, not from the first question
            for _ in range(5):
                me.add_one()
    release(nodes, me.name)


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    try:
        with client.lock("report", timeout=4 * me.ttl) as lease, me.inside(lease):
            for _ in range(5):
                value = me.read(lease.token)
                me.think()
                lease.check()
                me.write(value + 1, lease.token)
    except InterlockError as error:
        me.refused(error)


class SlowQuorum(RedlockScenario):
    number = 20
    name = "slow-quorum"
    title = Text("Answers that arrive too late", "来得太晚的回答")
    story = Text(
        "The way to every server takes a third of the ttl. A asks one after the other, and counts its lease from "
        "the last answer: by then the keys on most servers have lapsed, and B has a majority.",
        "到每台服务器的路程都要花三分之一个 ttl。A 逐个询问，并从最后一个回答开始计算租约：那时多数服务器上的键已经过期，B 拿到了多数。",
    )
    lesson = Text(
        "A lease counts from before the first question. What is left after the last answer may be nothing.",
        "租约从第一次提问之前开始计算。最后一个回答之后，剩下的可能是零。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 9.0
    captions = (
        Caption("naive", {"process": "A", "call": "grant"},
                Text("A has five grants, and the first of them is older than the ttl.", "A 得到五个同意，而第一个已经比 ttl 还旧。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("B has a majority, too: two at work for {overlap}.", "B 也有多数：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "A", "call": "acquire"},
                Text("interlock subtracts the time that the answers took, and asks all at once.",
                     "interlock 减去回答所花的时间，并且同时询问所有节点。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.warm_up(stage)
        self.watch(stage)
        with ExitStack() as stack:
            ways = [stack.enter_context(Proxy(node.port)) for node in stage.servers.all]
            ports = [way.port for way in ways]
            far = "redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports)
            a = self.client(stage, "A", ports=ports, url=far, thinks=0.12 * stage.ttl)
            b = self.client(stage, "B", thinks=0.12 * stage.ttl)
            with stage.fault("network", "slow"):
                for way in ways:
                    way.replies.delay(stage.ttl / 3)
                a.go()
                stage.granted_within("A", 3.0)
                b.go()
                stage.finish(b)
            for way in ways:
                way.heal()
            stage.finish(a)

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work)

    def ours_survived(self, run: Run) -> bool | None:
        return not run.two_at_work and run.lost_updates == 0
