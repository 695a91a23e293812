#!/usr/bin/env python3
"""Every command of this repository, in one place: `python3 dev.py COMMAND`.

Python 3.11 is all it needs. What the checks need is installed into `.venv`, once, and again
when the tables of pyproject.toml that describe it change.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / os.environ.get("INTERLOCK_VENV", ".venv")  # `test --python` sets it: one for each interpreter
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
FAILED_TESTS = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"  # pytest writes it
FEW = 12  # red tests, one in a thousand, that get a second chance alone: more of them are no accident of a busy machine
MANY = 80  # of them where the host of a virtual machine gave more than a tenth of our processors to others meanwhile
LITTER = (
    ".venv*",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "build",
    "dist",
    "*/**/__pycache__",
)


@dataclass(frozen=True)
class Step:
    """One check: its name, what it runs in the environment, and how to run it alone."""

    name: str
    argv: tuple[str, ...]
    alone: str
    repeats: bool = True  # also if it passed before and nothing that it reads has changed


LINT = (
    Step("ruff check", ("-m", "ruff", "check"), "lint"),
    Step("ruff format", ("-m", "ruff", "format", "--check"), "lint   (dev.py format mends it)"),
)
TYPES = (
    Step("mypy", ("-m", "mypy"), "types"),
    # It keeps no cache, and takes a minute of computing.
    Step("pyright", ("-m", "pyright", "--pythonpath", str(PYTHON)), "types", repeats=False),
)
# Most tests wait for something, so more of them run at once than there are processors. tests/conftest.py has the order.
PYTEST = ("-m", "pytest", "--dist", "loadfile", "--no-loadscope-reorder")
TESTS = (Step("pytest", (*PYTEST, "-n", "6"), "test --lf"),)

SERVERS = {
    "redis-server": "redis-server",
    "etcd-server": "etcd",
    "etcd-client": "etcdctl",
    "default-jre-headless": "java",
    "zookeeper": "/usr/share/java/zookeeper.jar",
    "postgresql": "/usr/lib/postgresql/*/bin/postgres",
    "pgbouncer": "pgbouncer",
    "mariadb-server": "mariadbd",
}
"""Packages of Debian whose servers the tests start, and a program or file by which each is known to be installed."""

QUICK = "attacks cli conformance cpython docs doctor faces field house kit lab mutants simulation sql sqlite typing unit".split()
"""Folders of tests/ without servers: the embedded stores, and everything that needs no store."""

NO_SERVER = ("-m", "not server and not slow")
QUICK_FOLDERS = [f"tests/{folder}" for folder in QUICK]
# More at once than in the whole: no servers stand beside them.
QUICK_TESTS = (Step("pytest", (*PYTEST, "-n", "8", *NO_SERVER, *QUICK_FOLDERS), "test --quick --lf"),)
MEMORY = Path("/dev/shm")
ROOM = 1 << 30  # bytes; the tests without servers need some dozens of millions

BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


# -- what the commands do ------------------------------------------------------------------------


def demo(args: list[str]) -> int:
    """Show interlock at work on this machine; needs no environment."""
    start = "import sys; from interlock.lab.demo import main; sys.exit(main(sys.argv[1:]))"
    return call([sys.executable, "-c", start, *args], PYTHONPATH=str(ROOT / "src"))


def setup(args: list[str]) -> int:
    """Install what the tests need: the environment, and, as root, packages of Debian with servers."""
    make_environment()
    have_lock_tests()
    have_servers()
    return 0


def test(args: list[str]) -> int:
    """Run every check; --quick, --full, --python and --busy choose which and how (--help); with a PATH, only the tests in it."""
    asked, others = test_options().parse_known_args(args)
    if asked.python:
        return test_with(asked, others)
    make_environment()
    if asked.full:
        os.environ["INTERLOCK_FULL"] = "1"  # tests/full.py reads it, here and in the workers
    if others:
        # Nothing is installed for a part of the tests: one that needs a server names the package it comes in.
        named = any((ROOT / other.partition("::")[0]).exists() for other in others)
        quick = (*NO_SERVER, *(() if named else QUICK_FOLDERS)) if asked.quick else ()
        with busy(asked.busy):
            return call([str(PYTHON), "-m", "pytest", *quick, *others])
    if not asked.quick:
        have_lock_tests()
        have_servers()
    with busy(asked.busy):
        if not asked.quick:
            return perform(LINT + TYPES + TESTS, asked.strict)
        with files_in_memory():
            return perform(LINT + QUICK_TESTS, asked.strict)


def test_options() -> argparse.ArgumentParser:
    """The options of `test`; pytest gets everything else."""
    options = argparse.ArgumentParser(
        "dev.py test",
        description="Run every check.",
        epilog="Other arguments go to pytest, which then runs alone, and nothing is installed but the environment: "
        "`dev.py setup` installs servers.",
        allow_abbrev=False,
    )
    which = options.add_mutually_exclusive_group()
    which.add_argument(
        "--quick", action="store_true", help="style, and the tests that need no server: less than two minutes"
    )
    which.add_argument("--full", action="store_true", help="also the long soaks and searches")
    options.add_argument(
        "--python", metavar="NAME", help="with another interpreter, such as python3.13, in a .venv of its own"
    )
    options.add_argument(
        "--strict", action="store_true", help="a test that is red once is red, also if it passes alone"
    )
    options.add_argument(
        "--busy",
        metavar="N",
        type=int,
        default=0,
        help="beside N endless loops, as on a machine with other work",
    )
    return options


def test_with(asked: argparse.Namespace, others: list[str]) -> int:
    """Run `dev.py test` with another interpreter, which makes and keeps an environment of its own."""
    python, version = find_interpreter(asked.python)
    say(f"testing with {python} in .venv-{version}")
    args = [f"--{name}" for name in ("quick", "full", "strict") if getattr(asked, name)] + [
        f"--busy={asked.busy}",
        *others,
    ]
    return call([python, str(ROOT / "dev.py"), "test", *args], INTERLOCK_VENV=f".venv-{version}")


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many endless loops running; they end with the block, or with this process, whatever ends it."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def files_in_memory() -> Iterator[None]:
    """Keep the temporary files of tests in memory, if it has room and $TMPDIR does not ask for another folder.

    Tests make hundreds of lock files, and each waits for the disk when it is made and when it is closed. Not for tests with
    servers, whose files may not fit.
    """
    if "TMPDIR" in os.environ or not memory_has_room():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="interlock-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o1777)  # as /tmp: some tests act as another user
        os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            del os.environ["TMPDIR"]


def memory_has_room() -> bool:
    """Whether this system has a folder in memory that is large enough, and from which programs can be started."""
    if not os.access(MEMORY, os.W_OK):
        return False
    found = os.statvfs(MEMORY)
    starts_programs = not found.f_flag & os.ST_NOEXEC  # many containers forbid it there
    return starts_programs and found.f_bavail * found.f_frsize >= ROOM


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


def soak(args: list[str]) -> int:
    """Break the servers of every store for hours while clients work: --hours H, --store KIND, --seed N; stops at a violation."""
    make_environment()
    if not {"--help", "-h"} & set(args):
        have_servers()
    return call([str(PYTHON), "-m", "interlock.lab.storm.soak", *args], PYTHONPATH=str(ROOT / "src"))


def reliability(args: list[str]) -> int:
    """Make the tables of docs/reliability.md anew from the files of soaks, which are the arguments."""
    page = str(ROOT / "docs" / "reliability.md")
    argv = [sys.executable, "-m", "interlock.lab.storm.tally", page, *map(os.path.abspath, args)]
    return call(argv, PYTHONPATH=str(ROOT / "src"))


def mutants(args: list[str]) -> int:
    """Plant deliberate bugs, one at a time, and demand that the suite turns red."""
    make_environment()
    return call([str(PYTHON), str(ROOT / "tests" / "mutants" / "run.py"), *args])


def bench(args: list[str]) -> int:
    """Ask how fast interlock is, side by side with the bare commands; --list shows the questions."""
    make_environment()
    if not {"--list", "--help", "-h"} & set(args):  # which measure nothing
        have_servers()
        have_peers(args)
    return call([str(PYTHON), "-m", "benchmarks", *args])


def surface(args: list[str]) -> int:
    """Rewrite tests/house/public_surface.txt, to be reviewed with the change that caused it."""
    script = ROOT / "tests" / "house" / "surface.py"
    return call([sys.executable, str(script), "--write", *args], PYTHONPATH=str(ROOT / "src"))


def clean(args: list[str]) -> int:
    """Remove the environment and all caches."""
    for path in [path for name in LITTER for path in ROOT.glob(name)]:
        shutil.rmtree(path, ignore_errors=True)
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    command.__name__: command
    for command in (
        demo,
        setup,
        test,
        lint,
        types,
        format,
        sim,
        soak,
        reliability,
        mutants,
        bench,
        surface,
        clean,
    )
}


# -- running things ------------------------------------------------------------------------------


def call(argv: list[str], **extra: str) -> int:
    """Run a program on our own terminal and answer with its exit code."""
    env = {**os.environ, **extra, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    env.pop("INTERLOCK_URL", None)  # or a developer's own store would be locked by the tests
    # Tests start thousands of programs, and each would compile what it imports.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with subprocess.Popen(argv, cwd=ROOT, env=env) as program:
        while True:
            try:
                return program.wait()
            except KeyboardInterrupt:
                continue  # the program got it too, and has something to clean up


def perform(steps: tuple[Step, ...], strict: bool = False) -> int:
    """Run steps in order until one fails; close with what ran, how long, and what to do next."""
    report: list[str] = []
    unsteady: list[str] = []
    FAILED_TESTS.unlink(missing_ok=True)
    for number, step in enumerate(steps, 1):
        say(f"\n[{number}/{len(steps)}] {step.name}")
        began = time.monotonic()
        before = processor_times()
        passed, read = VENV / f"{step.name}-passed", "" if step.repeats else files_read()
        if read and passed.exists() and passed.read_text() == read:
            say("nothing has changed since it passed")
            report.append(f"  {step.name:<12} {0:7.1f} s   ok (nothing has changed since it passed)")
            continue
        code = call([str(PYTHON), *step.argv])
        if read and not code:
            passed.write_text(read)
        stolen = stolen_share(before)
        if stolen > 0.1:
            say(f"\nthe host of this machine gave {stolen:.0%} of its processors to others meanwhile")
        if code and not strict and 0 < len(failed := failed_tests()) <= (MANY if stolen > 0.1 else FEW):
            say(f"\n{len(failed)} failed beside the others; once more, alone:")
            code = call([str(PYTHON), "-m", "pytest", *failed])
            unsteady += failed
            if code and (still := failed_tests()):
                # Other programs of the machine may have disturbed one of them once more.
                say(f"\n{len(still)} failed alone, too; a last time:")
                code = call([str(PYTHON), "-m", "pytest", *still])
        verdict = "FAILED" if code else "ok"
        report.append(f"  {step.name:<12} {time.monotonic() - began:7.1f} s   {verdict}")
        if code:
            report += [f"  {later.name:<12}           not run" for later in steps[number:]]
            say("\n" + "\n".join(report))
            say(f"\n{step.name} failed; to run it alone: python3 dev.py {step.alone}")
            return code
    say("\n" + "\n".join(report))
    if unsteady:
        say("\nUNSTEADY: these passed only when they ran alone. Mend the test, or the race that it found:")
        say("\n".join(f"  {test}" for test in unsteady))
    say("\nall checks passed")
    return 0


def files_read() -> str:
    """A digest of all that a check of types reads: the code, the settings, and which packages the environment has."""
    digest = hashlib.sha256()
    folders = [ROOT / name for name in ("src", "tests", "benchmarks", "examples")]
    code = [path for folder in folders for path in folder.rglob("*.py*") if path.suffix in (".py", ".pyi")]
    for path in (*sorted(code), ROOT / "dev.py", ROOT / "pyproject.toml"):
        digest.update(f"{path}\n".encode() + path.read_bytes())
    digest.update("\n".join(sorted(glob(str(VENV / "lib" / "*" / "site-packages" / "*")))).encode())
    return digest.hexdigest()


def processor_times() -> tuple[int, int]:
    """The time that the host of a virtual machine gave to others, and all time, in ticks; (0, 1) where nobody tells."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    except (OSError, ValueError):
        return 0, 1
    return (ticks[7] if len(ticks) > 7 else 0), sum(ticks)


