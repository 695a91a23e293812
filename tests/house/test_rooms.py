"""Every backend has the same rooms under the same names, so that a reader who knows one store finds their way in another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source import SRC

BACKENDS = SRC / "interlock" / "backends"

# A room is a module or a package; its twins are names that others would give to the same job.
ROOMS: dict[str, tuple[str, ...]] = {
    "address": ("endpoint", "endpoints", "location", "settings", "url", "url_options"),
    "errors": ("error", "exceptions", "faults"),
    "open": ("connect", "factory", "opening"),
    "store": ("adapter", "port"),
    "claims": ("acquiring", "claim", "claiming", "entering"),
    "releases": ("leaving", "release", "releasing"),
    "waits": ("wait", "waiting"),
    "renewals": ("renew", "renewal", "renewing"),
    "operators": ("evicting", "eviction", "inspecting", "inspection", "reading", "scan", "watching"),
    "registers": ("register", "values"),
    "wire": ("encoding", "format", "protocol"),
    "transport": ("client", "io", "network", "transports"),
}

# Modules that have the name of a twin and another job.
NO_TWINS: dict[str, str] = {
    "etcd/wire/values.py": "the values of keys, as bytes, for claims and registers alike",
    "etcd/wire/watching.py": "the watches of etcd itself, for waits, registers and operators alike",
    "redis/scan.py": "the command SCAN, step by step; that a store lists names with it stands in its store.py",
    "redis/url_options.py": "the part of a URL that one server, Sentinels and Clusters have in common",
    "sql/sqlite/file/location.py": "where the file may be: SQLite has no address",
    "sql/sqlite/tables/reading.py": "steps in a transaction that change nothing, for waits and operators alike",
}

# Every store is made from a URL (open), implements the port (store) and translates what its servers say (errors).
FROM_URL_TO_STORE = ("address", "errors", "open", "store")
STORES = (
    *("redis", "redlock", "etcd", "zookeeper"),
    *("sql/sqlite", "sql/postgresql", "sql/mysql"),
)
WITHOUT: dict[tuple[str, str], str] = {
    ("redlock", "address"): "each of its nodes is a Redis server, and has a Redis address",
    ("redlock", "errors"): "its nodes answer as Redis servers do",
    ("sql/sqlite", "address"): "a path is all, and file/location.py says where it may be",
    ("sql/postgresql", "store"): "all databases on servers share sql/server_store.py",
    ("sql/mysql", "store"): "all databases on servers share sql/server_store.py",
}


def modules(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.rglob("*.py") if path.name != "__init__.py")


def of_backend(path: Path) -> str:
    return path.relative_to(BACKENDS).as_posix()


def twins() -> dict[str, str]:
    """The modules and packages of backends whose name is the twin of a room, with that room."""
    room_of = {twin: room for room, names in ROOMS.items() for twin in names}
    found = [path for path in BACKENDS.rglob("*") if path.suffix == ".py" or (path / "__init__.py").exists()]
    return {of_backend(path): room_of[name] for path in found if (name := path.stem.strip("_")) in room_of}


def test_a_room_has_the_same_name_in_every_backend() -> None:
    found = {path: room for path, room in twins().items() if path not in NO_TWINS}
    assert not found, "\n".join(
        f"{path}: this room is called {room} elsewhere" for path, room in found.items()
    )


def test_an_exception_is_still_needed() -> None:
    assert sorted(NO_TWINS) == sorted(path for path in twins() if path in NO_TWINS)
    assert not [place for place in WITHOUT if rooms_of(place[0]) & {place[1]}]


def rooms_of(store: str) -> set[str]:
    return {path.stem for path in modules(BACKENDS / store)}


@pytest.mark.parametrize("store", STORES)
def test_a_store_has_its_rooms(store: str) -> None:
    absent = {
        room for room in FROM_URL_TO_STORE if room not in rooms_of(store) and (store, room) not in WITHOUT
    }
    assert not absent, f"{store} has no {sorted(absent)}: name the room, or say in WITHOUT why it has none"


def test_a_room_is_a_thing_and_no_twin_is_a_room() -> None:
    names = [twin for names in ROOMS.values() for twin in names]
    assert len(names) == len(set(names))
    assert not set(names) & ROOMS.keys()
