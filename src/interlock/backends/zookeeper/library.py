"""kazoo, the client library underneath: imported here and nowhere else, as untyped as it is."""

from __future__ import annotations

from importlib import import_module
from logging import DEBUG, Logger, getLogger
from typing import Any, cast

from interlock.backends.kit.libraries import missing

try:
    import_module("kazoo")
except ImportError:
    raise missing("ZooKeeper", "kazoo", "zookeeper", "kazoo") from None

client: Any = import_module("kazoo.client")
exceptions: Any = import_module("kazoo.exceptions")
serialization: Any = import_module("kazoo.protocol.serialization")
states: Any = import_module("kazoo.protocol.states")
security: Any = import_module("kazoo.security")

NoNode: type[Exception] = exceptions.NoNodeError
NodeExists: type[Exception] = exceptions.NodeExistsError
BadVersion: type[Exception] = exceptions.BadVersionError
NotEmpty: type[Exception] = exceptions.NotEmptyError
Unimplemented: type[Exception] = exceptions.UnimplementedError


SECRET_REQUESTS = (serialization.Auth, serialization.SASL)


class _Quiet(Logger):
    """The log of kazoo: it goes to the logger `interlock.kazoo`, at the level DEBUG at most.

    kazoo warns of every attempt to connect that fails, twice a second. interlock says once what it means: the
    leases that are in doubt, the call that failed.
    """

    def __init__(self) -> None:
        super().__init__("interlock.kazoo")
        self._target = getLogger(self.name)

    def isEnabledFor(self, level: int) -> bool:
        return self._target.isEnabledFor(min(level, DEBUG))

    def _log(self, level: int, msg: object, args: Any, *rest: Any, **options: Any) -> None:
        options["stacklevel"] = options.get("stacklevel", 1) + 1
        if isinstance(args, tuple):
            # kazoo logs each request that it sends, and the repr of these has the password in it.
            given = cast("tuple[object, ...]", args)
            args = tuple(type(arg).__name__ if isinstance(arg, SECRET_REQUESTS) else arg for arg in given)
        self._target._log(min(level, DEBUG), msg, args, *rest, **options)


LOG = _Quiet()
