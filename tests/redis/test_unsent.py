"""A request that may have arrived never counts as unsent: a claim that nobody takes back would live for its whole ttl."""

from __future__ import annotations

from typing import Any

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.redis.sentinel.failover import FailoverTransport
from interlock.backends.redis.store import RedisStore
from interlock.errors import StoreUnavailable, Unreached
from interlock.model import Claim
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.redis import Server
from tests.attacks.stage import eventually
from tests.redis.topology import LAST, LOW, SILENT, A, Clock, Stage

AWAY = Unreached("nobody listens there")


class Transport:
    """What a request meets, one attempt after the other; the last again and again."""

    def __init__(self, *met: StoreUnavailable) -> None:
        self.met = list(met)

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        raise self.met.pop(0) if len(self.met) > 1 else self.met[0]

    def after_fork(self) -> None: ...
    async def close(self) -> None: ...


class Way:
    place, changes = "here", 0

    def after_fork(self) -> None: ...


def test_on_one_server(server: Server, url: str) -> None:
    """The claim arrives, its reply is lost, and then nobody listens for a while."""
    with (
        Proxy(server.port) as proxy,
        interlock.connect(url) as other,
        interlock.connect(proxy.through(url)) as client,
    ):
        with client.lock("warm-up"):
            pass  # a connection is kept
        proxy.stop_listening()
        proxy.replies.cut()
        with pytest.raises(StoreUnavailable):
            client.lock("x").acquire(timeout=1)
        assert other.lock("x").locked(), "this is about a claim that was made"
        proxy.listen()
        eventually(lambda: not other.lock("x").locked(), within=5)  # and not after its ttl


@pytest.mark.parametrize(
    ("met", "unsent"), [((SILENT, AWAY), False), ((AWAY,), True), ((AWAY, SILENT, AWAY), False)]
)
@pytest.mark.parametrize("several", [True, False], ids=["a pool", "a link"])
def test_behind_sentinels(met: tuple[StoreUnavailable, ...], unsent: bool, several: bool) -> None:
    transport: Any = Transport(*met)
    route: Any = Way()
    following = FailoverTransport(lambda: transport, route, Clock(), several=several)
    with pytest.raises(StoreUnavailable) as told:
        drive(following.ask(b"", 1.0))
    assert isinstance(told.value, Unreached) is unsent


@pytest.mark.parametrize(
    ("met", "unsent"), [((SILENT, AWAY), False), ((AWAY,), True), ((AWAY, SILENT, AWAY), False)]
)
@pytest.mark.parametrize("known", [True, False])
def test_in_a_cluster(met: tuple[StoreUnavailable, ...], unsent: bool, known: bool) -> None:
    stage = Stage({A: (0, LAST)})
    if known:
        stage.answers[A] = [b"-"]
        stage.ask(LOW)
    stage.answers[A] = list(met)
    with pytest.raises(StoreUnavailable) as told:
        stage.ask(LOW)
    assert isinstance(told.value, Unreached) is unsent


def test_of_a_grant_that_too_few_replicas_confirmed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands on the master until it is taken back: that the request for this was not sent is no comfort."""

    async def away(*args: object, **options: object) -> bool:
        raise AWAY

    with interlock.connect(f"{url}&replicas=1") as client:
        monkeypatch.setattr(RedisStore, "release", away)
        with pytest.raises(StoreUnavailable) as told:
            drive(client._core.store.claim(Claim("x", "me", 30.0), 0.5))
        monkeypatch.undo()
        assert not isinstance(told.value, Unreached)
        assert client.lock("x").locked()
