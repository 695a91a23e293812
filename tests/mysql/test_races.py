"""Many processes at the same rows at the same instant: one holder, no token twice, and no deadlock that anybody notices."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import interlock
from interlock._core import timing
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.model import Claim, Granted, Renewal, Renewed
from interlock.testing.lag import stretched
from interlock.testing.servers.mysql import Server
from interlock.urls import open_store
from tests.patience import PATIENCE

PROCESSES = 16
MIXED = 8
NAMES = 12
TURNS = 6  # grants that each process wants
SPAWN = multiprocessing.get_context("spawn")


def _all_at_once(url: str, gate: Any, results: Any) -> None:
    timing.GRACE_S = PATIENCE  # a try that the machine gives no turn would be no verdict, and end the test
    with interlock.connect(url) as client:
        client.lock("warm").acquire(blocking=False)
        got: list[int] = []
        for number in range(NAMES):
            gate.wait()
            if client.lock(f"r{number}", fair=False).acquire(blocking=False):
                got.append(number)
        results.put(got)
        gate.wait()  # nobody releases before all have asked


def _mixed(url: str, number: int, gate: Any, results: Any) -> None:
    tokens: list[tuple[str, int]] = []
    with interlock.connect(url, ttl=stretched(2.0)) as client:
        gate.wait()
        while len(tokens) < TURNS:
            name = f"m{(number + len(tokens)) % 5}"
            lease = client.lock(name, renew=len(tokens) % 3 > 0).acquire(timeout=PATIENCE)
            assert lease
            tokens.append((name, lease.token))
            with suppress(interlock.LeaseLost):
                lease.release()
    results.put(tokens)


def _run(target: Any, *arguments: Any) -> list[Any]:
    gate, results = SPAWN.Barrier(len(arguments), timeout=240), SPAWN.Queue()
    workers = [SPAWN.Process(target=target, args=(*one, gate, results)) for one in arguments]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=240) for _ in workers]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    return found


def test_sixteen_processes_that_ask_at_once_get_one_holder_for_each_name(server: Server) -> None:
    url = server.fresh_url()
    holders = Counter(number for got in _run(_all_at_once, *[(url,)] * PROCESSES) for number in got)
    assert holders == {number: 1 for number in range(NAMES)}


def test_no_token_is_given_twice_and_nothing_is_left(server: Server) -> None:
    url = server.fresh_url()
    found = [pair for tokens in _run(_mixed, *[(url, n) for n in range(MIXED)]) for pair in tokens]
    assert len(found) == MIXED * TURNS
    assert len(set(found)) == len(found)
    with interlock.connect(url) as client:
        for name in {name for name, _ in found}:
            with client.lock(name, timeout=30):
                pass


def test_a_renewal_between_the_count_and_the_removal_of_lapsed_claims_keeps_its_place(server: Server) -> None:
    """Renewals take no lock on the resource. A renewal that wins must leave no room for another holder: one of them is told no."""
    url = server.fresh_url()
    one, two = (open_store(url, Threads(), asynchronous=False) for _ in range(2))
    for number in range(60):
        name = f"n{number}"
        first = Claim(name, f"a{number}", 0.02, place_ttl=0.02)
        assert isinstance(drive(one.claim(first)), Granted)
        time.sleep(0.018)
        results: list[Any] = []
        renewing = threading.Thread(
            target=lambda first=first, results=results: results.append(
                drive(one.renew([Renewal(first.resource, first.id, 5.0)]))
            )
        )
        renewing.start()
        answer = drive(two.claim(Claim(name, f"b{number}", 5.0, queued=False)))
        renewing.join()
        renewed = isinstance(results[0][0], Renewed)
        assert not (renewed and isinstance(answer, Granted)), (number, answer, results)
        assert len(drive(two.inspect(name)).holders) <= 1
    drive(one.close())
    drive(two.close())
