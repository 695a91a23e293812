"""The sync and the async API have the same names, the same arguments but for `await`, and the same documentation."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock import aio, blocking

CLASSES = [
    name
    for name, value in vars(blocking).items()
    if inspect.isclass(value) and value.__module__ == blocking.__name__ and not name.startswith("_")
]
ASKED = {("Barrier", "n_waiting"), ("Barrier", "broken")}  # properties there, coroutines here
each_class = pytest.mark.parametrize("name", CLASSES)

SPECIAL = {"__enter__": "__aenter__", "__exit__": "__aexit__"}

TRANSLATION = (  # what an async docstring may say, and the words for it in the sync API; longer ones first
    (
        "the body is cancelled at its next await, and `LeaseLost` leaves the `async with`",
        "`LeaseLost` is raised at the end of the body",
    ),
    ("Any number of tasks may use one client", "Any number of threads may use one client"),
    (
        (
            '- `keeper`: "thread" renews leases from a thread, so that a busy event loop does not lose them; "task" renews '
            "them from a task of the loop, for programs that must not start threads."
        ),
        "",
    ),
    ("interlock.aio.connect", "interlock.connect"),
    ("In an `async with`", "In a `with`"),
    ("async with", "with"),
    ("asyncio.Barrier", "threading.Barrier"),
    ("no task owns a generator", "no thread owns a generator"),
)


def translated(documentation: str) -> str:
    """The docstring in the words of the sync API, on one line."""
    text = " ".join(documentation.split())
    for words, sync_words in TRANSLATION:
        text = text.replace(words, sync_words)
    return text.strip()


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


def documented() -> Iterator[tuple[str, Any, Any]]:
    """What carries a docstring in both APIs: its name, and the two objects."""
    yield "connect", blocking.connect, aio.connect
    for name in CLASSES:
        sync_class, async_class = getattr(blocking, name), getattr(aio, name)
        yield name, sync_class, async_class
        ours = public(async_class)
        for member, sync in public(sync_class).items():
            if not member.startswith("__") or member == "__call__":
                yield f"{name}.{member}", sync, ours[member]


@each_class
def test_a_class_has_the_same_names_in_both_apis(name: str) -> None:
    theirs = {SPECIAL.get(member, member) for member in public(getattr(blocking, name))}
    ours = set(public(getattr(aio, name)))
    assert ours == theirs


@each_class
def test_a_method_takes_the_same_arguments_in_both_apis(name: str) -> None:
    ours = public(getattr(aio, name))
    for member, sync in public(getattr(blocking, name)).items():
        twin = ours[SPECIAL.get(member, member)]
        if (name, member) in ASKED:
            assert inspect.iscoroutinefunction(twin)
        elif isinstance(sync, property):
            assert isinstance(twin, property), member
        elif callable(sync):
            assert parameters(twin) == parameters(sync), f"{name}.{member}"


def test_a_docstring_says_the_same_in_both_apis() -> None:
    for path, sync, twin in documented():
        assert sync.__doc__, f"{path} says nothing"
        assert twin.__doc__, f"aio.{path} says nothing"
        assert translated(twin.__doc__) == " ".join(sync.__doc__.split()), path


def test_every_word_of_the_translation_is_in_use() -> None:
    said = " ".join(" ".join(twin.__doc__.split()) for _, _, twin in documented())
    idle = [words for words, _ in TRANSLATION if words not in said]
    assert not idle


def test_a_docstring_stands_in_the_source_where_an_editor_finds_it() -> None:
    """Editors read the file of a method, and run nothing."""
    for path, _, twin in documented():
        written = inspect.getsource(getattr(twin, "fget", twin))
        first = twin.__doc__.split("\n")[0]
        assert f'"""{first}' in written, f"aio.{path}"


def test_the_options_of_a_factory_are_listed_with_their_defaults() -> None:
    """So that `help()` and an editor's hint show them."""
    for client in (blocking.Client, aio.Client):
        options = inspect.signature(client.lock).parameters
        assert {
            name: option.default for name, option in options.items() if option.kind is option.KEYWORD_ONLY
        } == {
            "ttl": None,
            "timeout": None,
            "renew": True,
            "fair": True,
            "max_hold": None,
            "min_hold": None,
            "on_lost": None,
            "note": "",
        }
        for name, factory in public(client).items():
            kinds = (
                {parameter.kind for parameter in inspect.signature(factory).parameters.values()}
                if callable(factory)
                else set()
            )
            assert inspect.Parameter.VAR_KEYWORD not in kinds, name


def test_what_needs_no_await_stands_once() -> None:
    """In a mixin of both APIs: a method that is written twice is mended once."""
    twice = [
        path
        for path, sync, twin in documented()
        if "." in path
        and not asyncio.iscoroutinefunction(twin)
        and not inspect.isasyncgenfunction(twin)
        and twin is not sync
    ]
    assert sorted(twice) == [
        "BoundedSemaphore.__call__",
        "Lease.lost",  # an event of threading there, of asyncio here
        "Lock.__call__",
        "MultiLock.__call__",
        "Once.__call__",
        "RLock.__call__",
        "ReadLock.__call__",
        "Semaphore.__call__",
        "WriteLock.__call__",
    ]


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
    for name in CLASSES:
        if name == "Client":
            continue
        for member, value in public(getattr(aio, name)).items():
            if not inspect.isfunction(value) or member == "__call__":
                continue
            awaited = asyncio.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)
            plain = member in asks_nobody and (name == "RWLock" or member not in ("read", "write"))
            assert awaited != plain, f"{name}.{member}"
    awaited_of_client = {
        name for name, value in public(aio.Client).items() if asyncio.iscoroutinefunction(value)
    }
    assert awaited_of_client == {"inspect", "evict", "health", "diagnose", "close", "__aenter__", "__aexit__"}


def test_connect_takes_the_same_and_a_keeper() -> None:
    sync, twin = parameters(interlock.connect), parameters(aio.connect)
    assert twin[: len(sync)] == sync
    assert [name for name, *_ in twin[len(sync) :]] == ["keeper"]


def test_both_apis_export_what_they_have() -> None:
    assert interlock.Value is aio.Value
    for name in CLASSES:
        assert name in interlock.__all__
        assert name in aio.__all__
