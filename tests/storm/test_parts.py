"""The parts of a storm do not know each other: whoever changes one need not read the others."""

from __future__ import annotations

import pytest

from interlock.lab.deployments import KINDS as SERVERS
from interlock.lab.storm.deployments import KINDS, deployment
from interlock.lab.storm.faults.fault import ROWS
from tests.house.source import imports, modules

STORM = "lab.storm."
MODULES = {name: path for name, path in modules().items() if name.startswith(STORM)}
PARTS = ("schedule", "workers", "faults", "verdict")
SHARED = ("resources",)  # names that several parts use


def part_of(name: str) -> str:
    return name.removeprefix("interlock.").removeprefix(STORM).partition(".")[0]


@pytest.mark.parametrize("name", [name for name in MODULES if part_of(name) in PARTS])
def test_a_part_imports_no_other(name: str) -> None:
    found = {
        f"{MODULES[name]}:{line}: {target}"
        for line, target in imports(name, MODULES[name], MODULES)
        if target.startswith(f"interlock.{STORM}") and part_of(target) not in (part_of(name), *SHARED)
    }
    # For the types of what a fault may hit; nothing of it is loaded.
    assert {one for one in found if not one.endswith("workers.crew")} == set()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
def test_the_faults_of_a_deployment_have_names_of_their_own_and_rows_of_the_matrix(kind: str) -> None:
    try:
        field = deployment(kind)
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")
    try:
        names = [fault.name for fault in field.faults]
        assert len(names) == len(set(names))
        assert {fault.row for fault in field.faults} <= set(ROWS)
        assert all(fault.weight > 0 for fault in field.faults)
    finally:
        field.close()


def test_every_kind_names_servers_that_the_lab_knows() -> None:
    assert {kind.servers for kind in KINDS.values()} <= set(SERVERS)
