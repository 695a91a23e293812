"""node-forgets: one of five servers comes back empty, and a second majority is found."""

from __future__ import annotations

from interlock.lab.judge import Run
from interlock.lab.redlock_scenario import RedlockScenario, down, naive_redlock, ours, restart_empty
from interlock.lab.scenario import Caption, Link
from interlock.lab.stage import Stage
from interlock.lab.texts import Text


class NodeForgets(RedlockScenario):
    number = 23
    name = "node-forgets"
    title = Text("One of five servers forgets", "五台服务器中有一台失忆")
    story = Text(
        "A holds the lock on nodes 1, 2 and 3 of five. Node 3 crashes and comes back empty, as any server without "
        "persistence does; B finds 3, 4 and 5 free, which is a majority, too.",
        "A 在五个节点中的 1、2、3 上持有锁。节点 3 崩溃后空着回来，没有持久化的服务器都是如此；B 发现 3、4、5 空闲，这同样是多数。",
    )
    lesson = Text(
        "A vote counts only if the voter remembers what it voted: a node that forgot must be kept out for a while.",
        "投票者记得自己投过什么，那一票才算数：失忆的节点必须先被隔离一段时间。",
    )
    programs = {"naive": naive_redlock, "ours": ours}
    guarded = ("ours",)
    takes = 8.0
    links = (Link("Salvatore Sanfilippo: Is Redlock safe?", "http://antirez.com/news/101"),)
    captions = (
        Caption("naive", {"process": "node 3", "call": "fault"},
                Text("Node 3 comes back without A's key.", "节点 3 回来时已经没有 A 的键。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("B is granted by 3, 4 and 5: two at work for {overlap}.", "B 得到 3、4、5 的同意：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "node 3", "call": "fault"},
                Text("Node 3 is known to have lost its memory: it has no vote for now, and B is refused.",
                     "已知节点 3 失去了记忆：它暂时没有投票权，B 被拒绝。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.warm_up(stage)
        self.watch(stage)
        a = self.client(stage, "A", "thinking", thinks=0.1 * stage.ttl)
        b = self.client(stage, "B", thinks=0.3 * stage.ttl)
        with down(stage, 4, 5):
            a.go()
            a.reach("thinking")
        restart_empty(stage, 3)
        with down(stage, 1, 2):
            b.go()
            stage.granted_within("B", 0.6)
        if not stage.naive:
            stage.lapse()  # A's renewals found too few nodes that remember it
        a.go()
        stage.finish(a)
        b.finish(patience=2 * stage.ttl)

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work)

    def ours_survived(self, run: Run) -> bool | None:
        return not run.two_at_work and run.lost_updates == 0
