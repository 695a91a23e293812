"""Eight processes sell twenty tickets under a lock; a guard refuses whoever comes too late."""

import multiprocessing
import sqlite3
import tempfile
from pathlib import Path

import interlock
from interlock import guards


def seller(shop: str, sold: "multiprocessing.Queue[int]") -> None:
    client = interlock.connect()
    while True:
        with client.lock("tickets") as lease, sqlite3.connect(shop) as connection:
            guards.sql.guard(connection, lease)  # before the read; raises StaleToken if the lease is over
            (left,) = connection.execute("select amount from stock where name = 'ticket'").fetchone()
            if not left:
                return
            connection.execute("update stock set amount = ? where name = 'ticket'", [left - 1])
        sold.put(left)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        shop = str(Path(folder) / "shop.db")
        connection = sqlite3.connect(shop)
        guards.sql.create(connection)  # a small table for tokens, once
        connection.execute("create table stock (name text primary key, amount int)")
        connection.execute("insert into stock values ('ticket', 20)")
        connection.commit()
        sold: "multiprocessing.Queue[int]" = multiprocessing.Queue()
        sellers = [multiprocessing.Process(target=seller, args=(shop, sold)) for _ in range(8)]
        for process in sellers:
            process.start()
        numbers = sorted(sold.get() for _ in range(20))
        for process in sellers:
            process.join()
    assert numbers == list(range(1, 21)), numbers
    print("20 tickets, each sold once")
