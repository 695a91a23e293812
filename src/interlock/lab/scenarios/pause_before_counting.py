"""pause-before-counting: a majority has granted, and the client is frozen before it counts."""

from __future__ import annotations

import time
from contextlib import ExitStack

from interlock.errors import StoreUnavailable
from interlock.lab.judge import Run
from interlock.lab.redlock_scenario import RedlockScenario, release
from interlock.lab.scenario import Caption, Link
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me
from interlock.lab.worker_process import WorkerProcess
from interlock.testing.servers.proxy import Proxy


def naive(me: Me) -> None:
    nodes = me.nodes(timeout=5.0)
    me.begins()
    while True:
        granted = 0
        for number, node in enumerate(nodes, 1):
            granted += bool(node.set("report", me.name, nx=True, px=int(me.ttl * 1000)))
            if number == 3:
                me.at("three answers")
        if granted >= 3:
            break
        release(nodes, me.name)
        time.sleep(0.03)
    with me.inside(believes_for=me.ttl):  # it never looks how long that took
        for _ in range(4):
            me.add_one()
    release(nodes, me.name)


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    try:
        with client.lock("report") as lease, me.inside(lease):
            for _ in range(4):
                value = me.read(lease.token)
                me.think()
                lease.check()
                me.write(value + 1, lease.token)
    except StoreUnavailable as error:  # the answers are older than the lease
        me.refused(error)


class PauseBeforeCounting(RedlockScenario):
    number = 21
    name = "pause-before-counting"
    title = Text("Frozen between the grant and the count", "在同意与计数之间被冻结")
    story = Text(
        "Three of five servers have granted A's request, and A is frozen before it counts the answers. "
        "When it wakes up, the keys have lapsed and B is in; A counts three yeses and comes in, too.",
        "五台服务器中有三台同意了 A，A 在数回答之前被冻结。它醒来时键已过期，B 已在里面；A 数到三个同意，也进来了。",
    )
    lesson = Text(
        "A grant is as old as the question: subtract the time since then, as Redlock says, and look again before each write.",
        "同意的年龄从提问算起：像 Redlock 说的那样减去这段时间，并在每次写入之前再看一眼。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 6.0
    links = (
        Link("Martin Kleppmann: How to do distributed locking",
             "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html"),
        Link("Salvatore Sanfilippo: Is Redlock safe?", "http://antirez.com/news/101"),
    )  # fmt: skip
    captions = (
        Caption("naive", {"process": "A", "call": "fault", "kind": "invoke"},
                Text("Three nodes have granted; A is frozen before it counts.", "三个节点已同意；A 在计数之前被冻结。")),
        Caption("naive", {"process": "A", "call": "grant"},
                Text("A counts old answers: two at work for {overlap}.", "A 数的是旧回答：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "A", "call": "fault", "kind": "ok"},
                Text("A wakes up and sees that the answers are older than the ttl: it has no lease, and says so.",
                     "A 醒来，发现这些回答比 ttl 还旧：它没有租约，并如实说明。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.warm_up(stage)
        self.watch(stage)
        thinks = 0.1 * stage.ttl
        with ExitStack() as stack:
            ways = [stack.enter_context(Proxy(node.port)) for node in stage.servers.all]
            far = "redlock://" + ",".join(f"127.0.0.1:{way.port}" for way in ways)
            a = self.client(stage, "A", "three answers", url=far, thinks=thinks)
            b = self.client(stage, "B", thinks=2 * thinks)
            self.freeze_uncounted(stage, a, ways)
            with stage.fault("A", "paused"):
                b.go()
                stage.until(lambda: stage.writes("B"))
            a.thaw()
            stage.finish()

    def freeze_uncounted(self, stage: Stage, a: WorkerProcess, ways: list[Proxy]) -> None:
        """Freeze A when a majority has granted, and A has not counted yet."""
        if stage.naive:
            a.go()
            a.reach("three answers")
            a.freeze()
            a.go()  # it reads this when it wakes up
            return
        for way in ways:
            way.replies.stall()
        a.go()
        stage.until(lambda: stage.told("majority", "hold", "ok"))
        a.freeze()
        for way in ways:
            way.replies.flow()  # the answers lie in A's sockets now

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work)

    def ours_survived(self, run: Run) -> bool | None:
        noticed = any(record.process == "A" for record in run.refused)
        if not run.granted("B") or not (noticed or run.granted("A")):
            return False
        return not run.two_at_work and run.lost_updates == 0 and not run.late_writes()
