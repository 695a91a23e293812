"""early-unlock: a lock that knows its owner on entry, and forgets on exit that it was entered twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from interlock.lab.judge import Run
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    server = me.redis()
    me.begins()

    @contextmanager
    def locked() -> Iterator[None]:
        while server.get("report") != me.name:  # mine already: come in
            if server.set("report", me.name, nx=True, px=int(3 * me.ttl * 1000)):
                break
            time.sleep(0.01)
        yield
        server.delete("report")

    with locked(), me.inside():
        with locked():  # a function that locks, called by another that does
            me.add_one()
        for _ in range(3):
            me.add_one()


def ours(me: Me) -> None:
    client = me.interlock()
    lock = client.rlock("report")
    me.begins()
    with lock as lease, me.inside(lease):
        with lock:
            me.add_one(lease.token)
        for _ in range(3):
            me.add_one(lease.token)


class EarlyUnlock(RedisScenario):
    number = 11
    name = "early-unlock"
    title = Text("The inner block unlocks the outer one", "内层代码块释放了外层的锁")
    story = Text(
        "A function that locks calls another that locks, and the lock lets its own owner in again. "
        "But the inner exit deletes the key, and the outer block goes on without a lock.",
        "一个加锁的函数调用了另一个加锁的函数，锁允许自己的主人再次进入。可是内层退出时删除了键，外层代码在没有锁的情况下继续运行。",
    )
    lesson = Text(
        "Re-entry needs a count: the outermost exit releases, and no other.",
        "可重入需要计数：只有最外层的退出才释放锁。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 2.0
    captions = (
        Caption("naive", {"process": "B", "call": "grant"},
                Text("A has left the inner block only, and B is in: two at work for {overlap}.",
                     "A 只退出了内层代码块，B 就进来了：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "A", "call": "end"},
                Text("The outer exit releases, and only then B enters.", "外层退出时才释放，B 这时才进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        a = self.client(stage, "A", "thinking")
        b = self.client(stage, "B")
        a.go()
        a.reach("thinking")
        b.go()
        stage.until(lambda: stage.told("B", "acquire"))
        a.go()
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work)

    def ours_survived(self, run: Run) -> bool | None:
        return not run.two_at_work and run.lost_updates == 0
