"""flash-sale: sixty pieces, twenty-four buyers, and ten ways to sell them; some sell hundreds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from statistics import quantiles
from typing import Any

from interlock import guards
from interlock._support import clock
from interlock.lab.judge import Run
from interlock.lab.sale import BEFORE_THE_WRITE, KEYS, OVER, PROCESSES, STOCK, Sale, SoldOut
from interlock.lab.scenario import GUARDED, NAIVE, OURS, Measure, Scenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me
from interlock.lab.worker_process import WorkerProcess

CLOSES_AFTER = 20.0  # ttls: a sale that goes on selling what is not there
STANDS_STILL = 4.0  # ttls for which a hung buyer is watched
BESIDE = 3  # pieces that others sell while one buyer is stopped

DELETE_IF_MINE = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end"
SET_STOCK = "redis.call('set', KEYS[1], ARGV[1]) return redis.call('rpush', KEYS[2], 'order')"
SELL_ONE = """
local left = tonumber(redis.call('get', KEYS[1]))
if left <= 0 then return 0 end
redis.call('decr', KEYS[1])
redis.call('rpush', KEYS[2], 'order')
return 1
"""


def naive(me: Me) -> None:
    sale = Sale(me)
    server, client = sale.server, sale.client

    @contextmanager
    def set_nx(release: Callable[[str], Any]) -> Iterator[None]:
        mine = f"{me.name} {time.monotonic_ns()}"
        while not server.set("lock", mine, nx=True, px=sale.px):
            time.sleep(0.005)
        try:
            yield
        finally:
            release(mine)

    sale.open("no-lock", sale.under(nullcontext))
    sale.open("set-nx", sale.under(lambda: set_nx(lambda mine: server.delete("lock"))))
    compared = sale.under(lambda: set_nx(lambda mine: server.eval(DELETE_IF_MINE, 1, "lock", mine)))
    sale.open("compared", compared)
    sale.open("unrenewed", sale.under(lambda: client.lock("tea", renew=False)))


def ours(me: Me) -> None:
    sale = Sale(me)

    def buy(max_hold: float | None = None) -> None:
        with sale.client.lock("tea", max_hold=max_hold) as lease:
            left = sale.look()
            sale.check()
            lease.check()  # raises LeaseLost: nothing is sold
            sale.sell(left - 1)

    sale.open("interlock", buy)
    sale.open("hung", buy)
    sale.open("max-hold", lambda: buy(max_hold=2 * me.ttl))


def guarded(me: Me) -> None:
    sale = Sale(me)
    server, guard = sale.server, guards.redis.Guard(sale.server)

    def token() -> None:
        with sale.client.lock("tea") as lease:
            guard.execute(lease, "TOUCH", "stock")  # shows the token before the stock is read
            left = sale.look()
            sale.check()
            guard.eval("tea", SET_STOCK, ["stock", "orders"], [left - 1], token=lease.token)

    def script() -> None:
        sale.check()
        if not server.eval(SELL_ONE, 2, "stock", "orders"):
            raise SoldOut

    def counter() -> None:
        sale.check()
        if int(server.decr("stock")) < 0:
            raise SoldOut
        server.rpush("orders", "order")

    sale.open("guard", token)
    sale.open("script", script)
    sale.open("counter", counter)
    if me.settings["database"]:
        sale.open("row", row_with_token(sale))


def row_with_token(sale: Sale) -> Callable[[], None]:
    """Buy by a row of MariaDB that keeps the token of whoever read it last; the lock is there, too."""
    import threading

    import interlock

    client = interlock.connect(sale.me.settings["database"], ttl=sale.me.ttl)
    with suppress(interlock.InterlockError):
        client.inspect("tea")
    mine = threading.local()
    row: dict[str, Any] = {"table": "item", "where": {"id": 1}}

    def buy() -> None:
        if not hasattr(mine, "shop"):
            mine.shop = connected(sale.me)
        with client.lock("tea") as lease:
            mine.shop.begin()
            guards.sql.guard_row(mine.shop, lease, **row)  # shows the token before the stock is read
            with mine.shop.cursor() as cursor:
                cursor.execute("select stock from item where id = 1")
                (left,) = cursor.fetchone()
            mine.shop.commit()
            if left <= 0:
                raise SoldOut
            sale.check()
            mine.shop.begin()
            guards.sql.update_row(mine.shop, "tea", lease.token, **row, changes={"stock": left - 1})
            with mine.shop.cursor() as cursor:
                cursor.execute("insert into sold values (1)")
            mine.shop.commit()

    return buy


def connected(me: Me) -> Any:
    import pymysql

    return pymysql.connect(host="127.0.0.1", port=me.settings["shop"], user="root", database="app")


class FlashSale(Scenario):
    number = 46
    name = "flash-sale"
    title = Text("A flash sale", "秒杀")
    story = Text(
        "Sixty pieces are for sale and twenty-four buyers in four processes want them; every twelfth check hangs "
        "for longer than the ttl, and one buyer is stopped between its check and its write. "
        "Every way to sell looks right when nothing hangs.",
        "六十件商品，四个进程里的二十四个买家；每十二次检查就有一次卡住、超过 ttl，还有一个买家在检查和写入之间被暂停。"
        "只要没有谁卡住，每一种卖法看起来都是对的。",
    )
    lesson = Text(
        "A lock that lapses unseen oversells; a renewed one with a token does not; and where one step of the "
        "database does it all, the right lock is none.",
        "不知不觉就过期的锁会超卖；续约并带令牌的锁不会；而数据库一步就能完成的事，最合适的锁是不加锁。",
    )
    needs = "redis-and-mariadb"
    programs = {NAIVE: naive, OURS: ours, GUARDED: guarded}
    ttl = 0.3
    takes = 35.0
    measures = {
        "sold": Measure(Text(f"sold of {STOCK}", f"售出（库存 {STOCK}）")),
        "rate": Measure(Text("per second", "每秒")),
        "p50": Measure(Text("p50 wait", "p50 等待"), "s"),
        "p99": Measure(Text("p99 wait", "p99 等待"), "s"),
    }
    bound = "stock"
    strategies = {
        "no-lock": Text("no lock", "不加锁"),
        "set-nx": Text("SET NX and DEL", "SET NX 加 DEL"),
        "compared": Text("SET NX and DEL if equal", "SET NX，相等才 DEL"),
        "unrenewed": Text("interlock with renew=False", "interlock，renew=False"),
        "interlock": Text("interlock", "interlock"),
        "hung": Text("interlock, a buyer hangs", "interlock，一个买家卡死"),
        "max-hold": Text("the same with max_hold", "同上，加 max_hold"),
        "guard": Text("interlock with guard", "interlock 加 guard"),
        "row": Text("MariaDB row with token", "MariaDB 带令牌的行"),
        "script": Text("a Lua script, no lock", "Lua 脚本，不加锁"),
        "counter": Text("DECR, no lock", "DECR，不加锁"),
    }
    sold_by = {
        NAIVE: ("no-lock", "set-nx", "compared", "unrenewed"),
        OURS: ("interlock", "hung", "max-hold"),
        GUARDED: ("guard", "script", "counter", "row"),
    }

    def play(self, stage: Stage) -> None:
        stage.add("measure", "ok", process="shop", attempt="stock", amount=float(STOCK))
        Director(self, stage).play()

    def naive_failed(self, run: Run) -> bool | None:
        return all(_sold(run, strategy) > STOCK for strategy in self.sold_by[NAIVE])

    def ours_survived(self, run: Run) -> bool | None:
        measured = [strategy for strategy in self.sold_by.get(run.name, ()) if run.measures(strategy)]
        exact = [strategy for strategy in measured if strategy != "hung"]
        if not exact or any(_sold(run, strategy) != STOCK for strategy in exact):
            return False
        if "hung" in measured and _sold(run, "hung") >= STOCK:
            return None  # its lease was not renewed in time
        return True

    def verdict(self, run: Run) -> Text:
        told = [
            Text(f"{name.en} {_sold(run, key):,.0f}", f"{name.zh} {_sold(run, key):,.0f}")
            for key, name in self.strategies.items()
            if run.measures(key)
        ]
        en, zh = "; ".join(one.en for one in told), "；".join(one.zh for one in told)
        return Text(f"Sold of {STOCK}: {en}.", f"库存 {STOCK}，售出：{zh}。")


def _sold(run: Run, strategy: str) -> float:
    return run.measures(strategy).get("sold", 0.0)


class Director:
    """Opens one sale after the other, and breaks what is to be broken in each."""

    def __init__(self, scenario: FlashSale, stage: Stage) -> None:
        self.stage = stage
        self.strategies = list(scenario.sold_by[stage.run])
        self.database: Any = None
        where: dict[str, Any] = {"port": stage.servers.port, "url": stage.servers.url(), "database": ""}
        if "row" in self.strategies:
            self.database = stage.servers.mariadb()
            if self.database is None:
                self.strategies.remove("row")
                stage.add("note", "ok", error="MariaDB is not installed: apt-get install mariadb-server")
            else:
                self.database.run(*TABLES)
                where |= {"database": self.database.url(), "shop": self.database.port}
        self.processes = [self._process(number, where) for number in range(1, PROCESSES + 1)]
        self.server = stage.servers.connect()

    def _process(self, number: int, where: dict[str, Any]) -> WorkerProcess:
        stops = ["start", *self.strategies, *(f"{strategy}: {OVER}" for strategy in self.strategies)]
        if number == 1:
            stops += [f"{strategy}: {BEFORE_THE_WRITE}" for strategy in self.strategies]
        return self.stage.client(f"p{number}", stops_at=tuple(stops), **where)

    def play(self) -> None:
        for process in self.processes:
            process.go()
        for strategy in self.strategies:
            self.prepare(strategy)
            began = clock.now()
            if strategy in ("hung", "max-hold"):
                self.hang(strategy)
            else:
                self.stop_one(strategy)
            self.close(strategy, began)
        self.stage.finish()

    def prepare(self, strategy: str) -> None:
        for process in self.processes:
            process.reach(strategy)
        self.server.delete(*KEYS)
        self.server.set("stock", STOCK)
        # Where every write may bring the stock back to what it was, a sale may never end.
        closes = int(CLOSES_AFTER * self.stage.ttl * 1000) if self.stage.naive else None
        self.server.set("open", 1, px=closes)

    def sold(self, strategy: str) -> int:
        if strategy == "row":
            return int(self.database.run("select count(*) from app.sold")[0][0])
        return int(self.server.llen("orders"))

    def left(self, strategy: str) -> int:
        if strategy == "row":
            return int(self.database.run("select stock from app.item")[0][0])
        return int(self.server.get("stock"))

    def stop_one(self, strategy: str) -> None:
        """A buyer of the first process is stopped past its check, until others have sold some."""
        first, *others = self.processes
        first.go()
        first.reach(f"{strategy}: {BEFORE_THE_WRITE}")
        first.freeze()
        before = self.sold(strategy)
        for process in others:
            process.go()
        enough = before + BESIDE
        self.stage.until(lambda: self.sold(strategy) >= enough or self.left(strategy) <= 0)
        first.go()
        first.thaw()

    def hang(self, strategy: str) -> None:
        """A buyer of the first process hangs past its check, and its process lives and renews."""
        first, *others = self.processes
        for process in others:
            process.go()
        self.stage.until(lambda: self.sold(strategy) >= BESIDE)
        first.go()
        first.reach(f"{strategy}: {BEFORE_THE_WRITE}")
        if strategy == "hung":
            self.stage.lapse(STANDS_STILL)
            self.measure(strategy, "sold", self.sold(strategy))
            self.server.delete("open")
        else:
            self.stage.until(lambda: self.left(strategy) <= 0)
        first.go()

    def close(self, strategy: str, began: float) -> None:
        """Wait until all buyers have gone, and measure."""
        for process in self.processes:
            process.reach(f"{strategy}: {OVER}")
            process.go()
        took = clock.now() - began
        self.measure(strategy, "left", self.left(strategy))
        if strategy == "hung":
            return  # what it sold was measured while it stood still, and nobody had the time to wait for more
        self.measure(strategy, "sold", self.sold(strategy))
        self.measure(strategy, "rate", self.sold(strategy) / took)
        waits = quantiles(map(float, self.server.lrange("waits", 0, -1)), n=100, method="inclusive")
        self.measure(strategy, "p50", waits[49])
        self.measure(strategy, "p99", waits[98])

    def measure(self, strategy: str, name: str, amount: float) -> None:
        self.stage.add("measure", "ok", process=strategy, attempt=name, amount=float(amount))


TABLES = (
    "use app",
    "create table item (id int primary key, stock int not null, token bigint not null)",
    f"insert into item values (1, {STOCK}, 0)",
    "create table sold (n int)",
)
