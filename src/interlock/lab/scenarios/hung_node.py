"""hung-node: one of five servers accepts connections and answers nothing."""

from __future__ import annotations

import time

from interlock.lab.judge import Run, seconds
from interlock.lab.redlock_scenario import RedlockScenario, ours, release
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    nodes = me.nodes(timeout=None)  # no limit for a single node
    me.begins()
    began, granted = time.monotonic(), 0
    for node in nodes:
        granted += bool(node.set("report", me.name, nx=True, px=int(me.ttl * 1000)))
    valid_for = me.ttl - (time.monotonic() - began)
    if granted >= 3 and valid_for > 0:
        with me.inside(believes_for=valid_for):
            me.add_one()
    release(nodes, me.name)


class HungNode(RedlockScenario):
    number = 19
    name = "hung-node"
    title = Text("One of five servers hangs", "五台服务器中有一台挂起")
    story = Text(
        "Node 1 is frozen: it takes connections and answers nothing. A client without a limit for each node waits "
        "for it for ever, although four others would have granted at once.",
        "节点 1 被冻结：它接受连接，但什么也不回答。没有为每个节点设限的客户端会永远等它，尽管另外四个本可立即同意。",
    )
    lesson = Text(
        "A quorum is worth its servers only if the slowest of them cannot hold up the others.",
        "只有当最慢的节点拖不住其他节点时，多数派才有意义。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 6.0
    captions = (
        Caption("naive", {"process": "A", "call": "acquire"},
                Text("A asks node 1 first, and waits for {waited}.", "A 先问节点 1，等了 {waited}。")),
        Caption("ours", {"process": "A", "call": "grant"},
                Text("All are asked at once, and a majority is enough: granted after {waited}.",
                     "同时询问所有节点，多数同意即可：{waited} 后得到锁。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.warm_up(stage)
        a = self.client(stage, "A")
        hung = stage.servers.all[0]
        hung.freeze()
        with stage.fault("node 1", "frozen"):
            a.go()
            stage.granted_within("A", 2.5)
            if not stage.naive:
                stage.finish()
        hung.thaw()

    def naive_failed(self, run: Run) -> bool | None:
        return run.stuck("A", 2.0)

    def ours_survived(self, run: Run) -> bool | None:
        return run.granted("A") and self._waited(run) < run.ttl / 2

    def _waited(self, run: Run) -> float:
        return max((end - start for start, end in run.waits.get("A", [])), default=0.0)

    def verdict(self, run: Run) -> Text:
        waited = seconds(self._waited(run))
        if run.granted("A"):
            return Text(f"Granted after {waited}, with four of five.", f"{waited} 后由五个中的四个同意。")
        return Text(f"Still waiting after {waited}.", f"等了 {waited} 仍未得到。")
