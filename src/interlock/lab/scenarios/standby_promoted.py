"""standby-promoted: a standby that missed the last row takes over, and gives the same token again."""

from __future__ import annotations

import time
from typing import Any

from interlock.lab.judge import Run
from interlock.lab.scenario import Caption, Scenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.witness import Held, Look, View, store_of
from interlock.lab.worker import KEY, Me

PRIMARY, STANDBY = "primary", "standby"
TABLE = "create table locks (name text primary key, owner text, token bigint, until timestamptz)"
ROW = "insert into locks values ('report', '', 41, now())"


def naive(me: Me) -> None:
    import psycopg

    take = """update locks set owner = %s, token = token + 1, until = now() + %s * interval '1 second'
              where name = 'report' and until < now() returning token"""
    me.begins()
    row = None
    while row is None:
        try:
            with psycopg.connect(me.settings["database"], autocommit=True) as database:
                row = database.execute(take, [me.name, me.ttl]).fetchone()
        except psycopg.OperationalError:
            pass  # a failover is under way: ask again
        time.sleep(0.02)
    (token,) = row
    with me.inside(token=token, believes_for=me.ttl):
        for _ in range(3):
            me.add_one(token)  # the resource compares tokens


def ours(me: Me) -> None:
    client = me.interlock()
    lock = client.lock("report", on_lost=me.is_told)
    me.begins()
    with lock as lease, me.inside(lease):
        for _ in range(3):
            value = me.read(lease.token)
            me.think()
            lease.check()
            me.at("before the write")
            me.write(value + 1, lease.token)


class StandbyPromoted(Scenario):
    number = 41
    name = "standby-promoted"
    title = Text("A standby takes over, and repeats a token", "备库接管，并且重复了一个令牌")
    story = Text(
        "A row of PostgreSQL is the lock, and a number in it the token. A gets token 42, the primary dies, and a standby that "
        "missed this row gives 42 to B: the resource compares tokens, and sees no difference.",
        "PostgreSQL 的一行是锁，行里的数字是令牌。A 得到令牌 42，主库死去；没收到这一行的备库又把 42 给了 B：资源比较令牌，却看不出区别。",
    )
    lesson = Text(
        "A counter is as old as the copy that is left. A token must rise even when the memory of it is lost.",
        "计数器只和剩下的那份副本一样新。即使丢了记忆，令牌也必须继续增大。",
    )
    needs = "postgresql-standby"
    programs = {"naive": naive, "ours": ours}
    guarded = ("naive", "ours")
    takes = 6.0
    ttl = 4.0
    captions = (
        Caption("naive", {"process": PRIMARY, "call": "fault"},
                Text("The primary dies; the standby does not have A's row.", "主库死去；备库没有 A 的那一行。")),
        Caption("naive", {"process": "B", "call": "grant"},
                Text("B gets the lock from the standby, with A's token.", "B 从备库拿到锁，令牌与 A 的相同。")),
        Caption("naive", {"process": "resource", "call": "accept", "holder": "A"},
                Text("42 is not lower than 42: the resource takes A's late write.", "42 不小于 42：资源接受了 A 迟到的写入。")),
        Caption("ours", {"process": "B", "call": "grant"},
                Text("interlock's token is never below the clock, so B's is higher.", "interlock 的令牌不低于时钟，所以 B 的更大。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("A's late write is refused.", "A 迟到的写入被拒绝。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        server = stage.servers
        if stage.naive:
            server.sql(TABLE)
            server.sql(ROW)
        where = {"database": server.conninfo, "url": server.url()}
        a = stage.client("A", stops_at=("thinking" if stage.naive else "before the write",), **where)
        b = stage.client("B", **where)
        standby = server.copy()
        primary = stage.witness(self._look(stage), PRIMARY)
        a.go()
        a.reach("thinking" if stage.naive else "before the write")
        stage.begin_fault(PRIMARY, "crashed")
        primary.dies("crashed")
        server.promote(standby)
        stage.add("promote", "ok", process=STANDBY, error="promoted")
        stage.witness(self._look(stage), STANDBY)
        b.go()
        stage.until(lambda: stage.writes("B"))
        if not stage.naive:
            stage.until(lambda: stage.told("A", "note"))
        a.go()
        stage.finish()

    def _look(self, stage: Stage) -> Look:
        return _row(stage.servers) if stage.naive else store_of(stage.servers.url(), KEY)

    def naive_failed(self, run: Run) -> bool | None:
        tokens = run.tokens()
        return bool(run.two_at_work) and run.lost_updates > 0 and len(tokens) != len(set(tokens))

    def ours_survived(self, run: Run) -> bool | None:
        tokens = run.tokens()
        if run.lost_updates or run.late_writes() or not run.granted("B"):
            return False
        return bool(run.writes("fail")) and tokens == sorted(set(tokens))


def _row(server: Any) -> Look:
    """Read who stands in the row of naive locks."""
    import psycopg

    connection = psycopg.connect(server.conninfo, autocommit=True)

    def look() -> Held | None:
        row = connection.execute(
            "select owner, extract(epoch from until - now())::float8, token from locks where until > now()"
        ).fetchone()
        return Held(row[0], row[1], token=row[2]) if row else None

    return View(look, connection.close)
