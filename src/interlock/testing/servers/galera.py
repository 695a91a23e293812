"""A Galera cluster of two real MariaDB nodes, for tests of what interlock says and does there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.testing.patience import until
from interlock.testing.servers.mysql import Server
from interlock.testing.servers.process import free_port

AS_NOBODY = ["--user=nobody"] if os.getuid() == 0 else []
"""Below root, the program that receives the first node's files runs as nobody, and so must the server that
reads them.
"""
PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")


def _node(cluster: str, address: str, *options: str) -> Server:
    provider = f"gmcast.listen_addr=tcp://{address}; ist.recv_addr=127.0.0.1:{free_port()}; gcache.size=8M"
    return Server(
        *("--wsrep-on=ON", f"--wsrep-provider={PROVIDER}", f"--wsrep-provider-options={provider}"),
        *(f"--wsrep-cluster-address=gcomm://{cluster}", f"--wsrep-node-address={address}"),
        f"--wsrep-sst-receive-address=127.0.0.1:{free_port()}",
        *("--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--innodb-flush-log-at-trx-commit=0"),
        *options,
    )


@contextmanager
def cluster() -> Iterator[tuple[Server, Server]]:
    address = f"127.0.0.1:{free_port()}"
    first = _node("", address, "--wsrep-new-cluster")
    try:
        first.start()
        second = _node(address, f"127.0.0.1:{free_port()}", *AS_NOBODY)
        Path(second.folder, "complete").touch()  # it gets its files from the first
        if AS_NOBODY:
            shutil.chown(second.folder, "nobody")
        try:
            second.start(empty=False)
            until(lambda: _is_complete(first, second))
            yield first, second
        finally:
            second.close()
    finally:
        first.close()


def _is_complete(first: Server, second: Server) -> bool:
    """Whether both nodes work together; one that is joining may end connections."""
    import pymysql

    try:
        return status(second, "wsrep_ready") == "ON" and status(first, "wsrep_cluster_size") == "2"
    except pymysql.MySQLError:
        return False


def status(server: Server, name: str) -> str:
    ((_, value),) = server.run(f"show global status like '{name}'")
    return str(value)
