"""Dead on the same machine means free at once; and only the dead."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock._support import bytelock
from interlock.backends.sql.sqlite import SqliteStore, open_store
from interlock.backends.sql.sqlite.file import inodes, liveness, location
from interlock.errors import StoreUnavailable
from interlock.model import Busy, Granted
from interlock.testing.lag import at_most
from tests.patience import PATIENCE, until
from tests.sqlite.common import claim
from tests.sqlite.conftest import Open
from tests.sqlite.contender import Contender, now, surroundings

pytestmark = pytest.mark.skipif(not bytelock.AVAILABLE, reason="this kernel cannot tell who lives")

SOON = 2.0  # seconds; far less than any ttl here, and enough for a busy machine
TTL = 100.0


def in_line(client: interlock.Client, name: str) -> int:
    return len(client.inspect(name).standings)


def line_of(client: interlock.Client, name: str, length: int) -> Callable[[], bool]:
    return lambda: in_line(client, name) == length


def test_the_next_in_line_is_in_at_once_when_the_holder_is_killed(path: str) -> None:
    with (
        interlock.connect(f"sqlite:///{path}") as client,
        Contender(path) as holder,
        Contender(path) as waiter,
    ):
        holder.ask("acquire", "r", ttl=TTL)
        waiter.tell("acquire", "r", ttl=TTL)
        until(line_of(client, "r", 2))
        with at_most(0.1 + 0.1):  # 0.1 s is promised; as long again for the way to the test
            holder.process.kill()
            assert waiter.hear()["token"]


def test_one_who_does_not_wait_finds_the_lock_of_a_killed_process_free(path: str) -> None:
    with interlock.connect(f"sqlite:///{path}") as client, Contender(path) as holder:
        holder.ask("acquire", "r", ttl=TTL)
        assert client.lock("r").acquire(blocking=False) is None
        assert client.lock("r").locked()
        holder.process.kill()
        holder.process.wait()
        assert not client.lock("r").locked()
        lease = client.lock("r").acquire(blocking=False)
        assert lease
        lease.release()


def test_however_many_die_at_once_the_first_who_lives_is_next(path: str) -> None:
    with interlock.connect(f"sqlite:///{path}") as client, ExitStack() as stack:
        crews = [stack.enter_context(Contender(path)) for _ in range(4)]
        crews[0].ask("acquire", "r", ttl=TTL)
        for number, crew in enumerate(crews[1:3]):
            crew.tell("wait_in_line", "r", 3, ttl=TTL)
            until(line_of(client, "r", 4 + 3 * number))
        crews[3].tell("acquire", "r", ttl=TTL)
        until(line_of(client, "r", 8))
        for crew in crews[:3]:
            crew.process.kill()
        killed = now()
        assert crews[3].hear()["at"] - killed < SOON


def test_a_place_that_a_dead_waiter_was_given_is_passed_on(path: str) -> None:
    with interlock.connect(f"sqlite:///{path}") as client, ExitStack() as stack:
        holder, dead, alive = (stack.enter_context(Contender(path)) for _ in range(3))
        holder.ask("acquire", "r", ttl=TTL)
        for place, crew in enumerate((dead, alive)):
            crew.tell("acquire", "r", ttl=TTL)
            until(line_of(client, "r", 2 + place))
        dead.process.kill()
        dead.process.wait()
        released = holder.ask("release", "r")["at"]
        assert alive.hear()["at"] - released < SOON


def test_the_capacity_of_a_killed_process_goes_with_its_claim(path: str) -> None:
    """Nobody stands any more under the old capacity, so there is nothing to differ from."""
    with Contender(path) as holder, interlock.connect(f"sqlite:///{path}") as client:
        holder.ask("acquire_permits", "r", 1, 3, ttl=TTL)
        store, mine = client._core.store, claim("r", "mine", capacity=2)
        with pytest.raises(interlock.SettingsMismatch):
            drive(store.claim(mine))
        holder.process.kill()
        holder.process.wait()
        assert isinstance(drive(store.claim(mine)), Granted)
        drive(store.release("r", "mine"))


@pytest.mark.parametrize("kind", ["semaphore", "readers"])
def test_of_several_holders_only_the_dead_one_makes_room(path: str, kind: str) -> None:
    capacity = 2 if kind == "semaphore" else 10
    permits = 1 if kind == "semaphore" else 10
    with Contender(path) as one, Contender(path) as two, interlock.connect(f"sqlite:///{path}") as client:
        store = client._core.store
        for crew in (one, two):
            crew.ask("acquire_permits", "r", 1, capacity, ttl=TTL)
        mine = claim("r", "mine", permits=permits, capacity=capacity)
        assert isinstance(drive(store.claim(mine)), Busy)
        one.process.kill()
        one.process.wait()
        answer = drive(store.claim(mine))
        assert isinstance(answer, Granted if kind == "semaphore" else Busy)
        assert len(drive(store.inspect("r")).standings) == 2
        drive(store.release("r", "mine"))


def test_a_stopped_process_is_not_dead(path: str) -> None:
    with interlock.connect(f"sqlite:///{path}") as client, Contender(path) as holder:
        holder.ask("acquire", "r", ttl=TTL)
        holder.process.send_signal(signal.SIGSTOP)
        assert client.lock("r").acquire(timeout=0.5) is None
        holder.process.send_signal(signal.SIGCONT)
        assert holder.ask("release", "r")["lost"] is None


def test_what_a_process_leaves_on_purpose_stands_after_its_death(path: str) -> None:
    with interlock.connect(f"sqlite:///{path}") as client, Contender(path) as holder:
        holder.ask("acquire", "r", ttl=TTL, min_hold=TTL)
        holder.ask("release", "r")
        holder.process.kill()
        holder.process.wait()
        assert client.lock("r").acquire(blocking=False) is None


def test_a_claim_of_a_store_that_was_closed_stands_while_its_process_lives(opened: Open) -> None:
    """Closing gives nothing back by itself: see the port."""
    closing, other = opened(), opened()
    drive(closing.claim(claim()))
    drive(closing.close())
    assert isinstance(drive(other.claim(claim("r", "b", queued=False))), Busy)


def test_the_life_of_one_process_does_not_end_for_itself(opened: Open) -> None:
    """Its own lock is no obstacle to itself."""
    holder, asker = opened(), opened()
    drive(holder.claim(claim()))
    assert isinstance(drive(asker.claim(claim("r", "b", queued=False))), Busy)
    assert [standing.id for standing in drive(asker.inspect("r")).holders] == ["a"]


# ---- forks ----------------------------------------------------------------------------------------


def test_a_forked_child_does_not_live_in_the_life_of_its_parent(path: str) -> None:
    """A child that goes on does not keep the lock of a killed parent."""
    with interlock.connect(f"sqlite:///{path}") as client, Contender(path) as parent:
        parent.ask("acquire", "r", ttl=TTL)
        child = parent.ask("fork_and_sleep")["child"]
        try:
            parent.process.kill()
            parent.process.wait()
            assert client.lock("r").acquire(timeout=SOON)
        finally:
            os.kill(child, signal.SIGKILL)


def test_the_end_of_a_child_does_not_end_the_life_of_its_parent(path: str) -> None:
    with interlock.connect(f"sqlite:///{path}") as client, Contender(path) as parent:
        parent.ask("acquire", "r", ttl=TTL)
        parent.ask("fork_and_acquire", "other", 2)
        assert client.lock("r").acquire(timeout=0.3) is None
        assert parent.ask("release", "r")["lost"] is None


def test_a_program_that_is_started_inherits_nothing(path: str) -> None:
    with interlock.connect(f"sqlite:///{path}") as client, Contender(path) as parent:
        parent.ask("acquire", "r", ttl=TTL)
        child = parent.ask("start_sleep")["child"]
        try:
            parent.process.kill()
            parent.process.wait()
            assert client.lock("r").acquire(timeout=SOON)
        finally:
            os.kill(child, signal.SIGKILL)


# ---- containers -------------------------------------------------------------------------------------


def separates() -> bool:
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "--pid", "--fork", "--mount", "--net", "--ipc", "--uts", "true"]
    return subprocess.run(words, capture_output=True).returncode == 0


@pytest.mark.skipif(not separates(), reason="this system makes no namespaces for us")
def test_processes_in_other_namespaces_see_each_other_live_and_die(path: str) -> None:
    program = (
        "import interlock, sys, time\n"
        "lease = interlock.connect(sys.argv[1]).lock('r', ttl=100).acquire()\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--net", "--ipc", "--uts"]
    with interlock.connect(f"sqlite:///{path}") as client:
        holder = subprocess.Popen(
            [*words, sys.executable, "-c", program, f"sqlite:///{path}"],
            env=surroundings(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert client.lock("r").acquire(timeout=0.3) is None
        finally:
            holder.kill()
            holder.communicate()
        assert client.lock("r").acquire(timeout=PATIENCE)


# ---- when nobody can tell ----------------------------------------------------------------------------


def test_where_nobody_can_tell_a_killed_holder_blocks_for_its_ttl(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "AVAILABLE", False)
    with Contender(path) as holder:
        holder.ask("acquire", "r", ttl=1.5)
        holder.process.kill()
        holder.process.wait()
        with interlock.connect(f"sqlite:///{path}") as client:
            assert client.lock("r").acquire(timeout=0.3) is None
            assert client.lock("r").acquire(timeout=PATIENCE)


def test_a_kernel_that_does_not_answer_makes_nobody_dead(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = store._database.liveness.life + 1
    assert not store._database.liveness.alive(life)
    monkeypatch.setattr(liveness, "locked", lambda *_: None)
    assert store._database.liveness.alive(life)


def test_on_a_network_filesystem_nobody_is_taken_for_dead(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "filesystem", lambda directory: "nfs4")
    store = opened(allow_network_filesystem=True)
    assert store._database.liveness.life == 0
    assert store.liveness_byte() is None


# ---- what it costs -------------------------------------------------------------------------------------


def descriptors(path: str) -> int:
    return sum(os.path.realpath(f"/proc/self/fd/{number}") == path for number in os.listdir("/proc/self/fd"))


def test_closing_the_last_store_closes_every_descriptor_of_the_file(opened: Open, path: str) -> None:
    first, second = opened(), opened()
    for store in (first, second):
        drive(store.claim(claim(f"{id(store)}", "a")))
        drive(store.release(f"{id(store)}", "a"))
    drive(first.close())
    drive(second.claim(claim()))
    assert second._database.liveness.life
    drive(second.release("r", "a"))
    drive(second.close())
    assert descriptors(path) == 0


def test_clients_that_are_closed_leave_no_descriptor(path: str) -> None:
    kept = []
    for _ in range(20):
        with interlock.connect(f"sqlite:///{path}") as client, client.lock("r"):
            kept.append(client)  # it may be referred to after it was closed
        assert descriptors(path) == 0


def test_clients_that_are_dropped_leave_no_descriptor(tmp_path: Path) -> None:
    for number in range(20):
        client = interlock.connect(f"sqlite:///{tmp_path}/{number}.db")
        with client.lock("r"):
            pass
        del client
    gc.collect()
    assert sum(descriptors(str(tmp_path / f"{number}.db")) for number in range(20)) == 0


def test_files_that_are_refused_leave_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n" * 200)
    path.chmod(0o600)
    with pytest.raises(interlock.StoreUnfit):
        interlock.connect(f"sqlite:///{path}")
    gc.collect()
    assert descriptors(str(path)) == 0


def test_what_a_dropped_client_holds_stands_while_its_process_lives(path: str) -> None:
    with Contender(path) as other:
        store = open_store(path, Threads(), asynchronous=False)
        drive(store.claim(claim("r", ttl=TTL)))
        del store
        gc.collect()
        assert other.ask("acquire", "r", timeout=0)["token"] is None


def test_a_file_that_cannot_be_opened_again_just_now_keeps_its_life(
    path: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process has run out of descriptors while all its connections were closed, and claims of its own stand."""
    store = opened()
    drive(store.claim(claim("r", ttl=TTL)))
    store._database.leave()

    def none_left(path: str, holder: object) -> liveness.Liveness:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched, pytest.raises(StoreUnavailable, match="Too many open"):
        patched.setattr(inodes, "present", none_left)
        drive(store.inspect("r", timeout=0.05))
    with Contender(path) as other:
        assert other.ask("acquire", "r", timeout=0)["token"] is None


