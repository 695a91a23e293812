"""etcdctl-beside-us: the lock of etcd's own tools, and interlock's, are one."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import interlock
from interlock.lab.etcd_scenario import EtcdScenario
from interlock.lab.judge import Run, seconds
from interlock.lab.scenario import NAIVE, Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import store_of
from interlock.lab.worker import KEY, Me
from interlock.testing.servers.process import find_program, start_program

TOOL = "etcdctl"


def naive(me: Me) -> None:
    me.begins()
    with etcdctl_lock(me) as claim, me.inside(claim=claim):
        me.add_one()


def ours(me: Me) -> None:
    client = me.interlock()  # etcd://...?prefix=interlock/
    me.begins()
    if me.name == TOOL:
        with etcdctl_lock(me) as claim, me.inside(claim=claim):
            me.add_one()
    else:
        with client.lock("report") as lease, me.inside(lease):
            me.add_one(lease.token)


@contextmanager
def etcdctl_lock(me: Me) -> Iterator[str]:
    """Hold `etcdctl lock interlock/report` for as long as the block; yield the last part of its key."""
    tool = start_program(
        [TOOL, "--endpoints", me.settings["endpoints"], "lock", "--ttl", f"{me.ttl:.0f}", "interlock/report"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tool.stdout is not None
    yield tool.stdout.readline().strip().rpartition("/")[2]
    tool.send_signal(signal.SIGINT)  # Ctrl-C
    tool.wait()


class EtcdctlBesideUs(EtcdScenario):
    number = 37
    name = "etcdctl-beside-us"
    title = Text("etcdctl lock beside interlock", "etcdctl lock 与 interlock 并用")
    story = Text(
        "One holder is killed, the next one releases with Ctrl-C: etcd's own lock survives both. "
        "interlock keeps its claims where etcd's lock keeps them, so an operator's shell and a program exclude each other.",
        "一个持有者被杀死，下一个用 Ctrl-C 释放：etcd 自己的锁经得起这两样。interlock 把请求放在 etcd 的锁存放的地方，于是运维的终端和程序彼此互斥。",
    )
    lesson = Text(
        "A lock that works needs no replacement: join its queue, and bring a token and a name for the holder.",
        "好用的锁不必替换：加入它的队列，再带上令牌和持有者的名字。",
    )
    programs = {"naive": naive, "ours": ours}
    naive_fails = False
    guarded = ()
    takes = 14.0
    ttl = 2.0
    captions = (
        Caption("naive", {"process": "A", "call": "fault"},
                Text("etcdctl is killed; its lease runs out by itself.", "etcdctl 被杀死；它的租约自行到期。")),
        Caption("naive", {"process": "C", "call": "grant"},
                Text("B is ended with Ctrl-C, and C is in at once.", "B 用 Ctrl-C 结束，C 立刻进入。")),
        Caption("ours", {"process": "A", "call": "fault"},
                Text("A, a program with interlock, is killed.", "使用 interlock 的程序 A 被杀死。")),
        Caption("ours", {"process": TOOL, "call": "grant"},
                Text("etcdctl has waited in the same queue, and is next.", "etcdctl 在同一个队列里等待，轮到它。")),
        Caption("ours", {"process": "C", "call": "grant"},
                Text("Ctrl-C, and interlock is in {handed} ms later.", "按下 Ctrl-C，{handed} ms 之后 interlock 进入。")),
    )  # fmt: skip
    measured = ("handed",)

    def play(self, stage: Stage) -> None:
        find_program(TOOL, "etcd-client")
        url = stage.servers.url()
        where = {"url": url, "endpoints": stage.servers.hosts}
        a = stage.client("A", stops_at=("thinking",), **where)
        second = "B" if stage.naive else TOOL
        b, c = stage.client(second, **where), stage.client("C", **where)
        stage.witness(store_of(url, KEY))
        a.go()
        a.reach("thinking")
        with interlock.connect(url) as client:
            for waiting, waiter in ((1, b), (2, c)):
                waiter.go()
                stage.until(partial(self._has_waiters, client, waiting))
        stage.kill(a)
        stage.finish(b, c)
        freed = next(one.time for one in stage.records if one.process == second and one.call == "body")
        entered = next(one.time for one in stage.records if one.process == "C" and one.call == "grant")
        stage.add("measure", "ok", attempt="handed", amount=1000 * (entered - freed))

    def _has_waiters(self, client: interlock.Client, number: int) -> bool:
        return len(client.inspect(KEY).waiters) == number

    def naive_failed(self, run: Run) -> bool | None:
        return self._excluded(run)

    def ours_survived(self, run: Run) -> bool | None:
        return self._excluded(run)

    def _excluded(self, run: Run) -> bool:
        return not run.two_at_work and len(run.writes()) == 2 and run.lost_updates == 0

    def verdict(self, run: Run) -> Text:
        handed = run.measures().get("handed")
        if handed is None or not self._excluded(run):
            return run.verdict()
        told = seconds(handed / 1000)
        if run.name == NAIVE:
            return Text(f"Never two at work; the next one is in {told} after Ctrl-C.",
                        f"始终只有一个在工作；按下 Ctrl-C {told} 之后下一个进入。")  # fmt: skip
        return Text(f"They exclude each other; interlock is in {told} after etcdctl's Ctrl-C.",
                    f"两者互斥；etcdctl 按下 Ctrl-C {told} 之后 interlock 进入。")  # fmt: skip
