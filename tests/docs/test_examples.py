"""Every Python block of the documentation runs: a page is one program, read from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import READMES, TUTORIALS, Block, blocks, name, pages, program
from tests.house.source import SRC

PROGRAMS = [page for page in pages() if page not in TUTORIALS and any(blocks(page, "python"))]
OF_READMES = [(page, block) for page in READMES for block in blocks(page, "python")]


@pytest.mark.parametrize("page", PROGRAMS, ids=name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    run(program(page), name(page), tmp_path)


@pytest.mark.parametrize(
    ("page", "block"), OF_READMES, ids=[f"{name(page)} line {block.line}" for page, block in OF_READMES]
)
def test_each_python_block_of_the_readme_runs_when_it_is_copied_alone(
    page: Path, block: Block, tmp_path: Path
) -> None:
    """Most readers copy one block, and none of those above it."""
    run("\n" * (block.line - 1) + block.text, name(page), tmp_path)


def run(text: str, page: str, tmp_path: Path) -> None:
    """Run a program of a page in a folder of its own, where any warning is an error."""
    script = tmp_path / "example.py"
    script.write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(SRC), "INTERLOCK_URL": f"sqlite:///{tmp_path}/locks.db"}
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{page} (line numbers are the page's):\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr


def test_the_readme_and_all_pages_of_the_guide_have_examples() -> None:
    guide = [page for page in pages() if page.parent.name == "guide"]
    assert len(guide) >= 6
    shell = {page for page in guide if any(blocks(page, "sh", "console"))}
    assert {*guide, pages()[0]} <= {*PROGRAMS, *shell}


@pytest.mark.parametrize("page", pages(), ids=name)
def test_a_skip_is_not_told_from_a_function_that_returns_none_by_its_truth(page: Path) -> None:
    text = program(page)
    once = re.findall(r"@client\.once\(.*\n(?:async )?def (\w+)", text)
    assert not [word for word in once if f"if not {word}(" in text]
