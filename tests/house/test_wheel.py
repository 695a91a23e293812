"""What users install: everything the package needs at run time is in the wheel, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.house.source import ROOT, SRC


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="needs the build backend, which dev.py installs")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_every_file_that_programs_need(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = {
        path.relative_to(SRC).as_posix()
        for path in SRC.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == source
    assert "interlock/py.typed" in inside


def test_installing_interlock_installs_nothing_else(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
    needed = [need for need in metadata.get_all("Requires-Dist") or [] if "extra ==" not in need]
    assert not needed
    extras = {"redis", "etcd", "zookeeper", "postgresql", "mysql", "all"}
    assert set(metadata.get_all("Provides-Extra") or []) == extras
