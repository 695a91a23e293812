"""Eight processes move money between accounts of one bank, and some of them are paused while they hold the lock.

    .venv/bin/python -m tests.guards.transfers                     # 10,000 transfers for each database and form
    .venv/bin/python -m tests.guards.transfers postgresql absolute 500

Each worker takes the lock of the bank with a short ttl, and for each of a few transfers it reads two balances and writes them anew. Before the transaction, and within it, it
is now and then paused for longer than the ttl, as a stopped process is: nothing renews the lock meanwhile, and another worker gets it. What
a worker was told to be committed is counted apart from the bank. Afterwards the bank must show each of these transfers, once, and no other:
the sum must stay, and so must every single account. Without a guard it does not.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import interlock
from interlock import StaleToken, guards
from tests.guards.desks import (
    PLACES,
    Desk,
    Place,
    PlainSQLiteDesk,
    PsycopgDesk,
    PyMySQLDesk,
)

PROCESSES = 8
ACCOUNTS = 6
START = 1000
TTL = 0.15
BATCH = 10  # transfers in one hold, each a transaction of its own, unless one is refused
FORMS = ("none", "write", "table", "row", "absolute")
"""`write` is the table-wide guard in the wrong place: after the read, just before the write."""

DESKS: dict[str, type[Desk]] = {"sqlite": PlainSQLiteDesk, "postgresql": PsycopgDesk, "mysql": PyMySQLDesk}


@dataclass(frozen=True)
class Job:
    """What one worker does."""

    place: dict[str, Any]
    store: str
    form: str
    transfers: int
    seed: int
    paused: float  # how many of all transfers are


@dataclass
class Report:
    """What the workers were told."""

    committed: int = 0
    refused: int = 0
    paused: int = 0
    failed: int = 0
    moved: dict[str, int] | None = None


class Worker:
    """One process."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.desk = DESKS[job.place["dialect"]](Place(**job.place))
        self.random = random.Random(job.seed)
        self.report = Report()
        self.moved: Counter[str] = Counter()
        # Not renewed, as by a process that is stopped; the keeper of a running one would go on.
        self.client = interlock.connect(job.store, ttl=TTL)
        self.lock = self.client.lock("bank", renew=False, timeout=60)
        if job.form == "absolute" and job.place["dialect"] == "sqlite":
            guards.sql.attach(self.desk.session, self.client)

    def run(self) -> Report:
        while self.report.committed < self.job.transfers:
            lease = self._acquire()
            if lease is None:
                continue
            try:
                if self.job.form == "absolute":
                    lease.renew()  # from here on the store knows its token, which is all that the guard is given
                for _ in range(min(BATCH, self.job.transfers - self.report.committed)):
                    self._pause()
                    self._transfer(lease)
            except (StaleToken, interlock.NotHeld):
                self.report.refused += 1
                self.desk.rollback()
            except Exception as error:
                if not retried(error):
                    raise
                self.report.failed += 1
                self.desk.rollback()
            finally:
                with suppress(interlock.NotHeld, interlock.StoreUnavailable):
                    lease.release()
        self.desk.close()
        self.client.close()
        self.report.moved = dict(self.moved)
        return self.report

    def _acquire(self) -> interlock.Lease | None:
        """A lease; None if the store did not answer in time, as on a machine with a lot of other work: then it is asked again."""
        with suppress(interlock.StoreUnavailable):
            return self.lock.acquire()
        self.report.failed += 1
        return None

    def _pause(self) -> None:
        if self.random.random() < self.job.paused / 2:
            self.report.paused += 1
            time.sleep(TTL * 1.5)

    def _transfer(self, lease: Any) -> None:
        """Move one coin. What the guard is given is the token alone: `lease.check()` is the clock's word, and has no part in this."""
        one, other = self.random.sample(range(1, ACCOUNTS + 1), 2)
        guarded_first = self.job.form in ("table", "row", "absolute")
        if guarded_first:
            self.desk.begin()
            self._guard(lease, one, other)
        balances = {account: self.desk.balance(account) for account in (one, other)}
        self._pause()
        if not guarded_first:
            self.desk.rollback()  # as a program has read that shows a page in between
            self.desk.begin()
            self._guard(lease, one, other)
        for account in sorted((one, other)):
            new = balances[account] + (1 if account == other else -1)
            self.desk.run(f"update account set balance = {new} where id = {account}")
        self.desk.commit()
        self.report.committed += 1
        self.moved[str(one)] -= 1
        self.moved[str(other)] += 1

    def _guard(self, lease: Any, *accounts: int) -> None:
        form, session = self.job.form, self.desk.session
        if form in ("table", "write"):
            guards.sql.guard(session, "bank", lease.token)
        elif form == "absolute":
            claims = claims_of(self.client)
            guards.sql.guard(session, "bank", lease.token, absolute=True, claims=claims)
        elif form == "row":
            for account in sorted(accounts):
                guards.sql.guard_row(session, "bank", lease.token, table="account", where={"id": account})