def stolen_share(before: tuple[int, int]) -> float:
    """The share of the time since `before` in which the host let others use our processors."""
    stolen, total = processor_times()
    return (stolen - before[0]) / max(1, total - before[1])


def failed_tests() -> list[str]:
    """The tests that were red when pytest ran last."""
    return list(json.loads(FAILED_TESTS.read_text(encoding="utf-8"))) if FAILED_TESTS.exists() else []


def say(text: str) -> None:
    print(text, flush=True)  # before the output of the programs we start, not after it


# -- the environment -----------------------------------------------------------------------------


def make_environment() -> None:
    """Leave `.venv` holding what pyproject.toml asks for; when it does already, cost nothing."""
    import tomllib

    if Path(sys.prefix) == VENV:
        return  # this program runs in it: made anew, it would be pulled away from under the tests that called us
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shape = [
        asked["build-system"],
        asked["project"],
        asked["dependency-groups"]["dev"],
        asked["tool"]["hatch"],
    ]
    text = json.dumps([shape, sys.version, sys.base_prefix, str(ROOT)], sort_keys=True)
    wanted = hashlib.sha256(text.encode()).hexdigest()
    stamp = VENV / "made-for"
    with alone():
        if stamp.exists() and stamp.read_text() == wanted:
            return
        began = time.monotonic()
        say(f"making the environment in {VENV.name} (once; again when pyproject.toml asks for other things)")
        if importlib.util.find_spec("ensurepip") is None:
            debian_packages(["python3-venv"], "this python3 cannot make virtual environments")
        quietly([sys.executable, "-m", "venv", "--clear", str(VENV)])
        install = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check"]
        quietly([*install, *asked["dependency-groups"]["dev"]])
        # Without isolation: the backend is there already, and the one that is pinned.
        quietly([*install, "--no-build-isolation", "--no-deps", "--editable", str(ROOT)])
        stamp.write_text(wanted)  # last: a broken installation must not pass for a finished one
        say(f"made in {time.monotonic() - began:.0f} s")


