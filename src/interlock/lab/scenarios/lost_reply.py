"""lost-reply: a server has granted, and its answer is lost; the client releases only what it knows of."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress

from interlock.errors import InterlockError
from interlock.lab.judge import Run, seconds
from interlock.lab.redlock_scenario import RedlockScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me
from interlock.testing.servers.proxy import Proxy


def naive(me: Me) -> None:
    from redis import RedisError

    nodes = me.nodes(timeout=0.1 * me.ttl)
    me.begins()
    while True:
        granted = []
        for node in nodes:
            with suppress(RedisError):
                if node.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
                    granted.append(node)
        if len(granted) >= 3:
            break
        for node in granted:  # not where the answer was lost
            node.delete("report")
        if me.name == "A":
            me.refused("no majority")
            return
        time.sleep(0.02)
    with me.inside(believes_for=me.ttl):
        me.add_one()
    for node in granted:
        node.delete("report")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    try:
        with client.lock("report", timeout=0.0 if me.name == "A" else 9 * me.ttl) as lease, me.inside(lease):
            me.add_one(lease.token)
    except InterlockError as error:
        me.refused(error)


class LostReply(RedlockScenario):
    number = 22
    name = "lost-reply"
    title = Text("Granted, but nobody heard it", "已经授予，却没有人听到")
    story = Text(
        "Three of five servers grant A's request, and their answers are lost. A knows of two grants, gives those "
        "back and goes home; its three other keys stay, and B finds no majority until they lapse.",
        "五台服务器中有三台同意了 A，但回答丢失了。A 只知道两个同意，归还它们后离去；另外三个键还在，B 在它们过期之前找不到多数。",
    )
    lesson = Text(
        "Whoever heard nothing may have been granted: a release goes to all servers, always.",
        "没有听到回答，也可能已经被授予：释放必须发给所有服务器，每一次都是。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    ttl = 2.0
    takes = 8.0
    captions = (
        Caption("naive", {"process": "A", "call": "acquire", "kind": "fail"},
                Text("A gives up, and leaves three keys that it does not know of.", "A 放弃了，留下三个它不知道的键。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("B waited for {waited}, though nobody held anything.", "B 等了 {waited}，尽管没有人持有锁。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("interlock has taken its request back on all servers: B enters at once.",
                     "interlock 在所有服务器上撤回了请求：B 立即进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.warm_up(stage)
        with ExitStack() as stack:
            ways = [stack.enter_context(Proxy(node.port)) for node in stage.servers.all]
            ports = [way.port for way in ways]
            far = "redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports)
            a = self.client(stage, "A", ports=ports, url=far)
            b = self.client(stage, "B", thinks=0.05)
            with stage.fault("network", "answers lost"):
                for way in ways[:3]:
                    way.replies.lose()
                a.go()
                stage.until(lambda: stage.told("A", "acquire", "fail"))
                b.go()
                stage.finish(b)
            a.finish()

    def _waited(self, run: Run) -> float:
        return max((end - start for start, end in run.waits.get("B", [])), default=0.0)

    def naive_failed(self, run: Run) -> bool | None:
        return run.granted("B") and self._waited(run) > 0.6 * run.ttl

    def ours_survived(self, run: Run) -> bool | None:
        return run.granted("B") and self._waited(run) < 0.4 * run.ttl

    def verdict(self, run: Run) -> Text:
        waited = seconds(self._waited(run))
        return Text(f"B waited for {waited}, though nobody held.", f"没有人持有锁，B 却等了 {waited}。")
