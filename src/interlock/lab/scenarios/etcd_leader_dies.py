"""etcd-leader-dies: the server that decides is killed just after the grant, with replication and with consensus."""

from __future__ import annotations

from interlock.lab.judge import Run
from interlock.lab.scenario import Caption
from interlock.lab.sentinel_scenario import SentinelScenario, naive_at_master
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import store_of
from interlock.lab.worker import KEY, Me


def ours(me: Me) -> None:
    client = me.interlock()  # etcd://...
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(2):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.write(value + 1, lease.token)


class EtcdLeaderDies(SentinelScenario):
    number = 34
    name = "etcd-leader-dies"
    title = Text("The leader dies: replication and consensus", "领导者死去：复制与共识")
    story = Text(
        "Twice the same: A gets its lock, and the server that granted it is killed at once. "
        "Redis has copied the key to nobody yet, and B gets it, too; etcd had a majority before it answered.",
        "同样的事做两遍：A 拿到锁，批准它的服务器立刻被杀死。Redis 还没有把键复制给任何人，于是 B 也拿到了；etcd 在回答之前已经得到多数。",
    )
    lesson = Text(
        "Ask when the answer is given: before or after the others have it. That is all the difference.",
        "要问回答是什么时候给出的：在其他节点拿到之前，还是之后。区别就在这里。",
    )
    others = {"ours": "etcd"}
    programs = {"naive": naive_at_master, "ours": ours}
    guarded = ("ours",)
    takes = 14.0
    ttl = 5.0
    captions = (
        Caption("naive", {"process": "master", "call": "fault"},
                Text("Redis: the master dies, and A's lock with it.", "Redis：主节点死去，A 的锁随之消失。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("The new master gives the lock to B: two at work for {overlap}.",
                     "新的主节点把锁给了 B：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "leader", "call": "fault"},
                Text("etcd: the leader dies; the two others have A's claim.", "etcd：领导者死去；另外两个成员有 A 的请求。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("They elect a new one. A is still the holder, and B enters when A has released.",
                     "它们选出新的领导者。A 仍是持有者，A 释放之后 B 才进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        if stage.naive:
            self.on_redis(stage)
        else:
            self.on_etcd(stage)

    def on_redis(self, stage: Stage) -> None:
        old = self.watch(stage)
        a, b = self.client(stage, "A", "thinking"), self.client(stage, "B")
        with stage.servers.deaf():
            a.go()
            a.reach("thinking")
            master = stage.servers.master()
            self.crash(stage, master, old)
        self.promoted(stage, master)
        b.go()
        stage.until(lambda: stage.writes("B"))
        a.go()
        stage.finish()

    def on_etcd(self, stage: Stage) -> None:
        where = {"url": stage.servers.url()}
        stage.witness(store_of(where["url"], KEY), "etcd")
        a = stage.client("A", stops_at=("thinking",), **where)
        b = stage.client("B", **where)
        leader = stage.servers.leader()
        a.go()
        a.reach("thinking")
        leader.kill()
        stage.begin_fault("leader", "crashed")
        b.go()
        stage.servers.await_leader()
        stage.add("promote", "ok", process="etcd", error="promoted")
        a.go()
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and bool(run.late_writes() or run.lost_updates)

    def ours_survived(self, run: Run) -> bool | None:
        if not run.granted("B"):
            return False
        return not run.two_at_work and not run.told and run.lost_updates == 0
