"""Every command of the tutorial is typed into two terminals, and shows what the page says; both languages have the same commands."""

from __future__ import annotations

import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from interlock.lab.scenarios import NAMES
from interlock.testing.servers.process import free_port
from tests.docs.pages import FENCE, READMES, TUTORIALS, Block, blocks, name, pages, scenarios
from tests.docs.terminals import Terminal, matches
from tests.environment import environment
from tests.house.source import ROOT
from tests.patience import until

PAGE, CHINESE = TUTORIALS
PORT = re.compile(r"\b700\d\b")
TYPED = re.compile(r"^([12])(\$|:) (.*)$")
FILE = re.compile(r"\A(?:#|--) (\w+\.\w+)")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """As after an installation, in an environment that was activated."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool, line in {
        "python3": f'exec "{sys.executable}" "$@"',
        "interlock": f'exec "{sys.executable}" -m interlock "$@"',
    }.items():
        script = folder / tool
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return folder


class Reader:
    """Somebody who follows the page: saves its files, and types its commands into two terminals."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self._folder = folder
        env = environment()
        env["PATH"] = f"{tools}:{env['PATH']}"
        self.terminals = {number: Terminal(folder, env) for number in "12"}
        self._ports: dict[str, int] = {}

    def ports(self, text: str) -> str:
        """The text with ports that are free on this machine."""
        return PORT.sub(lambda found: str(self._ports.setdefault(found[0], free_port())), text)

    def follow(self, block: Block) -> None:
        if block.language in ("python", "lua"):
            found = FILE.match(block.text)
            assert found, f"line {block.line}: no name for the file"
            (self._folder / found[1]).write_text(self.ports(block.text))
            return
        at, number = self.terminals["1"], block.line
        for number, line in enumerate(block.text.splitlines(), block.line):
            typed = TYPED.match(line)
            if typed and typed[2] == "$":
                self.check(number)
                at, command = self.terminals[typed[1]], self.ports(typed[3])
                at.begin(command)
                if command.endswith("--daemonize yes"):  # no reader is so quick that the server is not up yet
                    at.until_prompt()
                    until(partial(answers, int(command.split("--port ")[1].split()[0])))
            elif typed:
                at = self.terminals[typed[1]]
                at.expected.append(self.ports(typed[3]))
            else:
                at.expected.append(self.ports(line))
        self.check(number)

    def check(self, number: int) -> None:
        for called, terminal in self.terminals.items():
            wanted = "\n".join(terminal.expected)
            assert terminal.shows(), (
                f"before line {number}, terminal {called}:\n{terminal.shown}\nthe page says:\n{wanted}"
            )

    def close(self) -> None:
        for terminal in self.terminals.values():
            terminal.close()
        for port in self._ports.values():
            subprocess.run(
                ["redis-cli", "-p", str(port), "shutdown", "nosave", "now"], capture_output=True, timeout=20
            )


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def reader(tmp_path: Path, tools: Path) -> Iterator[Reader]:
    folder = tmp_path / "work"
    folder.mkdir()
    made = Reader(folder, tools)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.server
def test_whoever_types_the_tutorial_sees_what_it_says(reader: Reader) -> None:
    assert shutil.which("redis-cli"), "redis-cli is not installed: apt-get install redis-tools"
    for block in blocks(PAGE, "console", "python", "lua"):
        reader.follow(block)


@pytest.mark.parametrize("page", pages(), ids=name)
def test_a_page_names_scenarios_that_there_are(page: Path) -> None:
    assert set(scenarios(page)) <= set(NAMES)


@pytest.mark.parametrize("page", [PAGE, CHINESE], ids=lambda page: page.name)
def test_every_step_of_the_tutorial_plays_a_scenario_and_shows_its_picture(page: Path) -> None:
    steps = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    numbered = [step for step in steps if re.match(r"\d+\. ", step)]
    assert len(numbered) == 10
    for step in numbered:
        shown = re.findall(r"!\[[^\]]+\]\(\.\./pictures/([\w-]+)(?:\.zh)?\.svg\)", step)
        played = re.findall(r"^interlock lab run (.+)$", step, re.MULTILINE)
        assert shown, step[:40]
        assert set(shown) <= set(" ".join(played).split()), step[:40]


def without_comments(block: Block) -> str:
    """The code of a block: comments are translated."""
    lines = (re.sub(r"\s*(#|--) .*$", "", line) for line in block.text.splitlines())
    return "\n".join(line for line in lines if line)


TRANSLATED = [READMES[1], CHINESE, *sorted((ROOT / "docs" / "guide").glob("*.zh.md"))]


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_a_page_in_chinese_has_the_code_of_the_english_one(page: Path) -> None:
    languages = ("python", "console", "sh", "lua", "text")
    english = page.with_name(page.name.replace(".zh.md", ".md"))
    assert [without_comments(one) for one in blocks(page, *languages)] == [
        without_comments(one) for one in blocks(english, *languages)
    ]


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_a_page_in_chinese_is_in_chinese(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    paragraphs = [part for part in prose.split("\n\n") if len(part) > 60 and not part.startswith(("|", "-"))]
    assert all(re.search(r"[\u4e00-\u9fff]", part) for part in paragraphs)


def test_a_screen_that_differs_is_noticed() -> None:
    assert matches(["left: 10", "…"], "left:  10\nanything\nat all\n")
    assert not matches(["left: 10"], "left: 9\n")
    assert not matches(["OK"], "")
