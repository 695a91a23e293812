"""Which files are trusted: whoever can write a lock file, or has changed what it is made of, can let two hold at once."""

from __future__ import annotations

import grp
import os
import pwd
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import interlock
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
        StoreUnfit, match=rf"because everybody may write \S+{suffix} \(mode 0666\).*chmod o-rw"
    ):
        opened()


@posix
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_file_that_everybody_may_only_read_is_refused(opened: Open, path: str, suffix: str) -> None:
    """SQLite locks bytes of its files, and so can a reader."""
    store = opened()
    assert isinstance(drive(store.claim(claim())), Granted)
    os.chmod(path + suffix, 0o644)
    with pytest.raises(
        StoreUnfit, match=rf"because everybody may read \S+{suffix} \(mode 0644\).*chmod o-r \S+{suffix}\)"
    ):
        opened()
    os.chmod(path + suffix, 0o600)
    assert isinstance(drive(opened().claim(claim("other"))), Granted)


@root
def test_a_file_that_a_group_may_only_read_is_refused(opened: Open, folder: Path) -> None:
    path = folder / "locks.db"
    make(opened, path, mode=0o640, group=GROUP)
    with pytest.raises(StoreUnfit, match=rf"because group {GROUP} may read {path} .*chmod g-r {path}\)"):
        opened(str(path))
    path.chmod(0o660)
    assert isinstance(drive(opened(str(path)).claim(claim())), Granted)
    path.chmod(0o640)
    os.chown(path, 0, 0)  # root's own group
    assert isinstance(drive(opened(str(path)).claim(claim("other"))), Granted)


@posix
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_what_lies_beside_it_must_be_a_file(opened: Open, path: str, tmp_path: Path, suffix: str) -> None:
    drive(opened().close())
    os.symlink(tmp_path / "elsewhere", path + suffix)
    with pytest.raises(StoreUnfit, match=rf"because \S+{suffix} is not a regular file"):
        opened()


@root
def test_another_users_file_where_everybody_may_put_files_could_be_a_trap(opened: Open, folder: Path) -> None:
    path = folder / "locks.db"
    make(opened, path, owner=SOMEBODY, group=SOMEBODY)
    folder.chmod(0o1777)
    with pytest.raises(StoreUnfit, match=rf"because everybody may put files into {folder} \(mode 1777\)"):
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
def test_what_others_add_to_a_file_in_use_is_seen_when_it_is_opened_anew(opened: Open, path: str) -> None:
    store = opened()
    drive(store.claim(claim()))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create trigger spy after insert on claim begin delete from claim; end")
    with pytest.raises(StoreUnfit, match="trigger spy"):
        opened()


# ---- the folders on its path ----------------------------------------------------------------------

REMOVES_AND_ASKS = """
import os, sys, interlock
with interlock.connect(f"sqlite:///{sys.argv[4]}/locks.db") as client, client.lock("warm"):
    client.lock("warm").acquire(timeout=0)
uid = int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
for suffix in ("", "-wal", "-shm"):
    os.unlink(sys.argv[1] + suffix)
"""


def removed_by(user: int, path: Path) -> bool:
    """Whether another user can remove the files of a lock file."""
    with TemporaryDirectory() as own:
        words = [sys.executable, "-c", REMOVES_AND_ASKS, str(path), str(user), str(user), own]
        return subprocess.run(words, env=surroundings(), capture_output=True, timeout=60).returncode == 0


@root
def test_a_folder_that_another_user_made_first_gives_no_lock_to_two(folder: Path) -> None:
    """The stranger makes the folder below one in which everybody may make folders, and removes our file while we hold."""
    folder.chmod(0o1777)
    trap = folder / "app"
    trap.mkdir()
    trap.chmod(0o777)
    os.chown(trap, SOMEBODY, SOMEBODY)
    url = f"sqlite:///{trap}/locks.db"
    with pytest.raises(StoreUnfit, match=f"because {trap} belongs to user {SOMEBODY}"):
        with interlock.connect(url) as first, first.lock("r") as held:
            assert removed_by(SOMEBODY, trap / "locks.db")
            with interlock.connect(url) as second, second.lock("r", timeout=0) as other:
                pytest.fail(f"two hold: {held.token} and {other.token}")
    assert list(trap.iterdir()) == []  # nothing of ours is left there


@root
def test_another_users_folder_where_everybody_may_make_one_could_be_a_trap(
    opened: Open, folder: Path
) -> None:
    trap = folder / "app"
    trap.mkdir()
    make(opened, trap / "locks.db", owner=SOMEBODY, group=SOMEBODY)
    os.chown(trap, SOMEBODY, SOMEBODY)
    assert isinstance(drive(opened(str(trap / "locks.db")).claim(claim())), Granted)
    folder.chmod(0o1777)
    with pytest.raises(StoreUnfit, match=f"because {trap} belongs to user {SOMEBODY}"):
        opened(str(trap / "locks.db"))


@root
@pytest.mark.parametrize("below", ["", "sub", "sub/deeper"])
@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777])
def test_no_folder_on_the_path_belongs_to_a_stranger(
    opened: Open, folder: Path, below: str, mode: int
) -> None:
    theirs = folder / "theirs"
    (theirs / below).mkdir(parents=True)
    theirs.chmod(mode)
    os.chown(theirs, SOMEBODY, SOMEBODY)
    with pytest.raises(StoreUnfit, match=rf"{theirs} belongs to user {SOMEBODY}.*\(chown 0 {theirs}\)"):
        opened(str(theirs / below / "locks.db"))


