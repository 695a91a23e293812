"""Credentials, ACLs, TLS, and URLs that say too much or too little."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.errors import InvalidURL, StoreUnfit, Unreached
from tests.redis.tls import certificate
from tests.server_process import free_port
from tests.zookeeper.ensemble import Ensemble, Servers, running


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


def test_sasl_without_its_library_says_what_to_install() -> None:
    with pytest.raises(StoreUnfit, match=r"kazoo\[sasl\]"):
        interlock.connect("zookeeper://h1/x?sasl_mechanism=DIGEST-MD5&sasl_username=a&sasl_password=b")


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
    _, port, made = secured
    url = f"zookeeper://localhost:{port}/tls?tls=1&ca={made}"
    with interlock.connect(url) as client, client.lock("x"):
        pass
    with interlock.connect(f"zookeeper://localhost:{port}/tls?tls=1", connect_timeout=2) as stranger:
        with pytest.raises(Unreached, match=r"(?i)certificate"):
            stranger.lock("x").acquire()