def find_interpreter(name: str) -> tuple[str, str]:
    """The path and the version (3.13) of an interpreter that runs: on the PATH, or one that pyenv has installed."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    ask = "import sys; print(*sys.version_info[:2], sep='.')"
    for path in (shutil.which(name), *sorted(glob(str(pyenv / "*" / "bin" / name)))):
        if path is None:
            continue
        told = subprocess.run([path, "-c", ask], capture_output=True, text=True)
        if told.returncode == 0:  # one of pyenv's shims may stand for a version that is not chosen
            return path, told.stdout.strip()
    sys.exit(f"{name} is not installed: neither on the PATH nor below {pyenv}")


def have_lock_tests() -> None:
    """See that CPython's own tests of locks are there: Debian keeps those of its python3 in a package apart."""
    if importlib.util.find_spec("test.lock_tests") is not None:
        return
    why = "this python3 comes without its own tests, which judge our locks"
    if sys.base_prefix == "/usr":
        debian_packages([f"libpython{sys.version_info.major}.{sys.version_info.minor}-testsuite"], why)
    elif VENV.name == ".venv":
        sys.exit(f"{why}; use another, or have its standard library installed with the package `test`")
    else:  # asked for on demand: everything else is worth knowing
        say(f"{why}: tests/cpython is not run")
        os.environ["INTERLOCK_UNJUDGED"] = "1"


