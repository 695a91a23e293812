"""Processes that are killed, stopped or forked while they hold: what others get, and what the process itself is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import interlock
from interlock.errors import StaleToken
from interlock.testing.lag import stretched
from interlock.testing.servers.process import die_with_parent
from interlock.testing.servers.zookeeper import Servers
from tests.house.source import ROOT
from tests.patience import PATIENCE, until
from tests.zookeeper.stores import session_client_of

HOLDER = """
import sys, interlock
client = interlock.connect(sys.argv[1], ttl=float(sys.argv[2]))
lease = client.lock("x").acquire()
print(lease.token, flush=True)
for line in sys.stdin:
    try:
        lease.check()
        print("held", flush=True)
    except interlock.LeaseLost as error:
        print(f"lost {error.cause}", flush=True)
"""

FORKING = """
import os, sys, time, interlock
client = interlock.connect(sys.argv[1], ttl=float(sys.argv[2]))
other = interlock.connect(sys.argv[1], ttl=float(sys.argv[2]))
with client.lock("x") as lease:
    child = os.fork()
    if not child:
        try:
            assert not client.lock("x").owned()
            assert not client.lock("x").acquire(blocking=False), "the child got what its parent holds"
            with client.lock("y"):
                pass
            try:
                lease.release()
            except interlock.NotHeld:
                pass
            client.close()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    time.sleep(2 * float(sys.argv[2]))
    lease.check()
    assert not other.lock("x").acquire(blocking=False)
with other.lock("x"):
    pass
print("well", flush=True)
"""


@contextmanager
def program(text: str, *arguments: str) -> Iterator[Any]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=die_with_parent,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def session() -> float:
    """A session that a test can wait for; as many digits as a URL shows, because a ttl beyond it is refused."""
    return round(stretched(1.5), 2)


def test_a_killed_holder_delays_others_for_one_session(ensemble: Servers, session: float) -> None:
    url = ensemble.fresh(session=session)
    with interlock.connect(url, ttl=session) as client, program(HOLDER, url, f"{session}") as holder:
        token = int(holder.stdout.readline())
        holder.kill()
        lease = client.lock("x").acquire(timeout=PATIENCE)
        assert isinstance(lease, interlock.Lease)
        assert lease.token > token


def test_a_holder_stopped_past_its_session_is_told_first_thing_and_its_write_refused(
    ensemble: Servers, session: float
) -> None:
    url = ensemble.fresh(session=session)
    with interlock.connect(url, ttl=session) as client, program(HOLDER, url, f"{session}") as holder:
        token = int(holder.stdout.readline())
        fence = client.guard("x")
        fence.accept(token)
        os.kill(holder.pid, signal.SIGSTOP)
        with client.lock("x", timeout=PATIENCE) as lease:
            fence.accept(lease)
            os.kill(holder.pid, signal.SIGCONT)
            holder.stdin.write("?\n")
            holder.stdin.flush()
            assert holder.stdout.readline().startswith("lost ")
            with pytest.raises(StaleToken):
                fence.accept(token)


def test_waiters_that_are_killed_do_not_stand_in_the_way(ensemble: Servers, session: float) -> None:
    url = ensemble.fresh(session=session)
    with interlock.connect(url, ttl=session) as client, interlock.connect(url, ttl=session) as other:
        held = client.lock("x").acquire()
        assert held
        waiter = HOLDER.replace(
            'lease = client.lock("x").acquire()', 'print("waits", flush=True); client.lock("x").acquire()'
        )
        with program(waiter, url, f"{session}") as one, program(waiter, url, f"{session}") as two:
            until(lambda: len(client.inspect("x").waiters) == 2)
            for dead in (one, two):
                dead.kill()
        held.release()
        assert other.lock("x").acquire(timeout=PATIENCE)


def test_a_forked_child_holds_nothing_and_begins_a_session_of_its_own(
    ensemble: Servers, session: float
) -> None:
    with program(FORKING, ensemble.fresh(session=2 * session), f"{session}") as parent:
        assert parent.stdout.readline() == "well\n"


def test_a_server_that_is_lost_costs_no_lease(session: float) -> None:
    """The client goes to another server with the same session."""
    from interlock.testing.servers.zookeeper import running

    with running() as ensemble, interlock.connect(ensemble.fresh(session=20), ttl=20) as client:
        lease = client.lock("x").acquire()
        assert isinstance(lease, interlock.Lease)
        session_client = session_client_of(client)
        number = session_client.session.number if session_client.session else 0
        port = session_client._client._connection._socket.getpeername()[1]
        next(node for node in ensemble.nodes if node.port == port).kill()
        until(
            lambda: (
                session_client._connected
                and session_client._client._connection._socket.getpeername()[1] != port
            )
        )
        with client.lock("y", timeout=PATIENCE):
            pass
        lease.check()
        assert session_client.session is not None
        assert session_client.session.number == number
        assert not client.lock("x").acquire(blocking=True, timeout=0.1)
        lease.release()
