"""Files that are replaced as a whole, under the token of a lease."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import interlock
from interlock import StaleToken, guards
from interlock.testing.lag import at_most
from tests.house.source import ROOT, SRC
from tests.patience import PATIENCE


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_earlier_holder_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    guards.file.write(path, "33", "report", 33)
    guards.file.write(path, b"34", "report", 34)
    guards.file.write(path, "34 again", "report", 34)
    with pytest.raises(StaleToken) as refusal:
        guards.file.write(path, "late", "report", 33)
    assert (refusal.value.token, refusal.value.accepted) == (33, 34)
    assert path.read_text() == "34 again"
    assert names(tmp_path) == {"report.csv", ".report.csv.fence"}


@pytest.mark.skipif(os.name != "posix", reason="a writer keeps no lock on its file there")
def test_what_a_killed_writer_leaves_is_removed_by_the_next_write_and_what_a_living_one_has_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "report.csv"
    program = f"""
import os, sys
from interlock import guards
from interlock.guards import file
file._replace = lambda written, target: (print(written, flush=True), sys.stdin.read())
guards.file.write({str(path)!r}, "x" * 1000, "report", 33)
"""
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", program]

    def writer() -> tuple[subprocess.Popen[str], Path]:
        made = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert made.stdout is not None
        return made, Path(made.stdout.readline().strip())

    for _ in range(2):
        killed, leftover = writer()
        killed.kill()
        killed.communicate()
        assert leftover.exists()
    living, kept = writer()
    others = tmp_path / ".other.csv.0123456789abcdef.new"
    others.touch()
    (tmp_path / ".report.csv.fedcba9876543210.new").symlink_to(others)
    (tmp_path / ".report.csv.new").touch()
    (tmp_path / ".report.csv.0123.new").touch()
    strangers = {".report.csv.fedcba9876543210.new", ".report.csv.new", ".report.csv.0123.new", others.name}
    with pytest.raises(interlock.StoreUnavailable):  # the living one has the fence
        guards.file.write(path, "late", "report", 34, timeout=0.05)
    assert names(tmp_path) == {".report.csv.fence", kept.name} | strangers
    living.communicate("")
    guards.file.write(path, "34", "report", 34)
    assert path.read_text() == "34"
    assert names(tmp_path) - strangers == {"report.csv", ".report.csv.fence"}


@pytest.mark.parametrize("length", [233, 234, 248, 249, 255])
def test_a_file_may_have_the_longest_name(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("é" * (length // 2) + "x" * (length % 2))
    guards.file.write(path, "33", "report", 33)
    assert guards.file.read(path, "report", 34) == b"33"
    with pytest.raises(StaleToken):
        guards.file.write(path, "late", "report", 33)
    assert len(names(tmp_path)) == 2


def test_a_file_that_is_mounted_by_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(interlock.StoreUnfit, match="mount the folder"):
        guards.file.write(tmp_path / "report.csv", "x", "report", 33)


def test_a_lease_is_checked(tmp_path: Path) -> None:
    with interlock.connect("memory://") as client:
        with client.lock("report") as lease:
            guards.file.write(tmp_path / "report.csv", "é", lease)
            assert guards.file.read(tmp_path / "report.csv", lease) == "é".encode()
        with pytest.raises(interlock.NotHeld):
            guards.file.write(tmp_path / "report.csv", "late", lease)


def test_reading_shows_the_token_so_that_an_earlier_holder_cannot_write_in_between(tmp_path: Path) -> None:
    path = tmp_path / "count"
    guards.file.write(path, "1", "count", 33)
    assert guards.file.read(path, "count", 34) == b"1"
    with pytest.raises(StaleToken):
        guards.file.write(path, "2", "count", 33)
    guards.file.write(path, "2", "count", 34)


def test_one_file_has_one_lock(tmp_path: Path) -> None:
    guards.file.write(tmp_path / "report.csv", "x", "report", 33)
    with pytest.raises(interlock.Unsupported, match="same lock"):
        guards.file.write(tmp_path / "report.csv", "x", "other", 34)


def test_a_damaged_fence_is_an_error_and_not_a_new_beginning(tmp_path: Path) -> None:
    guards.file.write(tmp_path / "report.csv", "x", "report", 34)
    (tmp_path / ".report.csv.fence").write_text("{")
    with pytest.raises(interlock.StoreUnfit, match="damaged"):
        guards.file.write(tmp_path / "report.csv", "y", "report", 33)
    assert (tmp_path / "report.csv").read_text() == "x"


def test_mode_and_symbolic_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "report.csv", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    guards.file.write(link, "new", "report", 33)
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    fresh = tmp_path / "fresh"
    guards.file.write(fresh, "new", "fresh", 33)
    (tmp_path / "usual").write_text("")
    assert fresh.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_the_umask_of_the_process_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one for all threads: a file that another makes while it is 0 can be written by everybody."""
    changed, umask = list[int](), os.umask

    def noting(mask: int) -> int:
        changed.append(mask)
        return umask(mask)

    monkeypatch.setattr(os, "umask", noting)
    guards.file.write(tmp_path / "report.csv", "new", "report", 33)
    guards.file.write(tmp_path / "report.csv", "newer", "report", 34)
    assert changed == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs modes")
