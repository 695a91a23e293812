"""Every Python block of the documentation runs: a page is one program, read from top to bottom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, name, pages, program
from tests.house.source import SRC

PROGRAMS = [page for page in pages() if any(blocks(page, "python"))]


@pytest.mark.parametrize("page", PROGRAMS, ids=name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    script = tmp_path / page.with_suffix(".py").name
    script.write_text(program(page), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(SRC), "INTERLOCK_URL": f"sqlite:///{tmp_path}/locks.db"}
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{name(page)} (line numbers are the page's):\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr


def test_the_readme_and_all_pages_of_the_guide_have_examples() -> None:
    guide = [page for page in pages() if page.parent.name == "guide"]
    assert len(guide) >= 6
    shell = {page for page in guide if any(blocks(page, "sh", "console"))}
    assert {*guide, pages()[0]} <= {*PROGRAMS, *shell}
