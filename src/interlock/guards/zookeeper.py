"""Writes to ZooKeeper that are applied only if the token of a lease is not too low.

    guard = guards.zookeeper.Guard(zk)                      # a KazooClient
    with client.lock("limits") as lease:
        guard.accept(lease)                                  # before you read what you are about to change
        guard.commit(lease, lambda t: t.set_data("/config/limits", b"..."))

A node for each resource has the highest token that was accepted. A commit is one multi of ZooKeeper: it
checks the version of that node, or writes the token to it, together with your own operations, so nothing can
come between the two. The lock itself may live in any store. If it lives in the same ensemble, `standing=True`
also checks that the claim's own node is there: the write is then applied only while the lock is held.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib import import_module
from inspect import isawaitable
from typing import Any

from interlock._core.drive import drive
from interlock._core.lease import Lease
from interlock._core.names import checked_name
from interlock._core.presented import Presented, presented
from interlock._support.wording import duration
from interlock.errors import (
    InterlockError,
    StaleToken,
    StoreUnavailable,
    StoreUnfit,
    Unreached,
    Unsupported,
)
from interlock.store import IO_TIMEOUT

__all__ = ["AsyncGuard", "Guard"]

ROOT = "/interlock-fences"
MAX_COMMIT_ROUNDS = 20  # rounds of a commit that others get in the way of

Build = Callable[[Any], object]
"""Adds operations to a transaction of kazoo: `t.set_data`, `t.create`, `t.delete`, `t.check`."""


class Unanswered(Exception):
    """ZooKeeper has not answered in time."""

    def __str__(self) -> str:
        return f"ZooKeeper did not answer in {duration(IO_TIMEOUT)}"


class _Guard(ABC):
    """What both guards share: the multi, and what its answers mean."""

    def __init__(self, client: Any, *, root: str = ROOT) -> None:
        if not hasattr(client, "transaction") or not hasattr(client, "get_async"):
            raise TypeError(f"a guard takes a KazooClient, not {type(client).__name__}")
        self._client = client
        self._root = root.rstrip("/")
        self._process = os.getpid()

    def path(self, resource: str) -> str:
        """Return the path of the node that has the highest accepted token of a resource."""
        from interlock.backends.zookeeper.paths import escaped

        return f"{self._root}/{escaped(checked_name(resource))}"

    @abstractmethod
    async def _answer(self, result: Any, until: float) -> Any:
        """The value of a result of kazoo; raises its exception, or `Unanswered` if there is none in time."""

    async def _commit(
        self, lease: Lease | str, token: int | None, build: Build | None, standing: bool
    ) -> list[Any]:
        # Here, not above: the caller has the library, others need not.
        errors: Any = import_module("kazoo.exceptions")
        if os.getpid() != self._process:
            raise StoreUnfit(
                "this guard's KazooClient belongs to the process that has forked this one: start a "
                "client and "
                "make a guard after the fork"
            )
        shown = presented(lease, token)
        resource, number = shown.resource, shown.token
        claim = self._claim_path(lease) if standing else None
        path, until = self.path(resource), time.monotonic() + IO_TIMEOUT
        for tried in range(MAX_COMMIT_ROUNDS):
            if tried:  # what was read may have been old
                await self._ask(shown, self._client.sync_async("/"), until)
            accepted, version = await self._accepted(shown, path, until)
            if number < accepted:
                raise StaleToken(resource, number, accepted)
            transaction = self._client.transaction()
            if version is None:
                transaction.create(path, b"%d" % number)
            elif number > accepted:
                transaction.set_data(path, b"%d" % number, version=version)
            else:
                transaction.check(path, version=version)
            if claim is not None:
                transaction.check(claim, version=-1)
            if build is not None:
                _refuse_awaitable(build(transaction))
            results = await self._results(shown, transaction, until)
            own = results[0]
            if isinstance(own, errors.NoNodeError) and version is None:
                await self._ask(shown, self._client.ensure_path_async(self._root), until)
            elif not isinstance(own, (errors.BadVersionError, errors.NodeExistsError, errors.NoNodeError)):
                return self._outcome(shown, results, claim is not None)
        raise StoreUnavailable(f"{resource}: others present tokens again and again")

    async def _ask(self, shown: Presented, result: Any, until: float) -> Any:
        """The answer to a request that writes none of the caller's operations; an error of ours for any
        other, but for a node that is missing.
        """
        errors: Any = import_module("kazoo.exceptions")
        try:
            return await self._answer(result, until)
        except errors.NoNodeError:
            raise
        except Unanswered as late:
            raise Unreached(
                f"{shown.resource}: {late}; the token was not noted, and nothing was written"
            ) from late
        except errors.KazooException as error:
            raise self._refusal(shown, error) from error

    async def _results(self, shown: Presented, transaction: Any, until: float) -> list[Any]:
        """The results of a multi; an error that says so if nobody knows whether it was applied."""
        errors: Any = import_module("kazoo.exceptions")
        try:
            results: list[Any] = await self._answer(transaction.commit_async(), until)
        except Unanswered as late:
            # kazoo sends it again when it is connected again, if it was not sent.
            raise StoreUnavailable(
                f"{shown.resource}: {late}; the write may have been applied, or may be applied yet; read "
                "what it wrote"
            ) from late
        except (errors.ConnectionLoss, errors.SessionExpiredError, errors.OperationTimeoutError) as error:
            raise StoreUnavailable(
                f"{shown.resource}: ZooKeeper did not answer ({type(error).__name__}), and the write may "
                "have "
                "been applied; read what it wrote"
            ) from error
        except errors.KazooException as error:
            raise self._refusal(shown, error) from error
        return results

    def _outcome(self, shown: Presented, results: list[Any], standing: bool) -> list[Any]:
        """The results of the caller's own operations. ZooKeeper applies all operations of a multi or none, so
        any error among the results is raised: the guard's own in a sentence of ours.
        """
        errors: Any = import_module("kazoo.exceptions")
        own = 1 + standing
        if standing and isinstance(results[1], errors.NoNodeError):
            raise StaleToken(shown.resource, shown.token, 0)
        failed = [(index, result) for index, result in enumerate(results) if isinstance(result, Exception)]
        if not failed:
            return results[own:]
        # Those before the one that was refused were rolled back, and those after it were not tried.
        aside = (errors.RolledBackError, errors.RuntimeInconsistency)
        index, refused = next((each for each in failed if not isinstance(each[1], aside)), failed[0])
        if index >= own:
            raise refused
        raise self._refusal(shown, refused) from refused

    def _refusal(self, shown: Presented, error: Exception) -> InterlockError:
        """The error of ours for an operation of the guard that ZooKeeper has refused."""
        from interlock.backends.zookeeper.errors import guard_refused

        return guard_refused(shown.resource, self.path(shown.resource), error)

    async def _accepted(self, shown: Presented, path: str, until: float) -> tuple[int, int | None]:
        """The highest token that was accepted, and the version of its node; None if there is no node."""
        missing: Any = import_module("kazoo.exceptions").NoNodeError
        try:
            data, stat = await self._ask(shown, self._client.get_async(path), until)
        except missing:
            return 0, None
        try:
            return int(data or b"0"), stat.version
        except ValueError:
            raise StoreUnfit(
                f"{path} holds {data[:40]!r}, which is no token; is it another program's?"
            ) from None

    def _claim_path(self, lease: Lease | str) -> str:
        """The path of the claim's own node, for the client of this guard."""
        store: Any = lease._holding.client.store if isinstance(lease, Lease) else None
        path: str | None = (
            store.node_of(lease.id) if isinstance(lease, Lease) and hasattr(store, "node_of") else None
        )
        if path is None and isinstance(lease, Lease) and hasattr(store, "node_of"):
            raise StaleToken(
                lease.resource, lease.token, 0
            )  # its own client has removed the claim, or lost its session
        chroot = self._client.chroot or ""
        if path is None or not path.startswith(f"{chroot}/"):
            raise Unsupported(
                "standing=True needs a lease of a lock in the same ensemble, below the chroot of the "
                "guard's client"
            )
        return path[len(chroot) :]


