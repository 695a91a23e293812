"""Plants deliberate bugs in a copy of the source, one at a time, and demands that the suite turns red.

    python tests/mutants/run.py [NAME...]

A name is part of a mutant's name. What is changed must stand exactly once where the mutant says: a mutant that no longer
fits the source is an error, not a pass. First the tests that are named by any mutant must be green without one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from interlock.testing.lag import stretched  # noqa: E402
from tests.mutants.all import MUTANTS  # noqa: E402
from tests.mutants.mutant import Mutant, Tests  # noqa: E402

TIMEOUT = 60  # seconds for the tests of one mutant, more on a busy machine: hanging is red too
TWO = 2  # at a time


@dataclass(frozen=True, slots=True)
class Result:
    mutant: Mutant
    verdict: str  # caught, MISSED, or why it could not be tried
    seconds: float
    output: str = ""


def run_tests(source: Path, tests: Tests, **patience: str) -> tuple[int, str]:
    """pytest on the copy; its exit code and what it said."""
    argv = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_timeout",
    ]
    argv += ["-o", f"pythonpath={source} {ROOT}", tests.file, "-k", tests.names]
    env = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    env.pop("PYTEST_ADDOPTS", None)
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading those that no mutant needs took most of the time
    env.update(patience)
    try:
        done = subprocess.run(
            argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=stretched(TIMEOUT), check=False
        )
    except subprocess.TimeoutExpired:
        return 1, "it hangs"
    return done.returncode, done.stdout + done.stderr


def copy_of_source(folder: str | Path) -> Path:
    source = Path(folder) / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    return source


def attempt(mutant: Mutant) -> Result:
    """Plant one mutant and see whether its tests notice."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="interlock-mutant-") as folder:
        source = copy_of_source(folder)
        try:
            for edit in mutant.edits:
                edit.plant(source)
        except (LookupError, OSError) as error:
            return Result(mutant, "DOES NOT FIT", time.monotonic() - began, str(error))
        code, output = run_tests(source, mutant.tests, INTERLOCK_PATIENCE="12")
    # 1: some test is red. Anything else but 0 (a usage error, no test found) proves nothing.
    verdict = {0: "MISSED", 1: "caught"}.get(code, f"ERROR {code}")
    return Result(mutant, verdict, time.monotonic() - began, output)


def healthy(mutants: Sequence[Mutant]) -> list[str]:
    """Tests that are red, or not there, without any mutant."""
    names: dict[str, dict[str, None]] = {}
    for one in mutants:
        names.setdefault(one.tests.file, {})[one.tests.names] = None
    whole = [Tests(file, " or ".join(f"({name})" for name in some if name)) for file, some in names.items()]
    with tempfile.TemporaryDirectory(prefix="interlock-mutant-") as folder:
        source = copy_of_source(folder)
        with ThreadPoolExecutor(TWO) as pool:
            ran = pool.map(lambda tests: run_tests(source, tests), whole)
            return [f"{tests}\n{output}" for tests, (code, output) in zip(whole, ran, strict=True) if code]


def report(results: Sequence[Result]) -> str:
    lines = [f"  {r.verdict:<8} {r.seconds:6.1f} s   {r.mutant.name}: {r.mutant.victim}" for r in results]
    missed = [result for result in results if result.verdict != "caught"]
    for result in missed:
        lines += ["", f"{result.mutant.name}: {result.verdict}", result.output[-2000:]]
    return "\n".join([*lines, "", f"{len(results) - len(missed)} of {len(results)} caught"])


def main(names: Sequence[str]) -> int:
    chosen = [one for one in MUTANTS if not names or any(name in one.name for name in names)]
    began = time.monotonic()
    for text in (red := healthy(chosen)):
        print(f"red without any mutant: {text}")
    if red or not chosen:
        print("nothing was tried" if red else "no mutant has such a name")
        return 2
    with ThreadPoolExecutor(TWO) as pool:
        results = list(pool.map(attempt, chosen))
    print(report(results), f"in {time.monotonic() - began:.0f} s")
    return 0 if all(result.verdict == "caught" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
