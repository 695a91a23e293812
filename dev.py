#!/usr/bin/env python3
"""Every command of this repository, in one place: `python3 dev.py COMMAND`.

Python 3.11 is all it needs. What the checks need is installed into `.venv`, once, and again
when the tables of pyproject.toml that describe it change.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
LITTER = (".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "build", "dist")


@dataclass(frozen=True)
class Step:
    """One check: its name, what it runs in the environment, and how to run it alone."""

    name: str
    argv: tuple[str, ...]
    alone: str


LINT = (
    Step("ruff check", ("-m", "ruff", "check"), "lint"),
    Step("ruff format", ("-m", "ruff", "format", "--check"), "lint   (dev.py format mends it)"),
)
TYPES = (
    Step("mypy", ("-m", "mypy"), "types"),
    Step("pyright", ("-m", "pyright", "--pythonpath", str(PYTHON)), "types"),
)
TESTS = (Step("pytest", ("-m", "pytest", "-n", "2", "--dist", "loadfile"), "test --lf"),)


# -- what the commands do ------------------------------------------------------------------------


def demo(args: list[str]) -> int:
    """Show interlock at work on this machine; needs no environment."""
    start = "import sys; from interlock.lab.demo import main; sys.exit(main(sys.argv[1:]))"
    return call([sys.executable, "-c", start, *args], PYTHONPATH=str(ROOT / "src"))


def test(args: list[str]) -> int:
    """Run every check; with arguments, pytest alone, with these arguments."""
    make_environment()
    have_lock_tests()
    have_servers()
    if args:
        return call([str(PYTHON), "-m", "pytest", *args])
    return perform(LINT + TYPES + TESTS)


def lint(args: list[str]) -> int:
    """Check style and format; arguments go to `ruff check`."""
    make_environment()
    return call([str(PYTHON), "-m", "ruff", "check", *args]) if args else perform(LINT)


def types(args: list[str]) -> int:
    """Check types with mypy and pyright."""
    make_environment()
    return perform(TYPES)


def format(args: list[str]) -> int:
    """Mend style and format in place."""
    make_environment()
    return call([str(PYTHON), "-m", "ruff", "check", "--fix", *args]) or call(
        [str(PYTHON), "-m", "ruff", "format", *args]
    )


def sim(args: list[str]) -> int:
    """Run the shipped algorithms under seeded faults: --seeds N, or --seed K to replay one."""
    return call([sys.executable, "-m", "interlock.testing.simulation", *args], PYTHONPATH=str(ROOT / "src"))


def mutants(args: list[str]) -> int:
    """Plant deliberate bugs, one at a time, and demand that the suite turns red."""
    make_environment()
    return call([str(PYTHON), str(ROOT / "tests" / "mutants" / "run.py"), *args])


def bench(args: list[str]) -> int:
    """Ask how fast interlock is, side by side with the bare commands; --list shows the questions."""
    make_environment()
    have_servers()
    have_peers()
    return call([str(PYTHON), "-m", "benchmarks", *args])


def surface(args: list[str]) -> int:
    """Rewrite tests/house/public_surface.txt, to be reviewed with the change that caused it."""
    script = ROOT / "tests" / "house" / "surface.py"
    return call([sys.executable, str(script), "--write", *args], PYTHONPATH=str(ROOT / "src"))


def clean(args: list[str]) -> int:
    """Remove the environment and all caches."""
    for name in LITTER:
        shutil.rmtree(ROOT / name, ignore_errors=True)
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    command.__name__: command
    for command in (demo, test, lint, types, format, sim, mutants, bench, surface, clean)
}


# -- running things ------------------------------------------------------------------------------


def call(argv: list[str], **extra: str) -> int:
    """Run a program on our own terminal and answer with its exit code."""
    env = {**os.environ, **extra, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    env.pop("INTERLOCK_URL", None)  # or a developer's own store would be locked by the tests
    with subprocess.Popen(argv, cwd=ROOT, env=env) as program:
        while True:
            try:
                return program.wait()
            except KeyboardInterrupt:
                continue  # the program got it too, and has something to clean up


def perform(steps: tuple[Step, ...]) -> int:
    """Run steps in order until one fails; close with what ran, how long, and what to do next."""
    report: list[str] = []
    for number, step in enumerate(steps, 1):
        say(f"\n[{number}/{len(steps)}] {step.name}")
        began = time.monotonic()
        code = call([str(PYTHON), *step.argv])
        verdict = "FAILED" if code else "ok"
        report.append(f"  {step.name:<12} {time.monotonic() - began:7.1f} s   {verdict}")
        if code:
            report += [f"  {later.name:<12}           not run" for later in steps[number:]]
            say("\n" + "\n".join(report))
            say(f"\n{step.name} failed; to run it alone: python3 dev.py {step.alone}")
            return code
    say("\n" + "\n".join(report))
    say("\nall checks passed")
    return 0


def say(text: str) -> None:
    print(text, flush=True)  # before the output of the programs we start, not after it


# -- the environment -----------------------------------------------------------------------------


def make_environment() -> None:
    """Leave `.venv` holding what pyproject.toml asks for; when it does already, cost nothing."""
    import tomllib

    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shape = [asked["build-system"], asked["project"], asked["dependency-groups"], asked["tool"]["hatch"]]
    text = json.dumps([shape, sys.version, sys.base_prefix, str(ROOT)], sort_keys=True)
    wanted = hashlib.sha256(text.encode()).hexdigest()
    stamp = VENV / "made-for"
    with alone():
        if stamp.exists() and stamp.read_text() == wanted:
            return
        began = time.monotonic()
        say("making the environment in .venv (once; again when pyproject.toml asks for other things)")
        if importlib.util.find_spec("ensurepip") is None:
            debian_package("python3-venv", "this python3 cannot make virtual environments")
        quietly([sys.executable, "-m", "venv", "--clear", str(VENV)])
        install = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check"]
        quietly([*install, *asked["dependency-groups"]["dev"]])
        # Without isolation: the backend is there already, and the one that is pinned.
        quietly([*install, "--no-build-isolation", "--no-deps", "--editable", str(ROOT)])
        stamp.write_text(wanted)  # last: a broken installation must not pass for a finished one
        say(f"made in {time.monotonic() - began:.0f} s")


def have_lock_tests() -> None:
    """See that CPython's own tests of locks are there: Debian keeps them in a package apart."""
    if importlib.util.find_spec("test.lock_tests") is None:
        name = f"libpython{sys.version_info.major}.{sys.version_info.minor}-testsuite"
        debian_package(name, "this python3 comes without its own tests, which judge our locks")


