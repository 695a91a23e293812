"""kazoo, the client library underneath: imported here and nowhere else, as untyped as it is."""

from __future__ import annotations

from importlib import import_module
from logging import DEBUG, Logger, getLogger
from typing import Any

from interlock.errors import StoreUnfit

try:
    import_module("kazoo")
except ImportError:
    raise StoreUnfit(
        "a store on ZooKeeper needs the client library kazoo; install it: pip install 'interlock[zookeeper]'"
    ) from None

client: Any = import_module("kazoo.client")
exceptions: Any = import_module("kazoo.exceptions")
serialization: Any = import_module("kazoo.protocol.serialization")
states: Any = import_module("kazoo.protocol.states")
security: Any = import_module("kazoo.security")

NoNode: type[Exception] = exceptions.NoNodeError
NodeExists: type[Exception] = exceptions.NodeExistsError
BadVersion: type[Exception] = exceptions.BadVersionError
Unimplemented: type[Exception] = exceptions.UnimplementedError


class _Quiet(Logger):
    """Where kazoo writes: to the logger `interlock.kazoo`, at the level DEBUG at most.

    kazoo warns of every attempt to connect that fails, twice a second. interlock says once what it means: the leases that are in
    doubt, the call that failed.
    """

    def __init__(self) -> None:
        super().__init__("interlock.kazoo")
        self._target = getLogger(self.name)

    def isEnabledFor(self, level: int) -> bool:
        return self._target.isEnabledFor(min(level, DEBUG))

    def _log(self, level: int, *args: Any, **options: Any) -> None:
        options["stacklevel"] = options.get("stacklevel", 1) + 1
        self._target._log(min(level, DEBUG), *args, **options)


LOG = _Quiet()