def claims_of(client: interlock.Client) -> str | None:
    """The name of the claim table, for a guard that is given no lease; None for the usual one."""
    table: str | None = getattr(client._core.store, "claim_table", None)
    return None if table is None else table.replace('"', "").replace("`", "")


def retried(error: Exception) -> bool:
    """Whether a program would run its transaction again after this error: a deadlock, or a lock that was not got in time."""
    words = str(error).lower()
    return any(
        word in words for word in ("deadlock", "lock wait", "locked", "did not answer", "serialize", "again")
    )


@dataclass(frozen=True)
class Verdict:
    """What became of the transfers."""

    database: str
    form: str
    report: Report
    wrong: dict[
        int, int
    ]  # accounts whose balance is not what the committed transfers make of it, and by how much
    sum_off: int
    seconds: float

    @property
    def sound(self) -> bool:
        return not self.wrong and not self.sum_off

    def __str__(self) -> str:
        report = self.report
        lost = sum(abs(off) for off in self.wrong.values())
        return (
            f"{self.database:<11} {self.form:<9} {report.committed:>6} committed {report.refused:>6} refused {report.paused:>6} paused "
            f"{report.failed:>4} to be repeated; wrong by {lost:>5} in {len(self.wrong)} accounts; sum off by {self.sum_off:>4}; {self.seconds:.0f} s"
        )


def lock_url(database: str, folder: Path) -> str:
    """Where the locks are: in the same database where it can be, as teams have it."""
    if database == "sqlite":
        return f"sqlite:///{folder}/locks.db"
    if database == "postgresql":
        from interlock.testing.servers import postgresql as postgresql

        return f"postgresql://postgres@127.0.0.1:{postgresql.steady().port}/bank?schema=l{uuid4().hex[:8]}"
    mysql = import_module("interlock.testing.servers.mysql")
    return f"mysql://root@127.0.0.1:{mysql.steady().port}/bank"


def run(
    database: str, form: str, transfers: int, *, processes: int = PROCESSES, paused: float = 0.02
) -> Verdict:
    """Run one bank, and judge it."""
    began = time.monotonic()
    with TemporaryDirectory() as name:
        folder = Path(name)
        place = PLACES[database](folder)
        store = lock_url(database, folder)
        desk = DESKS[place.dialect](place)
        desk.begin()
        desk.run("delete from account")
        for account in range(1, ACCOUNTS + 1):
            desk.run(f"insert into account (id, balance) values ({account}, {START})")
        desk.commit()
        interlock.connect(store).close()
        jobs = [
            Job(asdict(place), store, form, transfers // processes, seed, paused) for seed in range(processes)
        ]
        reports = work(jobs)
        with closing(desk):
            balances = {account: desk.balance(account) for account in range(1, ACCOUNTS + 1)}
            desk.rollback()
    total = Report()
    for report in reports:
        total.committed += report.committed
        total.refused += report.refused
        total.paused += report.paused
        total.failed += report.failed
    moved: Counter[int] = Counter()
    for report in reports:
        moved.update({int(account): coins for account, coins in (report.moved or {}).items()})
    expected = {account: START + moved[account] for account in balances}
    wrong = {
        account: balances[account] - expected[account]
        for account in balances
        if balances[account] != expected[account]
    }
    sum_off = sum(balances.values()) - START * ACCOUNTS
    return Verdict(database, form, total, wrong, sum_off, time.monotonic() - began)


def work(jobs: list[Job]) -> list[Report]:
    """Run one process for each job, and return what each reports. They are forked by a process that has loaded all they need."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.guards.transfers", "--crew", json.dumps([asdict(job) for job in jobs])],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=1200,
    ).stdout
    return [Report(**json.loads(line)) for line in told.splitlines()]


def crew(jobs: list[Job]) -> None:
    """Fork a worker for each job; each writes one line. A line is short enough to be written at once."""
    logging.disable()  # of hundreds of lost leases
    workers = []
    for job in jobs:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.write(1, json.dumps(asdict(Worker(job).run())).encode() + b"\n")
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        workers.append(pid)
    failed = [pid for pid in workers if os.waitpid(pid, 0)[1]]
    sys.exit(f"{len(failed)} workers failed" if failed else 0)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--crew"]:
        crew([Job(**job) for job in json.loads(arguments[1])])
    databases = arguments[:1] or list(PLACES)
    forms = arguments[1:2] or list(FORMS)
    transfers = int(arguments[2]) if len(arguments) > 2 else 10_000
    if unknown := (set(databases) - set(PLACES)) | (set(forms) - set(FORMS)):
        sys.exit(
            f"{', '.join(sorted(unknown))}: choose from {', '.join(PLACES)}, and from {', '.join(FORMS)}"
        )
    for database in databases:
        for form in forms:
            print(run(database, form, transfers), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
