"""Commands and scripts on a Redis server that run only if the token of a lease is not too low.

    guard = guards.redis.Guard(redis.Redis())
    with client.lock("stock:tea") as lease:
        guard.execute(lease, "DECRBY", "stock:{stock:tea}", 1)

One Lua script compares the token with the highest one that was accepted for the resource, and runs the
command: nothing can come between the two. The lock itself may live in any store.

A client of redis-py repeats a request whose reply was lost, and says nothing: a counter would count twice. So
the script is sent past that, once, through a connection of the client's own pool; see `_once`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from inspect import Parameter, isawaitable, signature
from typing import Any

from interlock._core.drive import drive
from interlock._core.lease import Lease
from interlock._core.presented import Presented, presented
from interlock._support.package_text import text_beside
from interlock.backends.redis.user_clients import check_commands
from interlock.backends.redis.wire.keys import companion, slot
from interlock.errors import InterlockError, StaleToken, StoreUnavailable, StoreUnfit, Unreached

__all__ = ["AsyncGuard", "Guard"]

RUN = "return redis.call(unpack(ARGV))"
"""The body that runs a single command."""

MAX_REMEMBER_S = 1e10
"""Seconds, some three hundred years: a server cannot count many more."""

REFUSED = "AuthenticationError"
"""The name of both libraries for a wrong password: a `ConnectionError`, though the connection is well."""

BROKEN = ("ConnectionError", "TimeoutError", "OSError", "RedisClusterException", "ValkeyClusterException")
"""The names of both libraries for a connection that failed, or a Cluster that is not found afterwards."""

UNDONE = ("BusyLoadingError", "MaxConnectionsError", "ClusterDownError", "SlotNotCoveredError")
"""The names for what kept a request from being done, though it may be done later."""

STALE, ACCEPTED, NO_TOKEN = range(3)  # what the script answers first


_guards: weakref.WeakSet[_Guard] = weakref.WeakSet()
"""The guards for asyncio: clients of blocking libraries look after forks by themselves."""


def _after_fork() -> None:
    for guard in list(_guards):
        guard._of_parent = guard._of_parent or _connected(guard._client)


def _connected(client: Any) -> bool:
    """Whether a client for asyncio has connections, in use or idle."""
    if hasattr(client, "nodes_manager"):
        nodes = client.nodes_manager.nodes_cache.values()
        return any(getattr(node, "_connections", ()) for node in nodes)
    pool = client.connection_pool
    return bool(getattr(pool, "_available_connections", ()) or getattr(pool, "_in_use_connections", ()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _script(body: str) -> str:
    return text_beside(__spec__, "redis.lua").replace("--BODY--", body)


class _Guard:
    """What both guards share: the requests and what their replies mean."""

    _asynchronous: bool

    def __init__(self, client: Any, *, prefix: str = "", remember: float | None = None) -> None:
        if not (hasattr(client, "connection_pool") or hasattr(client, "nodes_manager")):
            raise TypeError(f"a guard takes a client of redis-py or valkey-py, not {type(client).__name__}")
        if any("Pipeline" in kind.__name__ for kind in type(client).__mro__):
            raise TypeError(
                "a guard cannot use a pipeline, which answers only when all is over; give it the client, and "
                "put what belongs together into one script: guard.eval(...)"
            )
        if remember is not None and not 1 <= remember <= MAX_REMEMBER_S:
            raise ValueError(
                "remember is a number of seconds, at least 1: a token that is forgotten guards nothing; "
                "leave it out to remember tokens for ever"
            )
        if _is_asynchronous(client) != self._asynchronous:
            other = "AsyncGuard" if not self._asynchronous else "Guard"
            raise TypeError(f"{type(client).__module__}.{type(client).__name__} needs guards.redis.{other}")
        if not hasattr(client, "nodes_manager"):  # one of a Cluster is asked to send our requests itself
            check_commands(client)
        self._client = client
        self._prefix = prefix
        self._remember = "" if remember is None else str(int(remember * 1000))
        self._of_parent = False
        if self._asynchronous:
            _guards.add(self)

    def key(self, resource: str) -> bytes:
        """Return the key that holds the highest accepted token of a resource.

        On a Cluster it is in the resource's own slot.
        """
        return companion((self._prefix + resource).encode(), b"fence")

    async def _execute(
        self, lease: Lease | str, token: int | None, command: str, args: tuple[Any, ...], keys: Any
    ) -> Any:
        shown = presented(lease, token)
        named = list(args[:1]) if keys is None else list(keys)
        return await self._run(shown, RUN, named, [*command.split(), *args])

    async def _eval(
        self, lease: Lease | str, token: int | None, script: str, keys: Sequence[Any], args: Sequence[Any]
    ) -> Any:
        if script.lstrip().startswith("#!"):
            raise ValueError("a guarded script cannot have a #! line: it becomes part of another script")
        return await self._run(presented(lease, token), script, list(keys), list(args))

    async def _run(self, shown: Presented, body: str, keys: list[Any], args: list[Any]) -> Any:
        if self._of_parent:  # each process would read the other's replies
            raise StoreUnfit(
                "this guard's client has connections of the process that forked this one: make a client "
                "and a "
                "guard after the fork"
            )
        fence = self.key(shown.resource)
        self._check_slots(shown.resource, fence, keys)
        script = _script(body)
        sent = [1 + len(keys), fence, *keys, str(shown.token), self._remember, *args]
        try:
            try:
                reply = await self._once(fence, "EVALSHA", _digest(script), *sent)
            except Exception as error:
                if type(error).__name__ != "NoScriptError":
                    raise
                reply = await self._once(fence, "EVAL", script, *sent)
        except Exception as error:
            if (ours := _as_ours(shown.resource, error)) is None:
                raise
            raise ours from error
        verdict = int(reply[0])
        if verdict == NO_TOKEN:
            raise StoreUnfit(f"{fence!r} holds no token of a guard; use another prefix, or delete the key")
        if verdict == STALE:
            raise StaleToken(shown.resource, shown.token, int(reply[1]))
        value = reply[1] if len(reply) > 1 else None
        if isinstance(
            value, Exception
        ):  # inside a list the client's library raises no error that a script returns
            raise value
        return value

    async def _once(self, fence: bytes, *request: Any) -> Any:
        """Send a request, and return the reply; after a failure nobody sends it again."""
        client = self._client
        if hasattr(client, "nodes_manager"):
            # A client of a Cluster that is told the node repeats only what a node has refused (MOVED, ASK).
            node = await self._before(self._node_of, fence)
            return await self._answer(client.execute_command(*request, target_nodes=node))
        pool = client.connection_pool
        connection = await self._before(self._borrowed, pool)
        whole = False
        try:
            await self._answer(connection.send_command(*request))
            reply = await self._answer(connection.read_response())
            whole = True
            return reply
        except Exception as error:
            whole = not _is_broken(error)
            raise
        finally:
            # Not after a failure, nor after an interruption: the next user would read our reply.
            try:
                if not whole:
                    await self._answer(connection.disconnect())
            finally:
                await self._answer(pool.release(connection))

    async def _node_of(self, fence: bytes) -> Any:
        if self._asynchronous:
            await self._client.initialize()
        node = self._client.get_node_from_key(fence)
        if node is None:
            raise Unreached(f"{fence!r}: no node of the Cluster that we know has its slot; try again")
        if self._asynchronous:
            for connection in await _closed_by_server(list(getattr(node, "_free", ()))):
                await connection.disconnect()  # it connects again before it sends
        return node

    async def _borrowed(self, pool: Any) -> Any:
        connection = await self._answer(pool.get_connection(*_purpose(pool.__class__)))
        if not self._asynchronous:  # blocking pools lend no such connection
            return connection
        try:
            if await _closed_by_server([connection]):
                await connection.disconnect()
                await connection.connect()
        except BaseException:
            await self._answer(pool.release(connection))
            raise
        return connection

    async def _before(self, step: Callable[[Any], Awaitable[Any]], argument: Any) -> Any:
        """Do what comes before a request; if that fails, nothing was sent."""
        try:
            return await step(argument)
        except Exception as error:
            if isinstance(error, InterlockError) or not _is_broken(error) or type(error).__name__ == REFUSED:
                raise
            raise Unreached(f"the server cannot be reached, and nothing was sent: {error}") from error

    async def _answer(self, value: Any) -> Any:
        return await value if isawaitable(value) else value

    def _check_slots(self, resource: str, fence: bytes, keys: list[Any]) -> None:
        """Refuse keys of other slots with a sentence that helps; the server would only say CROSSSLOT."""
        if not hasattr(self._client, "nodes_manager"):
            return
        for key in keys:
            text = key if isinstance(key, bytes) else str(key).encode()
            if slot(text) != slot(fence):
                tag = "{" + resource + "}"
                raise ValueError(
                    f"{text.decode(errors='replace')}: on a Cluster a guarded key must be in the slot of its "
                    f"resource; put {tag} into the names of the keys, or the same {{tag}} into the names of "
                    "both"
                )


class Guard(_Guard):
    """Runs commands of a blocking redis-py client under the token of a lease.

    `prefix` stands before the names of the keys that keep tokens. `remember` is the number of seconds for
    which a token is remembered after it was last used; by default for ever, because nobody can know how late
    a paused holder comes.
    """

    _asynchronous = False

    def execute(
        self, lease: Lease | str, *args: Any, token: int | None = None, keys: Sequence[Any] | None = None
    ) -> Any:
        """Run one command, such as `execute(lease, "DECRBY", "stock", 1)`; raise `StaleToken` if the token is
        too low.

        Returns the reply as a script gets it. `keys` lists the keys of a command that has others than its
        first argument; only a Cluster needs that. In place of a lease, give a resource and `token=`.
        """
        command, rest = _command(args)
        return drive(self._execute(lease, token, command, rest, keys), nested=True)

    def eval(
        self,
        lease: Lease | str,
        script: str,
        keys: Sequence[Any] = (),
        args: Sequence[Any] = (),
        *,
        token: int | None = None,
    ) -> Any:
        """Run a Lua script with its KEYS and ARGV; raise `StaleToken`, and run nothing, if the token is
        too low.
        """
        return drive(self._eval(lease, token, script, keys, args), nested=True)


class AsyncGuard(_Guard):
    """Runs commands of an asyncio redis-py client under the token of a lease.

    `prefix` stands before the names of the keys that keep tokens. `remember` is the number of seconds for
    which a token is remembered after it was last used; by default for ever, because nobody can know how late
    a paused holder comes.
    """

    _asynchronous = True

    async def execute(
        self, lease: Lease | str, *args: Any, token: int | None = None, keys: Sequence[Any] | None = None
    ) -> Any:
        """Run one command, such as `execute(lease, "DECRBY", "stock", 1)`; raise `StaleToken` if the token is
        too low.

        Returns the reply as a script gets it. `keys` lists the keys of a command that has others than its
        first argument; only a Cluster needs that. In place of a lease, give a resource and `token=`.
        """
        command, rest = _command(args)
        return await self._execute(lease, token, command, rest, keys)

    async def eval(
        self,
        lease: Lease | str,
        script: str,
        keys: Sequence[Any] = (),
        args: Sequence[Any] = (),
        *,
        token: int | None = None,
    ) -> Any:
        """Run a Lua script with its KEYS and ARGV; raise `StaleToken`, and run nothing, if the token is
        too low.
        """
        return await self._eval(lease, token, script, keys, args)


def _command(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    if not args or not isinstance(args[0], str) or not args[0].strip():
        raise TypeError('give a command and its arguments, as in execute(lease, "DECRBY", "stock", 1)')
    return args[0], args[1:]


@cache
def _digest(script: str) -> str:
    from hashlib import sha1

    return sha1(script.encode(), usedforsecurity=False).hexdigest()


@cache
def _purpose(kind: Any) -> tuple[str, ...]:
    """The arguments with which such a pool lends a connection: before redis-py 6, a command's name."""
    wanted = signature(kind.get_connection).parameters.get("command_name")
    return ("EVALSHA",) if wanted is not None and wanted.default is Parameter.empty else ()


