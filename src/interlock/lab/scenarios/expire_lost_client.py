"""expire-lost-client: SETNX, then EXPIRE, and the client dies between the two."""

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
    me.at("between")  # A is killed here
    server.pexpire("report", int(me.ttl * 1000))
    with me.inside():
        me.add_one()
    server.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):  # claim and ttl are one step on the server
        me.at("between")
        me.add_one(lease.token)


class ExpireLostClient(HeldForEver, RedisScenario):
    number = 4
    name = "expire-lost-client"
    title = Text("The expiry that is never set", "从未设置的过期时间")
    story = Text(
        "The lock is taken with SETNX and gets its expiry with a second command. "
        "A dies between the two: the key exists, has no expiry, and has no owner.",
        "先用 SETNX 取锁，再用第二条命令设置过期时间。A 死在两条命令之间：键存在，没有过期时间，也没有主人。",
    )
    lesson = Text(
        "What must be true together has to be one command: SET name value NX PX, or a script.",
        "必须同时成立的事要用一条命令完成：SET name value NX PX，或者一个脚本。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    captions = (
        Caption("naive", {"process": "A", "call": "fault"},
                Text("A is killed after SETNX, before EXPIRE.", "A 在 SETNX 之后、EXPIRE 之前被杀死。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B finds a key that never expires: it waits for {waited} and would for ever.",
                     "B 遇到一个永不过期的键：它等了 {waited}，而且会永远等下去。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("There is no moment without an expiry: B enters after one ttl.", "没有哪一刻是不带过期时间的：一个 ttl 之后 B 进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        a = self.client(stage, "A", "between")
        b = self.client(stage, "B")
        a.go()
        a.reach("between")
        stage.kill(a)
        self.let_b_try(stage, b)
