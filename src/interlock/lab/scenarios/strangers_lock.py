"""strangers-lock: a late holder deletes the lock of whoever came after it."""

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
        for _ in range(4):
            me.add_one()
    server.delete("report")  # whoever's it is by now


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(4):
            me.add_one(lease.token)


class StrangersLock(RedisScenario):
    number = 8
    name = "strangers-lock"
    title = Text("Releasing a stranger's lock", "释放了别人的锁")
    story = Text(
        "A works for longer than its expiry, so B has the lock when A deletes the key: A deletes B's lock. "
        "C enters beside B, B deletes C's, and so it goes on: one slow holder breaks the lock for everybody.",
        "A 的工作超过了过期时间，它删除键时锁已属于 B：A 删掉了 B 的锁。C 与 B 同时进入，B 再删掉 C 的锁，如此循环：一个慢的持有者毁掉了所有人的锁。",
    )
    lesson = Text(
        "A release must name its own claim, and compare and delete in one step.",
        "释放时必须指明自己的锁，并把比较和删除放在一步里完成。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 8.0
    captions = (
        Caption("naive", {"process": "B", "call": "grant"},
                Text("A's key expires in the middle of its work, and B enters.", "A 的键在工作途中过期，B 进入。")),
        Caption("naive", {"process": "A", "call": "end"},
                Text("A finishes and deletes the key, which is B's.", "A 完成工作并删除了键，而那是 B 的。")),
        Caption("naive", {"process": "C", "call": "grant"},
                Text("C enters beside B: two at work for {overlap}.", "C 与 B 同时在里面：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "A", "call": "renew"},
                Text("interlock renews A's lease while it works, and nobody enters beside it.",
                     "A 工作时 interlock 为它续约，没有谁能同时进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        step = 0.4 * stage.ttl  # four of them: 1.6 ttls in all
        clients = [self.client(stage, name, thinks=step) for name in "ABC"]
        for name, client in zip("ABC", clients, strict=True):
            client.go()
            if name == "A":
                stage.until(lambda: stage.told("A", "grant"))
            elif name == "B":
                stage.until(lambda: stage.told("B", "acquire"))
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and bool(run.late_writes())

    def ours_survived(self, run: Run) -> bool | None:
        return not run.two_at_work and not run.late_writes() and run.lost_updates == 0
