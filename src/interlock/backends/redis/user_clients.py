"""Refuses clients of redis-py and valkey-py that are more than their settings say.

From a client, interlock takes the settings and makes connections of its own. A function or a class of the
user's may select another database, log in or choose another server when it connects, and put a prefix before
keys or choose another server when it sends a command. Ours would not do that, and the lock would be where
none of the user's programs looks for it.
"""

from __future__ import annotations

from abc import ABC
from typing import Any, Generic, Protocol, cast

from interlock.errors import Unsupported

LIBRARIES = ("redis", "valkey")
PYTHONS_OWN: tuple[Any, ...] = (object, ABC, Generic, Protocol)
CONNECT_FUNCS = tuple(f"{library}_connect_func" for library in LIBRARIES)
MAKES = ("make_connection", "get_connection", "ensure_connection")  # the methods of a pool that connect
FINDS = (
    "get_master_address",
    "discover_master",
)  # those of a pool and of its Sentinel that choose the server
SENDS = ("execute_command", "_execute_command", "parse_response")  # those of a client that send and read
ROUTES = ("get_node_from_key", "determine_slot", "keyslot", "_determine_nodes")  # and of one of a Cluster
SETTINGS_INSTEAD = "give it db, username, password or a credential_provider instead, or give connect a URL"


def check_client(client: Any) -> None:
    """Refuse the client of one server, or of the master that sentinels name, if our connections would not
    be like its own.
    """
    pool = client.connection_pool
    # An asyncio client has no such connection before its first command, but the flag.
    if getattr(client, "single_connection_client", False) or getattr(client, "connection", None) is not None:
        raise Unsupported(
            f"{type(client).__name__} with a single connection: it may have selected another database since, "
            f"which interlock's own connections would not know; {SETTINGS_INSTEAD}"
        )
    _check_connect_func(pool.connection_kwargs)
    _check_connection_class(pool.connection_class)
    _check_pool(pool, cast("type[object]", type(pool)))
    if (sentinel := getattr(pool, "sentinel_manager", None)) is not None:
        _check_pool(sentinel, cast("type[object]", type(sentinel)), "sentinels of the class")
    check_commands(client)


def check_cluster(client: Any) -> None:
    """Refuse the client of a Cluster if our connections would not be like its own."""
    check_commands(client)
    settings = client.nodes_manager.connection_kwargs
    # The library's own function stands in the settings, and calls the user's.
    if getattr(client, "user_on_connect_func", None) is not None:
        raise _not_only_settings("redis_connect_func")
    if (connection_class := settings.get("connection_class")) is not None:
        _check_connection_class(connection_class)
    if (pool_class := getattr(client.nodes_manager, "connection_pool_class", None)) is not None:
        _check_pool(None, pool_class)


def check_commands(client: Any) -> None:
    """Refuse a client that changes what is sent, where to, or what is answered: we send by ourselves."""
    if own := _own(client, cast("type[object]", type(client)), (*SENDS, *ROUTES)):
        raise Unsupported(
            f"a {type(client).__qualname__} with its own {own} may send commands elsewhere, or change their "
            "keys, and interlock, which sends its requests by itself, would not; give it a plain client, "
            "or connect a URL (its ?prefix= is put before every key)"
        )


def _check_connect_func(settings: dict[str, Any]) -> None:
    for name in CONNECT_FUNCS:
        if settings.get(name) is not None:
            raise _not_only_settings(name)


def _check_connection_class(kind: type[Any]) -> None:
    if _theirs(kind):
        raise _not_only_settings(f"connections of the class {kind.__qualname__}")


def _check_pool(pool: Any, kind: type[Any], what: str = "a pool of the class") -> None:
    if own := _own(pool, kind, (*MAKES, *FINDS)):
        raise _not_only_settings(f"{what} {kind.__qualname__}, which has its own {own},")


def _own(thing: Any, kind: type[Any], names: tuple[str, ...]) -> str:
    """The first of these methods that is the user's own, by a class or patched onto the object; or ""."""
    overridden = [name for parent in _theirs(kind) for name in names if name in vars(parent)]
    overridden += [name for name in names if name in getattr(thing, "__dict__", ())]
    return overridden[0] if overridden else ""


def _theirs(kind: type[Any]) -> list[type[Any]]:
    """The user's own classes among a class and its parents."""
    return [
        parent
        for parent in kind.__mro__
        if parent.__module__.partition(".")[0] not in LIBRARIES and parent not in PYTHONS_OWN
    ]


def _not_only_settings(what: str) -> Unsupported:
    return Unsupported(
        f"a client with {what} may select another database or server as it connects, and interlock's own "
        f"connections would not; {SETTINGS_INSTEAD}"
    )
