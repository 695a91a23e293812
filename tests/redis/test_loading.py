"""A program loads only the parts of the backend that its deployment needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from interlock.testing.servers.redis import running
from tests.house.source import SRC

PROGRAM = """
import sys
sys.path.insert(0, {src!r})
import interlock, interlock.aio
client = interlock.{colour}connect({url!r})
print(*[name for name in sys.modules if name.startswith("interlock.backends.")])
"""
REDIS = "interlock.backends.redis"


def loaded(colour: str, url: str) -> set[str]:
    """The modules of backends that opening a URL loads, in an interpreter of its own. Nothing is connected to."""
    program = PROGRAM.format(src=str(SRC), colour=colour, url=url)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())


def packages(modules: set[str]) -> set[str]:
    return {name.removeprefix(f"{REDIS}.").split(".")[0] for name in modules if name.startswith(f"{REDIS}.")}


@pytest.mark.parametrize("colour", ["", "aio."])
@pytest.mark.parametrize("url", ["redis://localhost:1", "unix:///tmp/none.sock"])
def test_one_server_needs_neither_sentinel_nor_cluster(colour: str, url: str) -> None:
    modules = loaded(colour, url)
    assert {"store", "transport", "pubsub", "wire"} <= packages(modules)
    assert not {"sentinel", "cluster"} & packages(modules)
    assert not any(name.startswith("interlock.backends.redlock") for name in modules)


@pytest.mark.parametrize("colour", ["", "aio."])
@pytest.mark.parametrize(
    ("url", "needed", "other"),
    [
        ("redis+sentinel://localhost:1/service", "sentinel", "cluster"),
        ("redis+cluster://localhost:1", "cluster", "sentinel"),
    ],
)
def test_a_deployment_loads_its_own_part_alone(colour: str, url: str, needed: str, other: str) -> None:
    found = packages(loaded(colour, url))
    assert needed in found
    assert other not in found


ACQUIRES = """
import sys
sys.path.insert(0, {src!r})
import interlock
client = interlock.connect({url!r})
before = set(sys.modules)
with client.lock("x"):
    print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_first_acquire_loads_nothing_more(host: str) -> None:
    """Not even to look up a plain host, which by itself loads the tables of Unicode, nor to name the client library."""
    with running() as server:
        program = ACQUIRES.format(src=str(SRC), url=f"redis://{host}:{server.port}/0")
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert not ended.stdout.split()
