"""What every test run needs: soaks only when they are asked for, and signals as programs usually find them."""

from __future__ import annotations

import os
import signal
from types import FrameType

import pytest

from tests.full import FULL

# Suites that several folders import: an assertion in them shows what it compared. Here, before any folder has imported one.
pytest.register_assert_rewrite(
    "interlock.testing.conformance",
    *(f"tests.field.{name}" for name in ("taking", "losing", "crowds", "ends", "killed")),
)

UNHEARD = "INTERLOCK_TESTS_UNHEARD"  # tells the workers which signals the run was started without


LONGEST = (
    "tests/mutants/test_mutants.py",
    "tests/storm/",
    "tests/redis/test_green.py",
    "tests/simulation/test_seeds.py",
    "tests/attacks/test_interrupts.py",
    "tests/zookeeper/test_conformance",
    "tests/mysql/test_conformance",
    "tests/mysql/test_field",
)
"""Files that run first: each stays with one worker, and one that began late would keep all others waiting."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    if not FULL:
        soaks = {item for item in items if item.get_closest_marker("soak")}
        config.hook.pytest_deselected(items=list(soaks))
        items[:] = [item for item in items if item not in soaks]


def pytest_configure() -> None:
    """Give the programs that tests start the signals a shell would give them, also below `nohup` or `&`.

    Ignored signals stay ignored across exec, and then a test of what SIGHUP does tests nothing. A handler ends with
    exec, so this process goes on not to hear them, and its children do.
    """
    ignored = [name for name in ("SIGHUP", "SIGQUIT") if _ignored(name)]
    for name in {*ignored, *os.environ.get(UNHEARD, "").split()}:
        signal.signal(getattr(signal, name), _unheard)
    os.environ[UNHEARD] = " ".join(ignored)
    if _ignored("SIGINT"):  # as Python itself does unless it was told to ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _ignored(name: str) -> bool:
    return hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_IGN


def _unheard(number: int, frame: FrameType | None) -> None:
    pass