def have_servers() -> None:
    """See that the servers are there of which tests start their own, on free ports, with nothing left behind."""
    if shutil.which("redis-server") is None:
        debian_package("redis-server", "the tests of redis:// start real servers")


def have_peers() -> None:
    """See that the libraries are there with which interlock is compared; no test needs them."""
    import tomllib

    peers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]["bench"]
    stamp = VENV / "peers"
    with alone():
        if not stamp.exists() or stamp.read_text() != repr(peers):
            say(f"installing the peers to compare with: {', '.join(peers)}")
            quietly([str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *peers])
            stamp.write_text(repr(peers))


def debian_package(name: str, why: str) -> None:
    """Install a package of Debian, or end with the command that would."""
    install = f"apt-get install -y --no-install-recommends {name}"
    if shutil.which("apt-get") is None:
        sys.exit(f"{why}; install what your system calls {name} and run this again")
    if os.geteuid() != 0:
        sys.exit(f"{why}; run this again after: sudo {install}")
    say(f"{why}: {install}")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    argv = [*install.split(), "-o", "DPkg::Lock::Timeout=300"]
    with no_services():
        if subprocess.run(argv, capture_output=True).returncode != 0:
            quietly(["apt-get", "update"])  # a fresh machine knows of no packages, an old one of gone ones
            quietly(argv)
    importlib.invalidate_caches()


@contextmanager
def no_services() -> Iterator[None]:
    """Keep apt from starting what it installs: nobody asked for a server on this machine's own ports."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists() or not policy.parent.is_dir():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)


def quietly(argv: list[str]) -> None:
    """Run a program whose output matters only when it fails; then it is the last thing said."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        say(done.stdout)
        sys.exit(f"failed with code {done.returncode}: {' '.join(argv)}")


@contextmanager
def alone() -> Iterator[None]:
    """Keep a second dev.py from using the environment while this one makes it."""
    try:
        import fcntl
    except ImportError:  # Windows: nobody runs two there at once
        yield
        return
    with open(ROOT / ".venv.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(argv: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036  (who runs an older one must be told, not shown a traceback)
        sys.exit(f"interlock needs Python 3.11 or later; {sys.executable} is {sys.version.split()[0]}")
    if argv and argv[0] in COMMANDS:
        return COMMANDS[argv[0]](argv[1:])
    say("usage: python3 dev.py COMMAND [ARGUMENTS]\n")
    for name, command in COMMANDS.items():
        say(f"  {name:<9} {(command.__doc__ or '').splitlines()[0]}")
    return 0 if not argv or argv[0] in ("help", "-h", "--help") else 64


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
