"""The two faces have the same names, the same signatures but for `await`, and the same documentation."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

import interlock
from interlock import aio, blocking

CLASSES = [
    name
    for name, value in vars(blocking).items()
    if inspect.isclass(value) and value.__module__ == blocking.__name__ and not name.startswith("_")
]
ONLY_SYNC = {"Value"}  # plain data, shared
ASKED = {("Barrier", "n_waiting"), ("Barrier", "broken")}  # properties there, coroutines here
each_class = pytest.mark.parametrize("name", [name for name in CLASSES if name not in ONLY_SYNC])

SPECIAL = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


def public(cls: type) -> dict[str, Any]:
    """Everything a user may touch, also what is inherited from interlock's own classes."""
    found: dict[str, Any] = {}
    for parent in reversed(cls.__mro__):
        if parent.__module__.startswith("interlock."):
            found |= vars(parent)
    named = {name: value for name, value in found.items() if not name.startswith("_")}
    special = {name: found[name] for name in (*SPECIAL, *SPECIAL.values(), "__call__") if name in found}
    return {**named, **special}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@each_class
def test_a_class_has_the_same_names_in_both_faces(name: str) -> None:
    theirs = {SPECIAL.get(member, member) for member in public(getattr(blocking, name))}
    ours = set(public(getattr(aio, name)))
    assert ours == theirs


@each_class
def test_a_method_takes_the_same_arguments_in_both_faces(name: str) -> None:
    ours = public(getattr(aio, name))
    for member, sync in public(getattr(blocking, name)).items():
        twin = ours[SPECIAL.get(member, member)]
        if (name, member) in ASKED:
            assert inspect.iscoroutinefunction(twin)
        elif isinstance(sync, property):
            assert isinstance(twin, property), member
        elif callable(sync):
            assert parameters(twin) == parameters(sync), f"{name}.{member}"


@each_class
def test_a_method_says_the_same_in_both_faces(name: str) -> None:
    sync_class, async_class = getattr(blocking, name), getattr(aio, name)
    assert sync_class.__doc__
    assert async_class.__doc__
    ours = public(async_class)
    for member, sync in public(sync_class).items():
        if member.startswith("__"):
            continue
        twin = ours[member]
        assert sync.__doc__, f"{name}.{member} says nothing"
        assert twin.__doc__ == sync.__doc__, f"{name}.{member}"


def test_what_asks_the_store_is_awaited_and_what_asks_nobody_is_not() -> None:
    asks_nobody = {
        "adopt",
        "check",
        "loss",
        "remaining",
        "owned",
        "leading",
        "read",  # of a read-write lock: makes no request
        "write",
    }
    makers = {name for name in vars(aio.Client) if not name.startswith("_")}
    for name in CLASSES:
        if name in ONLY_SYNC or name == "Client":
            continue
        for member, value in public(getattr(aio, name)).items():
            if not inspect.isfunction(value) or member == "__call__":
                continue
            awaited = asyncio.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)
            plain = member in asks_nobody and (name == "RWLock" or member not in ("read", "write"))
            assert awaited != plain, f"{name}.{member}"
    awaited_of_client = {name for name in makers if inspect.iscoroutinefunction(getattr(aio.Client, name))}
    assert awaited_of_client == {"inspect", "evict", "close"}


def test_connect_takes_the_same_and_a_keeper() -> None:
    sync, twin = parameters(interlock.connect), parameters(aio.connect)
    assert twin[: len(sync)] == sync
    assert [name for name, *_ in twin[len(sync) :]] == ["keeper"]


def test_both_faces_export_what_they_have() -> None:
    for name in CLASSES:
        assert name in interlock.__all__
        assert name in ONLY_SYNC or hasattr(aio, name)
