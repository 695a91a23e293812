"""The arrows of import point downwards. The table below is the architecture; the tests hold src to it."""

from __future__ import annotations

import sys

import pytest

from tests.house.source import imports, modules

# Small parts without a clock, a thread or a socket, which any module may use.
PURE_SUPPORT = ("_support.printable", "_support.record", "_support.wording")
DATA = (*PURE_SUPPORT, "model", "who", "errors", "events")
PORTS = (*DATA, "store", "_core.runtime")
CORE = (*PORTS, "_core")
# The pure part of the core, which stores agree with; and the system's own clock, threads and locks.
RULES = (*PORTS, "_support", "_core.admission", "_core.drive", "_core.outline", "_core.timing")
BELOW_FACES = (*CORE, "_runtime", "_support", "_api", "urls", "doctor")
ANYTHING = ("",)
# What a user may import; `interlock` is the package itself, without the modules below it.
PUBLIC = ("interlock", *DATA, "blocking", "aio", "store", "urls", "guards", "doctor")
CLI = (*PUBLIC, "cli", "_support")

# A module may import what stands in its row: each entry admits that module and all below it.
# The longest matching row counts. A module without a row is an error: decide where it belongs.
ARROWS: dict[str, tuple[str, ...]] = {
    "_support": (),
    "_support.printable": (),
    "_support.wording": ("_support.printable", "_support.record", "model", "who"),
    "_support.log": DATA,
    "_support.native": PORTS,
    "who": ("_support.printable", "_support.record"),
    "model": ("_support.record", "who"),
    "errors": (*PURE_SUPPORT, "model", "who"),
    "events": (*PURE_SUPPORT, "model", "errors", "who"),
    "store": DATA,
    "_core": CORE,
    "_runtime": (*CORE, "_runtime", "_support"),
    "backends.kit": RULES,  # what several backends need: it knows none of them
    "backends": (*RULES, "backends.kit"),  # and each its own package: backends do not know each other
    "backends.redlock": (
        *RULES,
        "backends.kit",
        "backends.redis",
    ),  # a quorum of such servers: their keys, scripts and addresses
    # The steps in Python, which programs of other databases are compared with: nothing of SQLite's files and connections.
    "backends.sql.sqlite.tables": (*RULES, "backends.sql.sqlite.tables", "backends.sql.steps"),
    "guards.zookeeper": (
        *(*PORTS, "_core.drive", "_core.lease", "_core.names", "_core.presented"),
        "backends.zookeeper.errors",
        "backends.zookeeper.paths",  # how names become paths
    ),
    "urls": (*PORTS, "_runtime", "backends"),
    "_api": (*CORE, "_api", "_runtime.foreign"),
    "_api.shutdown": ("_runtime", "_support", "errors"),
    "blocking": BELOW_FACES,
    "aio": BELOW_FACES,
    # Guards take leases and compare tokens. They know no store; the one of Redis shares its rule for slots.
    "guards": (
        *PORTS,
        "_core.drive",
        "_core.lease",
        "_core.names",
        "_core.client",
        "_core.presented",
        "guards",
        "_support.package_text",
        "_support.standard_streams",
    ),
    "guards.sql.checks": (*PORTS, "_core.cohort", "_core.signature", "_core.presented", "guards.sql"),
    # Requests of its own to the user's cluster, over the framing of the store.
    "guards.etcd": (
        *PORTS,
        "_support.clock",
        "_core.drive",
        "_core.lease",
        "_core.names",
        "_core.presented",
        "backends.etcd",
        "backends.kit.deadline",
        "urls",
    ),
    "guards.redis": (
        *PORTS,
        "_support.package_text",
        "_core.drive",
        "_core.lease",
        "_core.presented",
        "backends.redis.user_clients",
        "backends.redis.wire.keys",
    ),
    "guards.http": (
        *PORTS,
        "_core.drive",
        "_core.high_water_mark",
        "_core.lease",
        "_core.names",
        "_core.presented",
        "_core.timing",
        "blocking",
        "aio",
    ),
    "": (*BELOW_FACES, "blocking", "aio", "guards"),  # interlock/__init__.py
    "__main__": ("cli",),
    # The command line proves the public API: if it lacks something there, so does every tool of a user.
    "cli": CLI,
    "cli.run": (*CLI, "_core.names"),  # a bad name is refused before a warden is forked or a file is made
    # The operator's tools of single backends, which no public name of all stores could carry.
    "cli.quorum": (*CLI, "_core.names", "_core.drive", "backends.redlock"),
    "cli.quorum_report": (*CLI, "backends.redlock"),
    "cli.lab": (*CLI, "lab"),
    "cli.lab_chaos": (*CLI, "lab"),
    "cli.lab_model": (*CLI, "lab"),
    "cli.sql": (*CLI, "backends.sql.postgresql.open", "backends.sql.mysql.address"),
    "doctor": (*CORE, "doctor"),
    "lab": ANYTHING,
    "testing": ANYTHING,
    "contrib": PUBLIC,
    "contrib.prometheus": (*PUBLIC, "contrib.measures"),
    "contrib.opentelemetry": (*PUBLIC, "contrib.measures"),
    # It extends and shortens the key of a lease with its own script, and finds a claim by redis-py's token.
    "contrib.redis_py": (
        *PUBLIC,
        "contrib.redis_py",
        "_core",
        "_support.package_text",
        "backends.redis.wire",
    ),
}

