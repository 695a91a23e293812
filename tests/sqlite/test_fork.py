"""A forked child holds nothing, frees nothing of its parent's, and has a connection that really locks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.sql.sqlite import SqliteStore
from interlock.backends.sql.sqlite.file.database import Database
from interlock.model import Granted
from interlock.testing.lag import stretched
from tests.patience import PATIENCE
from tests.sqlite.common import claim, eventually
from tests.sqlite.contender import Contender, surroundings

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


def test_a_child_cannot_give_back_what_its_parent_holds(path: str) -> None:
    with Contender(path) as parent, Contender(path) as other:
        ttl = stretched(1.0)
        parent.ask("acquire", "r", ttl=ttl)
        parent.ask("fork_and_release", "r")
        assert (
            other.ask("acquire", "r", timeout=1.5 * ttl)["token"] is None
        )  # longer than the ttl: it is still renewed
        assert parent.ask("release", "r")["lost"] is None


def test_children_take_turns_through_the_client_they_inherited(path: str) -> None:
    with Contender(path) as parent:
        parent.ask("acquire", "r")
        parent.ask("release", "r")
        assert parent.ask("fork_and_acquire", "r", 5)["codes"] == [0] * 5


def test_a_child_that_outlives_its_parent_keeps_its_lease_when_others_come_and_go(path: str) -> None:
    """SQLite's last process to leave deletes the log: it must know that the child is still there."""
    with Contender(path) as child:
        child.ask("acquire", "parents")
        assert child.ask("fork_away")["forked"]
        child.process.wait(PATIENCE)
        assert child.ask("acquire", "before", ttl=20)["token"]
        with Contender(path) as visitor:
            visitor.ask("acquire", "other")
            visitor.ask("release", "other")
            visitor.ask("close")
        assert child.ask("acquire", "after", ttl=20)["token"]
        with Contender(path) as rival:
            assert rival.ask("acquire", "before", timeout=0.2)["token"] is None
            assert rival.ask("acquire", "after", timeout=0.2)["token"] is None
        assert child.ask("release", "before")["lost"] is None
        child.tell("close")
        child.hear()


def test_a_fork_waits_for_the_transaction_of_another_thread(store: SqliteStore) -> None:
    """A child that inherits a connection in the middle of a transaction would never get to write."""
    inside, leave = threading.Event(), threading.Event()
    database: Database = store._database

    def transaction(_: object) -> None:
        inside.set()
        leave.wait(PATIENCE)

    thread = threading.Thread(target=lambda: database.write(database.clock.now() + PATIENCE, transaction))
    thread.start()
    assert inside.wait(PATIENCE)
    threading.Timer(0.1, leave.set).start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads is the point
        child = os.fork()
    if not child:
        store.after_fork()
        granted = isinstance(drive(store.claim(claim("r", "child"), timeout=PATIENCE)), Granted)
        os._exit(0 if granted else 1)
    assert leave.is_set()
    thread.join(PATIENCE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert isinstance(drive(store.claim(claim("other", "parent"))), Granted)


def test_a_parent_goes_on_waiting_across_a_fork(path: str) -> None:
    client = interlock.connect(f"sqlite:///{path}")
    with Contender(path) as holder:
        holder.ask("acquire", "r")
        got: list[object] = []
        waiter = threading.Thread(target=lambda: got.append(client.lock("r").acquire(timeout=PATIENCE)))
        waiter.start()
        eventually(lambda: len(client.inspect("r").waiters) == 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        holder.ask("release", "r")
        waiter.join(PATIENCE)
        assert got[0]
    client.close()


def test_a_child_refuses_a_file_whose_connection_it_inherited_open(store: SqliteStore) -> None:
    """Forked from C, or while a transaction would not end: SQLite's bookkeeping cannot be trusted any more."""
    drive(store.claim(claim()))
    child = os.fork()
    if not child:
        drive(store.claim(claim("other", "b")))
        store._database.after_fork_in_child()  # as if the fork had happened now, without notice
        try:
            drive(store.claim(claim("third", "c")))
        except interlock.StoreUnfit as refusal:
            os._exit(0 if "connect after the fork" in str(refusal) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("told", [False, True], ids=["Python knows nothing", "Python is told afterwards"])
def test_a_child_that_c_code_has_forked_refuses_the_file(path: str, told: bool) -> None:
    """As an embedding server forks, which tells Python afterwards, or a library that tells nobody."""
    program = (
        "import ctypes, os, sys, interlock\n"
        "client = interlock.connect(sys.argv[1]); lease = client.lock('r').acquire()\n"
        "child = ctypes.PyDLL(None).fork()\n"
        "if child == 0:\n"
        f"    {told} and ctypes.pythonapi.PyOS_AfterFork_Child()\n"
        "    refused = 0\n"
        "    for ask in (client.lock('other').acquire, lambda: interlock.connect(sys.argv[1])):\n"
        "        try: ask()\n"
        "        except interlock.StoreUnfit as error: refused += 'connect after the fork' in str(error)\n"
        "    os._exit(refused)\n"
        "refused = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "lease.renew(); lease.release()\n"
        "print(refused, client.lock('other').acquire(blocking=False) is not None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"sqlite:///{path}"],
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "2 True\n", done.stderr
