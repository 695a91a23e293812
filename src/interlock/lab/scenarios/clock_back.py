"""clock-back: the server's clock is set back, and a dead holder's key lives as much longer."""

from __future__ import annotations

import time

from interlock.lab.held_for_ever import HeldForEver
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me

BACK_S = 300.0


def naive(me: Me) -> None:
    server = me.redis()
    me.begins()
    while not server.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
        time.sleep(0.02)
    with me.inside():
        me.add_one()
    if server.get("report") == me.name:
        server.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.add_one(lease.token)


class ClockBack(HeldForEver, RedisScenario):
    number = 26
    name = "clock-back"
    title = Text("The clock is set back, and the key lives on", "时钟被拨回，键继续活着")
    story = Text(
        "Redis writes down at which time of day a key expires. A dies while it holds, and the clock of the server is set back "
        "by five minutes, as after a wrong setting: A's key lives five minutes longer.",
        "Redis 记下的是键在几点几分过期。A 持有锁时死去，服务器的时钟被拨回五分钟（例如纠正一次错误的设置）：A 的键多活了五分钟。",
    )
    lesson = Text(
        "A ttl on the server is a time of day. A store must notice that more is left than was ever asked for.",
        "服务器上的 ttl 其实是一个钟点。存储必须能发现：剩余的时间比当初要求的还长。",
    )
    needs = "redis-clock"
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 6.0
    captions = (
        Caption("naive", {"process": "clock", "call": "fault"},
                Text("A is dead, and the server's clock goes back by five minutes.", "A 已死，服务器的时钟拨回五分钟。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B waits for {waited}, and would for five minutes.", "B 等了 {waited}，而且会等上五分钟。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("interlock sees that the claim has more left than its ttl, and cuts it: B waits {waited}.",
                     "interlock 发现剩余时间超过了 ttl，把它截短：B 等了 {waited}。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        a = self.client(stage, "A", "thinking")
        b = self.client(stage, "B")
        a.go()
        a.reach("thinking")
        stage.kill(a)
        with stage.fault("clock", "set back"):
            stage.servers.jump(-BACK_S)
            self.let_b_try(stage, b)