# The core has no clock, no thread, no loop, no random: it asks the runtime, so that a simulator can answer.
CHANCE = ("datetime", "random", "secrets", "time", "uuid")
BESIDE = ("asyncio", "concurrent", "multiprocessing", "queue", "signal", "subprocess", "threading")
OUTSIDE = ("os", "select", "selectors", "socket", "sqlite3")
WORLD = (*CHANCE, *BESIDE, *OUTSIDE)
APART: dict[str, tuple[str, ...]] = {
    "_support.printable": WORLD,
    "_support.record": WORLD,
    "_support.wording": WORLD,
    "model": WORLD,
    "who": WORLD,
    "errors": (*CHANCE, *OUTSIDE),  # a broken barrier is a threading.BrokenBarrierError
    "events": WORLD,
    "store": WORLD,
    "_core": WORLD,
    "backends.sql.sqlite.tables": (*CHANCE, *BESIDE, "select", "selectors", "socket", "sqlite3"),
    "_runtime.threads": ("asyncio",),  # 83 ms of import, for programs that never await
    "_api": ("asyncio",),
    "blocking": ("asyncio",),
}

MODULES = modules()


def within(name: str, entry: str) -> bool:
    return entry == "" or name == entry or name.startswith(entry + ".")


def row(name: str) -> str | None:
    """The row for a module: the longest entry it is within; "" is the row of the package alone."""
    rows = [entry for entry in ARROWS if (entry and within(name, entry)) or name == entry]
    return max(rows, key=len, default=None)


def allowed(name: str, entry: str) -> tuple[str, ...]:
    """What a module may import: its row, and for a backend the package it is part of, unless the row is narrower."""
    own = ".".join(name.split(".")[:2])
    whole = own.startswith("backends.") and entry.count(".") < 2
    return (*ARROWS[entry], own) if whole else ARROWS[entry]


@pytest.mark.parametrize("name", MODULES, ids=lambda name: name or "interlock")
def test_a_module_imports_only_what_stands_below_it(name: str) -> None:
    entry = row(name)
    assert entry is not None, f"interlock.{name} has no row in ARROWS: decide what it may import"
    upward = [
        f"{MODULES[name]}:{line}: imports {target}, which does not stand below {entry or 'the faces'}"
        for line, target in imports(name, MODULES[name], MODULES)
        if target.split(".")[0] == "interlock"
        and not any(
            target == below or within(target.removeprefix("interlock").lstrip("."), below)
            for below in allowed(name, entry)
        )
    ]
    assert not upward, "\n" + "\n".join(upward)


@pytest.mark.parametrize("name", MODULES, ids=lambda name: name or "interlock")
def test_a_module_keeps_apart_from_what_its_runtime_decides(name: str) -> None:
    forbidden = {module for entry, banned in APART.items() if within(name, entry) for module in banned}
    met = [
        f"{MODULES[name]}:{line}: imports {target}"
        for line, target in imports(name, MODULES[name], MODULES)
        if target.split(".")[0] in forbidden
    ]
    assert not met, "\n" + "\n".join(met)


def test_nothing_in_the_package_needs_more_than_the_standard_library() -> None:
    foreign = [
        f"{path}:{line}: imports {target}"
        for name, path in MODULES.items()
        # What stands in for another library's part is built on that library; a harness asks servers through theirs.
        # The lab does, too; tests/lab/test_imports.py sees that it needs none to be imported.
        if not any(within(name, part) for part in ("contrib", "testing.servers", "lab"))
        for line, target in imports(name, path, MODULES)
        if target.split(".")[0] not in {*sys.stdlib_module_names, "interlock", "__future__"}
    ]
    assert not foreign, "\n" + "\n".join(foreign)


def test_every_row_of_the_table_is_about_something() -> None:
    idle = [entry for entry in ARROWS if not any(row(name) == entry for name in MODULES)]
    assert not idle, f"rows without a module: {idle}"
