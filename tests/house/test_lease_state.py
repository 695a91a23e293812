"""Only `_core/lease.py` assigns an attribute of a lease: its head promises that, and this test keeps it true."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock._core.lease import Lease
from tests.house.source import modules, parse

MODULES = modules()
PRIVATE = {name for name in Lease.__slots__ if name.startswith("_") and not name.startswith("__")}


def assigned(path: Path) -> Iterator[str]:
    """Assignments to attributes that are called like a lease's, of any object but the method's own."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if node.attr in PRIVATE and not own:
                yield f"{path}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", [name for name in MODULES if name != "_core.lease"])
def test_nothing_else_assigns_an_attribute_of_a_lease(name: str) -> None:
    assert not list(assigned(MODULES[name]))


@pytest.mark.parametrize("name", ["_api.mixins", "blocking", "aio"])
def test_the_public_leases_do_not_either(name: str) -> None:
    """Their classes are leases, so that `self` is one."""
    classes = [node for node in parse(MODULES[name]).body if isinstance(node, ast.ClassDef)]
    leases = [node for node in classes if node.name in ("Lease", "LeaseMixin")]
    assert leases
    stored = [node for lease in leases for node in ast.walk(lease) if isinstance(node, ast.Attribute)]
    assert not [node.attr for node in stored if isinstance(node.ctx, ast.Store) and node.attr in PRIVATE]
