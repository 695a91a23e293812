"""Files that are replaced as a whole, under the token of a lease."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import interlock
from interlock import StaleToken, guards
from tests.house.source import ROOT, SRC


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
        with pytest.raises(interlock.StoreUnavailable, match=r"0\.05 s"):
            guards.file.write(tmp_path / "report.csv", "y", "report", 34, timeout=0.05)
    assert names(tmp_path) == {"report.csv", ".report.csv.fence"}
