"""The store's truth: a thread that asks a store again and again who holds, and writes down each change.

A witness asks beside the clients, on a connection of its own, so it is late by a few milliseconds, and by
more on a busy machine. A change happened at some moment between its question, which stands in `began`, and
the answer; `Stage.history` finds that moment by what the clients say.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from interlock._support import clock
from interlock.errors import InterlockError
from interlock.lab.resource import Log

PAUSE_S = 0.003  # seconds between two questions
MOVED_S = 0.02  # seconds by which a deadline must have moved to be a renewal


class Held(NamedTuple):
    """What a store answers: who holds, for how long still, and since how long."""

    holder: str
    left: float = 0.0  # seconds; 0: the store knows of no end
    age: float = 0.0  # seconds since the holder was granted or renewed
    token: int = 0


Look = Callable[[], Held | None]


class View:
    """A way to look that has a connection to be closed."""

    def __init__(self, look: Look, close: Callable[[], object]) -> None:
        self._look, self.close = look, close

    def __call__(self) -> Held | None:
        return self._look()


class Witness(threading.Thread):
    """Writes `hold` records of one store until it is stopped."""

    def __init__(self, store: str, look: Look, log: Log) -> None:
        super().__init__(name=f"witness of {store}", daemon=True)
        self._store, self._look, self._log = store, look, log
        self._over = threading.Event()
        self._death: tuple[float, str] | None = None

    def run(self) -> None:
        known: Held | None = None
        deadline = 0.0
        while not self._over.wait(PAUSE_S):
            asked, death = clock.now(), self._death
            try:
                found = None if death else self._look()
            except Exception:
                continue  # the store is away: it says nothing, and what it said last counts
            now = clock.now()
            until = now + found.left if found and found.left else 0.0
            if found and (known is None or found.holder != known.holder or until - deadline > MOVED_S):
                same = known is not None and found.holder == known.holder
                # A renewal is dated by what is left. A new holder is not: a hand-off gives it less at first.
                renewed = same and found.age
                when = now - found.age if renewed else now
                self._note("ok", when, found, until, began=0.0 if renewed else asked)
                known, deadline = found, until
            elif known and not found:
                lapsed = deadline and now >= deadline - MOVED_S
                end = (min(now, deadline), "lapsed") if lapsed else (now, "released")
                when, why = death or end
                self._note("fail", when, known, 0.0, error=why, began=asked if why == "released" else 0.0)
                known, deadline = None, 0.0

    def _note(self, kind: Any, when: float, held: Held, deadline: float, **rest: Any) -> None:
        said = {"process": self._store, "holder": held.holder, "token": held.token, "deadline": deadline}
        self._log.add("hold", kind, at=when, **said, **rest)

    def dies(self, why: str) -> None:
        """The store is dead, or decides nothing any more: from now on it names nobody."""
        self._death = clock.now(), why

    def stop(self) -> None:
        self._over.set()
        self.join()
        if isinstance(self._look, View):
            self._look.close()


def redis_key(port: int, key: str, ttl: float, *, socket: str | None = None, if_master: bool = False) -> Look:
    """Read the value of a key on one Redis server: the name, or the claim, of its holder.

    A server that no address of this machine leads to is asked on its Unix socket. With `if_master`, what a
    replica has does not count.
    """
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    quick: dict[str, Any] = {"socket_timeout": 0.3, "socket_connect_timeout": 0.3}
    quick |= {"unix_socket_path": socket} if socket else {}
    server = redis.Redis("127.0.0.1", port, decode_responses=True, retry=Retry(NoBackoff(), 0), **quick)

    def look() -> Held | None:
        pipeline: Any = server.pipeline(transaction=True)
        value, left, role = pipeline.get(key).pttl(key).role().execute()
        if not value or (if_master and role[0] != "master"):
            return None
        # A naive lock keeps a name; interlock keeps a record, whose first lines are the claim and its token.
        holder, *more = value.split("\n")
        token = int(more[0]) if more and more[0].isdigit() else 0
        if left < 0:
            return Held(holder, token=token)
        return Held(holder, left / 1000, max(0.0, ttl - left / 1000), token)

    return look


def first_of(looks: Sequence[Look]) -> Look:
    """Ask several servers of which one decides: the first that names a holder counts.

    That nobody holds is said only if all have answered.
    """

    def look() -> Held | None:
        silent: Exception | None = None
        for one in looks:
            try:
                if held := one():
                    return held
            except Exception as error:
                silent = error
        if silent:
            raise silent
        return None

    return look


def redis_majority(ports: Sequence[int], key: str, ttl: float) -> Look:
    """Ask all servers of a quorum: the holder is whoever stands on most of them."""
    nodes = [redis_key(port, key, ttl) for port in ports]

    def look() -> Held | None:
        import redis

        found, late = list[Held](), 0
        for node in nodes:
            try:
                if held := node():
                    found.append(held)
            except redis.TimeoutError:
                late += 1
            except Exception:  # a node that is away has no vote
                continue
        holders = Counter(held.holder for held in found)
        for holder, votes in holders.items():
            if votes <= len(nodes) // 2 < votes + late:
                raise TimeoutError("a node that has not answered may have the vote that decides")
            if votes > len(nodes) // 2:
                own = sorted((held for held in found if held.holder == holder), key=lambda held: -held.left)
                last = own[len(nodes) // 2]  # when this one lapses, no majority is left
                return Held(holder, last.left, 0.0, last.token)
        return None

    return look


def store_of(url: str, key: str) -> Look:
    """Ask any store of interlock, as an operator would; the holder is named by its claim."""
    import interlock

    client = interlock.connect(url)
    with suppress(InterlockError):
        client.inspect(key)  # connected before the first client asks

    def look() -> Held | None:
        with suppress(InterlockError):
            for standing in client.inspect(key).holders:
                # Where a session keeps the claim, nobody else can tell when it would lapse.
                left = 0.0 if client.traits.lapses == "session" else standing.lapses_in
                return Held(standing.id, left, token=standing.token)
        return None

    return View(look, client.close)


def mysql_row(server: Any) -> Look:
    """Read who stands in the row that is a naive lock on a MySQL or MariaDB server."""
    connection = server.connect()

    def look() -> Held | None:
        with connection.cursor() as cursor:
            cursor.execute("select owner from locks where name = 'report'")
            row = cursor.fetchone()
        return Held(row[0]) if row else None

    return View(look, connection.close)
