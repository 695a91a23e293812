"""Credentials, ACLs, TLS, servers that are far, dead or mute, and URLs that say too much or too little."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock import aio
from interlock.errors import InvalidURL, StoreUnavailable, StoreUnfit, Unreached
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.process import free_port
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.tls import certificate, expired, shown_alone
from interlock.testing.servers.zookeeper import Ensemble, Servers, running
from tests.environment import environment
from tests.patience import PATIENCE, until


def with_user(url: str, user: str) -> str:
    return url.replace("zookeeper://", f"zookeeper://{user}@")


def test_what_one_user_locks_another_cannot_touch_and_is_told_why(ensemble: Servers) -> None:
    url = ensemble.fresh()
    with (
        interlock.connect(with_user(url, "ann:s%40cret")) as ann,
        interlock.connect(with_user(url, "bob:other")) as bob,
    ):
        with ann.lock("x"):
            with pytest.raises(StoreUnfit, match="ACL"):
                bob.lock("x").acquire(blocking=False)
        assert "s%40cret" not in repr(ann)
        assert "s@cret" not in repr(ann._core.store)
    with interlock.connect(with_user(url, "ann:s%40cret")) as again, again.lock("x"):
        pass


def test_no_log_line_has_a_password_at_any_level(ensemble: Servers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    with interlock.connect(with_user(ensemble.fresh(), "ann:xqzsecret")) as client, client.lock("x"):
        pass
    assert "Sending request" in caplog.text
    assert "xqzsecret" not in caplog.text


def test_open_nodes_are_for_everybody_who_says_so(ensemble: Servers) -> None:
    url = ensemble.fresh(acl="open")
    with interlock.connect(with_user(url, "ann:secret")) as ann, interlock.connect(url) as anybody:
        with ann.lock("x"):
            assert not anybody.lock("x").acquire(blocking=False)
        assert anybody.lock("x").acquire(blocking=False)


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("h1/x?colour=red", "does not know the option colour"),
        ("h1/x?session_timeout=soon", "session_timeout=soon"),
        ("h1/x?ca=/ca.pem", "add tls=1"),
        ("h1/x?tls=perhaps", "say 1 or 0"),
        ("h1/x?acl=mine", "say open"),
        ("h1/x?sasl_username=ann", "sasl_mechanism is missing"),
        ("h1:port/x", "host:port"),
        ("h1/a/../b", "without . and .."),
        ("h1/x#y", "%23"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_with_advice(rest: str, words: str) -> None:
    with pytest.raises(InvalidURL, match=words.replace("?", r"\?")):
        interlock.connect(f"zookeeper://{rest}")


def test_a_name_that_nobody_knows_is_told() -> None:
    with (
        interlock.connect("zookeeper://no-such-host.invalid/x", connect_timeout=0.5) as client,
        pytest.raises(Unreached, match=r"\(no-such-host\.invalid: .*\); is the name right\?$"),
    ):
        client.lock("x").acquire(timeout=0.1)


def test_sasl_without_its_library_says_what_to_install() -> None:
    with pytest.raises(StoreUnfit, match=r"kazoo\[sasl\]"):
        interlock.connect("zookeeper://h1/x?sasl_mechanism=DIGEST-MD5&sasl_username=a&sasl_password=b")


def test_a_server_without_a_connection_to_spare_costs_no_lease_and_the_next_try_works() -> None:
    with running(1, extra=["maxClientCnxns=2"]) as crowded:
        ttl = stretched(2.0)
        url = crowded.fresh(session=ttl)
        with (
            interlock.connect(url, ttl=ttl) as holder,
            interlock.connect(url, ttl=ttl, connect_timeout=0.6) as late,
        ):
            held = holder.lock("held").acquire()
            assert held
            with interlock.connect(url, ttl=ttl) as other, other.lock("other"):
                for _ in range(3):
                    with (
                        at_most(0.6 + 0.1 + stretched(0.25)),
                        pytest.raises(Unreached, match="maxClientCnxns"),
                    ):
                        late.lock("x").acquire(timeout=0.1)
                granted = held.deadline
                until(lambda: held.deadline > granted + ttl)
            until(lambda: _takes(late))
            held.check()


def _takes(client: interlock.Client) -> bool:
    try:
        with client.lock("x", timeout=1.0):
            return True
    except StoreUnavailable:
        return False


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ensemble, int, Path]]:
    """A server that speaks TLS on a second port."""
    folder = tmp_path_factory.mktemp("tls")
    made = certificate(folder, "zookeeper")
    port, both = free_port(), folder / "both.pem"
    both.write_bytes(made.with_suffix(".key").read_bytes() + made.read_bytes())
    extra = (
        f"secureClientPort={port}",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={both}",
        f"ssl.trustStore.location={made}",
        "ssl.clientAuth=none",
    )
    with running(1, extra=extra) as ensemble:
        yield ensemble, port, made


def test_tls_with_a_checked_certificate(secured: tuple[Ensemble, int, Path]) -> None:
    """A refused handshake leaves no socket behind: warnings of them are errors, at the latest when the garbage is collected."""
    _, port, made = secured
    url = f"zookeeper://localhost:{port}/tls?tls=1&ca={made}"
    with interlock.connect(url) as client, client.lock("x"):
        pass
    with interlock.connect(f"zookeeper://localhost:{port}/tls?tls=1", connect_timeout=2) as stranger:
        with pytest.raises(Unreached, match=r"(?i)certificate"):
            stranger.lock("x").acquire()
    gc.collect()


def test_a_certificate_that_has_expired_is_said_to_have(tmp_path: Path) -> None:
    shown = expired(tmp_path, "zookeeper")
    with shown_alone(shown) as port:
        with interlock.connect(
            f"zookeeper://127.0.0.1:{port}/x?tls=1&ca={shown}", connect_timeout=2
        ) as client:
            with pytest.raises(Unreached, match=f"127.0.0.1:{port}.*expired"):
                client.lock("x").acquire()
    gc.collect()


def test_a_server_that_is_far_away_is_not_called_silent(secured: tuple[Ensemble, int, Path]) -> None:
    """To try without waiting is not to do without the network: 0.3 s for each round trip, with TLS and a password."""
    _, port, made = secured
    with Proxy(port, round_trip=0.3) as proxy:
        url = f"zookeeper://ann:secret@127.0.0.1:{proxy.port}/far?tls=1&ca={made}"
        with interlock.connect(url) as client, interlock.connect(url) as other:
            lease = client.lock("x").acquire(blocking=False)
            assert lease
            assert not other.lock("x").acquire(blocking=False)
            lease.release()

            async def same() -> None:
                async with aio.connect(url) as client:
                    assert await client.lock("x").acquire(blocking=False)

            asyncio.run(same())


def test_servers_that_accept_and_say_nothing_are_passed_over(ensemble: Servers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        mute = [f"127.0.0.1:{listening.getsockname()[1]}" for listening in (one, two)]
        url = f"zookeeper://{mute[0]},{mute[1]},127.0.0.1:{ensemble.ports[0]}/mute?session_timeout=40"
        for _ in range(3):  # in whatever order they are tried
            with interlock.connect(url, connect_timeout=stretched(3.0)) as client:
                assert client.lock("x").acquire(blocking=False)


def test_a_server_that_is_not_there_is_one_sentence_on_the_command_line() -> None:
    """kazoo would warn of each attempt to connect."""
    url = f"zookeeper://127.0.0.1:{free_port()}/x?connect_timeout=1"
    words = [sys.executable, "-m", "interlock", "ls", "--url", url]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 69
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"interlock: {url.partition('?')[0]}: no server could be reached in 1.0 s (")


def test_what_kazoo_says_can_be_read_by_whoever_wants_it(caplog: pytest.LogCaptureFixture) -> None:
    url = f"zookeeper://127.0.0.1:{free_port()}/x"
    with caplog.at_level("DEBUG", "interlock.kazoo"), interlock.connect(url, connect_timeout=0.2) as client:
        with pytest.raises(Unreached):
            client.lock("x").acquire()
    said = [record for record in caplog.records if record.name == "interlock.kazoo"]
    assert any("refused" in record.getMessage() for record in said)
    assert {record.levelname for record in said} <= {"DEBUG", "Level 5"}
    assert any(record.filename == "connection.py" for record in said), "where kazoo said it"
