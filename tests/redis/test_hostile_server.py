"""A server that is broken or hostile: every length is bounded, and a caller gets one error of ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, repeat
from typing import Any

import pytest

import interlock
from interlock import InterlockError, StoreUnavailable, StoreUnfit, aio
from interlock.backends.redis import scan
from interlock.backends.redis.wire import resp
from interlock.testing.lag import at_most
from tests.redis.hostile import serving, without_end

MIB = 2**20
OURS = (StoreUnavailable, StoreUnfit)

ODD: dict[str, bytes] = {
    "nothing": b"$-1\r\n",
    "no array": b"*-1\r\n",
    "an empty array": b"*0\r\n",
    "a short array": b"*1\r\n:0\r\n",
    "a text": b"$3\r\nabc\r\n",
    "a status": b"+OK\r\n",
    "texts for numbers": b"*6\r\n:0\r\n$1\r\nx\r\n$1\r\ny\r\n$1\r\nz\r\n$1\r\n1\r\n$1\r\n2\r\n",
    "arrays for numbers": b"*6\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
    "no text": b"*3\r\n:-1\r\n$2\r\n\xff\xfe\r\n*0\r\n",
    "no number": b":abc\r\n",
    "a number of 5,000 digits": b":" + b"9" * 5000 + b"\r\n",
    "a number of 100 digits as text": b"*6\r\n:0\r\n:1\r\n:1\r\n$100\r\n"
    + b"9" * 100
    + b"\r\n$1\r\nx\r\n$1\r\nx\r\n",
    "no length": b"$x\r\n",
    "a negative length": b"$-5\r\n",
    "a map with an array as its key": b"%1\r\n*0\r\n:1\r\n",
    "not a number": b",nan\r\n",
    "no reply": b"HTTP/1.1 400 Bad Request\r\n",
    "arrays in arrays": b"*1\r\n" * 5000,
    "long arrays in arrays": b"*999999\r\n" * 100,
    "an array that is longer than memory": b"*4000000000\r\n",
    "an array of 10**9 items": b"*1000000000\r\n",
    "a set of 10**9 items": b"*2\r\n:0\r\n~1000000000\r\n",
}


@pytest.fixture(params=["hiredis", "plain"])
def readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(resp, "_make", resp.PlainReader)
    elif resp._find_reader() is resp.PlainReader:
        pytest.skip("hiredis is not installed")
    return str(request.param)


SCRIPTS = (b"EVALSHA", b"EVAL", b"GET", b"SCAN", b"GETRANGE")

CALLS: dict[str, Callable[[interlock.Client], Any]] = {
    "acquire": lambda client: client.lock("x").acquire(blocking=False),
    "inspect": lambda client: client.inspect("x"),
    "evict": lambda client: client.evict("x", reason="why"),
    "scan": lambda client: list(client.scan()),
    "read": lambda client: client.guard("x").highest(),
    "write": lambda client: client.guard("x").accept(1),
}

ASYNC_CALLS: dict[str, Callable[[aio.Client], Any]] = {
    "acquire": lambda client: client.lock("x").acquire(blocking=False),
    "inspect": lambda client: client.inspect("x"),
    "read": lambda client: client.guard("x").highest(),
}


def raw(call: Callable[[], Any]) -> str:
    """The error that a call raises, if it is none of ours."""
    try:
        with at_most(10.0):
            call()
    except InterlockError:
        return ""
    except Exception as error:
        return repr(error)
    return ""


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_answer_is_one_error_of_ours(odd: str, readers: str) -> None:
    with (
        serving(lambda command: ODD[odd] if command[0] in SCRIPTS else None) as server,
        interlock.connect(f"redis://127.0.0.1:{server.port}") as client,
    ):
        errors = {name: raw(partial(call, client)) for name, call in CALLS.items()}
        assert errors == dict.fromkeys(CALLS, "")


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_answer_to_a_task_is_one_error_of_ours(odd: str, readers: str) -> None:
    async def attack(port: int) -> dict[str, str]:
        errors = dict.fromkeys(ASYNC_CALLS, "")
        async with aio.connect(f"redis://127.0.0.1:{port}") as client:
            for name, call in ASYNC_CALLS.items():
                try:
                    await asyncio.wait_for(call(client), 30.0)
                except InterlockError:
                    pass
                except Exception as error:
                    errors[name] = repr(error)
        return errors

    with serving(lambda command: ODD[odd] if command[0] in SCRIPTS else None) as server:
        assert asyncio.run(attack(server.port)) == dict.fromkeys(ASYNC_CALLS, "")


ENDLESS: dict[str, Callable[[], Iterator[bytes]]] = {
    "a string of 3 GB": lambda: without_end(b"$3000000000\r\n", b"x" * MIB, 3000 * MIB),
    "a line": lambda: without_end(b"+", b"x" * MIB, 3000 * MIB),
    "an array of arrays": lambda: without_end(b"*99999\r\n", b"*1\r\n:1\r\n" * 100_000, 3000 * MIB),
}


@pytest.mark.parametrize("endless", ENDLESS)
@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_an_answer_without_end_is_given_up(endless: str, face: str, readers: str) -> None:
    def answer(command: list[bytes]) -> Iterable[bytes] | None:
        return ENDLESS[endless]() if command[0] == b"GET" else None

    async def ask(port: int) -> None:
        async with aio.connect(f"redis://127.0.0.1:{port}") as client:
            await client.guard("x").highest()

    with serving(answer) as server:
        with pytest.raises(OURS):
            if face == "tasks":
                asyncio.run(ask(server.port))
            else:
                with interlock.connect(f"redis://127.0.0.1:{server.port}") as client:
                    client.guard("x").highest()
        # It is read a second time, on another connection, if the first ended in the middle of a reply.
        assert server.sent < 3 * resp.MAX_REPLY_BYTES


@pytest.mark.parametrize(
    "odd", ["arrays in arrays", "an array of 10**9 items", "no reply", "a map with an array as its key"]
)
@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_an_odd_answer_to_a_login_is_one_error_of_ours(odd: str, face: str) -> None:
    async def ask(port: int) -> None:
        async with aio.connect(f"redis://:secret@127.0.0.1:{port}") as client:
            await client.lock("x").acquire(blocking=False)

    with serving(lambda _: ODD[odd]) as server:
        with at_most(10.0), pytest.raises(OURS):
            if face == "tasks":
                asyncio.run(ask(server.port))
            else:
                with interlock.connect(f"redis://:secret@127.0.0.1:{server.port}") as client:
                    client.lock("x").acquire(blocking=False)


@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_an_answer_to_a_login_without_end_is_given_up(face: str) -> None:
    async def ask(port: int) -> None:
        async with aio.connect(f"redis://:secret@127.0.0.1:{port}") as client:
            await client.lock("x").acquire(blocking=False)

    with serving(lambda _: ENDLESS["a string of 3 GB"]()) as server:
        with pytest.raises(OURS):
            if face == "tasks":
                asyncio.run(ask(server.port))
            else:
                with interlock.connect(f"redis://:secret@127.0.0.1:{server.port}") as client:
                    client.lock("x").acquire(blocking=False)
        assert server.sent < 20 * MIB * 3


WAITS = b"*6\r\n:0\r\n:1\r\n:100\r\n$1\r\n5\r\n$0\r\n\r\n$1\r\n5\r\n"


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_message_of_a_subscription_ends_it_and_no_more(
    odd: str, readers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(command: list[bytes]) -> bytes | None:
        if command[0] == b"SUBSCRIBE":
            return ODD[odd]
        return WAITS if command[0] in SCRIPTS else None

    with (
        serving(answer) as server,
        interlock.connect(f"redis://127.0.0.1:{server.port}") as client,
    ):
        died = list[threading.ExceptHookArgs]()
        monkeypatch.setattr(threading, "excepthook", died.append)
        assert raw(lambda: client.lock("x").acquire(timeout=0.5)) == ""
        assert died == []


def texts(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def node(host: bytes, port: bytes) -> bytes:
    return b"*3\r\n$%d\r\n%b\r\n%b$2\r\nid\r\n" % (len(host), host, port)


SENTINELS = {
    "no port": texts(b"ip", b"127.0.0.1"),
    "a port that is a word": texts(b"ip", b"127.0.0.1", b"port", b"http"),
    "a port out of range": texts(b"ip", b"127.0.0.1", b"port", b"999999999999"),
    "no host": texts(b"ip", b"", b"port", b"6379"),
    "a host that is no text": texts(b"ip", b"\xff\xfe", b"port", b"6379"),
    "a host that is no name": texts(b"ip", b"." * 300, b"port", b"6379"),
    "an odd number of words": texts(b"ip", b"127.0.0.1", b"port"),
}

SLOTS = {
    "10**9 slots": b"*1\r\n*3\r\n:0\r\n:1000000000\r\n" + node(b"127.0.0.1", b":6379\r\n"),
    "slots below 0": b"*1\r\n*3\r\n:-5\r\n:16383\r\n" + node(b"127.0.0.1", b":6379\r\n"),
    "slots that are words": b"*1\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n" + node(b"127.0.0.1", b":6379\r\n"),
    "a port out of range": b"*1\r\n*3\r\n:0\r\n:16383\r\n" + node(b"127.0.0.1", b":70000\r\n"),
    "a host that is no text": b"*1\r\n*3\r\n:0\r\n:16383\r\n" + node(b"\xff", b":6379\r\n"),
    "a host that is no name": b"*1\r\n*3\r\n:0\r\n:16383\r\n" + node(b"." * 300, b":6379\r\n"),
    "no node": b"*1\r\n*2\r\n:0\r\n:16383\r\n",
}


def acquired(url: str, face: str) -> str:
    """The error of an acquire, if it is none of ours."""

    async def ask() -> None:
        async with aio.connect(url) as client:
            await client.lock("x").acquire(timeout=0.5)

    def block() -> None:
        with interlock.connect(url) as client:
            client.lock("x").acquire(timeout=0.5)

    return raw(lambda: asyncio.run(ask())) if face == "tasks" else raw(block)


@pytest.mark.parametrize(
    "odd", [*SENTINELS, "a text", "nothing", "arrays in arrays", "an array of 10**9 items"]
)
@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_a_sentinel_that_talks_nonsense_is_one_error_of_ours(odd: str, face: str, readers: str) -> None:
    said = SENTINELS.get(odd) or ODD[odd]
    with serving(lambda command: said if command[0] == b"SENTINEL" else None) as server:
        assert acquired(f"redis+sentinel://127.0.0.1:{server.port}/service", face) == ""


@pytest.mark.parametrize("odd", [*SLOTS, "a text", "nothing", "arrays in arrays", "an array of 10**9 items"])
@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_a_node_of_a_cluster_that_talks_nonsense_is_one_error_of_ours(
    odd: str, face: str, readers: str
) -> None:
    said = SLOTS.get(odd) or ODD[odd]

    def answer(command: list[bytes]) -> bytes | None:
        if command[0] == b"CLUSTER":
            return said if command[1] == b"SLOTS" else b"$2\r\nxx\r\n"
        return None

    with serving(answer) as server:
        assert acquired(f"redis+cluster://127.0.0.1:{server.port}", face) == ""


@pytest.mark.parametrize(
    "moved", ["MOVED", "MOVED x", "MOVED 5 nowhere", "MOVED 5 h:99999999", "ASK 5 \xff:x"]
)
@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_a_redirection_to_nowhere_is_one_error_of_ours(moved: str, face: str) -> None:
    def answer(command: list[bytes]) -> bytes | None:
        if command[0] == b"CLUSTER":
            slots = b"*1\r\n*3\r\n:0\r\n:16383\r\n" + node(b"127.0.0.1", b":%d\r\n" % server.port)
            return slots if command[1] == b"SLOTS" else b"$0\r\n\r\n"
        if command[0] == b"INFO":
            return b"$0\r\n\r\n"
        return b"-%b\r\n" % moved.encode() if command[0] in (b"EVALSHA", b"EVAL") else None

    with serving(answer) as server:
        assert acquired(f"redis+cluster://127.0.0.1:{server.port}", face) == ""


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("face", ["threads", "tasks"])
@pytest.mark.parametrize("when", ["handshake", "votes"])
def test_nodes_of_a_quorum_that_talk_nonsense_are_one_error_of_ours(odd: str, face: str, when: str) -> None:
    def answer(command: list[bytes]) -> bytes | None:
        if command[0] in (b"INFO", b"CONFIG", b"SCRIPT"):
            return ODD[odd] if when == "handshake" else b"$0\r\n\r\n" if command[0] == b"INFO" else None
        return ODD[odd] if command[0] in (b"EVALSHA", b"EVAL") else None

    with serving(answer) as one, serving(answer) as two, serving(answer) as three:
        places = ",".join(f"127.0.0.1:{server.port}" for server in (one, two, three))
        assert acquired(f"redlock://{places}", face) == ""


@pytest.mark.parametrize("cursor", ["the same", "a new one"])
def test_a_scan_that_comes_to_no_end_is_given_up(cursor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_STEPS", 3000, raising=False)
    numbers = repeat(7) if cursor == "the same" else count(1)
    asked = list[int]()

    def answer(command: list[bytes]) -> bytes | None:
        if command[0] != b"SCAN":
            return None
        asked.append(next(numbers))
        # A test that fails must come to an end, too.
        text = b"%d" % (asked[-1] if len(asked) < 10_000 else 0)
        return b"*2\r\n$%d\r\n%s\r\n*0\r\n" % (len(text), text)

    with serving(answer) as server, interlock.connect(f"redis://127.0.0.1:{server.port}") as client:
        with pytest.raises(OURS, match="SCAN"):
            list(client.scan())
    assert len(asked) <= 3001
