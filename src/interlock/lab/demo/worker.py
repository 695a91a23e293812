"""One worker process: again and again it updates the ledger under the lock, then prints under the semaphore.

It does what an ordinary program does, and no more: it never looks at the clock before it writes. If it was
paused past its ttl, its next line is a late write, and the ledger has to refuse it.
"""

from __future__ import annotations

import sys
import threading

import interlock
from interlock._support import clock
from interlock.blocking import connect
from interlock.lab.demo.ledger import Ledger
from interlock.lab.demo.report import CAPACITY, LEDGER, PRINTERS, Kind, Report


class Worker:
    """The work of one process until it is told to stop."""

    def __init__(self, name: str, url: str, ledger: str, ttl: float, think: float, printing: float) -> None:
        self.name = name
        self.client = connect(url, ttl=ttl, log=False)
        self.ledger = Ledger(ledger)
        self.think = think
        self.printing = printing
        self.stopping = threading.Event()

    def run(self) -> None:
        self.say("ready")
        with self.client:
            while not self.stopping.is_set():
                try:
                    self.update_the_ledger()
                    self.print_a_page()
                except interlock.LeaseLost:
                    continue  # reported already; back into the queue

    def update_the_ledger(self) -> None:
        with self.client.lock(LEDGER) as lease:
            self.say("entered", lease)
            balance = self.ledger.balance()
            self.say("read", lease)
            self.stopping.wait(self.think)
            try:
                self.ledger.write(self.name, lease.token, balance, balance + 1)
            except interlock.StaleToken as refusal:
                self.say("refused", lease, str(refusal))
            self.say("left", lease)

    def print_a_page(self) -> None:
        with self.client.semaphore(PRINTERS, capacity=CAPACITY) as lease:
            self.say("entered", lease)
            self.stopping.wait(self.printing)
            self.say("left", lease)

    def say(self, kind: Kind, lease: interlock.Lease | None = None, text: str = "") -> None:
        held = ("", 0, 0.0) if lease is None else (lease.resource, lease.token, lease.deadline)
        print(Report(kind, clock.now(), self.name, *held, text).pack(), flush=True)

    def obey(self) -> None:
        """Stop when the director says so, or is gone."""
        sys.stdin.readline()
        self.stopping.set()


def main(name: str, url: str, ledger: str, *durations: str) -> None:
    threading.current_thread().name = name  # operators see it: who holds, who waits
    worker = Worker(name, url, ledger, *map(float, durations))
    threading.Thread(target=worker.obey, daemon=True).start()
    worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
