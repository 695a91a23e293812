"""Lookups have a deadline, and those that are under way are shared."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.backends.kit import resolver
from tests.patience import PATIENCE, until


class Names:
    """A stand-in for the system's lookup: it answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()
        self.system = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, **settings: Any) -> Any:
        if not str(host).endswith(".test"):
            return self.system(host, port, **settings)
        self.asked.append(host)
        self.answers.wait(PATIENCE)
        if host == "unknown.test":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.answers.set()
    until(lambda: not resolver._lookups)


def test_a_lookup_that_hangs_ends_in_its_time_and_is_asked_only_once(names: Names) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError):
            resolver.addresses("host.test", 1, 0.01)
    with pytest.raises(TimeoutError):
        asyncio.run(_as_a_task("host.test", 0.01))
    assert names.asked == ["host.test"]
    names.answers.set()
    until(lambda: not resolver._lookups)
    assert resolver.addresses("host.test", 1, PATIENCE)[0][4] == ("192.0.2.1", 1)
    assert len(names.asked) == 2, "an old answer is given"


def test_a_thread_of_the_system_has_a_lookup_of_its_own(names: Names) -> None:
    with pytest.raises(TimeoutError):
        resolver.addresses("host.test", 1, 0.01)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            resolver.addresses_of_system("host.test", 1, 0.01, names)
    assert len(names.asked) == 2
    names.answers.set()
    assert resolver.addresses_of_system("host.test", 1, PATIENCE, names)


def test_a_name_that_there_is_not_is_an_error_of_the_system(names: Names) -> None:
    names.answers.set()
    with pytest.raises(socket.gaierror, match="not known"):
        resolver.addresses("unknown.test", 1, PATIENCE)
    with pytest.raises(socket.gaierror, match="not known"):
        asyncio.run(_as_a_task("unknown.test", PATIENCE))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", ""])
def test_an_address_needs_no_lookup(host: str) -> None:
    assert not resolver.named(host)
    assert resolver.named("db.example")


async def _as_a_task(host: str, timeout: float) -> object:
    return (await resolver.looked_up(host, 1, timeout)).addresses()


@pytest.mark.parametrize("turns", range(4))
def test_a_cancellation_that_comes_together_with_the_answer_is_not_forgotten(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.wait_for` of Python 3.11 returned the answer, and the task went on."""
    answered: list[Any] = []

    class Lookup:
        def then(self, call: Any) -> None:
            answered.append(call)

    monkeypatch.setattr(resolver, "_lookup", lambda *_: Lookup())

    async def main() -> None:
        task = asyncio.create_task(resolver.looked_up("known.test", 1, PATIENCE))
        while not answered:
            await asyncio.sleep(0)
        answered[0]()
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():  # it has not ended yet
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
