"""`python3 dev.py` is the one place to find a command, and says what it is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tests.house.source import ROOT


def dev(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "dev.py", *args], capture_output=True, text=True, timeout=60
    )


def loaded() -> Any:
    """dev.py as a module of this test's own."""
    spec = spec_from_file_location("dev", ROOT / "dev.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules["dev"] = module  # its dataclass asks for it
    spec.loader.exec_module(module)
    return module


def test_alone_it_lists_every_command_with_a_sentence() -> None:
    told = dev()
    assert told.returncode == 0
    listed = {line.split()[0]: line.split(None, 1)[1] for line in told.stdout.splitlines()[2:]}
    assert {"demo", "test", "lint", "types", "sim", "mutants", "bench", "surface", "clean"} <= set(listed)
    assert all(sentence.endswith(".") for sentence in listed.values())


def test_an_unknown_command_is_a_usage_error() -> None:
    told = dev("tset")
    assert told.returncode == 64
    assert "test" in told.stdout


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="would make an environment for another python")
def test_a_made_environment_is_used_as_it_is() -> None:
    told = dev("lint", "--help")
    assert told.returncode == 0, told.stderr
    assert "Usage: ruff check" in told.stdout
    assert "making the environment" not in told.stdout


def test_every_folder_of_tests_is_quick_or_needs_servers() -> None:
    """A new folder is decided about: otherwise `dev.py test --quick` would leave out tests that it should run."""
    with_servers = {
        *(
            "benchmarks",
            "contrib",
            "etcd",
            "every_store",
            "guards",
            "mysql",
            "postgresql",
            "redis",
            "redlock",
            "storm",
            "zookeeper",
        ),
    }
    folders = {
        path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")
    }
    assert folders == {*loaded().QUICK, *with_servers}


def test_quick_tests_have_their_files_in_memory_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = loaded()
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(dev, "MEMORY", tmp_path)
    monkeypatch.setattr(dev, "ROOM", 1)
    with dev.files_in_memory():
        folder = Path(os.environ["TMPDIR"])
        assert folder.parent == tmp_path
        (folder / "left").touch()
    assert not folder.exists()
    assert "TMPDIR" not in os.environ
    monkeypatch.setattr(dev, "ROOM", 1 << 80)
    with dev.files_in_memory():
        assert "TMPDIR" not in os.environ
    monkeypatch.setattr(dev, "ROOM", 1)
    monkeypatch.setenv("TMPDIR", "chosen")
    with dev.files_in_memory():
        assert os.environ["TMPDIR"] == "chosen"
    assert os.environ["TMPDIR"] == "chosen"


def test_a_check_that_need_not_be_repeated_runs_again_only_when_something_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev, codes, files = loaded(), [1, 0, 0], ["one"]
    monkeypatch.setattr(dev, "VENV", tmp_path)
    monkeypatch.setattr(dev, "FAILED_TESTS", tmp_path / "none")
    monkeypatch.setattr(dev, "files_read", lambda: files[-1])
    monkeypatch.setattr(dev, "call", lambda argv: codes.pop(0))
    steps = (dev.Step("check", (), "check", repeats=False),)
    assert dev.perform(steps) == 1
    assert dev.perform(steps) == 0
    assert len(codes) == 1  # a failure was repeated
    assert dev.perform(steps) == 0
    assert len(codes) == 1  # a success was not
    files.append("another")
    assert dev.perform(steps) == 0
    assert not codes


def test_the_files_that_a_check_of_types_reads_have_another_digest_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = loaded()
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.setattr(dev, "VENV", tmp_path / ".venv")
    (tmp_path / "src").mkdir()
    digests = []
    for name, text in (
        ("dev.py", "1"),
        ("pyproject.toml", "1"),
        ("src/a.py", "1"),
        ("src/a.py", "2"),
        ("src/b.pyi", ""),
    ):
        (tmp_path / name).write_text(text)
        if name != "dev.py":
            digests.append(dev.files_read())
    (tmp_path / ".venv" / "lib" / "python3" / "site-packages" / "new").mkdir(parents=True)
    digests.append(dev.files_read())
    assert len(set(digests)) == len(digests) == 5


def test_busy_loops_end_with_the_run() -> None:
    """Whoever asks how the suite does on a busy machine has a quiet one afterwards."""
    program = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
import dev, os, signal
with dev.busy(2):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60)
    assert ended.returncode == -9  # and the pipe was closed by the loops too, or this would not have returned


def test_another_interpreter_that_is_not_there_is_said_to_be_missing() -> None:
    told = dev("test", "--python", "python2.3")
    assert told.returncode == 1
    assert "python2.3 is not installed" in told.stderr


@pytest.mark.parametrize(
    ("args", "passed_on"),
    [
        (["tests/unit"], ["tests/unit"]),
        (["tests/unit/test_who.py::test_x"], ["tests/unit/test_who.py::test_x"]),
        (["--quick", "tests/cli"], ["-m", "not server and not slow", "tests/cli"]),
    ],
)
def test_a_path_is_run_exactly_and_nothing_is_installed_for_it(
    args: list[str], passed_on: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = loaded()
    called: list[list[str]] = []

    def call(argv: list[str]) -> int:
        called.append(argv[3:])
        return 0

    monkeypatch.setattr(dev, "make_environment", lambda: None)
    monkeypatch.setattr(dev, "debian_packages", lambda names, why: pytest.fail(f"installs {names}"))
    monkeypatch.setattr(dev, "installed", lambda program: False)
    monkeypatch.setattr(dev, "call", call)
    assert dev.test(args) == 0
    assert called == [passed_on]


def test_quick_without_a_path_stays_in_the_folders_that_need_no_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dev = loaded()
    called: list[list[str]] = []

    def call(argv: list[str]) -> int:
        called.append(argv[3:])
        return 0

    monkeypatch.setattr(dev, "make_environment", lambda: None)
    monkeypatch.setattr(dev, "call", call)
    assert dev.test(["--quick", "-k", "ttl"]) == 0
    assert called == [[*dev.NO_SERVER, *dev.QUICK_FOLDERS, "-k", "ttl"]]
