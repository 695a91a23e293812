"""The servers count the nodes of a folder with 32 bits, and stay at the highest number: claims that tie have no order.

So a claim with a number near that end does not count: its client withdraws it, and removes the folder once nobody stands there. The
next folder of that name begins at 0.
"""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.kit.deadline import Deadline
from interlock.backends.zookeeper import paths, requests
from interlock.backends.zookeeper.own_claims import OwnClaim
from interlock.model import Busy, Claim, Granted
from interlock.testing.servers.zookeeper import running
from interlock.urls import open_store
from tests.patience import PATIENCE
from tests.zookeeper.snapshots import NO_DIGESTS, move_counter


@pytest.mark.slow
def test_nobody_shares_a_lock_after_two_thousand_million_claims() -> None:
    with running(1, jvm=[NO_DIGESTS]) as ensemble:
        url = ensemble.url("t")
        with interlock.connect(url) as client, client.lock("x"), client.lock("x2"):
            pass
        move_counter(ensemble, "/t/interlock/x", 2**31 - 3)
        clients = [interlock.connect(url) for _ in range(4)]
        inside: list[int] = []
        overlaps: list[list[int]] = []
        taken: list[int] = []

        def work(client: Any, number: int) -> None:
            for _ in range(6):
                with client.lock("x", timeout=PATIENCE) as lease:
                    inside.append(number)
                    taken.append(lease.token)
                    if len(inside) > 1:
                        overlaps.append(list(inside))
                    threading.Event().wait(0.005)
                    inside.remove(number)

        threads = [
            threading.Thread(target=work, args=(client, number)) for number, client in enumerate(clients * 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not overlaps
        assert taken == sorted(set(taken))
        assert len(taken) == 6 * len(threads)
        for client in clients:
            client.close()


@pytest.fixture
def few_numbers(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(paths, "MAX_SEQUENCE", 5)
    return 5


def test_a_lock_goes_on_in_a_new_folder_when_the_numbers_of_the_old_one_end(
    url: str, few_numbers: int
) -> None:
    with interlock.connect(url) as client:
        tokens = []
        for _ in range(4 * few_numbers):
            with client.lock("x", timeout=PATIENCE) as lease:
                tokens.append(lease.token)
        assert tokens == sorted(set(tokens))


def test_nobody_is_let_in_while_others_stand_in_the_old_folder(url: str, few_numbers: int) -> None:
    """A waiter that came before the end keeps its place; one that comes later has none until the folder is empty."""
    ours, theirs = (open_store(url, Threads(), asynchronous=False) for _ in range(2))
    for _ in range(few_numbers - 2):
        passing = Claim("x", uuid4().hex, 30.0)
        drive(ours.claim(passing))
        drive(ours.release("x", passing.id))
    holder, waiter, late, last = (Claim("x", uuid4().hex, 30.0) for _ in range(4))
    assert isinstance(drive(ours.claim(holder)), Granted)
    assert isinstance(drive(ours.claim(waiter)), Busy)
    for _ in range(2):
        answer = drive(theirs.claim(late))
        assert isinstance(answer, Busy)
        assert answer.ahead == 2
    assert isinstance(drive(ours.claim(last)), Busy)
    assert [standing.id for standing in drive(ours.inspect("x")).standings] == [holder.id, waiter.id]
    drive(ours.release("x", holder.id))
    assert isinstance(drive(ours.claim(waiter)), Granted)
    assert isinstance(drive(theirs.claim(late)), Busy)
    drive(ours.release("x", waiter.id))
    assert isinstance(drive(theirs.claim(late)), Granted)
    assert isinstance(drive(ours.claim(last)), Busy)
    queue = drive(ours.inspect("x"))
    assert [standing.id for standing in queue.standings] == [late.id, last.id], (
        "a new folder counts as the old one"
    )
    drive(theirs.release("x", late.id))
    assert isinstance(drive(ours.claim(last)), Granted)
    for store in (ours, theirs):
        drive(store.close())


def test_a_claim_that_does_not_count_and_whose_answer_was_lost_is_withdrawn_and_not_granted(
    url: str, few_numbers: int
) -> None:
    store: Any = open_store(url, Threads(), asynchronous=False)
    held = [Claim("x", uuid4().hex, 30.0, 1, 9) for _ in range(few_numbers)]
    for claim in held:
        assert isinstance(drive(store.claim(claim)), Granted)
    one = drive(store._requester.connect(Deadline(time.monotonic, PATIENCE)))
    lost = Claim("x", uuid4().hex, 30.0, 1, 9)
    folder = store._paths.folder("x")
    request = requests.create(
        f"{folder}/{paths.claim_prefix(lost.id, 1, 9)}", b"", store._session_client.address.acl, 3
    )
    drive(store._requester.one(request, Deadline(time.monotonic, PATIENCE))).get()
    store._ledger.claims[lost.id] = OwnClaim(lost, folder, one, time.monotonic())
    answer = drive(store.claim(lost))
    assert isinstance(answer, Busy)
    assert len(drive(store.inspect("x")).standings) == few_numbers
    drive(store.close())


def test_waiters_of_a_semaphore_pass_through_many_folders_and_none_is_left_behind(
    url: str, few_numbers: int
) -> None:
    clients = [interlock.connect(url) for _ in range(2)]
    inside: list[int] = []
    most: list[int] = []

    def work(client: Any, number: int) -> None:
        for _ in range(5):
            with client.semaphore("s", 2, timeout=PATIENCE):
                inside.append(number)
                most.append(len(inside))
                threading.Event().wait(0.002)
                inside.remove(number)

    threads = [
        threading.Thread(target=work, args=(client, number)) for number, client in enumerate(clients * 3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 5 * len(threads)
    assert max(most) <= 2
    for client in clients:
        client.close()