def have_servers() -> None:
    """See that the servers are there of which tests start their own, on free ports, with nothing left behind."""
    missing = [package for package, program in SERVERS.items() if not installed(program)]
    if missing:
        debian_packages(missing, "the tests start real servers")


def have_peers(args: list[str]) -> None:
    """See that the libraries are there with which interlock is compared in the questions asked; no test needs them."""
    import tomllib

    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    with alone():
        for group in wanted_peers(args, groups):
            stamp = VENV / group
            if not stamp.exists() or stamp.read_text() != repr(groups[group]):
                say(f"installing the peers to compare with: {', '.join(groups[group])}")
                quietly([str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *groups[group]])
                stamp.write_text(repr(groups[group]))


def wanted_peers(args: list[str], groups: Iterable[str]) -> list[str]:
    """The groups `bench-STORE` of those stores that the arguments of `bench` may ask about; all, if they name none."""
    names = [arg for arg in args if not arg.startswith("-") and not arg.isdigit()]
    stores = [group.removeprefix("bench-") for group in groups if group.startswith("bench-")]
    asked = [
        store for store in stores if any(name.startswith(store) or store.startswith(name) for name in names)
    ]
    return [f"bench-{store}" for store in (asked if names else stores)]


def installed(program: str) -> bool:
    """Whether a program is on the PATH, or in a folder where Debian puts what only root starts; or a file is there."""
    folders = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin"
    return bool(glob(program)) if program.startswith("/") else shutil.which(program, path=folders) is not None


def debian_packages(names: list[str], why: str) -> None:
    """Install packages of Debian, or end with the command that would."""
    install = f"apt-get install -y --no-install-recommends {' '.join(names)}"
    if shutil.which("apt-get") is None:
        sys.exit(f"{why}; install what your system calls {', '.join(names)} and run this again")
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
    no_cluster = Path(
        "/etc/postgresql-common/createcluster.d/interlock.conf"
    )  # PostgreSQL would make a database, too
    if not no_cluster.exists():
        no_cluster.parent.mkdir(parents=True, exist_ok=True)
        no_cluster.write_text("create_main_cluster = false\n")
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
