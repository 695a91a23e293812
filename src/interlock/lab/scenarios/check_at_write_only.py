"""check-at-write-only: every write is checked, and updates are lost all the same."""

from __future__ import annotations

import sqlite3

from interlock import guards
from interlock.errors import LeaseLost, StaleToken
from interlock.lab.judge import Run
from interlock.lab.scenario import Caption
from interlock.lab.sqlite_scenario import SqliteScenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    shop, client = sqlite3.connect(me.settings["shop"]), me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        (stock,) = shop.execute("select stock from item").fetchone()  # read first, without a token
        me.at("has read")
        shop.execute("begin immediate")
        guards.sql.guard(shop, "report", lease.token)  # checked, at the write
        shop.execute("update item set stock = ?", [stock + 1])
        shop.commit()
        me.wrote(stock + 1, lease.token)


def ours(me: Me) -> None:
    shop, client = sqlite3.connect(me.settings["shop"], isolation_level=None), me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.at("has read")
        try:
            with shop:
                shop.execute("begin immediate")
                guards.sql.guard(shop, lease)  # first, before anything is read
                (stock,) = shop.execute("select stock from item").fetchone()
                shop.execute("update item set stock = ?", [stock + 1])
            me.wrote(stock + 1, lease.token)
        except (StaleToken, LeaseLost) as refusal:
            me.was_refused(0, lease.token, type(refusal).__name__)


class CheckAtWriteOnly(SqliteScenario):
    number = 42
    name = "check-at-write-only"
    title = Text("A token that is checked too late", "检查得太晚的令牌")
    story = Text(
        "A reads, is paused past its lease, and B reads the same number. A wakes up and writes; its token is "
        "checked, and passes, because B has not shown its own yet. Then B writes, and A's update is gone.",
        "A 读取之后停顿，超过了租约，B 读到同一个数字。A 醒来写入；它的令牌经过检查并且通过，因为 B 还没有出示自己的令牌。随后 B 写入，A 的更新消失了。",
    )
    lesson = Text(
        "Show the token before the read: the guard is the first statement of the transaction.",
        "读取之前就要出示令牌：guard 是事务里的第一条语句。",
    )
    programs = {"naive": naive, "ours": ours}
    takes = 6.0
    captions = (
        Caption("naive", {"process": "A", "call": "fault", "kind": "invoke"},
                Text("A has read 0, and is frozen.", "A 读到了 0，然后被冻结。")),
        Caption("naive", {"process": "resource", "call": "accept", "holder": "A"},
                Text("A's late write passes the check.", "A 迟到的写入通过了检查。")),
        Caption("naive", {"process": "resource", "call": "accept", "holder": "B"},
                Text("B writes what it has computed from the same 0.", "B 写入了由同一个 0 算出的结果。")),
        Caption("ours", {"process": "resource", "call": "accept"},
                Text("Guard, then read: whoever comes second has seen the first, or is refused.",
                     "先 guard 再读：后来者要么看见了前者，要么被拒绝。")),
    )  # fmt: skip

    def prepare(self, shop: sqlite3.Connection) -> None:
        shop.execute("create table item (stock int)")
        shop.execute("insert into item values (0)")
        shop.commit()
        guards.sql.create(shop)

    def play(self, stage: Stage) -> None:
        where = self.where(stage)
        a = stage.client("A", stops_at=("has read",), **where)
        b = stage.client("B", stops_at=("has read",), **where)
        self.watch(stage)
        a.go()
        a.reach("has read")
        with stage.paused(a):
            b.go()
            b.reach("has read")
            a.go()
        a.finish()
        b.go()
        stage.finish()
        with sqlite3.connect(where["shop"]) as shop:
            (stock,) = shop.execute("select stock from item").fetchone()
        stage.add("measure", "ok", attempt="stock", amount=float(stock))

    def naive_failed(self, run: Run) -> bool | None:
        return len(run.writes("ok")) == 2 and run.measures().get("stock") == 1

    def ours_survived(self, run: Run) -> bool | None:
        return run.measures().get("stock") == len(run.writes("ok")) > 0

    def verdict(self, run: Run) -> Text:
        done, stock = len(run.writes("ok")), int(run.measures().get("stock", 0))
        refused = len(run.writes("fail"))
        return Text(
            f"{done} accepted writes of +1 made {stock}; {refused} refused.",
            f"{done} 次被接受的 +1 得到 {stock}；拒绝了 {refused} 次。",
        )
