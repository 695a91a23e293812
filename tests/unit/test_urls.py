"""From a URL to a store: what is known, what is refused, and that passwords stay inside."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock.errors import InvalidURL
from interlock.urls import redacted
from tests.patience import PATIENCE

CONNECT = pytest.mark.parametrize("connect", [interlock.connect, aio.connect], ids=["sync", "async"])

REFUSED = {
    "": "a store is named by a URL; for a file write sqlite:///path/to/locks.db",
    "locks.db": "a store is named by a URL",
    "/var/lib/locks.db": "a store is named by a URL",
    "C:\\locks.db": "a store is named by a URL",
    "sqlit:///x": "did you mean sqlite://?",
    "memroy://": "did you mean memory://?",
    "ftp://example.org": "names no store interlock knows; use sqlite, memory, redis, ",
    "http://[bad": "names no store interlock knows",
    "redis://[bad": "an address of IPv6 stands in brackets",
    "memory://x?ttl=3": "takes a name and no options",
    "memory://x#y": "takes a name and no options",
    "sqlite://host/path": "a file has no host",
    "sqlite:///x?mode=ro": "knows one option",
    "sqlite:///x?allow_network_filesystem=yes": "knows one option",
    "sqlite:///x#y": "takes no #fragment",
    "sqlite:///x%00y": "no path has a NUL in it",
}


@CONNECT
@pytest.mark.parametrize("url", REFUSED)
def test_a_wrong_url_is_refused_with_a_hint(connect: Any, url: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    with pytest.raises(InvalidURL) as refusal:
        connect(url)
    assert REFUSED[url] in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


@CONNECT
@pytest.mark.parametrize("url", [7, b"memory://", ["memory://"], Path("locks.db")])
def test_what_is_no_text_is_a_type_error(connect: Any, url: Any) -> None:
    with pytest.raises(TypeError, match="connect takes a URL such as"):
        connect(url)


@pytest.mark.parametrize(
    "url",
    [
        "redsi://user:s3cret@host:1/0",
        "redis://:s3cret@host/zero",
        "redis://:s3cret@host/0?colour=red",
        "etcd://u:s3cret@h1,h2/path",
        "what://u:p@s3cret@host/x?y=z",
        "http://u:s3cret@[bad",
    ],
)
def test_a_password_never_appears_in_a_message(url: str) -> None:
    assert "s3cret" not in redacted(url)
    with pytest.raises(InvalidURL) as refusal:
        interlock.connect(url)
    assert "s3cret" not in "".join(traceback.format_exception(refusal.value))


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), 1e12])
@CONNECT
def test_a_bad_ttl_is_refused_when_connecting(connect: Any, ttl: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ttl must be between"):
        connect("memory://", ttl=ttl)
    with pytest.raises(ValueError, match="ttl must be between"):
        connect(f"sqlite:///{tmp_path}/locks.db", ttl=ttl)


@CONNECT
def test_every_store_takes_a_connect_timeout(connect: Any, tmp_path: Path) -> None:
    redis = "redis://localhost:1/0"
    for url in (
        *("memory://x", f"sqlite:///{tmp_path}/locks.db?allow_network_filesystem=1", redis, "unix:///socket"),
        *("redis+sentinel://h1,h2/service/0", "redis+cluster://h1,h2", "redlock://h1,h2,h3"),
        ["redis://h1", "redis://h2", "rediss://h3/0?connect_timeout=2&prefix="],
    ):
        connect(url, connect_timeout=0.5)
        if isinstance(url, str):
            connect(f"{url}{'&' if '?' in url else '?'}connect_timeout=2.5")


@CONNECT
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_bad_connect_timeout_is_refused_when_connecting(connect: Any, seconds: float) -> None:
    with pytest.raises(ValueError, match="connect_timeout must be between"):
        connect("memory://", connect_timeout=seconds)
    with pytest.raises(InvalidURL, match=r"connect_timeout=.*: say how many seconds"):
        connect(f"redis://localhost/0?connect_timeout={seconds}")
    with pytest.raises(TypeError, match="connect_timeout must be a number"):
        connect("memory://", connect_timeout="5")


def test_the_environment_names_the_store_if_the_program_does_not(monkeypatch: Any) -> None:
    monkeypatch.setenv("INTERLOCK_URL", "memory://from-the-environment")
    with interlock.connect() as client:
        assert client.traits.backend == "memory"


def test_without_any_url_it_is_the_users_own_file(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    with interlock.connect() as client:
        assert client.traits.backend == "sqlite"
        with client.lock("x"):
            pass
    assert [path.name for path in tmp_path.rglob("*.db")] == ["locks.db"]


def test_clients_of_one_memory_url_meet_and_those_of_another_do_not() -> None:
    one, two, other = (interlock.connect(f"memory://{name}") for name in "aab")
    with one, two, other, one.lock("x"):
        assert not two.lock("x").acquire(blocking=False)
        with other.lock("x", timeout=PATIENCE):
            pass


def test_the_keeper_of_an_async_client_is_a_thread_or_a_task() -> None:
    with pytest.raises(ValueError, match="keeper is 'thread' or 'task'"):
        aio.connect("memory://", keeper="process")  # type: ignore[arg-type]


class TestTheNameOfAStore:
    """`repr(client)` says where it is connected, and no secret."""

    @CONNECT
    def test_is_the_url_without_passwords(self, connect: Any, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.chdir(tmp_path)
        for url, named in {
            "memory://tests": "memory://tests",
            "sqlite:///locks.db": f"sqlite:///{tmp_path}/locks.db",
            "redis://app:s3cret@db1:6380/2?prefix=locks:": "redis://app:***@db1:6380/2?prefix=locks:",
            "redis+sentinel://h1,h2/service/0?sentinel_password=s3cret": (
                "redis+sentinel://h1,h2/service/0?sentinel_password=***"
            ),
        }.items():
            assert f" {named} at 0x" in repr(connect(url))

    @CONNECT
    def test_is_that_of_the_environment_or_the_users_own_file(
        self, connect: Any, tmp_path: Path, monkeypatch: Any
    ) -> None:
        monkeypatch.setenv("INTERLOCK_URL", "memory://from-the-environment")
        assert " memory://from-the-environment at 0x" in repr(connect())
        monkeypatch.delenv("INTERLOCK_URL")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.setattr("sys.platform", "linux")
        assert f" sqlite:///{tmp_path}/interlock/locks.db at 0x" in repr(connect())

    def test_is_the_address_of_a_client_object(self) -> None:
        redis = pytest.importorskip("redis")
        sentinel = redis.sentinel.Sentinel([("h1", 26379)])
        for client, named in {
            redis.Redis("db1", 6380, db=3, password="s3cret"): "redis://db1:6380/3",
            redis.Redis("::1", ssl=True, username="app", password="s3cret"): "rediss://[::1]:6379/0",
            redis.Redis(unix_socket_path="/run/redis.sock"): "unix:///run/redis.sock?db=0",
            sentinel.master_for("orders", password="s3cret"): "redis+sentinel://orders/0",
        }.items():
            assert f" {named} at 0x" in repr(interlock.connect(client))

    def test_is_that_of_every_node_of_a_quorum(self) -> None:
        pytest.importorskip("redis")
        nodes = ["redis://:s3cret@a", "redis://b", "redis://c"]
        assert " redis://:***@a, redis://b, redis://c at 0x" in repr(interlock.connect(nodes))


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3/cret@host/0",
        "redis://:s3?cret@host",
        "redis://u:s3cret@host/0?prefix=a@b",
        "redis://host?password=s3cret&prefix=x",
        "unix://u:s3cret@/run/redis.sock?db=1",
        "rediss+sentinel://h1/service/0?Sentinel_Password=s3cret",
    ],
)
def test_a_password_is_hidden_wherever_it_stands(url: str) -> None:
    shown = redacted(url)
    assert "cret" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "url", ["sqlite:////home/a@b/locks.db", "unix:///run/a@b.sock", "redis://h/0?prefix=a@b"]
)
def test_a_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    assert redacted(url) == url