@posix
@pytest.mark.parametrize("below", ["", "sub", "sub/deeper"])
def test_no_folder_on_the_path_may_be_written_by_everybody(opened: Open, folder: Path, below: str) -> None:
    (folder / below).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    with pytest.raises(StoreUnfit, match=rf"everybody may put files into {folder} .*chmod o-w {folder}\)"):
        opened(str(folder / below / "locks.db"))
    folder.chmod(0o755)
    assert isinstance(drive(opened(str(folder / below / "locks.db")).claim(claim())), Granted)


@posix
def test_a_sticky_folder_keeps_our_folders_but_no_lock_file(opened: Open, folder: Path) -> None:
    """In the folder itself anybody could lay a journal beside the file, which SQLite plays back."""
    folder.chmod(0o1777)
    with pytest.raises(
        StoreUnfit,
        match=rf"everybody may put files into {folder} .*{folder}/interlock-\d+/locks.db; interlock makes it",
    ):
        opened(str(folder / "locks.db"))
    assert list(folder.iterdir()) == []
    assert isinstance(drive(opened(str(folder / "ours" / "locks.db")).claim(claim())), Granted)


@root
def test_a_link_on_the_path_that_a_stranger_can_turn_is_refused(opened: Open, folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    drive(opened(str(home / "locks.db")).close())
    shared = folder / "shared"
    shared.mkdir()
    (shared / "link").symlink_to(home)
    assert isinstance(drive(opened(str(shared / "link" / "locks.db")).claim(claim())), Granted)
    shared.chmod(0o1777)
    assert isinstance(drive(opened(str(shared / "link" / "locks.db")).claim(claim("s"))), Granted)
    os.lchown(shared / "link", SOMEBODY, SOMEBODY)
    with pytest.raises(StoreUnfit):  # by us, or by a kernel that does not follow such links
        opened(str(shared / "link" / "locks.db"))


@root
@pytest.mark.parametrize("below", ["", "sub"])
def test_a_group_may_write_to_a_folder_only_if_it_may_write_the_file(
    opened: Open, folder: Path, below: str
) -> None:
    inner = folder / below
    inner.mkdir(exist_ok=True)
    os.chown(folder, 0, GROUP)
    folder.chmod(0o2775)
    path = inner / "locks.db"
    with pytest.raises(
        StoreUnfit, match=rf"group {GROUP} may put files into {folder} .*chmod g-w {folder}\)"
    ):
        opened(str(path))
    assert not path.exists()
    path.touch(0o600)
    path.chmod(0o660)
    os.chown(path, 0, GROUP + 1)
    with pytest.raises(StoreUnfit, match=f"group {GROUP} may put files"):
        opened(str(path))
    os.chown(path, 0, GROUP)
    assert isinstance(drive(opened(str(path)).claim(claim())), Granted)


@root
def test_a_folder_of_ones_own_group_is_ones_own(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each user has a group of their own, folders are made with mode 0775."""
    os.chown(folder, 0, GROUP)
    folder.chmod(0o775)
    alone: tuple[object, ...] = ("me", "x", GROUP, [])
    joined = ("me", "x", GROUP, ["me", "you"])
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd(("me", "x", uid, GROUP, "", "/", "/")))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(joined))
    with pytest.raises(StoreUnfit, match="may put files"):
        opened(str(folder / "locks.db"))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(alone))
    assert isinstance(drive(opened(str(folder / "locks.db")).claim(claim())), Granted)


@root
def test_the_folders_are_looked_at_again_once_the_file_is_open(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "locks.db"

    def opens(*args: Any, **options: Any) -> Any:
        folder.chmod(0o777)  # just then
        return connects(*args, **options)

    connects = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", opens)
    with pytest.raises(StoreUnfit, match="everybody may put files into"):
        opened(str(path))


# ---- files that one cannot even look at ----------------------------------------------------------------

LOOK = """
import contextlib, io, os, sys, tempfile
from interlock.cli import main
commands = (["ls"], ["inspect", "r"], ["top", "--once"], ["evict", "r", "--reason", "x"], ["watch"], ["run", "r", "--", "true"])
with tempfile.TemporaryDirectory() as own, contextlib.redirect_stdout(io.StringIO()):
    here = ["--url", f"sqlite:///{own}/locks.db"]
    main(["run", *here, "r", "--", "true"])
    for command in commands[:4]:
        main([*command, *here])  # what is imported when first used may be beyond the other user's reach
import interlock.cli.watch
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
for command in commands:
    main([command[0], "--url", sys.argv[1], *command[1:]])
"""


@root
def test_a_folder_that_one_may_not_enter_is_named_in_one_sentence(opened: Open, folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    make(opened, closed / "below" / "locks.db")
    path = closed / "below" / "locks.db"
    told = (
        f"{path} cannot be used, because user {SOMEBODY} may not enter {closed}; "
        "ask its owner for the right to enter it, or name another file"
    )
    assert asked_by(SOMEBODY, path) == told
    done = subprocess.run(
        [sys.executable, "-c", LOOK, f"sqlite:///{path}", str(SOMEBODY)],
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    # No command says that nothing was ever locked there: somebody may hold a lock.
    assert done.stderr.splitlines()[-6:] == [f"interlock: {told}"] * 6


@posix
@pytest.mark.parametrize("name", ["a" * 300, "/".join(["folder"] * 900)], ids=["name", "path"])
def test_a_path_that_is_too_long_is_refused_in_one_sentence(folder: Path, name: str) -> None:
    with pytest.raises(StoreUnfit, match=r"cannot be reached \(File name too long\); name another file"):
        interlock.connect(f"sqlite:///{folder}/{name}")
