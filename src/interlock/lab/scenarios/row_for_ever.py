"""row-for-ever: a unique row is the lock, and nothing ever removes it but its owner."""

from __future__ import annotations

import time

from interlock.lab.held_for_ever import HeldForEver
from interlock.lab.scenario import Caption
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import mysql_row, store_of
from interlock.lab.worker import KEY, Me

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
        except pymysql.err.IntegrityError:
            time.sleep(0.02)
    with me.inside():
        me.add_one()
    row.execute("delete from locks where name = 'report' and owner = %s", [me.name])


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.add_one(lease.token)


class RowForEver(HeldForEver):
    number = 38
    name = "row-for-ever"
    title = Text("A row that nobody deletes", "没有人删除的行")
    story = Text(
        "A row with a unique name is the lock: whoever can insert it holds it. A is killed in the middle of its "
        "work; the database keeps the row, as it should, and no one else can ever insert it.",
        "一行带唯一名称的记录就是锁：谁能插入，谁就持有。A 工作到一半被杀死；数据库尽职地保留这一行，别人再也插不进去。",
    )
    lesson = Text(
        "A row is a lock only with an end in it, by the database's own clock, and a holder that renews it.",
        "一行记录只有带着以数据库时钟计算的终点、并由持有者续约，才算是锁。",
    )
    needs = "mysql"
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 10.0
    captions = (
        Caption("naive", {"process": "A", "call": "fault"},
                Text("A is killed; its row stays.", "A 被杀死；它的行还在。")),
        Caption("naive", {"process": "B", "call": "acquire"},
                Text("B cannot insert: {waited} in vain, and for ever.", "B 无法插入：白等了 {waited}，而且永远如此。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("interlock's row has a time to live: B enters when it is over.", "interlock 的行有存活时间：到期后 B 进入。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        where = {"port": stage.servers.port, "url": stage.servers.url()}
        if stage.naive:
            stage.servers.run(TABLE)
            stage.witness(mysql_row(stage.servers))
        a = stage.client("A", stops_at=("thinking",), **where)
        b = stage.client("B", **where)
        if not stage.naive:
            stage.witness(store_of(where["url"], KEY))
        a.go()
        a.reach("thinking")
        stage.kill(a)
        self.let_b_try(stage, b)
