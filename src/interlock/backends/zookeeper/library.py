"""kazoo, the client library underneath: imported here and nowhere else, as untyped as it is."""

from __future__ import annotations

from importlib import import_module
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
utils: Any = import_module("kazoo.handlers.utils")

NoNode: type[Exception] = exceptions.NoNodeError
NodeExists: type[Exception] = exceptions.NodeExistsError
BadVersion: type[Exception] = exceptions.BadVersionError
Unimplemented: type[Exception] = exceptions.UnimplementedError
