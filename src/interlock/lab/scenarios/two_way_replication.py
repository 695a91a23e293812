"""two-way-replication: a unique row on either of two servers that copy from each other, and the copying stops."""

from __future__ import annotations

import time
from typing import Any

from interlock.lab.judge import Run
from interlock.lab.scenario import Caption, Scenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import mysql_row, store_of
from interlock.lab.worker import KEY, Me
from interlock.lab.worker_process import WorkerProcess

TABLE = "create table app.locks (name varchar(64) primary key, owner varchar(64))"


def naive(me: Me) -> None:
    import pymysql

    database = pymysql.connect(port=me.settings["port"], user="root", database="app", autocommit=True)
    row = database.cursor()
    me.begins()
    while True:
        try:
            row.execute("insert into locks values ('report', %s)", [me.name])
            break
        except pymysql.err.IntegrityError:  # the row is here, or was copied from the other side
            time.sleep(0.02)
    with me.inside():
        for _ in range(3):
            me.add_one()
    row.execute("delete from locks where name = 'report' and owner = %s", [me.name])


def ours(me: Me) -> None:
    client = me.interlock()  # A's is one side, B's the other: do not do that
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(3):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.at("before the write")
            me.write(value + 1, lease.token)


class TwoWayReplication(Scenario):
    number = 40
    name = "two-way-replication"
    title = Text("Two servers that copy from each other", "互相复制的两台服务器")
    story = Text(
        "Two MariaDB servers copy from each other, and programs use whichever is nearer. The copying stops for a moment: "
        "A inserts the unique row on one side, B on the other, and both are right.",
        "两台 MariaDB 互相复制，程序用离自己近的那台。复制停了一会儿：A 在一边插入唯一的行，B 在另一边插入，两边都没错。",
    )
    lesson = Text(
        "A unique key is unique on one server. Let one server decide, or a majority; and compare tokens where it counts.",
        "唯一键只在一台服务器上唯一。让一台服务器或多数派来决定；在要紧的地方比较令牌。",
    )
    needs = "mysql-pair"
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 8.0
    ttl = 2.0
    captions = (
        Caption("naive", {"process": "network", "call": "fault"},
                Text("The two servers stop copying from each other.", "两台服务器停止互相复制。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("Each side has a row, and neither knows of the other's: two at work for {overlap}.",
                     "两边各有一行，谁也不知道对方的：两者同时工作 {overlap}。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("interlock lets B in on its side, too: no lock on one server can know. But B's token is higher.",
                     "interlock 在它那一边也让 B 进入：一台服务器上的锁无从得知。但 B 的令牌更大。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("The resource, which is one, refuses A's write.", "资源只有一个，它拒绝了 A 的写入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        left, right = stage.servers.servers
        if stage.naive:
            left.run(TABLE)
        else:
            self.warm_up(left.url())
        stage.servers.await_copied()
        a = self.client(stage, "A", left, "thinking" if stage.naive else "before the write")
        b = self.client(stage, "B", right)
        for name, server in (("left", left), ("right", right)):
            stage.witness(mysql_row(server) if stage.naive else store_of(server.url(), KEY), name)
        with stage.fault("network", "not copying"), stage.servers.not_copying():
            a.go()
            a.reach("thinking" if stage.naive else "before the write")
            b.go()
            stage.until(lambda: stage.writes("B"))
            a.go()
            stage.finish()

    def client(self, stage: Stage, name: str, server: Any, *stops_at: str) -> WorkerProcess:
        return stage.client(name, stops_at=stops_at, port=server.port, url=server.url())

    def warm_up(self, url: str) -> None:
        """Make the tables on one side; the other one gets a copy."""
        import interlock

        with interlock.connect(url) as client, client.lock("warm-up"):
            pass

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and run.lost_updates > 0

    def ours_survived(self, run: Run) -> bool | None:
        tokens = run.tokens()
        if run.lost_updates or run.late_writes() or not run.granted("B"):
            return False
        return bool(run.writes("fail")) and tokens == sorted(set(tokens))
