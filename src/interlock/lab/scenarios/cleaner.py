"""cleaner: a job that deletes old rows deletes the lock of a holder that is only slow."""

from __future__ import annotations

import time

from interlock.lab.judge import Run
from interlock.lab.scenario import Caption, Scenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import mysql_row, store_of
from interlock.lab.worker import KEY, Me

TABLE = "create table app.locks (name varchar(64) primary key, owner varchar(64), since datetime(3))"


def naive(me: Me) -> None:
    import pymysql

    database = pymysql.connect(port=me.settings["port"], user="root", database="app", autocommit=True)
    row = database.cursor()
    me.begins()
    while True:
        row.execute(  # the cleaner: whoever is older than a ttl must be dead
            "delete from locks where since < now(3) - interval %s microsecond", [int(me.ttl * 1e6)]
        )
        try:
            row.execute("insert into locks values ('report', %s, now(3))", [me.name])
            break
        except pymysql.err.IntegrityError:
            time.sleep(0.02)
    with me.inside():
        for _ in range(3):
            me.add_one()
    row.execute("delete from locks where name = 'report' and owner = %s", [me.name])


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        for _ in range(3):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.write(value + 1, lease.token)


class Cleaner(Scenario):
    number = 39
    name = "cleaner"
    title = Text("The cleaner takes the slow for the dead", "清理任务把慢的当成死的")
    story = Text(
        "Rows of dead holders must go, so everybody deletes rows that are older than a ttl before inserting a new one. "
        "A is not dead, only slower than usual: its row is deleted, and B inserts its own.",
        "死去的持有者留下的行必须清掉，所以每个人在插入之前先删除超过一个 ttl 的行。A 没死，只是比平时慢：它的行被删掉，B 插入了自己的。",
    )
    lesson = Text(
        "Old is not dead. A holder that lives must be able to say so: renew the row, and learn when it is gone.",
        "旧不等于死。活着的持有者必须能证明自己活着：给行续期，并在行消失时得知。",
    )
    needs = "mysql"
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 8.0
    captions = (
        Caption("naive", {"process": "A", "call": "grant"},
                Text("A's work takes longer than usual.", "A 的工作比平时久。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("B deletes A's row as old, and is in: two at work for {overlap}.",
                     "B 把 A 的行当作旧行删掉，自己进入：两者同时工作 {overlap}。")),
        Caption("naive", {"process": "A", "call": "body"},
                Text("Nobody has told A: {late} late writes.", "没有人告诉 A：{late} 次迟到的写入。")),
        Caption("ours", {"process": "A", "call": "renew"},
                Text("interlock renews the row of a living holder again and again.", "interlock 为活着的持有者不断给行续期。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("B is in when A has released.", "A 释放之后 B 进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        where = {"port": stage.servers.port, "url": stage.servers.url()}
        if stage.naive:
            stage.servers.run(TABLE)
        a = stage.client("A", thinks=0.6 * stage.ttl, **where)
        b = stage.client("B", thinks=0.2 * stage.ttl, **where)
        stage.witness(mysql_row(stage.servers) if stage.naive else store_of(where["url"], KEY))
        a.go()
        stage.until(lambda: stage.told("A", "grant"))
        b.go()
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.two_at_work) and bool(run.late_writes() or run.lost_updates)

    def ours_survived(self, run: Run) -> bool | None:
        return not run.two_at_work and run.lost_updates == 0 and run.granted("B") and not run.told
