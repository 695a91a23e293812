"""Which files are trusted: whoever can write a lock file, or has changed what it is made of, can let two hold at once."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from interlock._core.drive import drive
from interlock.errors import StoreUnfit
from interlock.model import Granted
from tests.sqlite.common import claim
from tests.sqlite.conftest import Open
from tests.sqlite.contender import surroundings

SOMEBODY, COLLEAGUE, GROUP = 12345, 12346, 23456

root = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root can give files to others"
)
posix = pytest.mark.skipif(os.name != "posix", reason="needs owners and modes")

ASK = """
import os, sys, tempfile, interlock
uid, gid = int(sys.argv[2]), int(sys.argv[3])
with tempfile.TemporaryDirectory() as own, interlock.connect(f"sqlite:///{own}/locks.db") as client, client.lock("warm"):
    client.lock("warm").acquire(timeout=0)  # what is imported when first used may be beyond the other user's reach
os.setgroups([gid]); os.setgid(uid); os.setuid(uid); os.umask(0o077)
try:
    with interlock.connect(sys.argv[1]) as client:
        print(client.lock("r").acquire(timeout=0) is not None)
except interlock.StoreUnfit as refusal:
    print(refusal)
"""


def asked_by(user: int, path: Path, group: int = GROUP) -> str:
    """What a process of another user, in a group, is told when it asks for a lock."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, f"sqlite:///{path}", str(user), str(group)],
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that everybody can reach, unlike pytest's own; the test says who may write in it."""
    with TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        shared = Path(made, "shared")
        shared.mkdir(mode=0o755)
        yield shared


def make(opened: Open, path: Path, mode: int = 0o600, owner: int = 0, group: int = 0) -> None:
    drive(opened(str(path)).close())
    path.chmod(mode)
    if owner or group:
        os.chown(path, owner, group)


# ---- what is made of what ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("create trigger spy after insert on claim begin delete from claim; end", "has trigger spy"),
        ("create view claims as select * from claim", "has view claims"),
        ("create table mine (x)", "has table mine"),
        ("create index slow on claim (id)", "has index slow"),
        ("drop trigger claim_numbered", "lacks trigger claim_numbered"),
        (
            "drop trigger claim_numbered; create trigger claim_numbered after insert on claim begin delete from claim; end",
            "has another trigger claim_numbered",
        ),
    ],
)
def test_a_file_with_anything_that_we_did_not_make_is_refused(
    opened: Open, path: str, statement: str, what: str
) -> None:
    drive(opened().close())
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statement)
    with pytest.raises(StoreUnfit, match=f"was changed by another program: it {what}; move it away"):
        opened()


def test_statistics_that_a_careful_administrator_has_made_are_no_harm(opened: Open, path: str) -> None:
    drive(opened().claim(claim()))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("analyze")
    assert isinstance(drive(opened().claim(claim("other", "b"))), Granted)


def test_a_schema_of_the_past_is_refused(opened: Open, path: str) -> None:
    drive(opened().close())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 1")
    with pytest.raises(
        StoreUnfit, match=r"by an earlier interlock \(schema 1, this one knows 2\); move it away"
    ):
        opened()


# ---- whose it is --------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_file_that_everybody_may_write_is_refused(opened: Open, path: str, suffix: str) -> None:
    drive(opened().close())
    Path(path + suffix).touch()
    os.chmod(path + suffix, 0o666)
    with pytest.raises(
        StoreUnfit, match=rf"because everybody may write \S+{suffix} \(mode 0666\).*chmod o-w"
    ):
        opened()


@posix
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_what_lies_beside_it_must_be_a_file(opened: Open, path: str, tmp_path: Path, suffix: str) -> None:
    drive(opened().close())
    os.symlink(tmp_path / "elsewhere", path + suffix)
    with pytest.raises(StoreUnfit, match=rf"because \S+{suffix} is not a regular file"):
        opened()


@root
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_another_users_file_where_everybody_may_put_files_could_be_a_trap(
    opened: Open, folder: Path, suffix: str
) -> None:
    path = folder / "locks.db"
    make(opened, path)
    folder.chmod(0o1777)
    beside = Path(f"{path}{suffix}")
    beside.touch()
    os.chown(beside, SOMEBODY, SOMEBODY)
    with pytest.raises(
        StoreUnfit, match=rf"because \S+{suffix} belongs to user {SOMEBODY} and lies in a directory"
    ):
        opened(str(path))


@root
def test_a_link_that_somebody_has_put_where_everybody_may_could_be_a_trap(opened: Open, folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    make(opened, home / "locks.db", owner=SOMEBODY, group=SOMEBODY)
    os.chown(home, SOMEBODY, SOMEBODY)
    folder.chmod(0o1777)
    link = folder / "locks.db"
    link.symlink_to(home / "locks.db")
    os.lchown(link, SOMEBODY, SOMEBODY)
    with pytest.raises(StoreUnfit):  # by us, or by a kernel that does not follow such links
        opened(str(link))


@root
def test_root_uses_the_file_of_an_application(opened: Open, folder: Path) -> None:
    path = folder / "locks.db"
    make(opened, path, owner=SOMEBODY, group=SOMEBODY)
    os.chown(folder, SOMEBODY, SOMEBODY)
    assert isinstance(drive(opened(str(path)).claim(claim())), Granted)
    for beside in folder.iterdir():  # or the application could not use them
        assert (beside.stat().st_uid, beside.stat().st_mode & 0o777) == (SOMEBODY, 0o600), beside
    assert asked_by(SOMEBODY, path) == "False"


@root
def test_a_group_shares_a_file_as_the_page_describes(opened: Open, folder: Path) -> None:
    path = folder / "locks.db"
    make(opened, path, mode=0o660, owner=SOMEBODY, group=GROUP)
    os.chown(folder, SOMEBODY, GROUP)
    folder.chmod(0o2770)
    assert asked_by(SOMEBODY, path) == "True"
    assert asked_by(COLLEAGUE, path) == "True"  # whatever its umask is; and the one before has closed
    assert isinstance(drive(opened(str(path)).claim(claim())), Granted)
    assert asked_by(COLLEAGUE, path) == "False"


@root
def test_one_who_is_not_in_the_group_is_told_that_it_may_not_write(opened: Open, folder: Path) -> None:
    path = folder / "locks.db"
    make(opened, path, mode=0o660, owner=SOMEBODY, group=GROUP)
    assert "cannot be written" in asked_by(COLLEAGUE, path, group=COLLEAGUE)


@root
def test_ones_own_file_may_lie_among_those_of_others(opened: Open, folder: Path) -> None:
    folder.chmod(0o1777)
    assert isinstance(drive(opened(str(folder / "locks.db")).claim(claim())), Granted)
    assert asked_by(SOMEBODY, folder / "mine.db") == "True"


@root
def test_what_others_add_to_a_file_in_use_is_seen_when_it_is_opened_anew(opened: Open, path: str) -> None:
    store = opened()
    drive(store.claim(claim()))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create trigger spy after insert on claim begin delete from claim; end")
    with pytest.raises(StoreUnfit, match="trigger spy"):
        opened()
