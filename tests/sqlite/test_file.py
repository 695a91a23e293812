"""The file: where it lies, what is in it, and which files are refused, in one sentence that says what to do."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.sql.sqlite import SqliteStore
from interlock.backends.sql.sqlite.file import connection as lockfile
from interlock.backends.sql.sqlite.file import errors, location
from interlock.backends.sql.sqlite.tables.statements import CLAIMS, REGISTERS, SWEEP, sections
from interlock.errors import InvalidURL, StoreUnavailable, StoreUnfit
from interlock.model import Granted
from interlock.store import IO_TIMEOUT
from interlock.testing.lag import at_most
from tests.sqlite.common import claim
from tests.sqlite.conftest import Open

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@contextmanager
def mounted(*what: str, at: Path) -> Iterator[None]:
    """A filesystem of its own for a test; skips where one may not mount."""
    at.mkdir(exist_ok=True)
    if (
        shutil.which("mount") is None
        or subprocess.run(["mount", *what, str(at)], capture_output=True).returncode
    ):
        pytest.skip("may not mount a filesystem here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


# ---- what is made ---------------------------------------------------------------------


def test_a_new_file_is_marked_as_ours_and_uses_a_write_ahead_log(store: SqliteStore) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("pragma application_id").fetchone() == (lockfile.MARK,)
        assert connection.execute("pragma user_version").fetchone() == (lockfile.SCHEMA,)
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)


@pytest.mark.skipif(os.name != "posix", reason="needs file modes")
def test_the_file_and_its_directory_belong_to_the_user_alone(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "new" / "state" / "interlock" / "locks.db"
    before = os.umask(0)
    try:
        drive(opened(str(path)).claim(claim()))
    finally:
        os.umask(before)
    for made in (path.parent, path.parent.parent, tmp_path / "new"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700, made
    for each in path.parent.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600, each


@linux
def test_the_default_file_lies_in_the_users_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert location.default_path() == "/state/interlock/locks.db"
    monkeypatch.setenv("HOME", "/home/me")
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        assert location.default_path() == "/home/me/.local/state/interlock/locks.db"


@linux
@pytest.mark.parametrize("home", [None, "relative/home", "."])
def test_without_a_home_the_default_file_is_refused_and_not_one_of_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None
) -> None:
    """Two processes in two folders would have two files, and both would hold one lock."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_STATE_HOME", "INTERLOCK_URL"):
        monkeypatch.delenv(name, raising=False)
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # as in a container that runs as any number
    else:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(StoreUnfit, match=r"set \$INTERLOCK_URL.*or HOME"):
        interlock.connect()
    assert not os.listdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with interlock.connect() as client:
        assert client.lock("r").acquire(blocking=False)


def test_every_statement_is_right_and_has_a_header(store: SqliteStore) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.create_function("unmoved", 0, lambda: True)
        for statements in (CLAIMS, REGISTERS, SWEEP):
            for name, statement in statements.items():
                named = dict.fromkeys(re.findall(r":(\w+)", statement))
                plain = [None] * statement.count("?")
                assert not (named and plain), name
                assert not re.search(r"\?\d", statement), f"{name}: Python 3.12 warns of numbers"
                connection.execute("explain " + statement, named or plain)
    for noun in ("claims", "registers", "sweep", "schema"):
        assert sections(noun)


@pytest.mark.parametrize("round", range(30))
def test_all_who_open_a_new_file_at_the_same_time_find_it_ready(opened: Open, path: str, round: int) -> None:
    start = threading.Barrier(8)

    def come() -> SqliteStore:
        start.wait(10)
        return opened()

    with ThreadPoolExecutor(8) as crowd:
        stores = [coming.result(20) for coming in [crowd.submit(come) for _ in range(8)]]
    for number, store in enumerate(stores):
        assert isinstance(drive(store.claim(claim(f"r{number}", f"{number}"))), Granted)


# ---- what is refused --------------------------------------------------------------------


def test_a_directory_is_refused(opened: Open, tmp_path: Path) -> None:
    with pytest.raises(StoreUnfit, match=r"is a directory; name a file in it"):
        opened(str(tmp_path))


