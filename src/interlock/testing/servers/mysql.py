"""Real MariaDB servers for tests: each on a free port with a folder of its own, ended by its pid."""

from __future__ import annotations

import atexit
import fcntl
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from itertools import cycle, permutations
from pathlib import Path
from typing import Any

from interlock.testing.patience import PATIENCE
from interlock.testing.servers.process import ServerProcess, die_with_parent, find_program, free_port

PLACES = 4  # of one server that are used in turn
HASTY = (
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--sync-frm=0",
    "--innodb-doublewrite=0",
)
"""Options of a server that no test crashes: nothing waits for the disk."""
SMALL = ("--innodb-log-file-size=16M", "--innodb-buffer-pool-size=16M")


def _template() -> Path:
    """A data folder that was made once for this version and user: making one takes seconds, copying it a
    fraction of one.

    Test workers start at the same moment, so a file lock lets one of them make it while the others wait.
    """
    version = subprocess.run(
        [find_program("mariadbd", "mariadb-server"), "--version"], capture_output=True, text=True, check=True
    ).stdout
    name = f"interlock-mariadb-{getpass.getuser()}-{version.split()[2]}"
    folder = Path(tempfile.gettempdir(), name)
    with open(f"{folder}.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            subprocess.run(
                [
                    *("mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"),
                    *("--skip-test-db", "--skip-name-resolve", f"--user={getpass.getuser()}"),
                    *(f"--datadir={folder}", *SMALL),
                ],
                check=True,
                capture_output=True,
            )
            (folder / "complete").touch()
    return folder


class Server(ServerProcess):
    """One mariadbd with a database `app`; `kill`, `restart` and signals are for tests that break it."""

    def __init__(
        self, *options: str, environment: dict[str, str] | None = None, parent: Path | None = None
    ) -> None:
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="interlock-mysql-", dir=parent)
        self._options = options
        self.environment = environment or {}
        self._fresh = True
        self._prefixes = cycle([f"t{number}_" for number in range(PLACES)])

    def prepare(self) -> None:
        """Fill the folder of a new server."""
        if not Path(self.folder, "complete").exists():
            shutil.copytree(_template(), self.folder, dirs_exist_ok=True)

    def start(self, *, empty: bool = True) -> None:
        """Start it, with a new database if it is new; `empty=False` for a node that gets its databases from
        others.
        """
        program = find_program("mariadbd", "mariadb-server")
        self.prepare()
        with open(f"{self.folder}/log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *(program, "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={self.folder}"),
                    *(f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self.folder}/socket"),
                    *("--skip-name-resolve", "--skip-log-bin", "--performance-schema=OFF"),
                    # A server that starts removes what others keep in a folder that they share
                    f"--tmpdir={self.folder}",
                    *(*SMALL, *self._options),
                ],
                stdout=subprocess.DEVNULL,
                stderr=log,
                preexec_fn=die_with_parent,
                env=os.environ | self.environment,
            )
        self._await_ready(self._answers)
        if self._fresh and empty:
            self.run("create database app")
        self._fresh = False

    def url(
        self, prefix: str = "interlock_", user: str = "root", scheme: str = "mysql", **options: str
    ) -> str:
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"{scheme}://{user}@127.0.0.1:{self.port}/app?prefix={prefix}{query}"

    def fresh_url(self, **options: str) -> str:
        """A place of one test's own: tables with a prefix that nobody has used, or that were emptied.

        Creating them takes longer than most tests do, so the tables of the last few places are used in turn.
        """
        prefix = next(self._prefixes)
        names = {
            name
            for (name,) in self.run(
                "select table_name from information_schema.tables where table_schema = 'app'"
            )
        }
        if f"{prefix}claim" in names:
            self.run(
                "use app",
                *[
                    f"delete from {prefix}{table}"
                    for table in ("claim", "pending", "register", "bell", "mail")
                ],
            )
        return self.url(prefix, **options)

    def connect(self, user: str = "root", database: str = "app", **settings: Any) -> Any:
        """Return a connection of PyMySQL."""
        import pymysql

        given: dict[str, Any] = {
            "ssl_disabled": True
        } | settings  # TLS would load all certificates of the system
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=user, database=database, autocommit=True, **given
        )

    def run(self, *statements: str) -> Sequence[Sequence[Any]]:
        """Run statements as the administrator, and return the rows of the last one."""
        rows: Sequence[Sequence[Any]] = ()
        with closing(self.connect(database="")) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = cursor.fetchall()
        return rows

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as probe:
                probe.settimeout(1.0)
                return len(probe.recv(64)) > 4
        except OSError:
            return False


class ReplicatingPair:
    """Two servers that copy from each other: what is written on one is soon on the other."""

    def __init__(self) -> None:
        self.servers = [
            Server("--log-bin=changes", f"--server-id={number}", "--binlog-format=ROW", *HASTY)
            for number in (1, 2)
        ]

    def start(self) -> None:
        for server in self.servers:
            server.start()
        for server, other in permutations(self.servers):
            ((file, position, *_),) = other.run("show master status")
            server.run(
                f"change master to master_host='127.0.0.1', master_port={other.port}, master_user='root', "
                f"master_log_file='{file}', master_log_pos={position}, master_connect_retry=1",
                "start slave",
            )
        self.await_copied()

    def await_copied(self) -> None:
        """Wait until each has what the other has written so far."""
        for server, other in permutations(self.servers):
            ((file, position, *_),) = other.run("show master status")
            ((missing,),) = server.run(f"select master_pos_wait('{file}', {position}, {PATIENCE:.0f})")
            assert (missing or 0) >= 0, "they do not copy from each other"

    @contextmanager
    def not_copying(self) -> Iterator[None]:
        """While this lasts, neither copies from the other."""
        for server in self.servers:
            server.run("stop slave")
        try:
            yield
        finally:
            for server in self.servers:
                server.run("start slave")

    def close(self) -> None:
        for server in self.servers:
            server.close()


@contextmanager
def running(
    *options: str, environment: dict[str, str] | None = None, parent: Path | None = None
) -> Iterator[Server]:
    server = Server(*options, environment=environment, parent=parent)
    try:
        server.start()
        yield server
    finally:
        server.close()


@cache
def steady() -> Server:
    """The server for all suites of a worker, which neither break it nor count what it was asked."""
    server = Server(*HASTY, "--max-connections=1000")
    atexit.register(server.close)
    server.start()
    return server
