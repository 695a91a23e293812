"""hash-with-counter: the reentrant hash of many libraries, and no token for the resource."""

from __future__ import annotations

import time
import uuid
from typing import Any

from interlock.lab.judge import Run
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import Held, Look
from interlock.lab.worker import Me

ENTER = """
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 1
end
return 0
"""
LEAVE = """
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0 then redis.call('del', KEYS[1]) end
return 1
"""


def naive(me: Me) -> None:
    server = me.redis()
    owner = f"{me.name}:{uuid.uuid4()}"  # random, as it should be
    me.begins()
    while not server.eval(ENTER, 1, "report", owner, int(me.ttl * 1000)):
        time.sleep(0.01)
    with me.inside():
        server.eval(ENTER, 1, "report", owner, int(me.ttl * 1000))  # a nested call: the counter is 2
        for _ in range(4):
            me.add_one()
        server.eval(LEAVE, 1, "report", owner)
    server.eval(LEAVE, 1, "report", owner)


def ours(me: Me) -> None:
    client = me.interlock()
    lock = client.rlock("report")
    me.begins()
    with lock as lease, me.inside(lease):
        with lock:  # a nested call: the same lease, the same token
            for _ in range(4):
                value = me.read(lease.token)
                me.think()
                lease.check()
                me.at("before the write")
                me.write(value + 1, lease.token)


class HashWithCounter(RedisScenario):
    number = 13
    name = "hash-with-counter"
    title = Text("A hash with a counter, and no token", "带计数的哈希，却没有令牌")
    story = Text(
        "A hash with the owner and the number of its entries, changed by a script: nothing is lost between two steps, and nested calls work. "
        "Then A is frozen for longer than the ttl, B enters, and A writes: nothing at the resource can tell them apart.",
        "用哈希记下主人和进入次数，由脚本修改：步骤之间不会丢东西，嵌套调用也没问题。随后 A 被冻结超过 ttl，B 进入，A 再写入：资源无从区分它们。",
    )
    lesson = Text(
        "Counting entries is about one holder. Telling the old holder from the new one needs a number that only rises.",
        "数进入次数只管一个持有者。要分清新旧持有者，需要一个只增不减的数字。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 5.0
    captions = (
        Caption("naive", {"process": "A", "call": "fault", "kind": "invoke"},
                Text("A is frozen inside the nested block; the hash expires.", "A 在内层代码块中被冻结；哈希过期。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("B makes a hash of its own, and is in.", "B 创建自己的哈希，进入。")),
        Caption("naive", {"process": "A", "call": "fault", "kind": "ok"},
                Text("A wakes up: {late} late writes, and nobody could refuse them.", "A 醒来：{late} 次迟到的写入，没有谁能拒绝。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("A nested entry has the same token as the outer one, and the resource has seen a higher one.",
                     "内层的令牌与外层相同，而资源见过更大的令牌。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        if stage.naive:
            stage.witness(_hash(stage.servers.port))
        else:
            self.watch(stage)
        a = self.client(stage, "A", "before the write")
        b = self.client(stage, "B", thinks=0.19)
        a.go()
        a.reach("before the write")
        b.go()
        with stage.paused(a):
            a.go()
            stage.until(lambda: stage.writes("B") >= 2)
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.late_writes())

    def ours_survived(self, run: Run) -> bool | None:
        return bool(run.writes("fail")) and not run.late_writes() and run.lost_updates == 0


def _hash(port: int) -> Look:
    """Read who stands in the hash of naive locks."""
    from redis import Redis

    server = Redis(port=port, decode_responses=True)

    def look() -> Held | None:
        pipeline: Any = server.pipeline()
        owners, left = pipeline.hgetall("report").pttl("report").execute()
        return Held(next(iter(owners)).partition(":")[0], left / 1000) if owners else None

    return look
