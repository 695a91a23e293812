"""From a URL to a store."""

from __future__ import annotations

from urllib.parse import SplitResult

from interlock._core.runtime import Runtime
from interlock.backends.etcd.address import Address, address_of
from interlock.backends.etcd.algorithm.sessions import Sessions
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.store import EtcdStore
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.kit.runtime import StoreRuntime, ThreadRuntime
from interlock.store import CONNECT_TIMEOUT


def open_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> EtcdStore:
    """The store at `etcd://` or `etcds://`; `?prefix=` is put before every key. Connects when used."""
    address, prefix = address_of(parts, connect_timeout)
    made = _Assembly(address, Keys(prefix))
    return made.on_loop(runtime) if asynchronous else made.on_threads(runtime)


class _Assembly:
    """Makes the sides of one client, which share their sessions and their login."""

    def __init__(self, address: Address, keys: Keys) -> None:
        self._address, self._keys = address, keys
        self._credentials = Credentials(address.user, address.password)
        self._sessions = Sessions(keys)

    def _blocking(self, runtime: StoreRuntime, *, for_keeper: bool) -> Side:
        transport = BlockingTransport(self._address, self._credentials, for_keeper=for_keeper)
        return Side(transport, runtime, self._keys, self._sessions)

    def on_threads(self, runtime: StoreRuntime) -> EtcdStore:
        side = self._blocking(runtime, for_keeper=False)

        def keeper() -> EtcdStore:
            own = self._blocking(runtime, for_keeper=True)
            side.transport.accompany(own.transport)
            return EtcdStore(own, None)

        return EtcdStore(side, None, keeper)

    def on_loop(self, runtime: StoreRuntime) -> EtcdStore:
        """An asyncio store has a blocking side, for the keeper's thread and for the end of the process."""
        from interlock.backends.etcd.transport.aio import (
            AsyncTransport,  # here, not above: most programs do without asyncio
        )

        def on_loop(*, for_keeper: bool) -> Side:
            transport = AsyncTransport(self._address, self._credentials, for_keeper=for_keeper)
            return Side(transport, runtime, self._keys, self._sessions)

        side = on_loop(for_keeper=False)
        threads = self._blocking(ThreadRuntime(runtime.now), for_keeper=True)

        def task_keeper() -> EtcdStore:
            own = on_loop(for_keeper=True)
            side.transport.accompany(own.transport)
            return EtcdStore(own, None)

        def thread_keeper() -> EtcdStore:
            side.transport.accompany(threads.transport)
            return blocking_side

        blocking_side = EtcdStore(threads, None, thread_keeper)
        return EtcdStore(side, blocking_side, task_keeper)