@pytest.mark.parametrize(
    ("mode", "beside"),
    [(0o600, 0o600), (0o644, 0o600), (0o664, 0o660), (0o666, 0o666), (0o460, 0o660)],
)
def test_whoever_may_only_read_a_file_cannot_lock_its_fence(tmp_path: Path, mode: int, beside: int) -> None:
    path = tmp_path / "report.csv"
    path.write_text("old")
    path.chmod(mode)
    guards.file.write(path, "new", "report", 33)
    assert stat.S_IMODE((tmp_path / ".report.csv.fence").stat().st_mode) == beside


@pytest.mark.skipif(sys.platform == "win32", reason="needs modes")
def test_the_umask_of_a_program_decides_about_a_new_file_and_who_may_fence_it(tmp_path: Path) -> None:
    program = (
        "import os, sys; from interlock import guards; os.umask(int(sys.argv[2], 8)); "
        "guards.file.write(sys.argv[1], 'x', 'report', 33)"
    )
    for mask, mode, beside in (("027", 0o640, 0o600), ("002", 0o664, 0o660), ("077", 0o600, 0o600)):
        path = tmp_path / mask
        subprocess.run(
            [sys.executable, "-c", program, path, mask],
            env={**os.environ, "PYTHONPATH": str(SRC)},
            check=True,
        )
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert stat.S_IMODE((tmp_path / f".{mask}.fence").stat().st_mode) == beside


@pytest.mark.skipif(sys.platform == "win32", reason="needs modes")
def test_a_reader_that_finds_no_file_shows_its_token_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        guards.file.read(tmp_path / "report.csv", "report", 34)
    assert not (tmp_path / ".report.csv.fence").stat().st_mode & 0o044
    with pytest.raises(StaleToken):
        guards.file.write(tmp_path / "report.csv", "late", "report", 33)


def test_many_write_at_once_and_the_highest_token_stands(tmp_path: Path) -> None:
    path, refused = tmp_path / "report.csv", list[int]()

    def write(token: int) -> None:
        try:
            guards.file.write(path, str(token), "report", token)
        except StaleToken:
            refused.append(token)

    threads = [threading.Thread(target=write, args=(token,)) for token in range(1, 21)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() == "20"
    assert 20 not in refused


WRITER = """
import sys
from interlock import guards
guards.file.write(sys.argv[1], sys.argv[2] * 100000, "report", int(sys.argv[2]))
"""


def test_processes_and_a_reader_that_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    guards.file.write(path, "0" * 100000, "report", 1)
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(token)], env=environment, cwd=ROOT)
        for token in (2, 3, 4)
    ]
    while any(writer.poll() is None for writer in writers):
        seen = path.read_text()
        assert len(seen) == 100000
        assert len(set(seen)) == 1
    assert path.read_text()[0] == "4"


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_writer_does_not_wait_for_ever(tmp_path: Path) -> None:
    import fcntl

    guards.file.write(tmp_path / "report.csv", "x", "report", 33)
    with open(tmp_path / ".report.csv.fence", "rb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        with pytest.raises(interlock.StoreUnavailable, match="50 ms"):
            guards.file.write(tmp_path / "report.csv", "y", "report", 34, timeout=0.05)
    assert names(tmp_path) == {"report.csv", ".report.csv.fence"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_a_fence_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    """In a folder of another user, who would choose which file is made or overwritten with the rights of the writer."""
    victim = tmp_path / "victim"
    (tmp_path / ".report.csv.fence").symlink_to(victim)
    victim.write_text("")
    with pytest.raises(interlock.StoreUnfit, match="symbolic link"):
        guards.file.write(tmp_path / "report.csv", "x", "report", 33)
    assert victim.read_text() == ""
    victim.unlink()
    with pytest.raises(interlock.StoreUnfit, match="symbolic link"):
        guards.file.write(tmp_path / "report.csv", "x", "report", 33)
    assert names(tmp_path) == {".report.csv.fence"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs FIFOs")
@pytest.mark.parametrize("odd", ["fifo", "folder"])
@pytest.mark.parametrize("name", ["report.csv", ".report.csv.fence"])
def test_what_is_not_a_regular_file_is_refused_and_nobody_waits_for_it(
    tmp_path: Path, name: str, odd: str
) -> None:
    make = os.mkfifo if odd == "fifo" else os.mkdir
    make(tmp_path / name)
    with pytest.raises(interlock.StoreUnfit, match="regular file"):
        guards.file.write(tmp_path / "report.csv", "x", "report", 33)
    with at_most(PATIENCE), pytest.raises(interlock.StoreUnfit, match="regular file"):
        guards.file.read(tmp_path / "report.csv", "report", 33)
    assert names(tmp_path) == {name}


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs root")
def test_a_file_that_root_replaces_keeps_its_owner_and_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text("old")
    os.chown(path, 1234, 1235)
    path.chmod(0o2640)
    guards.file.write(path, "new", "report", 33)
    kept, beside = path.stat(), (tmp_path / ".report.csv.fence").stat()
    assert (kept.st_uid, kept.st_gid, stat.S_IMODE(kept.st_mode)) == (1234, 1235, 0o2640)
    assert (beside.st_uid, beside.st_gid) == (1234, 1235)  # or its owner could not write any more
