"""version-instead: a version column loses nothing, with a lock and without one."""

from __future__ import annotations

import sqlite3

from interlock.lab.judge import Run
from interlock.lab.scenario import Caption
from interlock.lab.sqlite_scenario import SqliteScenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    shop, client = sqlite3.connect(me.settings["shop"], isolation_level=None), me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        (stock,) = shop.execute("select stock from item").fetchone()
        me.at("has read")
        shop.execute("update item set stock = ?", [stock + 1])
        me.wrote(stock + 1, lease.token)


def ours(me: Me) -> None:
    shop, client = sqlite3.connect(me.settings["shop"], isolation_level=None), me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        while True:
            stock, version = shop.execute("select stock, version from item").fetchone()
            me.at("has read")
            done = shop.execute(
                "update item set stock = ?, version = version + 1 where version = ?", [stock + 1, version]
            )
            if done.rowcount == 1:
                break
            me.was_refused(stock + 1, lease.token, "the version has moved on")
        me.wrote(stock + 1, lease.token, checked="by its version")


class VersionInstead(SqliteScenario):
    number = 45
    name = "version-instead"
    title = Text("A version column instead", "换成版本列")
    story = Text(
        "A reads, is paused past its lease, and B changes the row. With the lock alone A writes over B's change; "
        "with a version column A's update matches no row, and A reads again.",
        "A 读取之后停顿，超过了租约，B 修改了这一行。只有锁的时候，A 会覆盖 B 的修改；有版本列时，A 的更新匹配不到任何行，于是重新读取。",
    )
    lesson = Text(
        "Where the data has one row, a version column is the better lock: it cannot lapse.",
        "数据只有一行时，版本列是更好的锁：它不会过期。",
    )
    programs = {"naive": naive, "ours": ours}
    takes = 5.0
    captions = (
        Caption("naive", {"process": "resource", "call": "accept", "holder": "B"},
                Text("B enters when A's lease is over, and changes the row.", "A 的租约结束后 B 进入，并修改了这一行。")),
        Caption("naive", {"process": "resource", "call": "accept", "holder": "A"},
                Text("A wakes up and writes over it.", "A 醒来，把它覆盖了。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("The version that A read is gone: its update changes nothing, and it reads again.",
                     "A 读到的版本已经不在：它的更新没有改动任何东西，于是重新读取。")),
    )  # fmt: skip

    def prepare(self, shop: sqlite3.Connection) -> None:
        shop.execute("create table item (stock int, version int)")
        shop.execute("insert into item values (0, 0)")

    def play(self, stage: Stage) -> None:
        where = self.where(stage)
        a = stage.client("A", stops_at=("has read",), **where)
        b = stage.client("B", **where)
        self.watch(stage)
        a.go()
        a.reach("has read")
        with stage.paused(a):
            b.go()
            b.finish()
            a.go()
        stage.finish()
        with sqlite3.connect(where["shop"]) as shop:
            (stock,) = shop.execute("select stock from item").fetchone()
        stage.add("measure", "ok", attempt="stock", amount=float(stock))

    def naive_failed(self, run: Run) -> bool | None:
        return len(run.writes("ok")) == 2 and run.measures().get("stock") == 1

    def ours_survived(self, run: Run) -> bool | None:
        return len(run.writes("ok")) == 2 and run.measures().get("stock") == 2 and bool(run.writes("fail"))

    def verdict(self, run: Run) -> Text:
        done, stock = len(run.writes("ok")), int(run.measures().get("stock", 0))
        return (
            Text(f"Two updates of +1 made {stock}.", f"两次 +1 得到 {stock}。")
            if done == 2
            else run.verdict()
        )
