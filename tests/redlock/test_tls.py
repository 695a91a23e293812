"""A quorum over TLS: five servers, one of which shows a certificate that not every client trusts."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock.backends.redis import tls
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.connections import UNCHECKED_S
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.model import Claim, Granted
from interlock.testing.servers.redlock import say
from interlock.testing.servers.tls import SecureServer, certificate
from tests.cli.program import Program
from tests.redlock.colours import COLOURS, holders, holders_async, run, until

redis: Any = import_module("redis")  # by name: beside tests/redis a type checker takes that for it
sleepless: Any = import_module("redis.asyncio")

STRANGE = 4  # the node whose certificate is not like the others'


class Secured:
    """Five servers, and the files that name whom a client trusts: `all`, `most` (not the strange one), `none`."""

    def __init__(self, folder: Path) -> None:
        usual, strange, other = (certificate(folder, name) for name in ("usual", "strange", "other"))
        self.trust = {"most": usual, "none": other, "all": folder / "all.crt"}
        self.trust["all"].write_text(usual.read_text() + strange.read_text())
        self.all = [SecureServer(strange if node == STRANGE else usual) for node in range(5)]
        self.places = [f"127.0.0.1:{server.secure}" for server in self.all]

    def url(self, trusted: str | Path, prefix: str = "", **options: str) -> str:
        path = self.trust[trusted] if isinstance(trusted, str) else trusted
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redlocks://{','.join(self.places)}/0?prefix={prefix}&ssl_ca_certs={path}{query}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("tls"))
    try:
        for server in made.all:
            server.start()
        used(made, "")
        yield made
    finally:
        for server in made.all:
            server.close()


def used(secured: Secured, prefix: str) -> None:
    """All five have been met under this prefix, and vote: blank ones would wait for the one that is away."""
    with interlock.connect(secured.url("all", prefix)) as client, client.lock("first"):
        pass


def turn(url: Any, name: str) -> None:
    """Acquire, renew, release, and be seen."""
    with interlock.connect(url) as client:
        lease = client.lock(name).acquire(timeout=10)
        assert lease
        lease.renew()
        lease.check()
        assert holders(client, name) == [lease.token]
        assert client.lock(name).acquire(blocking=False) is None
        lease.release()
        assert client.inspect(name).standings == ()


async def turn_async(url: Any, name: str) -> None:
    async with aio.connect(url) as client:
        lease = await client.lock(name).acquire(timeout=10)
        assert lease
        await lease.renew()
        lease.check()
        assert await holders_async(client, name) == [lease.token]
        assert await client.lock(name).acquire(blocking=False) is None
        await lease.release()
        assert (await client.inspect(name)).standings == ()


def turns(colour: str, url: str, name: str) -> None:
    if colour == "sync":
        turn(url, name)
    else:
        asyncio.run(turn_async(url, name))


def refused(colour: str, url: Any, timeout: float = 5.0) -> Exception:
    """What a claim says there."""

    async def ask() -> None:
        async with aio.connect(url) as client:
            await client.lock("x").acquire(timeout=timeout)

    with pytest.raises(interlock.InterlockError) as refusal:
        if colour == "sync":
            with interlock.connect(url) as client:
                client.lock("x").acquire(timeout=timeout)
        else:
            asyncio.run(ask())
    return refusal.value


@COLOURS
@pytest.mark.parametrize("trusted", ["all", "most"])
def test_a_lease_is_had_renewed_and_given_back_though_one_certificate_is_strange(
    secured: Secured, colour: str, trusted: str
) -> None:
    turns(colour, secured.url(trusted), uuid4().hex)


@COLOURS
def test_a_node_whose_certificate_is_strange_is_given_nothing(secured: Secured, colour: str) -> None:
    name = uuid4().hex

    async def main(store: RedlockStore) -> None:
        await store.claim(Claim(name, "a", 20.0), 5.0)

        async def entered() -> bool:
            return [say(server, "EXISTS", name) for server in secured.all] == [1, 1, 1, 1, 0]

        await until(store, entered)
        states = await store.status()
        assert [state.reachable for state in states] == [True] * 4 + [False]
        assert "its certificate is not trusted (self-signed certificate)" in states[STRANGE].state
        await store.release(name, "a", 0.0, 5.0)

    run(colour, secured.url("most"), main)


def test_an_operator_sees_which_certificate_is_strange(secured: Secured, tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.url = secured.url("most")
    told = program.call("quorum", "status", "x")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-1] == "4 of 5 vote: locks can be had"
    line = told.stdout.splitlines()[STRANGE]
    assert line.startswith(
        f"{secured.places[STRANGE]}  its certificate is not trusted (self-signed certificate)"
    )
    assert line.endswith("no answer")


@COLOURS
def test_when_all_are_strange_one_sentence_says_what_to_do(secured: Secured, colour: str) -> None:
    error = refused(colour, secured.url("none"))
    assert isinstance(error, StoreUnavailable)
    assert "needs 3 of 5 nodes" in str(error)
    assert f"Redis at {', '.join(secured.places)}: its certificate is not trusted" in str(error)
    assert str(error).count("name whoever signed it: ?ssl_ca_certs=") == 1
    assert "is the server running" not in str(error)


@COLOURS
def test_when_too_few_vote_the_one_that_is_away_still_has_its_reason(secured: Secured, colour: str) -> None:
    error = refused(colour, secured.url("most", f"{uuid4().hex}:"))  # blank: all five must be there to begin
    assert f"Redis at {secured.places[STRANGE]}: its certificate is not trusted" in str(error)


@COLOURS
def test_a_name_that_is_not_in_the_certificate_is_no_reason_to_look_for_authorities(
    tmp_path: Path, colour: str
) -> None:
    shown = certificate(tmp_path, "elsewhere", "DNS:elsewhere")
    server = SecureServer(shown)
    try:
        server.start()
        url = f"rediss://127.0.0.1:{server.secure}/0?ssl_ca_certs={shown}"
        turns(colour, f"{url}&ssl_check_hostname=False", "x")
        error = refused(
            colour, f"{url}&ssl_check_hostname=True"
        )  # who trusts less is not lent the other's trust
        assert "use the host's name as it stands in the certificate" in str(error)
        turns(colour, f"{url}&ssl_check_hostname=False", "x")
    finally:
        server.close()


@COLOURS
def test_a_port_without_tls_and_a_file_that_is_not_there_are_named(secured: Secured, colour: str) -> None:
    plain = ",".join(f"127.0.0.1:{server.port}" for server in secured.all)
    error = refused(colour, f"redlocks://{plain}/0?ssl_ca_certs={secured.trust['all']}", 0.3)
    assert isinstance(error, StoreUnavailable)
    assert "this port is not for TLS" in str(error)
    error = refused(colour, f"redis://127.0.0.1:{secured.all[0].secure}/0", 0.3)
    assert isinstance(error, StoreUnavailable)
    assert "with TLS use rediss://" in str(error)
    error = refused(colour, secured.url(Path("/nowhere/ca.pem")))
    assert isinstance(error, StoreUnfit)
    assert "check the files that ssl_ca_certs" in str(error)


def test_clients_of_either_colour_serve_both_faces(secured: Secured) -> None:
    settings: Any = {"ssl": True, "ssl_ca_certs": str(secured.trust["all"])}
    blocking = [redis.Redis(port=server.secure, **settings) for server in secured.all]
    awaited = [sleepless.Redis(port=server.secure, **settings) for server in secured.all]
    for nodes in (blocking, awaited, [*blocking[:2], *awaited[2:]]):
        turn(nodes, uuid4().hex)
        asyncio.run(turn_async(nodes, uuid4().hex))
    for client in blocking:
        client.close()


def test_a_setting_that_one_colour_lacks_is_refused_and_not_left_out(secured: Secured) -> None:
    theirs = redis.Redis(port=secured.all[0].secure, ssl=True, ssl_ocsp_expected_cert="x")
    error = refused("async", theirs)
    assert isinstance(error, StoreUnfit)
    assert "ssl_ocsp_expected_cert is not for connections of redis.asyncio.connection" in str(error)
    theirs.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of authorities that are read."""
    read: list[str] = []
    library = ssl.SSLContext.load_verify_locations

    def noted(context: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        read.append(str(cafile))
        library(context, cafile, capath, cadata)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", noted)
    return read


@COLOURS
def test_authorities_are_read_once_for_all_nodes(
    secured: Secured, colour: str, reads: list[str], tmp_path: Path
) -> None:
    trusted = tmp_path / "all.crt"  # of this test's own: nobody has read it
    shutil.copy(secured.trust["all"], trusted)
    turns(colour, secured.url(trusted), uuid4().hex)
    turns(colour, secured.url(trusted), uuid4().hex)
    assert 1 <= reads.count(str(trusted)) <= 2  # for twenty connections; two threads may begin at once


@COLOURS
def test_strange_certificates_are_no_reason_to_read_all_the_time(
    secured: Secured, colour: str, reads: list[str], tmp_path: Path
) -> None:
    trusted, began = tmp_path / "none.crt", time.monotonic()
    shutil.copy(secured.trust["none"], trusted)
    refused(colour, secured.url(trusted))  # which takes several tries, on five nodes each
    assert 1 <= reads.count(str(trusted)) <= 3 + (time.monotonic() - began)


@COLOURS
def test_a_replaced_file_of_authorities_is_read_again(
    secured: Secured, colour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "FILES_KEPT_S", 0.0)
    trusted = tmp_path / "ca.crt"
    shutil.copy(secured.trust["none"], trusted)

    async def main(store: RedlockStore) -> None:
        states = await store.status()
        assert not any(state.reachable for state in states)
        shutil.copy(secured.trust["all"], trusted)

        async def reached() -> bool:
            return all(state.reachable for state in await store.status())

        await until(store, reached)

    run(colour, secured.url(trusted), main)


@COLOURS
def test_a_replaced_certificate_is_followed_by_who_knew_the_old_one(
    colour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "FILES_KEPT_S", 0.0)
    old, new, trusted = certificate(tmp_path, "old"), certificate(tmp_path, "new"), tmp_path / "ca.crt"
    shutil.copy(old, trusted)
    server = SecureServer(old)
    try:
        server.start()
        url = f"rediss://127.0.0.1:{server.secure}/0?ssl_ca_certs={trusted}"
        turns(colour, url, "x")
        files = (
            "tls-cert-file",
            str(new),
            "tls-key-file",
            str(new.with_suffix(".key")),
            "tls-ca-cert-file",
            str(new),
        )
        assert say(server, "CONFIG", "SET", *files) == b"OK"
        shutil.copy(new, trusted)
        turns(colour, url, "x")  # the first attempt meets what was read, and is repeated
    finally:
        server.close()


@COLOURS
def test_a_server_that_wants_a_certificate_of_ours_is_shown_it(colour: str, tmp_path: Path) -> None:
    shown = certificate(tmp_path, "shown")
    server = SecureServer(shown, "--tls-auth-clients", "yes")
    try:
        server.start()
        url = f"rediss://127.0.0.1:{server.secure}/0?ssl_ca_certs={shown}"
        turns(colour, f"{url}&ssl_certfile={shown}&ssl_keyfile={shown.with_suffix('.key')}", "x")
        error = refused(colour, url, 0.5)
        assert isinstance(error, StoreUnavailable)
        assert "ssl_certfile" in str(error)
    finally:
        server.close()


@COLOURS
def test_connections_that_were_idle_are_used_again(secured: Secured, colour: str) -> None:
    """Beyond the time after which they are looked at: a handshake for each lock would cost more than the lock."""
    name = uuid4().hex

    def made() -> list[int]:
        counts = [say(server, "INFO", "stats") for server in secured.all]
        return [
            int(count.partition(b"total_connections_received:")[2].partition(b"\r")[0]) for count in counts
        ]

    async def main(store: RedlockStore) -> None:
        for _ in range(2):
            claim = Claim(name, uuid4().hex, 30.0)
            assert isinstance(await store.claim(claim), Granted)
            await store.release(name, claim.id)
        before = made()
        for _ in range(3):
            await store._runtime.wait(store._runtime.signal(), UNCHECKED_S + 0.05)
            claim = Claim(name, uuid4().hex, 30.0)
            assert isinstance(await store.claim(claim), Granted)
            await store.release(name, claim.id)
        assert [after - earlier for after, earlier in zip(made(), before, strict=True)] == [
            1
        ] * 5  # our own looks

    run(colour, secured.url("all"), main)
