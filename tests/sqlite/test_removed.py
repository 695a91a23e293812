"""Files that are removed or replaced while they are in use: nobody may be let in beside a holder who was not told."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from interlock._core.drive import drive
from interlock.backends.sql.sqlite import SqliteStore
from interlock.backends.sql.sqlite.file import inodes
from interlock.errors import StoreUnavailable
from interlock.model import Granted
from tests.patience import PATIENCE, until
from tests.sqlite.common import claim
from tests.sqlite.conftest import Open
from tests.sqlite.contender import Contender

pytestmark = pytest.mark.skipif(os.name != "posix", reason="open files cannot be removed here")


def remove(path: str, *suffixes: str) -> None:
    for suffix in suffixes:
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)


def sound(path: str) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("pragma integrity_check").fetchone() == ("ok",))


def test_removing_the_shared_memory_under_contending_processes_lets_no_two_in(
    path: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        crews = [stack.enter_context(Contender(path)) for _ in range(4)]
        for crew in crews:
            crew.tell("contend", "r", str(tmp_path / "marker"), 2.5)
        while crews[0].silent():
            remove(path, "-shm")
            time.sleep(0.25)
        told = [crew.hear(PATIENCE) for crew in crews]
    assert sum(each["overlaps"] for each in told) == 0
    assert all(each["holds"] for each in told)
    assert sound(path)


def test_a_holder_whose_shared_memory_is_removed_keeps_its_lease(path: str) -> None:
    with Contender(path) as holder:
        token = holder.ask("acquire", "r", ttl=1.5)["token"]
        remove(path, "-shm")
        with Contender(path) as other:
            assert (
                other.ask("acquire", "r", timeout=2.0)["token"] is None
            )  # longer than the ttl: it was renewed
            assert holder.ask("check", "r")["state"] == "held"
            assert holder.ask("release", "r")["lost"] is None
            assert other.ask("acquire", "r", timeout=PATIENCE)["token"] > token


def test_an_idle_claim_in_files_that_are_gone_is_not_granted(path: str) -> None:
    with Contender(path) as old:
        old.ask("acquire", "first", ttl=30.0)
        old.ask("release", "first")
        remove(path, "-shm")
        with Contender(path) as new:
            assert new.ask("acquire", "r", ttl=30.0)["token"]
            assert old.ask("acquire", "r", timeout=0.3)["token"] is None
    assert sound(path)


@pytest.mark.parametrize("step", ["claim", "release"])
def test_no_quick_statement_writes_into_files_that_are_gone(store: SqliteStore, path: str, step: str) -> None:
    """The quick way is a single statement: it must not skip the question."""
    drive(store.claim(claim("held", "h")))
    database = store._database
    database._verify_at = database.clock.now() + PATIENCE  # nothing but the statement asks
    remove(path, "-shm")
    Path(path + "-shm").touch(mode=0o600)
    if step == "claim":
        assert isinstance(drive(store.claim(claim())), Granted)
    else:
        assert drive(store.release("held", "h"))
    assert database.opened == 2  # it was written to the files that are there now


def test_without_its_log_a_database_in_use_takes_no_newcomers_and_loses_nothing(
    path: str, opened: Open
) -> None:
    with Contender(path) as holder:
        holder.ask("acquire", "r", ttl=30.0)
        remove(path, "-wal")
        with pytest.raises(StoreUnavailable, match=r"-wal was removed while other processes use the file"):
            opened()
        assert holder.ask("acquire", "other", ttl=30.0)["token"]  # whoever has it open goes on
        holder.ask("release", "other")
        assert holder.ask("close")["closed"]  # it gives back what it holds, and empties the log it had
    assert isinstance(drive(opened().claim(claim())), Granted)
    assert sound(path)


def test_of_two_who_meet_over_a_removed_log_one_is_told(path: str) -> None:
    """What stood only in the log may be lost with it; then the holder hears so at its next renewal."""
    with Contender(path) as holder, Contender(path) as idle:
        idle.ask("acquire", "elsewhere", ttl=30.0)
        holder.ask("acquire", "r", ttl=1.0)
        remove(path, "-shm", "-wal")
        with Contender(path) as other:
            taken = other.ask("acquire", "r", timeout=3.0, ttl=5.0)["token"]
            until(lambda: holder.ask("check", "r")["state"] == ("lost" if taken else "held"))


@pytest.mark.parametrize("how", ["deleted", "replaced", "moved away"])
def test_the_next_claim_goes_to_the_file_that_is_there_now(opened: Open, path: str, how: str) -> None:
    store = opened()
    assert isinstance(drive(store.claim(claim(id="old"))), Granted)
    if how == "replaced":
        other = opened(path + ".new")
        drive(other.close())
        os.replace(path + ".new", path)
    elif how == "deleted":
        os.unlink(path)
    else:
        shutil.move(path, path + ".old")
    remove(path, "-wal", "-shm")
    assert isinstance(drive(store.claim(claim(id="new"), timeout=PATIENCE)), Granted)
    assert [standing.id for standing in drive(opened().inspect("r")).holders] == ["new"]


def test_all_connections_of_a_process_move_together(opened: Open, path: str) -> None:
    """SQLite shares the shared memory among them: one that stays behind would keep the others there."""
    stores = [opened() for _ in range(3)]
    for number, store in enumerate(stores):
        drive(store.claim(claim(f"r{number}", f"{number}")))
    remove(path, "-shm")
    for number, store in enumerate(stores):
        assert drive(store.release(f"r{number}", f"{number}", timeout=PATIENCE))
    assert {store._database.opened for store in stores} == {2}
    assert os.path.exists(path + "-shm")


def test_whether_files_were_removed_is_asked_with_the_write_lock_in_hand(
    store: SqliteStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked before, a writer that is held up in between would write into files that others have left."""
    drive(store.claim(claim("warm", "w")))
    asked: list[bool] = []
    holds = inodes.FileIdentity.holds

    def locked() -> bool:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as rival:
            try:
                rival.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
            rival.execute("rollback")
            return False

    def asking(identity: inodes.FileIdentity) -> bool:
        asked.append(locked())
        return holds(identity)

    database = store._database
    until(lambda: database.clock.now() < database._verify_at)
    assert database._identity is not None
    database._identity.changed = -1
    monkeypatch.setattr(inodes.FileIdentity, "holds", asking)
    database._verify_at = database.clock.now() + PATIENCE
    for step in (
        store.claim(claim("r", "quick")),
        store.release("r", "quick"),
        store.claim(claim("r", "first")),
        store.claim(claim("r", "second")),
        store.release("r", "first"),
    ):
        asked.clear()
        drive(step)
        assert asked
        assert all(asked)


def test_a_directory_that_has_not_changed_is_asked_instead_of_each_file(
    store: SqliteStore, path: str
) -> None:
    drive(store.claim(claim()))
    database = store._database

    def dated() -> bool:
        drive(store.inspect("r"))
        return database._identity is not None and database._identity.changed >= 0

    if database._kind not in inodes.DATED:
        pytest.skip(f"on {database._kind} only the files themselves tell")
    until(dated)
    identity = database._identity
    assert identity is not None
    assert identity.holds_still()
    Path(path + ".neighbour").touch()
    assert os.fstat(identity.directory).st_ctime_ns != identity.changed
    assert identity.holds_still()  # then the files are asked, and are there
    remove(path, "-shm")
    assert not identity.holds_still()
    Path(path + "-shm").touch()
    assert not identity.holds_still()
