"""`import interlock` is light: programs that never wait on a loop or a server do not pay for one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.house.source import SRC

FEWEST, MOST = (
    10,
    60,
)  # tries of each, in turn; the best of each counts, and a busy machine needs more to show it

PROGRAM = """
import sys, time
sys.path.insert(0, {src!r})
began = time.process_time()
{statement}
took = time.process_time() - began
print(took, *sys.modules)
"""

BARE = "import interlock"
READY = (
    "import interlock; interlock.connect"  # modules load when a name is asked for: all that a client needs
)
BUDGETS = {BARE: 1.9, READY: 3.5}
"""How often the time of `import socket` each may take: both are measured in one run, and a slow machine slows both."""


def import_once(statement: str = READY) -> tuple[float, set[str]]:
    """CPU seconds and modules of one import in an interpreter that has loaded nothing, not even site."""
    program = PROGRAM.format(src=str(SRC), statement=statement)
    text = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    took, *loaded = text.split()
    return float(took), set(loaded)


class TestImport:
    @pytest.mark.parametrize("statement", BUDGETS)
    def test_it_takes_a_small_multiple_of_importing_socket(self, statement: str) -> None:
        import_once()  # writes the bytecode, which an installed package has
        best = limit = ratio = float("inf")
        for number in range(MOST):
            limit = min(limit, import_once("import socket")[0])
            best = min(best, import_once(statement)[0])
            ratio = best / limit
            if number >= FEWEST and ratio <= BUDGETS[statement]:
                break
        assert ratio <= BUDGETS[statement], (
            f"{ratio:.2f} times: {best * 1e3:.1f} ms, socket {limit * 1e3:.1f} ms"
        )

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

    @pytest.mark.parametrize("module", ["aio", "blocking", "errors", "events", "model", "store", "who"])
    def test_the_public_modules_are_there_though_nobody_imported_them(self, module: str) -> None:
        """As they were while the package imported all of them: `except interlock.errors.LeaseLost` must not fail."""
        program = f"import sys; sys.path.insert(0, {str(SRC)!r}); import interlock; print(interlock.{module}.__name__)"
        told = subprocess.run(
            [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60
        )
        assert told.stdout.strip() == f"interlock.{module}", told.stderr
