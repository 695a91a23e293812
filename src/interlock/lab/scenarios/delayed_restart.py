"""delayed-restart: the operator waits one ttl before a crashed server may vote again; another client's ttl is longer."""

from __future__ import annotations

import time
from contextlib import suppress

from interlock.lab.judge import Run
from interlock.lab.redlock_scenario import RedlockScenario, down, release, restart_empty
from interlock.lab.scenario import Caption, Link
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    from redis import RedisError

    nodes, ttl = me.nodes(), me.settings["ttl"]
    me.begins()
    while True:
        began, granted = time.monotonic(), 0
        for node in nodes:
            with suppress(RedisError):
                granted += bool(node.set("report", me.name, nx=True, px=int(ttl * 1000)))
        valid_for = ttl - (time.monotonic() - began)
        if granted >= 3 and valid_for > 0:
            break
        release(nodes, me.name)
        time.sleep(0.03)
    with me.inside(believes_for=valid_for):
        for _ in range(2):
            me.add_one()
    release(nodes, me.name)


def ours(me: Me) -> None:
    client = me.interlock(ttl=me.settings["ttl"])
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(2):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.write(value + 1, lease.token)


class DelayedRestart(RedlockScenario):
    number = 24
    name = "delayed-restart"
    title = Text("The operator waits one ttl; but whose?", "运维等了一个 ttl，可是谁的 ttl？")
    story = Text(
        "A server without persistence crashes, and the operator keeps it down for one ttl, so that all it forgot has lapsed. "
        "But A, a nightly job, has a ttl four times as long; the server comes back empty, and B gets a majority.",
        "一台没有持久化的服务器崩溃，运维让它停机一个 ttl，好让它忘掉的一切都已过期。可是夜间任务 A 的 ttl 是四倍长；服务器空着回来，B 得到多数。",
    )
    lesson = Text(
        "The wait must be as long as the longest ttl that anybody uses. Nobody knows that but the nodes: let them measure it.",
        "要等的是所有人用过的最长 ttl。只有节点知道它是多长：让它们自己去量。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 8.0
    links = (Link("Redis: Distributed locks, delayed restarts",
                  "https://redis.io/docs/latest/develop/use/patterns/distributed-locks/"),)  # fmt: skip
    captions = (
        Caption("naive", {"process": "node 3", "call": "fault"},
                Text("Node 3 has crashed, and is kept down for one ttl.", "节点 3 崩溃，停机一个 ttl。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("It is back, empty, while A's longer lease still runs: two at work for {overlap}.",
                     "它空着回来，而 A 更长的租约还没到期：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "node 3", "call": "fault"},
                Text("interlock keeps node 3 without a vote for the longest ttl that the others have seen.",
                     "interlock 让节点 3 在其他节点见过的最长 ttl 之内没有投票权。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.warm_up(stage)
        self.watch(stage)
        a = self.client(stage, "A", "thinking", ttl=4 * stage.ttl)
        b = self.client(stage, "B", ttl=stage.ttl)
        with down(stage, 4, 5):
            a.go()
            a.reach("thinking")
        restart_empty(stage, 3, after=1.0)
        with down(stage, 1, 2):
            b.go()
            stage.granted_within("B", 0.6)
        a.go()
        stage.finish(a)
        b.finish(patience=6 * stage.ttl)

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work)

    def ours_survived(self, run: Run) -> bool | None:
        return not run.two_at_work and run.lost_updates == 0
