"""The documentation as data: its pages, their code blocks and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.source import ROOT

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
WALK = re.compile(r"^### Walk (\d): (.+)$", re.MULTILINE)
STEP = re.compile(r"^\| `([\w/.]+)` \| (.+?) \|", re.MULTILINE)


READMES = [ROOT / "README.md", ROOT / "README.zh.md"]
TUTORIALS = [ROOT / "docs" / "tutorial" / f"from-setnx-to-fencing{language}.md" for language in ("", ".zh")]
"""The pages whose commands are typed into terminals: `test_tutorial`."""


@dataclass(frozen=True)
class Block:
    """A code block: its language, the line its text begins on, and the text."""

    language: str
    line: int
    text: str


def pages() -> list[Path]:
    """Every page a user reads."""
    folders = [ROOT / "docs" / folder for folder in ("guide", "tutorial", "backends", "decisions")]
    return [
        *READMES,
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "CHANGELOG.md",
        ROOT / "examples" / "README.md",
        ROOT / "tests" / "attacks" / "README.md",
        ROOT / "benchmarks" / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted(page for folder in folders for page in folder.glob("*.md")),
    ]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        if found[1] in languages:
            yield Block(found[1], text.count("\n", 0, found.start(2)) + 1, found[2])


def program(page: Path) -> str:
    """All Python blocks of a page as one program, each on the lines it has in the page."""
    lines: list[str] = []
    for block in blocks(page, "python"):
        lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


def links(page: Path) -> list[str]:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [target for target in LINK.findall(prose) if "://" not in target]


def scenarios(page: Path) -> list[str]:
    """The scenarios of the lab that a page names, in its order."""
    named = re.findall(r"interlock lab run ((?:[a-z][a-z-]+ ?)+)", page.read_text(encoding="utf-8"))
    return list(dict.fromkeys(name for names in named for name in names.split()))


def prose(page: Path) -> str:
    """The page without its code, and without where its links lead."""
    text = re.sub(r"`[^`\n]+`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    return re.sub(r"\]\([^)\s]+\)", "]", text)


@dataclass(frozen=True)
class Walk:
    """One path through the files, as docs/ARCHITECTURE.md tells it: (file below the package, method), in order."""

    title: str
    steps: tuple[tuple[str, str], ...]


def walks() -> list[Walk]:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    found: list[Walk] = []
    for heading in WALK.finditer(text):
        part = text[heading.end() : text.find("\n#", heading.end())]
        steps = [
            (row[1], method) for row in STEP.finditer(part) for method in re.findall(r"`([\w.]+)`", row[2])
        ]
        found.append(Walk(heading[1], tuple(steps)))
    return found
