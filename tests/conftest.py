"""What every test run needs: soaks only when they are asked for, signals as programs usually find them, and a garbage collector with little to read."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings

from tests.full import FULL

# Suites that several folders import: an assertion in them shows what it compared. Here, before any folder has imported one.
pytest.register_assert_rewrite(
    "interlock.testing.conformance",
    *(f"tests.field.{name}" for name in ("taking", "losing", "crowds", "ends", "killed")),
)

# The time one example takes says more about the machine than about the code.
settings.register_profile("interlock", deadline=None)
settings.load_profile("interlock")

# pytest-timeout reads it: a test that hangs fails, with the stack it hung in, and the others still run. A busy machine is
# no hang. Not a setting of pytest, which would not run without the plugin then.
os.environ.setdefault("PYTEST_TIMEOUT", "600")

os.environ.pop("PYTHONUNBUFFERED", None)  # programs that tests start buffer as those of most users do

UNHEARD = "INTERLOCK_TESTS_UNHEARD"  # tells the workers which signals the run was started without


LONGEST = (
    "tests/mutants/test_mutants.py",
    "tests/redis/test_green.py",
    "tests/simulation/test_seeds.py",
    "tests/zookeeper/",
    "tests/every_store/",
    # The longest of --quick.
    "tests/conformance/test_sqlite.py",
    "tests/field/test_sqlite.py",
    "tests/conformance/test_memory.py",
    "tests/cli/test_loss.py",
    "tests/conformance/test_sessions.py",
    "tests/cli/test_run.py",
    "tests/attacks/test_interrupts.py",
    "tests/sqlite/test_agreement.py",
    "tests/cli/test_inspection.py",
    "tests/cli/test_store.py",
)
"""Files that run first, in this order: each part of one stays with one worker, and one that began late would keep all others waiting."""

OF_A_STORE = re.compile(
    r"(Sync|Async)?[A-Z][a-z]+$"
)  # the end of the name of such a class: its face, and its deployment

STORMS = "tests/storm/"
"""Files that run apart from each other: each of their tests keeps five processes and its servers at work, and several at once are a busy machine."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    place = _places(list(dict.fromkeys(item.nodeid.partition("::")[0] for item in items)))
    items.sort(key=lambda item: place[item.nodeid.partition("::")[0]])
    if not FULL:
        soaks = {item for item in items if item.get_closest_marker("soak")}
        config.hook.pytest_deselected(items=list(soaks))
        items[:] = [item for item in items if item not in soaks]


def _places(files: list[str]) -> dict[str, float]:
    """In which order files run: the longest first, and storms spread over the first two thirds of the others."""
    first = [file for start in LONGEST for file in files if file.startswith(start)]
    storms = [file for file in files if file.startswith(STORMS)]
    others = [file for file in files if not file.startswith((*LONGEST, STORMS))]
    place: dict[str, float] = {file: number for number, file in enumerate(first + others)}
    apart = 2 * len(others) / 3 / max(1, len(storms))
    return place | {file: len(first) + apart * number - 0.5 for number, file in enumerate(storms)}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file with one worker; but each store of `tests/every_store`, and each of its faces, is a part of its own."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class ByFileAndStore(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, rest = nodeid.partition("::")
            part = (
                OF_A_STORE.search(rest.partition("::")[0]) if file.startswith("tests/every_store/") else None
            )
            return f"{file}::{part[0]}" if part else file

    return ByFileAndStore(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Take the collected tests, a million objects that live as long as the run, away from the garbage collector.

    Or each `gc.collect()` of a test would read them all, for a fifth of a second (CPython's own tests of locks alone: 35 s, now 0.3 s).
    """
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


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
