"""Every shell example of the documentation runs, page by page, and prints what the page says it prints.

A block `sh` is lines that succeed. A block `console` has commands behind `$ ` and, below each, what is seen: there any
number stands for any other, `web-1` for the name of this machine, and `…` for whatever may differ. A command that ends in `&` stays.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.pages import READMES, TUTORIALS, Block, blocks, name, pages
from tests.house.source import ROOT, SRC
from tests.patience import PATIENCE

NOT_RUN = {
    "python3 dev.py test": "it is what runs this test",
    "python3 -m pip install .": "needs a package index for the build backend; tests/house/test_wheel.py builds the wheel",
    "python3 -m pip install '.[redis]'": "the same",
}
QUICKER = {"python3 dev.py demo": "python3 dev.py demo --fast"}
ELSEWHERE = {
    ROOT / "CONTRIBUTING.md": "it is about this repository, and all of it is what runs this test",
    **dict.fromkeys(TUTORIALS, "test_tutorial types it into two terminals"),
}

LOOKING = ("interlock ls", "interlock inspect")

PAGES = [page for page in pages() if page not in ELSEWHERE and any(blocks(page, "sh", "console"))]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the shell of the documentation is POSIX")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As after an installation: python3 is this one, and the command `interlock` is on the path."""
    tools = {
        "python3": f'exec "{sys.executable}" "$@"',
        "interlock": f'exec "{sys.executable}" -m interlock "$@"',
    }
    for tool, line in tools.items():
        script = tmp_path / "bin" / tool
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("INTERLOCK_", "SUDO_"))}
    return {
        **clean,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(SRC),
        "INTERLOCK_URL": f"sqlite:///{tmp_path}/locks.db",
        "TMPDIR": str(tmp_path),
    }


class Shell:
    """Runs the commands of one page in one folder; what they leave in the background is ended with the page."""

    def __init__(self, folder: Path, output: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._output = output
        self._environment = environment
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, command: str) -> tuple[int, str]:
        """Its code and what it printed, on both streams."""
        output = self._output / str(len(self._started))
        with output.open("wb") as file:  # no pipe: what runs in the background would keep it open
            process = subprocess.Popen(
                command,
                shell=True,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group, by which all of it can be ended
            )
        self._started.append(process)
        return process.wait(100), output.read_text()

    def start(self, command: str) -> None:
        """Leave a command that ends in & in the background; return when its claim stands."""
        before = self._claims()
        self.run(command)
        end = time.monotonic() + PATIENCE
        while self._claims() == before:
            assert time.monotonic() < end, f"{command} claims nothing"

    def _claims(self) -> int:
        code, told = self.run("interlock ls --json 2>/dev/null")
        queues = json.loads(told) if code == 0 else []
        return sum(len(queue["holders"]) + len(queue["waiters"]) for queue in queues)

    def show(self, command: str, expected: str) -> tuple[bool, str]:
        """Whether it prints what the page says. A command that only looks may look until it does."""
        end = time.monotonic() + (PATIENCE if command.startswith(LOOKING) else 0)
        while True:
            _, told = self.run(command)
            if (right := matches(expected, told)) or time.monotonic() >= end:
                return right, told

    def close(self) -> None:
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_shell_of_a_page_runs_from_top_to_bottom(
    page: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    folder, output = tmp_path / "work", tmp_path / "output"
    folder.mkdir()
    output.mkdir()
    shell = Shell(ROOT if page in READMES else folder, output, environment)
    try:
        for block in blocks(page, "sh", "console"):
            for number, command, expected in steps(block):
                where = f"{name(page)}:{number}: $ {command}"
                if expected is None:
                    code, told = shell.run(QUICKER.get(command, command))
                    assert code == 0, f"{where}\n{told}"
                elif command.endswith("&"):
                    shell.start(command)
                else:
                    right, told = shell.show(command, expected)
                    assert right, f"{where}\n{told}\nthe page says:\n{expected}"
    finally:
        shell.close()


def steps(block: Block) -> list[tuple[int, str, str | None]]:
    """Line number, command, and what it prints: None where the page does not say, and then it must succeed."""
    lines = list(enumerate(block.text.splitlines(), block.line))
    if block.language == "sh":
        return [(at, line, None) for at, line in lines if line.strip() and line not in NOT_RUN]
    found: list[tuple[int, str, str]] = []
    for at, line in lines:
        if line.startswith("$ "):
            found.append((at, line[2:], ""))
        else:
            before, command, told = found[-1]
            found[-1] = (before, command, f"{told}{line}\n")
    return list(found)


def matches(expected: str, told: str) -> bool:
    """Whether the output is what the page shows, but for numbers, blanks, this machine's name and what `…` hides."""
    pattern = "\n".join(_pattern(line) for line in expected.splitlines())
    shown = "\n".join(" ".join(line.split()) for line in told.splitlines())
    return re.fullmatch(pattern, shown) is not None


def _pattern(line: str) -> str:
    text = re.escape(" ".join(line.split()))
    text = text.replace("…", ".*").replace(re.escape("web-1"), re.escape(os.uname().nodename))
    return re.sub(r"\d+(\\\.\d+)?", r"<?[\\d.]+", text)


def test_every_exception_is_still_in_the_documentation() -> None:
    lines = {line for page in pages() for block in blocks(page, "sh") for line in block.text.splitlines()}
    assert set(QUICKER) <= lines
    assert "python3 dev.py test" in lines


def test_output_that_differs_is_noticed() -> None:
    assert matches("job lock held 3 s web-1 pid 7\n", f"job  lock  held 12 s  {os.uname().nodename} pid 99\n")
    assert matches("a … z\n", "a whatever z\n")
    assert not matches("job lock held 3 s\n", "job  lock  waiting 3 s\n")
    assert not matches("", "something\n")
    assert not matches("something\n", "")
