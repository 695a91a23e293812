"""Real PostgreSQL servers for tests: each on a free port with a data folder of its own, ended by its pid;
and PgBouncer before one.

PostgreSQL refuses to run as root, so the servers run as the user postgres then. One data folder is made by
initdb and copied for each server.
"""

from __future__ import annotations

import atexit
import glob
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

from interlock.testing.patience import PATIENCE, until
from interlock.testing.servers.process import (
    ServerProcess,
    die_with_parent,
    find_program,
    free_port,
    freeze,
    thaw,
)

# As a test needs it: nothing survives a power cut, but everything a crash of the server.
QUICK = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB")


def program(name: str) -> str:
    return find_program(name, "postgresql", f"/usr/lib/postgresql/*/bin/{name}")


def _as_postgres() -> dict[str, Any]:
    """Whom the servers run as: themselves refuse to be root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def give(folder: str) -> None:
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        for path in [folder, *glob.glob(f"{folder}/**", recursive=True, include_hidden=True)]:
            os.chown(path, user.pw_uid, user.pw_gid)


def _folder() -> str:
    folder = mkdtemp(prefix="interlock-postgresql-")
    os.chmod(folder, 0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    give(folder)
    return folder


@cache
def _template() -> str:
    folder = _folder()
    subprocess.run(
        [
            *(program("initdb"), "-D", f"{folder}/data", "-A", "trust", "-U", "postgres", "-E", "UTF8"),
            *("--no-sync", "--no-locale", "--no-instructions"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        **_as_postgres(),
    )
    return f"{folder}/data"


def _runs(pid: int) -> bool:
    """Whether the process is there, and more than what is left until its parent asks for its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Server(ServerProcess):
    """One PostgreSQL server; `kill`, `restart` and signals are for tests that break it."""

    def __init__(
        self, *settings: str, data: str | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.port = free_port()
        self.folder = _folder()
        self.data = f"{self.folder}/data"
        self._settings = settings
        self._environment = environment
        if data is None:
            subprocess.run(["cp", "-a", _template(), self.data], check=True)

    def start(self) -> None:
        settings = (*QUICK, "dynamic_shared_memory_type=mmap", *self._settings)
        log = os.open(f"{self.folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._process = subprocess.Popen(
            [
                *(program("postgres"), "-D", self.data, "-p", str(self.port), "-h", "127.0.0.1"),
                *("-k", self.folder),
                *[part for setting in settings for part in ("-c", setting)],
            ],
            stdout=subprocess.DEVNULL,
            stderr=log,
            preexec_fn=die_with_parent,
            cwd=self.folder,
            env=None if self._environment is None else {**os.environ, **self._environment},
            **_as_postgres(),
        )
        os.close(log)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        import psycopg

        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.conninfo, connect_timeout=5).close()
                return
            except psycopg.Error:
                assert time.monotonic() < until, Path(f"{self.folder}/log").read_text()[-2000:]
                time.sleep(0.02)

    @property
    def conninfo(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def url(self, schema: str = "interlock", *, user: str = "postgres", **options: object) -> str:
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{user}@127.0.0.1:{self.port}/postgres?schema={schema}{query}"

    def sql(self, statement: str, *parameters: object, user: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as an operator does."""
        import psycopg

        conninfo = self.conninfo.replace("postgres@", f"{user}@", 1)
        with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def processes(self) -> list[int]:
        """The server and all of its processes."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def kill(self) -> None:
        """As a crash of all its processes does."""
        if self._process is not None:
            processes = self.processes()
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            # Until the last of them is gone, the shared memory counts as in use, and no server starts on
            # this folder.
            until(lambda: not any(map(_runs, processes)))

    def stop(self) -> None:
        """As an operator does (fast shutdown)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE)
            self._process = None

    def freeze(self) -> None:
        """From now on no process of the server does anything."""
        freeze(*self.processes())

    def thaw(self) -> None:
        thaw(*self.processes())

    def terminate_backends(self, name: str = "interlock") -> int:
        """End the connections of our clients, as an operator does; how many there were."""
        return len(
            self.sql(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name like %s "
                "and pid <> pg_backend_pid()",
                name,
            )
        )


class ReplicatedServer(Server):
    """A primary that can be copied, and whose copy can take its place: an asynchronous standby."""

    def __init__(self, *settings: str) -> None:
        super().__init__("wal_level=replica", "max_wal_senders=4", *settings)

    def copy(self) -> str:
        """Copy the primary as it is now; the data folder of the copy."""
        folder = _folder()
        data = f"{folder}/data"
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres")
        subprocess.run(
            [program("pg_basebackup"), "-D", data, *where, "-c", "fast", "--no-sync", "-X", "stream"],
            check=True,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            **_as_postgres(),
        )
        return data

    def promote(self, copy: str) -> None:
        """The primary dies, and the copy takes its place, at the same address."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        self.data = copy
        give(os.path.dirname(copy))
        self.start()


@contextmanager
def running(*settings: str) -> Iterator[Server]:
    server = Server(*settings)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@cache
def steady() -> Server:
    """One server for all tests of a process that do not break it."""
    server = Server("max_connections=300")
    server.start()
    atexit.register(server.kill)
    return server


def fresh_schema() -> str:
    """A place of a test's own."""
    return f"t{uuid4().hex[:12]}"


class Bouncer(ServerProcess):
    """PgBouncer before a server."""

    def __init__(self, server: Server, mode: str = "transaction", **options: object) -> None:
        self.port = free_port()
        self.folder = _folder()
        self._server = server
        lines = [
            "[databases]",
            f"postgres = host=127.0.0.1 port={server.port} dbname=postgres",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = any",
            f"pool_mode = {mode}",
            "default_pool_size = 10",
            "max_client_conn = 500",
            *[f"{name} = {value}" for name, value in options.items()],
        ]
        # With auth_type any, every client is this user at the server.
        lines[1] += " user=postgres"
        Path(f"{self.folder}/pgbouncer.ini").write_text("\n".join(lines) + "\n")
        give(self.folder)

    def start(self) -> None:
        import psycopg

        path = find_program("pgbouncer", "pgbouncer")
        self._process = subprocess.Popen(
            [path, "-q", f"{self.folder}/pgbouncer.ini"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
            cwd=self.folder,
            **_as_postgres(),
        )
        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url().partition("?")[0], connect_timeout=5).close()
                return
            except psycopg.Error:
                assert time.monotonic() < until, "pgbouncer does not answer"
                time.sleep(0.02)

    def url(self, schema: str = "interlock", **options: object) -> str:
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?schema={schema}{query}"


@cache
def steady_bouncer() -> Bouncer:
    """PgBouncer in transaction mode before the steady server."""
    bouncer = Bouncer(steady())
    bouncer.start()
    atexit.register(bouncer.kill)
    return bouncer