def test_a_directory_that_cannot_be_made_is_refused(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("a file")
    with pytest.raises(StoreUnfit, match=r"cannot be made \(Not a directory|File exists"):
        opened(str(tmp_path / "plain" / "below" / "locks.db"))


def test_memory_is_refused_with_a_hint(opened: Open) -> None:
    with pytest.raises(InvalidURL, match="memory://"):
        opened(":memory:")


def test_a_file_that_is_no_database_is_refused_and_left_alone(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n" * 200)
    with pytest.raises(StoreUnfit, match=r"notes.txt is not a SQLite database"):
        opened(str(path))
    assert path.read_text() == "remember the milk\n" * 200


def test_a_damaged_file_is_refused(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    drive(opened(str(path)).close())
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)
    with pytest.raises(StoreUnfit, match="damaged"):
        opened(str(path))


def test_another_programs_database_is_refused_and_left_alone(opened: Open, path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table bookmarks (url text)")
    before = Path(path).read_bytes()
    with pytest.raises(StoreUnfit, match="database of another program; name another file"):
        opened()
    assert Path(path).read_bytes() == before


def test_a_schema_from_the_future_is_refused(opened: Open, path: str) -> None:
    drive(opened().close())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma user_version = {lockfile.SCHEMA + 6}")
    with pytest.raises(
        StoreUnfit, match=r"later interlock \(schema 8, this one knows 2\); upgrade interlock"
    ):
        opened()


def test_a_network_filesystem_is_refused_unless_the_user_insists(
    opened: Open, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "filesystem", lambda directory: "nfs4")
    with pytest.raises(StoreUnfit, match=r"network filesystem \(nfs4\).*allow_network_filesystem=1"):
        opened()
    opened(allow_network_filesystem=True)


def test_the_mount_under_a_directory_is_found() -> None:
    table = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "36 22 0:31 / /net\\040share rw - nfs4 server:/x rw\n"
        "37 36 0:40 / /net\\040share/local rw shared:9 master:2 - tmpfs tmpfs rw\n"
        "38 22 0:41 / /over rw - cifs //server/y rw\n"
        "39 38 0:42 / /over rw - xfs /dev/sdb rw\n"
        "a line without sense\n"
    )
    found = {
        "/": "ext4",
        "/netshare": "ext4",
        "/net share": "nfs4",
        "/net share/deep/er": "nfs4",
        "/net share/local/x": "tmpfs",
        "/over/here": "xfs",
    }
    assert {directory: location.mounted(directory, table) for directory in found} == found


@linux
def test_a_read_only_filesystem_is_refused(opened: Open, tmp_path: Path) -> None:
    with mounted("-t", "tmpfs", "-o", "mode=700", "tmpfs", at=tmp_path / "disk"):
        drive(opened(str(tmp_path / "disk/locks.db")).close())
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "disk")], check=True)
        for name in ("locks.db", "new.db"):
            with pytest.raises(
                StoreUnfit, match="cannot be written; make the file and its directory writable"
            ):
                opened(str(tmp_path / "disk" / name))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_one_may_not_write_is_refused(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o500)
    with pytest.raises(StoreUnfit, match="cannot be written"):
        opened(str(tmp_path / "theirs/locks.db"))


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as rest, suppress(OSError):
        while True:
            rest.write(b"x" * 1024)


def claim_many(store: SqliteStore) -> None:
    for number in range(5000):
        drive(store.claim(claim(f"r{number}", f"{number}", who="w" * 500)))


@linux
def test_a_disk_that_fills_up_refuses_claims_keeps_what_was_granted_and_recovers(
    opened: Open, tmp_path: Path
) -> None:
    with mounted("-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", at=tmp_path / "disk"):
        store = opened(str(tmp_path / "disk/locks.db"))
        assert isinstance(drive(store.claim(claim("held", "h"))), Granted)
        filler = tmp_path / "disk/filler"
        fill(filler)
        with pytest.raises(StoreUnfit, match="its disk is full; free some space"):
            claim_many(store)
        assert [standing.id for standing in drive(store.inspect("held")).holders] == ["h"]
        filler.unlink()
        assert isinstance(drive(store.claim(claim("free", "f"))), Granted)
        assert drive(store.release("held", "h"))
        drive(store.close())


@linux
def test_a_full_disk_is_refused_at_once(opened: Open, tmp_path: Path) -> None:
    disk = mounted("-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", at=tmp_path / "disk")
    with disk, pytest.raises(StoreUnfit, match="its disk is full"):
        opened(str(tmp_path / "disk/locks.db"))


UNFIT = (13, 8, 14, 11, 26, 23)
BUSY = (5, 261, 517, 6)
UNAVAILABLE = (10, 1, 21)


@pytest.mark.parametrize("code", [*UNFIT, *BUSY, *UNAVAILABLE])
def test_no_raw_error_of_sqlite_reaches_a_user(code: int) -> None:
    error = sqlite3.OperationalError("as SQLite puts it")
    error.sqlite_errorcode = code
    ours = errors.translated(error, "/some/locks.db")
    kind = StoreUnfit if code in UNFIT else errors.NothingDone if code in BUSY else StoreUnavailable
    assert type(ours) is kind
    assert "/some/locks.db" in str(ours)


def test_a_write_that_a_busy_file_refused_is_known_not_to_have_been_applied(path: str) -> None:
    """An event said that it may have been set, though nothing was written, and took three times its time to say so."""
    with interlock.connect(f"sqlite:///{path}") as client:
        event = client.event("ready")
        assert not event.is_set()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            took = at_most(IO_TIMEOUT + 1.0)
            with took, pytest.raises(StoreUnavailable, match="kept the file locked") as failed:
                event.set()
            other.execute("rollback")
        assert "may have been applied" not in str(failed.value)
        assert not event.is_set()


def test_a_path_that_is_not_utf_8_names_a_file(tmp_path: Path) -> None:
    with interlock.connect(f"sqlite:///{tmp_path}/caf\udce9.db") as client, client.lock("x"):
        assert (tmp_path / "caf\udce9.db").exists()


def test_a_relative_path_in_a_removed_directory_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(interlock.StoreUnfit, match="cannot be found, because the working directory"):
        interlock.connect("sqlite:///rel.db").lock("x").acquire()


def test_an_empty_home_counts_as_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    missing = location.default_path()
    monkeypatch.setenv("HOME", "")
    assert location.default_path() == missing
