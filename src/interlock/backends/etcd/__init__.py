"""etcd v3: claims live with a session, which is a lease of etcd, and are ordered by the revision at which
they were made.

    open.py        from a URL to a store            store.py   the port
    algorithm/     sessions, claims, releases, waits, renewals, operators, registers; once for all runtimes
    transport/     connections to members: one for all threads, or one for all tasks of a loop
    wire/          protobuf, HTTP/2, gRPC, watches, keys and values, without I/O

No generated code and no gRPC library: the only dependency is `hpack` (decision 0026).
"""

from __future__ import annotations

from interlock.backends.etcd.open import open_url

__all__ = ["open_url"]
