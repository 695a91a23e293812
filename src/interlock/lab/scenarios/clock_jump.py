"""clock-jump: the clock of one of five servers jumps past the ttl."""

from __future__ import annotations

from interlock.lab.judge import Run
from interlock.lab.redlock_scenario import RedlockScenario, down, naive_redlock, ours
from interlock.lab.scenario import Caption, Link
from interlock.lab.stage import Stage
from interlock.lab.texts import Text


class ClockJump(RedlockScenario):
    number = 25
    name = "clock-jump"
    title = Text("The clock of one server jumps", "一台服务器的时钟跳变")
    story = Text(
        "A holds the lock on nodes 1, 2 and 3. The clock of node 3 is set forward by three ttls, so A's key on it "
        "is over at once; B gets 3, 4 and 5, which is a majority.",
        "A 在节点 1、2、3 上持有锁。节点 3 的时钟被拨快三个 ttl，A 在它上面的键立刻过期；B 得到 3、4、5，也是多数。",
    )
    lesson = Text(
        "Redlock trusts clocks to run, not to be right. A jump can let a second holder in; only its token tells.",
        "Redlock 相信时钟会走，而不相信它准。一次跳变就能放进第二个持有者；只有令牌能分辨先后。",
    )
    needs = "redlock-clock"
    programs = {"naive": naive_redlock, "ours": ours}
    guarded = ("ours",)
    takes = 9.0
    links = (
        Link(
            "Martin Kleppmann: How to do distributed locking",
            "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
        ),
    )
    captions = (
        Caption("naive", {"process": "node 3", "call": "fault"},
                Text("The clock of node 3 jumps, and A's key on it is gone.", "节点 3 的时钟跳变，A 在它上面的键没了。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("B has a majority: two at work for {overlap}.", "B 有了多数：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "resource", "call": "accept"},
                Text("What the lock cannot prevent, the resource does: it takes no write with an older token.",
                     "锁防不住的，由资源来防：它不接受令牌更旧的写入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.warm_up(stage)
        self.watch(stage)
        a = self.client(stage, "A", thinks=0.2 * stage.ttl)
        b = self.client(stage, "B", thinks=0.1 * stage.ttl)
        with down(stage, 4, 5):
            a.go()
            stage.until(lambda: stage.told("A", "grant"))
        with stage.fault("node 3", "clock jumped"):
            stage.servers.all[2].jump(3 * stage.ttl)
            with down(stage, 1, 2):
                b.go()
                stage.granted_within("B", 0.6)
        a.finish()
        b.finish(patience=6 * stage.ttl)

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work)

    def ours_survived(self, run: Run) -> bool | None:
        """A second holder is possible here, and the page says so; no update is lost, and tokens rise."""
        tokens = run.tokens()
        return run.lost_updates == 0 and tokens == sorted(set(tokens))