async def _closed_by_server(connections: list[Any]) -> list[Any]:
    """Those of these asyncio connections that the server closed while they were idle.

    A request would be lost on them, and nobody could tell whether it was done. Neither the pools of
    redis-py 8 nor the nodes of a Cluster look for that.
    """
    if any(getattr(connection, "_reader", None) is not None for connection in connections):
        from asyncio import sleep  # here, not above: blocking programs do without

        for _ in range(2):  # one turn of the loop reads what has arrived, and the next one tells the streams
            await sleep(0)
    return [connection for connection in connections if _is_at_end(connection)]


def _is_at_end(connection: Any) -> bool:
    reader, writer = getattr(connection, "_reader", None), getattr(connection, "_writer", None)
    if reader is None or writer is None:
        return False
    return bool(reader.at_eof() or reader.exception() is not None or writer.is_closing())


def _is_broken(error: Exception) -> bool:
    """Whether the connection failed, rather than that the server refused."""
    return any(kind.__name__ in BROKEN for kind in type(error).__mro__)


def _as_ours(resource: str, error: Exception) -> InterlockError | None:
    """Our error for one of the client's library; None for one that stays what it is, as a refusal."""
    kind = type(error).__name__
    if isinstance(error, InterlockError):
        return None
    if kind in UNDONE:
        return Unreached(f"{resource}: nothing was written: {error}")
    if not _is_broken(error):
        return None
    if kind == REFUSED:
        return StoreUnfit(
            f"{resource}: the server refuses this client ({error}); check its name and password"
        )
    return StoreUnavailable(
        f"{resource}: the write may have been applied: its reply was lost ({error}); read what it wrote "
        "before you repeat it"
    )


def _is_asynchronous(client: object) -> bool:
    return any(".asyncio" in kind.__module__ for kind in type(client).__mro__)
