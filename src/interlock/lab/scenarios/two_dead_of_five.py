"""two-dead-of-five: what a quorum is for, and where it ends."""

from __future__ import annotations

import time
from contextlib import suppress

from interlock.errors import InterlockError
from interlock.lab.judge import Run
from interlock.lab.redlock_scenario import RedlockScenario, down, release
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    from redis import RedisError

    nodes = me.nodes()
    me.begins()
    began, granted = time.monotonic(), 0
    for node in nodes:
        with suppress(RedisError):
            granted += bool(node.set("report", me.name, nx=True, px=int(me.ttl * 1000)))
    valid_for = me.ttl - (time.monotonic() - began)
    if granted >= 3 and valid_for > 0:
        with me.inside(believes_for=valid_for):
            me.add_one()
    else:
        me.refused(f"only {granted} of 5")
    release(nodes, me.name)


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    try:
        with client.lock("report", timeout=me.ttl) as lease, me.inside(lease):
            me.add_one(lease.token)
    except InterlockError as error:
        me.refused(error)


class TwoDeadOfFive(RedlockScenario):
    number = 18
    name = "two-dead-of-five"
    title = Text("Two of five die, then a third", "五台死两台，再死第三台")
    story = Text(
        "Two of five servers are dead, and A still gets its lock from the other three. "
        "A third dies, and B gets none: nobody can know whether the dead ones had granted it to another.",
        "五台服务器死了两台，A 仍能从其余三台拿到锁。第三台也死了，B 就拿不到：谁也不知道死去的节点是否已经把锁给了别人。",
    )
    lesson = Text(
        "A quorum survives a minority. Beyond that it must refuse, and say which nodes are missing.",
        "多数派能承受少数节点失效。超过这个限度它就必须拒绝，并说明缺了哪些节点。",
    )
    programs = {"naive": naive, "ours": ours}
    naive_fails = False
    guarded = ("ours",)
    takes = 6.0
    captions = (
        Caption("naive", {"process": "A", "call": "grant"},
                Text("Three of five are enough for A.", "五个中的三个对 A 已经足够。")),
        Caption("naive", {"process": "B", "call": "acquire", "kind": "fail"},
                Text("Two of five are not enough for B.", "五个中的两个对 B 不够。")),
        Caption("ours", {"process": "B", "call": "acquire", "kind": "fail"},
                Text("B is refused, and told which nodes did not answer.", "B 被拒绝，并得知哪些节点没有回答。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.warm_up(stage)
        self.watch(stage)
        with down(stage, 4, 5):
            a = self.client(stage, "A")
            a.go()
            stage.finish(a)
            b = self.client(stage, "B")
            with down(stage, 3):
                b.go()
                stage.finish(b)

    def naive_failed(self, run: Run) -> bool | None:
        return run.granted("A") and not run.granted("B") and bool(run.refused)

    def ours_survived(self, run: Run) -> bool | None:
        refusal = " ".join(record.error for record in run.refused)
        return run.granted("A") and not run.granted("B") and refusal.count("127.0.0.1:") >= 3

    def verdict(self, run: Run) -> Text:
        if run.granted("A") and run.refused:
            return Text(
                "Granted by three of five, refused by two of five.",
                "五个中三个同意时得到锁，只剩两个时被拒绝。",
            )
        return run.verdict()
