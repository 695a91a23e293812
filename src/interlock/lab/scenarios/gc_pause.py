"""gc-pause: a holder is frozen for longer than its lease lives, and writes when it wakes up."""

from __future__ import annotations

import time

from interlock.lab.judge import Run
from interlock.lab.scenario import Caption, Link, Scenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import redis_key
from interlock.lab.worker import KEY, Me

DELETE_IF_MINE = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
)


def naive(me: Me) -> None:
    server = me.redis()
    me.begins()
    while not server.set("report", me.name, nx=True, px=int(me.ttl * 1000)):
        time.sleep(0.01)
    with me.inside():
        for _ in range(5):
            me.add_one()
    server.eval(DELETE_IF_MINE, 1, "report", me.name)


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(5):
            value = me.read()
            me.think()
            lease.check()  # raises LeaseLost
            me.write(value + 1)


def guarded(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(5):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.at("before the write")
            me.write(value + 1, lease.token)  # the resource raises StaleToken


class GcPause(Scenario):
    number = 28
    name = "gc-pause"
    title = Text("A pause longer than the lease", "停顿比租约更长")
    story = Text(
        "A holds the lock and is frozen in the middle of its work, as a garbage collection or a busy host may do. "
        "Its lease runs out, B enters, and A wakes up and writes as if nothing had happened.",
        "A 持有锁，工作到一半被冻结，垃圾回收或繁忙的主机都可能造成这种情况。租约到期，B 进入；A 醒来后若无其事地继续写。",
    )
    lesson = Text(
        "No lock can stop a write that its holder sends too late; only the resource can, by the token.",
        "没有任何锁能拦住持有者迟到的写入；只有资源自己能凭令牌拒绝它。",
    )
    needs = "redis"
    programs = {"naive": naive, "ours": ours, "guard": guarded}
    links = (
        Link(
            "Martin Kleppmann: How to do distributed locking",
            "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
        ),
    )
    captions = (
        Caption("naive", {"process": "A", "call": "fault", "kind": "invoke"},
                Text("A is frozen in the middle of its work.", "A 工作到一半被冻结。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("Its key expires and B enters. Nobody tells A, which is wrong for {wrong}.",
                     "A 的键过期，B 进入。没有人告诉 A：它错了 {wrong}。")),
        Caption("naive", {"process": "A", "call": "fault", "kind": "ok"},
                Text("A wakes up and goes on writing: two are at work for {overlap}.",
                     "A 醒来继续写：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "A", "call": "end", "kind": "info"},
                Text("A asks its lease before the next piece of work, and is told.",
                     "A 在下一段工作之前询问自己的租约，并得知已经失去。")),
        Caption("guard", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("Past its last check, A still tries to write: the resource refuses the old token.",
                     "A 越过最后一次检查仍要写入：资源拒绝了旧令牌。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        port = stage.servers.port
        stage.witness(redis_key(port, KEY, stage.ttl))
        where = {"port": port, "url": f"redis://127.0.0.1:{port}"}
        # Interlock is stopped where it looks at its lease next; with a guard, past that look.
        point = "thinking" if stage.run == "ours" else "before the write"
        a = stage.client("A", stops_at=(point,), **where)
        b = stage.client("B", thinks=0.19, **where)
        a.go()
        a.reach(point)
        b.go()
        with stage.paused(a):
            a.go()  # it is frozen, and does not read this before it wakes up
            stage.until(lambda: stage.writes("B") >= 2)
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.late_writes())

    def ours_survived(self, run: Run) -> bool | None:
        if run.name == "guard":
            return bool(run.writes("fail")) and not run.late_writes() and not run.lost_updates
        return bool(run.told)
