"""crash-before-del: SETNX without an expiry, and its holder dies."""

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
    while not server.setnx("report", me.name):
        time.sleep(0.02)
    with me.inside():
        me.add_one()
    server.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.add_one(lease.token)


class CrashBeforeDel(HeldForEver, RedisScenario):
    number = 2
    name = "crash-before-del"
    title = Text("The holder dies, and its key stays", "持有者死了，键还在")
    story = Text(
        "A takes the lock with SETNX and is killed in the middle of its work, so it never reaches DEL. "
        "The key has no expiry: nobody else gets in until a person deletes it.",
        "A 用 SETNX 拿到锁，工作到一半被杀死，永远走不到 DEL。这个键没有过期时间：在有人手动删除之前，谁也进不来。",
    )
    lesson = Text(
        "A lock needs an end that does not depend on its holder: a time to live.",
        "锁需要一个不依赖持有者的终点：存活时间。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    captions = (
        Caption("naive", {"process": "A", "call": "fault"},
                Text("A is killed; nobody is left who could delete its key.", "A 被杀死；没有谁还能删除它的键。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B asks and asks, for {waited}, and would for ever.", "B 不停地请求了 {waited}，而且会永远请求下去。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("A's lease lapses, and B enters {waited} after it asked.", "A 的租约到期，B 在请求 {waited} 后进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        a = self.client(stage, "A", "thinking")
        b = self.client(stage, "B")
        a.go()
        a.reach("thinking")
        stage.kill(a)
        self.let_b_try(stage, b)
