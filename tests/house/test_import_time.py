"""`import interlock` is light: programs that never wait on a loop or a server do not pay for one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.house.source import SRC

BUDGET = 0.025
TRIES = 40  # the best counts; a busy machine needs more of them to show it

PROGRAM = f"""
import sys, time
sys.path.insert(0, {str(SRC)!r})
began = time.process_time()
import interlock
interlock.connect  # the rooms are opened when a name is asked for: this opens all that a client needs
took = time.process_time() - began
print(took, *sys.modules)
"""


def import_once() -> tuple[float, set[str]]:
    """CPU seconds and modules of one import in an interpreter that has loaded nothing, not even site."""
    text = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    took, *loaded = text.split()
    return float(took), set(loaded)


class TestImport:
    def test_it_takes_at_most_25_ms(self) -> None:
        import_once()  # writes the bytecode, which an installed package has
        tries: list[float] = []
        while len(tries) < TRIES and min(tries, default=BUDGET + 1) > BUDGET:
            tries.append(import_once()[0])
        assert min(tries) <= BUDGET, f"import interlock took {min(tries) * 1000:.1f} ms at best of {TRIES}"

    def test_it_loads_no_loop_no_server_and_no_backend(self) -> None:
        _, loaded = import_once()
        heavy = {
            "asyncio",
            "sqlite3",
            "json",
            "logging",
            "socket",
            "ssl",
            "selectors",
            "multiprocessing",
            "subprocess",
        }
        backends = {name for name in loaded if name.startswith("interlock.backends")}
        assert not (heavy & loaded) | backends

    @pytest.mark.parametrize(
        "module", ["aio", "blocking", "errors", "events", "model", "ports", "shutdown", "who"]
    )
    def test_the_public_modules_are_there_though_nobody_imported_them(self, module: str) -> None:
        """As they were while the package imported all of them: `except interlock.errors.LeaseLost` must not fail."""
        program = f"import sys; sys.path.insert(0, {str(SRC)!r}); import interlock; print(interlock.{module}.__name__)"
        told = subprocess.run(
            [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60
        )
        assert told.stdout.strip() == f"interlock.{module}", told.stderr
