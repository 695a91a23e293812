"""Nodes that cannot be found or do not let everybody in: one of them is a node that does not answer, all of them one sentence."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock.backends.redlock.store import RedlockStore
from interlock.cli import quorum_report
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.model import Claim, Granted, Renewal, Renewed
from interlock.testing.lag import at_most
from interlock.testing.servers.redlock import Servers, quorum, say, steady
from tests.cli.program import Program
from tests.patience import PATIENCE
from tests.redlock.colours import COLOURS, run


def enter(colour: str, url: Any, name: str, timeout: float = 5.0) -> int:
    """Acquire, renew, release; the token."""

    async def main() -> int:
        async with aio.connect(url) as client, client.lock(name, timeout=timeout) as lease:
            await lease.renew()
            return lease.token

    if colour == "async":
        return asyncio.run(main())
    with interlock.connect(url) as client, client.lock(name, timeout=timeout) as lease:
        lease.renew()
        return lease.token


def refused(colour: str, url: Any) -> Exception:
    with pytest.raises(interlock.InterlockError) as refusal:
        enter(colour, url, "x")
    return refusal.value


def status(url: str, folder: Path) -> list[str]:
    """What `interlock quorum status` prints."""
    program = Program(folder)
    program.url = url
    return program.call("quorum", "status", "x").stdout.splitlines()


# ---- names ------------------------------------------------------------------------------


class Resolver:
    """A stand-in for the system's: it knows no name under `invalid`, and takes its time for those that begin with slow."""

    def __init__(self) -> None:
        self.slow: list[str] = []  # what was asked and not answered at once
        self.answers = threading.Event()
        self._system = socket.getaddrinfo

    def __call__(self, host: Any, *args: Any, **settings: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if not name.endswith(".invalid"):
            return self._system(host, *args, **settings)
        if name.startswith("slow"):
            self.slow.append(name)
            self.answers.wait(PATIENCE)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.answers.set()


def without_one(name: str) -> str:
    """The URL of a quorum that has been used, one of whose hosts is now this one."""
    servers, prefix = steady(3), f"{uuid4().hex}:"
    enter("sync", servers.url(prefix), "first")
    hosts = ",".join([f"{name}:6379", *(f"127.0.0.1:{server.port}" for server in servers.all[1:])])
    return f"redlock://{hosts}/0?prefix={prefix}"


@COLOURS
def test_a_host_without_an_address_is_named_in_time(colour: str, resolver: Resolver) -> None:
    with at_most(4):
        error = refused(colour, "redis://user:secret@nowhere.invalid:6379/0")
    assert isinstance(error, StoreUnavailable)
    assert "Redis at nowhere.invalid:6379: its host cannot be looked up (Name or service not known)" in str(
        error
    )
    assert "check the name in the URL, and DNS on this machine" in str(error)
    assert "secret" not in str(error)


@COLOURS
def test_a_quorum_goes_on_without_a_host_that_has_no_address(colour: str, resolver: Resolver) -> None:
    url = without_one("nowhere.invalid")
    with at_most(3):
        assert enter(colour, url, "x") > 0

    async def look(store: RedlockStore) -> None:
        states = await store.status()
        assert [state.reachable for state in states] == [False, True, True]
        assert (
            quorum_report.word(states[0], states)
            == "its host cannot be looked up (Name or service not known)"
        )

    run(colour, url, look)


@COLOURS
def test_a_quorum_of_hosts_without_addresses_says_so_once(colour: str, resolver: Resolver) -> None:
    with at_most(4):
        error = refused(colour, "redlock://a.invalid,b.invalid,c.invalid/0")
    assert isinstance(error, StoreUnavailable)
    assert "Redis at a.invalid:6379, b.invalid:6379, c.invalid:6379: its host cannot be looked up" in str(
        error
    )
    assert str(error).count("check the name in the URL") == 1


@COLOURS
def test_a_lookup_that_never_ends_does_not_hold_up_who_asks(colour: str, resolver: Resolver) -> None:
    async def main() -> None:
        async with aio.connect("redis://slow.invalid:6379/0?connect_timeout=0.5") as client:
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match=r"slow\.invalid:6379 did not answer"):
                    await client.lock("x").acquire(timeout=0.3)

    with at_most(10):
        if colour == "async":
            asyncio.run(main())  # nor the end of a loop, which waits for threads of its own
        else:
            with interlock.connect("redis://slow.invalid:6379/0?connect_timeout=0.5") as client:
                for _ in range(3):
                    with pytest.raises(
                        StoreUnavailable, match=r"did not answer .* its name cannot be looked up"
                    ):
                        client.lock("x").acquire(timeout=0.3)
    # Whoever comes next waits for the first, and does not ask as well; but the keeper connects beside its client.
    assert len(resolver.slow) <= (2 if colour == "sync" else 3)


