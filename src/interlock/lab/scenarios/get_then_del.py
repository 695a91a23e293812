"""get-then-del: a release that compares first and deletes afterwards, and is stopped between the two."""

from __future__ import annotations

import time

from interlock.lab.judge import Run
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    server = me.redis()
    me.begins()
    while not server.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
        time.sleep(0.01)
    with me.inside():
        for _ in range(me.settings["rounds"]):
            me.add_one()
    if server.get("report") == me.name:
        me.at("between")  # A is stopped here
        server.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    lease = client.lock("report").acquire()
    assert lease
    with me.inside(lease):
        for _ in range(me.settings["rounds"]):
            me.add_one(lease.token)
    me.at("between")
    lease.release()  # one script compares the claim and removes it; LeaseLost if it is gone


class GetThenDel(RedisScenario):
    number = 9
    name = "get-then-del"
    title = Text("Compare, then delete, is two steps", "先比较再删除，是两步")
    story = Text(
        "A looks whether the key is still its own, and it is; then A is stopped for longer than the expiry. "
        "When it goes on it deletes the key, which is B's by now, and C enters beside B.",
        "A 查看键是否还是自己的，确实是；随后它被暂停，超过了过期时间。恢复后它删除了键，而此时键已属于 B，于是 C 与 B 同时进入。",
    )
    lesson = Text(
        "An answer is old when it arrives. Comparing belongs on the server, in the same step as deleting.",
        "答案到达时就已经旧了。比较应当放在服务器上，与删除在同一步完成。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 7.0
    captions = (
        Caption("naive", {"process": "A", "call": "fault", "kind": "invoke"},
                Text("A has compared, and is stopped before it deletes.", "A 已经比较过，在删除之前被暂停。")),
        Caption("naive", {"process": "A", "call": "fault", "kind": "ok"},
                Text("A goes on, and deletes B's key.", "A 恢复运行，删除了 B 的键。")),
        Caption("naive", {"process": "C", "call": "grant"},
                Text("C enters beside B: two at work for {overlap}.", "C 与 B 同时在里面：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "A", "call": "end", "kind": "info"},
                Text("The late release is refused, and A is told.", "迟到的释放被拒绝，A 得知此事。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        a = self.client(stage, "A", "between", rounds=1, thinks=0.05)
        b = self.client(stage, "B", rounds=5, thinks=0.12 * stage.ttl)
        c = self.client(stage, "C", rounds=2, thinks=0.12 * stage.ttl)
        a.go()
        a.reach("between")
        with stage.paused(a):
            b.go()
            stage.until(lambda: stage.writes("B") >= 2)
            a.go()
            c.go()
            stage.until(lambda: stage.told("C", "acquire"))
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work)

    def ours_survived(self, run: Run) -> bool | None:
        return not run.two_at_work and run.lost_updates == 0 and bool(run.told)
