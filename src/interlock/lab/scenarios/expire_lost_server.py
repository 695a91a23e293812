"""expire-lost-server: SETNX, then EXPIRE, and the server crashes between the two."""

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
    me.at("between")  # the server crashes here
    server.pexpire("report", int(me.ttl * 1000))  # raises ConnectionError
    with me.inside():
        me.add_one()
    server.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.at("between")
        me.add_one(lease.token)


class ExpireLostServer(HeldForEver, RedisScenario):
    number = 6
    name = "expire-lost-server"
    title = Text("The server crashes between SETNX and EXPIRE", "服务器在 SETNX 与 EXPIRE 之间崩溃")
    story = Text(
        "A's SETNX is on the server's disk when the server crashes, and A's EXPIRE never arrives. "
        "The server comes back with the key, faithfully, and without an expiry.",
        "服务器崩溃时，A 的 SETNX 已经写入磁盘，而 EXPIRE 永远没有到达。服务器重启后忠实地恢复了这个键，却没有过期时间。",
    )
    lesson = Text(
        "A durable server keeps your mistakes, too: what it restores must already have an end.",
        "持久化的服务器也会保存你的错误：它恢复的东西必须本来就有终点。",
    )
    needs = "redis-durable"
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    captions = (
        Caption("naive", {"process": "server", "call": "fault"},
                Text("The server crashes and restarts with all it had: a key without an expiry.",
                     "服务器崩溃并带着全部数据重启：其中有一个没有过期时间的键。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B waits for {waited}, and would for ever.", "B 等了 {waited}，而且会永远等下去。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("The lease came back with its time to live: B enters when it lapses.",
                     "租约连同存活时间一起恢复：到期后 B 进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        a = self.client(stage, "A", "between")
        b = self.client(stage, "B")
        self.watch(stage)
        a.go()
        a.reach("between")
        with stage.fault("server", "crashed"):
            stage.servers.kill()
            stage.servers.start()
        stage.kill(a)  # whatever it would do now: the lesson is about what the server kept
        self.let_b_try(stage, b)
