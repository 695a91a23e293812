"""watchdog-for-the-dead: a thread that renews for ever, for a worker thread that is gone."""

from __future__ import annotations

import threading
import time

from interlock.lab.held_for_ever import HeldForEver
from interlock.lab.redis_scenario import RedisScenario
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    server = me.redis()
    me.begins()

    def renew_for_ever() -> None:
        while True:
            time.sleep(me.ttl / 3)
            server.pexpire("report", int(me.ttl * 1000))

    def work() -> None:
        while not server.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
            time.sleep(0.02)
        threading.Thread(target=renew_for_ever, daemon=True).start()
        with me.inside():
            me.add_one()
            if me.name == "A":
                raise RuntimeError("a bug in the work")
        server.delete("report")

    in_thread(work)
    me.at("the thread is dead")


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()

    def work() -> None:
        lease = client.lock("report").acquire()  # as people do who forget `with`
        assert lease
        with me.inside(lease):
            me.add_one(lease.token)
            if me.name == "A":
                raise RuntimeError("a bug in the work")
        lease.release()

    in_thread(work)
    me.at("the thread is dead")


def in_thread(work: object) -> None:
    """Run the work in a thread of its own; A's process lives on after the thread has died."""
    threading.excepthook = lambda args: None  # the error is part of the story
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()


class WatchdogForTheDead(HeldForEver, RedisScenario):
    number = 10
    name = "watchdog-for-the-dead"
    title = Text("The watchdog that renews for the dead", "为死者续约的看门狗")
    story = Text(
        "A daemon thread renews A's key every third of its ttl. The thread that did the work dies with an error, "
        "the process lives on, and the watchdog goes on renewing for nobody.",
        "一个守护线程每过三分之一个 ttl 就为 A 的键续期。干活的线程因错误而死，进程还活着，看门狗继续为一个不存在的人续期。",
    )
    lesson = Text(
        "Renewal must be tied to the owner, and bounded: interlock's keeper stops when the owning thread is gone.",
        "续约必须与持有者绑定，并且有界：持有锁的线程不在了，interlock 的守护者就停止续约。",
    )
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    captions = (
        Caption("naive", {"process": "A", "call": "body"},
                Text("A's worker dies; its watchdog does not notice.", "A 的工作线程死了；看门狗没有察觉。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("The key is renewed again and again: B waits for {waited}, and would for ever.",
                     "键一次又一次被续期：B 等了 {waited}，而且会永远等下去。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("The keeper sees that the owner is gone and renews no more: B enters.",
                     "守护者发现持有者已不在，不再续约：B 进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        self.watch(stage)
        a = self.client(stage, "A", "the thread is dead")
        b = self.client(stage, "B")
        a.go()
        a.reach("the thread is dead")
        self.let_b_try(stage, b)
