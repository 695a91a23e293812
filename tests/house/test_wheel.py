"""Everything that programs need is in the wheel, and everything of the repository is in the source distribution."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.house.source import ROOT, SRC


def built(target: str, folder: Path) -> Path:
    pytest.importorskip("hatchling", reason="needs the build backend, which dev.py installs")
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.iterdir())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("wheel"))


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
    extras = {"redis", "etcd", "zookeeper", "postgresql", "mysql", "all", "prometheus", "opentelemetry"}
    assert set(metadata.get_all("Provides-Extra") or []) == extras


def test_the_source_distribution_is_the_repository(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("needs a clone, to know which files belong to the repository")
    with tarfile.open(built("sdist", tmp_path)) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    files = {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()}
    assert sorted(files - inside) == []