def test_dropping_a_client_leaves_the_locks_of_sqlite_to_the_others(path: str, opened: Open) -> None:
    """Closing any descriptor of a file drops the locks that this process has on it."""
    kept = opened()
    drive(kept.claim(claim("kept", "k")))
    for _ in range(3):
        open_store(path, Threads(), asynchronous=False)
        gc.collect()
    with Contender(path) as visitor:
        visitor.ask("acquire", "other")
        visitor.ask("release", "other")
        visitor.ask("close")  # the last process to leave would remove the log
    assert os.path.exists(path + "-wal")
    assert drive(kept.release("kept", "k"))


def test_one_file_under_two_names_keeps_its_life_until_both_are_left(path: str, tmp_path: Path) -> None:
    """The file is moved while it is in use, and opened under its new name, too."""
    first, moved = interlock.connect(f"sqlite:///{path}"), tmp_path / "moved.db"
    with first.lock("warm"):
        pass
    for suffix in ("-shm", "-wal", ""):
        os.rename(path + suffix, f"{moved}{suffix}")
    with Contender(str(moved)) as other, interlock.connect(f"sqlite:///{moved}") as second:
        with second.lock("r", ttl=TTL):
            with (
                first,
                first.lock("r"),
            ):  # in a new file, of course; the life in the old one ends for this client
                pass
            assert other.ask("acquire", "r", timeout=0)["token"] is None