@COLOURS
def test_a_quorum_goes_on_while_a_lookup_does_not_end(colour: str, resolver: Resolver) -> None:
    async def main(store: RedlockStore) -> None:
        with at_most(4):
            for number in range(5):
                claim = Claim("x", f"id-{number}", 5.0)
                assert isinstance(await store.claim(claim, 2.0), Granted)
                assert isinstance((await store.renew([Renewal("x", claim.id, 5.0)], 2.0))[0], Renewed)
                await store.release("x", claim.id, 0.0, 2.0)
        assert resolver.slow

    with at_most(10):
        run(colour, without_one("slow.invalid"), main)


@COLOURS
def test_hosts_that_have_a_name_and_an_address_are_entered(
    colour: str, monkeypatch: pytest.MonkeyPatch, resolver: Resolver
) -> None:
    def known(host: Any, *args: Any, **settings: Any) -> Any:
        return resolver("127.0.0.1" if str(host).endswith(".test") else host, *args, **settings)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    hosts = ",".join(f"n{node}.test:{server.port}" for node, server in enumerate(steady(3).all))
    assert enter(colour, f"redlock://{hosts}/0?prefix={uuid4().hex}:", "x") > 0


# ---- users ------------------------------------------------------------------------------


@pytest.fixture
def guarded() -> Iterator[Servers]:
    """Five servers that have met a client; each lets `locker` in by the same password, and nobody else."""
    with quorum(5) as servers:
        for server in servers.all:
            say(server, "ACL", "SETUSER", "locker", "on", ">s3cret", "~*", "&*", "+@all")
            say(server, "ACL", "SETUSER", "default", "resetpass", "-@all", "+auth", "+hello")
        enter("sync", url_of(servers), "first")
        yield servers


def url_of(servers: Servers, user: str = "locker:s3cret") -> str:
    return servers.url().replace("://", f"://{user}@", 1)


def change_password(servers: Servers, *nodes: int) -> None:
    """As an operator who has forgotten the clients."""
    with_key = {n: interlock.connect(f"redis://locker:s3cret@127.0.0.1:{servers[n].port}/0") for n in nodes}
    for node, client in with_key.items():
        client.close()
        as_locker(servers, node, "ACL", "SETUSER", "locker", "resetpass", ">another")


def as_locker(servers: Servers, node: int, *words: str) -> None:
    from importlib import import_module

    redis: Any = import_module("redis")  # by name: beside tests/redis a type checker takes that for it
    with redis.Redis(port=servers[node].port, username="locker", password="s3cret") as admin:
        admin.execute_command(*words)


def test_a_node_that_refuses_the_password_is_one_that_does_not_answer(
    guarded: Servers, tmp_path: Path
) -> None:
    change_password(guarded, 0)
    for colour in ("sync", "async"):
        assert enter(colour, url_of(guarded), "x") > 0
    shown = status(url_of(guarded), tmp_path)
    assert shown[0].startswith(f"127.0.0.1:{guarded[0].port}  refuses this user name and password")
    assert shown[0].endswith("no answer")
    assert shown[-1] == "4 of 5 vote: locks can be had"
    assert "s3cret" not in "".join(shown)


def test_nodes_that_all_refuse_the_password_say_so_once(guarded: Servers) -> None:
    places = ", ".join(f"127.0.0.1:{server.port}" for server in guarded.all)
    for user, words in (
        ("locker:wr0ng", "refuses this user name and password"),
        ("nobody:s3cret", "refuses this user name and password"),
    ):
        for colour in ("sync", "async"):
            error = refused(colour, url_of(guarded, user))
            assert isinstance(error, StoreUnfit), repr(error)
            assert f"Redis at {places}: {words}" in str(error)
            assert str(error).count("check the URL, and ACL LIST on the server") == 1
            assert "wr0ng" not in str(error)
            assert "s3cret" not in str(error)


def test_a_password_that_is_changed_under_a_holder_costs_nothing_until_it_is_needed(guarded: Servers) -> None:
    with interlock.connect(url_of(guarded)) as client, client.lock("x") as lease:
        change_password(guarded, 0, 1, 2, 3, 4)
        lease.renew()  # connections that were let in stay
        lease.check()
        error = refused("sync", url_of(guarded))
        assert "refuses this user name and password" in str(error)