def _refuse_awaitable(made: object) -> None:
    """Refuse what an `async def` returns: nobody awaits it, so its operations would be missing."""
    if isawaitable(made):
        if isinstance(made, Coroutine):
            made.close()
        raise TypeError(
            "build adds its operations when it is called: give a plain function, not an async one"
        )


class Guard(_Guard):
    """Guards writes through a KazooClient, on the calling thread."""

    def accept(self, lease: Lease | str, *, token: int | None = None) -> None:
        """Note the token: from now on lower ones are refused. Raises `StaleToken` if it is too low itself.

        `StoreUnavailable` after 5 seconds without an answer.
        """
        drive(self._commit(lease, token, None, False))

    def commit(
        self, lease: Lease | str, build: Build, *, token: int | None = None, standing: bool = False
    ) -> list[Any]:
        """Apply the operations that `build` adds, all or none, if the token is not too low; return their
        results.

        Raises `StaleToken`, or the exception of kazoo for an operation that was refused; `StoreUnavailable`
        after 5 seconds without an answer, which says whether the operations may have been applied.
        """
        return drive(self._commit(lease, token, build, standing))

    async def _answer(self, result: Any, until: float) -> Any:
        try:
            return result.get(timeout=max(0.0, until - time.monotonic()))
        except self._client.handler.timeout_exception:
            raise Unanswered from None


class AsyncGuard(_Guard):
    """Guards writes through a KazooClient for tasks; no thread is blocked and none is started."""

    async def accept(self, lease: Lease | str, *, token: int | None = None) -> None:
        """Note the token: from now on lower ones are refused. Raises `StaleToken` if it is too low itself.

        `StoreUnavailable` after 5 seconds without an answer.
        """
        await self._commit(lease, token, None, False)

    async def commit(
        self, lease: Lease | str, build: Build, *, token: int | None = None, standing: bool = False
    ) -> list[Any]:
        """Apply the operations that `build` adds, all or none, if the token is not too low; return their
        results.

        Raises `StaleToken`, or the exception of kazoo for an operation that was refused; `StoreUnavailable`
        after 5 seconds without an answer, which says whether the operations may have been applied.
        """
        return await self._commit(lease, token, build, standing)

    async def _answer(self, result: Any, until: float) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        settled: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not settled.done():
                settled.set_result(None)

        def tell(_: Any) -> None:
            # Its loop may have ended since; on kazoo's thread, an error would end the connection.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle)

        result.rawlink(tell)
        await asyncio.wait([settled], timeout=max(0.0, until - time.monotonic()))
        if not result.ready():
            raise Unanswered
        return result.get(block=False)