def test_a_child_forked_after_a_client_was_closed_does_not_keep_a_killed_parent_alive(path: str) -> None:
    with interlock.connect(f"sqlite:///{path}") as client, Contender(path) as parent:
        parent.ask("close_and_connect")
        parent.ask("acquire", "r", ttl=TTL)
        child = parent.ask("fork_and_sleep")["child"]
        try:
            parent.process.kill()
            parent.process.wait()
            assert client.lock("r").acquire(timeout=SOON)
        finally:
            os.kill(child, signal.SIGKILL)


def test_closing_one_store_leaves_the_locks_of_sqlite_to_the_others(path: str, opened: Open) -> None:
    """Closing any descriptor of a file drops the locks that this process has on it."""
    kept = opened()
    drive(kept.claim(claim("kept", "k")))
    for _ in range(3):
        drive(opened().close())
    with Contender(path) as visitor:
        visitor.ask("acquire", "other")
        visitor.ask("release", "other")
        visitor.ask("close")  # the last process to leave would remove the log
    assert os.path.exists(path + "-wal")
    assert drive(kept.release("kept", "k"))


def test_waiting_costs_next_to_nothing(path: str) -> None:
    with Contender(path) as holder, interlock.connect(f"sqlite:///{path}") as client:
        holder.ask("acquire", "r", ttl=TTL)
        waiter = threading.Thread(target=lambda: client.lock("r").acquire(timeout=2.0))
        waiter.start()
        until(lambda: len(client.inspect("r").waiters) == 1)
        began, at = time.process_time(), time.monotonic()
        time.sleep(1.0)
        spent = (time.process_time() - began) / (time.monotonic() - at)
        waiter.join(PATIENCE)
    assert spent < 0.05, f"{100 * spent:.1f} % of a core"


def test_only_the_next_ahead_is_watched(path: str) -> None:
    with (
        Contender(path) as holder,
        Contender(path) as first,
        interlock.connect(f"sqlite:///{path}") as client,
    ):
        holder.ask("acquire", "r", ttl=TTL)
        first.tell("acquire", "r", ttl=TTL)
        until(line_of(client, "r", 2))
        waiters = [threading.Thread(target=lambda: client.lock("r").acquire(timeout=1.0)) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        until(line_of(client, "r", 5))
        store = client._core.store
        assert isinstance(store, SqliteStore)
        until(lambda: len(store._notifier._watched.everyone()) == 3)
        lives = set(store._notifier._watched.topics) - {store._database.liveness.life}
        assert len(lives) == 1  # the first waiter's: not the holder's
        for waiter in waiters:
            waiter.join(PATIENCE)


def test_the_file_of_a_presence_is_a_path(store: SqliteStore, path: str) -> None:
    locked = store.liveness_byte()
    assert locked is not None
    assert locked[0] == str(Path(path).resolve()) + "-run"
    assert Path(locked[0]).stat().st_mode & 0o777 == 0o600
    assert locked[1] == store._database.liveness.life > 0
