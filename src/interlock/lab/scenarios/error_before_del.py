"""error-before-del: SETNX without an expiry, and an error in the work; the process lives on."""

from __future__ import annotations

import time

from interlock.lab.held_for_ever import HeldForEver
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    server = me.redis()
    me.begins()

    def job() -> None:
        while not server.setnx("report", me.name):
            time.sleep(0.02)
        with me.inside():
            me.add_one()
            if me.name == "A":
                raise ValueError("a bad row")
        server.delete("report")  # not in a `finally`

    try:
        job()
    except ValueError:  # a worker logs the error, and takes the next job
        me.at("the next job")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()

    def job() -> None:
        with client.lock("report") as lease, me.inside(lease):
            me.add_one(lease.token)
            if me.name == "A":
                raise ValueError("a bad row")

    try:
        job()
    except ValueError:
        me.at("the next job")


class ErrorBeforeDel(HeldForEver, RedisScenario):
    number = 3
    name = "error-before-del"
    title = Text("An error in the work, and the key stays", "工作中出错，键留了下来")
    story = Text(
        "A takes the lock with SETNX, and its work raises an error before it reaches DEL. "
        "The worker logs the error and goes on to its next job, with a lock in its hand that it does not know of.",
        "A 用 SETNX 拿到锁，工作在走到 DEL 之前抛出了错误。工作进程记下错误，接着做下一个任务，手里还握着一把自己都不知道的锁。",
    )
    lesson = Text(
        "A lock is released where it was taken, whatever happens in between: `with`, or `finally`.",
        "锁在哪里拿的，就在哪里释放，无论中间发生什么：用 `with`，或 `finally`。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 5.0
    captions = (
        Caption("naive", {"process": "A", "call": "body", "kind": "fail"},
                Text("A's work fails; its process lives, and its key stays.", "A 的工作失败；进程还活着，键也还在。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B asks for {waited} in vain.", "B 白白请求了 {waited}。")),
        Caption("ours", {"process": "A", "call": "body", "kind": "fail"},
                Text("The error leaves the `with`, which releases.", "错误离开 `with`，锁随之释放。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("B is in at once.", "B 立刻进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        a = self.client(stage, "A", "the next job")
        b = self.client(stage, "B")
        a.go()
        a.reach("the next job")
        self.let_b_try(stage, b)
        a.go()
        stage.finish(a)
