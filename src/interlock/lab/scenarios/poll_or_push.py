"""poll-or-push: a hundred waiters ask again and again, or are told."""

from __future__ import annotations

import time
from typing import Any

from interlock.lab.crowd_scenario import SLOWEST, CrowdScenario, ours
from interlock.lab.judge import Run
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import NAIVE, Caption, Measure
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me

OF_SCRIPTS = ("eval", "evalsha", "script|load", "subscribe", "unsubscribe", "ping")
"""What interlock sends. What its scripts do on the server counts as commands there, too, but nobody sent it."""


def naive(me: Me) -> None:
    def wait(one: Me) -> None:  # each of a hundred
        server = one.redis()
        one.begins()
        while not server.set("report", one.name, nx=True, px=int(one.ttl * 1000)):
            time.sleep(0.1)
        with one.inside():
            one.think()
        server.delete("report")

    me.in_crowd(wait)


class PollOrPush(RedisScenario, CrowdScenario):
    number = 14
    name = "poll-or-push"
    title = Text("A hundred who ask, or a hundred who are told", "一百个人来问，还是一百个人等通知")
    story = Text(
        "A hundred clients wait for one lock. If each asks every 100 ms, the server is asked a thousand times a second while nothing happens, "
        "and whoever asks first after a release is in, however late it came.",
        "一百个客户端等同一把锁。如果每个每 100 毫秒问一次，什么都没发生时服务器每秒也要回答一千次；释放之后谁先来问谁就进，不管它来得多晚。",
    )
    lesson = Text(
        "Let waiters queue at the store, and let the release itself tell the next one.",
        "让等待者在存储里排队，由释放本身去通知下一个。",
    )
    programs = {"naive": naive, "ours": ours}
    takes = 10.0
    ttl = 10.0
    waiters = 100
    measures = {
        "idle": Measure(Text("requests a second while nothing moves", "没有动静时每秒的请求数")),
        **CrowdScenario.measures,
        "slowest": SLOWEST,
    }
    measured = ("idle", *CrowdScenario.measured)
    captions = (
        Caption("naive", {"process": "first", "call": "grant"},
                Text("One holds, a hundred wait: {idle} requests a second for nothing.",
                     "一个持有，一百个等待：每秒 {idle} 个请求，一无所获。")),
        Caption("naive", {"process": "first", "call": "body"},
                Text("It lets go; whoever asks next is in: {overtaken} pairs in the wrong order.",
                     "它释放；谁下一个来问谁就进：{overtaken} 对顺序颠倒。")),
        Caption("ours", {"process": "first", "call": "body"},
                Text("The release hands the lock to the next in the queue, and tells it: {requests} requests each.",
                     "释放把锁直接交给队列中的下一个，并通知它：每次 {requests} 个请求。")),
    )  # fmt: skip

    def while_they_wait(self, stage: Stage) -> None:
        self.rate(stage, "idle", 0.1)

    def url(self, stage: Stage) -> str:
        return str(self.where(stage)["url"])

    def received(self, stage: Stage) -> int:
        from redis import Redis

        with Redis(port=stage.servers.port, decode_responses=True) as admin:
            found: Any = admin.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): row["calls"] for name, row in found.items()}
        if stage.naive:
            return int(calls.get("set", 0) + calls.get("del", 0))
        return sum(calls.get(name, 0) for name in OF_SCRIPTS)

    def naive_failed(self, run: Run) -> bool | None:
        found = run.measures()
        return found.get("idle", 0.0) > 2 * self.waiters and found.get("overtaken", 0.0) > 0

    def ours_survived(self, run: Run) -> bool | None:
        found = run.measures()
        if not self.all_entered(run) or found.get("overtaken", 1.0) > 0:
            return False
        return found["requests"] < 10 and found["idle"] < 2 * self.waiters

    def verdict(self, run: Run) -> Text:
        idle = run.measures().get("idle")
        if idle is None:
            return run.verdict()
        each = super().verdict(run)
        told = Text(
            f"{idle:,.0f} requests a second while nothing moves;", f"没有动静时每秒 {idle:,.0f} 个请求；"
        )
        return told + Text(each.en, each.zh) if run.name == NAIVE else told + each
