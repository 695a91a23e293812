"""mark-and-compare: a random mark is written first and compared last; in another column, and then in the same."""

from __future__ import annotations

import sqlite3
import uuid

from interlock import StaleToken, guards
from interlock.lab.judge import Run
from interlock.lab.scenario import NAIVE, Caption, Link
from interlock.lab.sqlite_scenario import SqliteScenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me

AS_PRINTED, MENDED = "token", "mark"


def naive(me: Me) -> None:
    shop, client = sqlite3.connect(me.settings["shop"], isolation_level=None), me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.at("before the mark")
        for column in ("token", "mark"):  # as it was printed, and then mended
            mark = str(uuid.uuid4())
            shop.execute("update item set mark = ?", [mark])
            (stock,) = shop.execute("select stock from item").fetchone()
            me.at(f"before the comparison of {column}")
            done = shop.execute(f"update item set stock = ? where {column} = ?", [stock + 1, mark])
            if done.rowcount:
                me.wrote(stock + 1, lease.token)
            else:
                me.was_refused(stock + 1, lease.token, f"no row has this {column}")
            me.measured(f"{me.name} by {column}", done.rowcount)


def ours(me: Me) -> None:
    shop, client = sqlite3.connect(me.settings["shop"], isolation_level=None), me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        me.at("before the mark")
        shop.execute("begin immediate")
        try:
            mark = guards.sql.mark(shop, "report", lease.token, table="item", where={"id": 1})
        except StaleToken:
            me.was_refused(1, lease.token, "StaleToken")
            raise
        shop.commit()
        (stock,) = shop.execute("select stock from item").fetchone()
        me.at("before the comparison of mark")
        shop.execute("begin immediate")
        guards.sql.update_marked(shop, mark, {"stock": stock + 1})
        shop.commit()
        me.wrote(stock + 1, lease.token, checked="by its mark")
        me.measured(f"{me.name} by mark", 1)


class MarkAndCompare(SqliteScenario):
    number = 43
    name = "mark-and-compare"
    title = Text("Mark a row, then compare the mark", "先给行做标记，再比较标记")
    story = Text(
        "A random mark, written first and compared by the last update, is said to replace a token. Printed with two different columns it never "
        "updates anything; with the right one it asks who marked last, and that is A, whose lease was over long ago.",
        "有人说，先写一个随机标记、最后更新时再比较，就能代替令牌。印出来的版本写一列、比另一列，永远更新不了；改对之后它问的是谁最后做的标记，而那是租约早已结束的 A。",
    )
    lesson = Text(
        "A random mark says that somebody came between. Only a mark with a number in it says who came first.",
        "随机标记只说明中间有人来过。标记里有数字，才能说明谁先谁后。",
    )
    programs = {"naive": naive, "ours": ours}
    takes = 4.0
    links = (Link("Salvatore Sanfilippo: Is Redlock safe?", "http://antirez.com/news/101"),)
    captions = (
        Caption("naive", {"process": "resource", "call": "accept", "kind": "fail", "holder": "B"},
                Text("As printed, B writes one column and compares another: no row matches, ever.",
                     "按印出来的写法，B 写一列、比另一列：永远没有行匹配。")),
        Caption("naive", {"process": "resource", "call": "accept", "kind": "ok", "holder": "A"},
                Text("Mended: A, whose lease is over, has marked the row after B, and writes.",
                     "改对之后：租约已结束的 A 在 B 之后做了标记，于是写入成功。")),
        Caption("naive", {"process": "resource", "call": "accept", "kind": "fail", "holder": "B"},
                Text("B, who holds the lock, is refused.", "持有锁的 B 反而被拒绝。"), last=True),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail", "holder": "A"},
                Text("The mark begins with the token: A may not mark over B's.", "标记以令牌开头：A 不能覆盖 B 的标记。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "ok", "holder": "B"},
                Text("B's own mark still stands, and its update counts.", "B 的标记还在，它的更新生效。")),
    )  # fmt: skip

    def prepare(self, shop: sqlite3.Connection) -> None:
        shop.execute("create table item (id integer primary key, stock integer, token text, mark text)")
        shop.execute("insert into item (id, stock) values (1, 0)")

    def play(self, stage: Stage) -> None:
        where = self.where(stage)
        last = f"before the comparison of {MENDED}"
        a = stage.client("A", stops_at=("before the mark",), **where)
        b = stage.client("B", stops_at=(last,), **where)
        self.watch(stage)
        a.go()
        a.reach("before the mark")
        with stage.paused(a):
            b.go()
            b.reach(last)
            a.go()
        stage.finish(a)
        b.go()
        stage.finish(b)

    def naive_failed(self, run: Run) -> bool | None:
        changed = run.measures()
        printed = [changed.get(f"{name} by {AS_PRINTED}") for name in "AB"]
        mended = [changed.get(f"{name} by {MENDED}") for name in "AB"]
        return printed == [0, 0] and mended == [1, 0]

    def ours_survived(self, run: Run) -> bool | None:
        return bool(run.writes("fail")) and not run.late_writes() and run.measures().get("B by mark") == 1

    def verdict(self, run: Run) -> Text:
        if run.name == NAIVE and self.naive_failed(run):
            return Text("As printed nobody can write; mended, the late holder writes, and the present one is refused.",
                        "按印出来的写法谁也写不了；改对之后迟到的持有者写入成功，现任反而被拒绝。")  # fmt: skip
        if run.name != NAIVE and self.ours_survived(run):
            return Text("The late holder is refused at its mark, and the present one writes.",
                        "迟到的持有者在做标记时就被拒绝，现任写入成功。")  # fmt: skip
        return run.verdict()
