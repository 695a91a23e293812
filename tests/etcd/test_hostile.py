"""A server that answers nonsense, or without an end: callers get one error of ours, and little memory is taken."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import interlock
from interlock import aio, guards
from interlock.backends.etcd.transport.versions import notice_for
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.grpc import MAX_MESSAGE_BYTES, Call, framed
from interlock.backends.etcd.wire.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    PADDED,
    PING,
    SETTINGS,
    Connection,
    ProtocolError,
    frame,
    literal,
)
from interlock.backends.etcd.wire.messages import Method
from interlock.backends.etcd.wire.protobuf import MalformedMessage, decode, message
from interlock.backends.etcd.wire.values import ClaimKey, eviction, register_read
from interlock.backends.etcd.wire.watching import Watched, WatchGroup, WatchStream
from interlock.errors import InterlockError, Unreached
from interlock.testing.lag import at_most, stretched
from tests.etcd.rogue import HEADER, RESPONSE, answered, begun, ended, rogue

ROUNDS = 3000
LONGEST = 20.0  # seconds for one of these searches, on a slow machine
REFUSALS = (ProtocolError, MalformedMessage)

KEY_VALUE = message((1, b"interlock/x/w"), (2, 5), (3, 6), (4, 1), (5, b'{"id":"a"}'), (6, 77))
RANGE_ANSWER = message((1, HEADER), (2, KEY_VALUE), (2, KEY_VALUE), (4, 2))
TXN_ANSWER = message((1, HEADER), (2, 1), (3, message((1, RANGE_ANSWER))), (3, message((3, b"\x10\x01"))))
LEASE_ANSWER = message((1, HEADER), (2, 77), (3, 30), (5, b"interlock/x/w"))
WATCH_ANSWER = message((1, HEADER), (2, 1), (3, 1), (11, message((1, 1), (2, KEY_VALUE))))


@contextmanager
def bounded() -> Iterator[Callable[[], bool]]:
    """Tells whether there is time for another round."""
    end = time.monotonic() + LONGEST
    yield lambda: time.monotonic() < end


# ---- the wire, without a socket ---------------------------------------------------------


class Conversation:
    """A connection with a few calls and a watch under way."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.connection.feed(frame(SETTINGS, 0, 0))
        self.calls = [Call() for _ in range(3)]
        for call in self.calls:
            self.connection.request(b"\x83", framed(b"x" * 70_000), call)
        self.group = WatchGroup(lambda: None)
        watching = WatchStream()
        self.stream = self.connection.request(b"\x83", b"", watching, last=False)
        for request in watching.open(self.group, [Watched(b"a"), Watched(b"b")]):
            self.connection.send(self.stream, framed(request))
        self.connection.take()

    def go_on(self) -> None:
        """Whatever has arrived, more can be asked for."""
        self.connection.request(b"\x83" * 20_000, framed(b"more"), Call())
        self.connection.send(self.stream, framed(b"more"))
        self.connection.take()


def good_bytes() -> bytes:
    out = b""
    for stream, body in ((1, RANGE_ANSWER), (3, TXN_ANSWER), (5, LEASE_ANSWER)):
        out += answered(stream, body)
    return out + begun(7) + frame(DATA, 0, 7, framed(WATCH_ANSWER) * 2) + frame(PING, 0, 0, b"12345678")


def mutated(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(out)) if out else 0
        match chance.randrange(4):
            case 0 if out:
                out[at] = chance.randrange(256)
            case 1 if out:
                del out[at : at + chance.randrange(1, 9)]
            case 2:
                out[at:at] = chance.randbytes(chance.randrange(1, 9))
            case _:
                out[at:at] = out[at : at + chance.randrange(1, 40)]
    return bytes(out)


def any_frame(chance: random.Random) -> bytes:
    payload = chance.randbytes(chance.choice((0, 1, 4, 5, 6, 8, 12, 40, 300)))
    if chance.random() < 0.3:
        payload = RESPONSE + literal(b"grpc-status", chance.randbytes(3))
    return frame(chance.randrange(11), chance.randrange(256), chance.randrange(11), payload)


def hostile_bytes(chance: random.Random) -> bytes:
    match chance.randrange(3):
        case 0:
            return mutated(chance, good_bytes())
        case 1:
            return b"".join(any_frame(chance) for _ in range(chance.randrange(1, 30)))
        case _:
            return good_bytes()[: chance.randrange(60)] + chance.randbytes(chance.randrange(200))


def test_nothing_but_a_refusal_comes_out_of_what_a_server_sends() -> None:
    with bounded() as goes_on:
        for seed in range(ROUNDS):
            if not goes_on():
                return
            chance, talk = random.Random(seed), Conversation()
            try:
                for _ in range(3):
                    talk.connection.feed(hostile_bytes(chance))
                    talk.go_on()
            except REFUSALS:
                pass
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error!r}") from error


READERS: tuple[tuple[bytes, Callable[[bytes], object]], ...] = (
    (RANGE_ANSWER, lambda data: [ClaimKey(kv).token for kv in messages.RangeAnswer.of(data).kvs]),
    (RANGE_ANSWER, lambda data: messages.RangeAnswer.of(data).header.revision),
    (TXN_ANSWER, lambda data: messages.TxnAnswer(data).ranged(0).kvs),
    (TXN_ANSWER, lambda data: messages.TxnAnswer(data).deleted(1)),
    (TXN_ANSWER, lambda data: messages.TxnAnswer(data).nested(0).ranged(1)),
    (TXN_ANSWER, lambda data: (messages.TxnAnswer(data).revision, messages.TxnAnswer(data).header.term)),
    (LEASE_ANSWER, lambda data: messages.LeaseAnswer(data).keys),
    (WATCH_ANSWER, messages.WatchAnswer),
    (
        message((1, HEADER), (2, b"3.5.30"), (4, 7)),
        lambda data: notice_for(messages.StatusAnswer(data).version),
    ),
    (message((1, HEADER), (2, b"a-token")), messages.token_of),
    (b'{"id":"a","permits":1,"capacity":1,"ttl":3.0,"came":1.0,"floor":2}', lambda data: standing(data)),
    (b"evicted:because", eviction),
    (b"=id\nvalue", register_read),
)


def standing(value: bytes) -> object:
    kv = messages.KeyValue(KEY_VALUE)
    kv.value = value
    entry = ClaimKey(kv)
    return entry.ttl, entry.token, entry.claim_id, entry.standing(3, True, 1.0)


@pytest.mark.parametrize("which", range(len(READERS)))
def test_nothing_but_a_refusal_comes_out_of_an_answer(which: int) -> None:
    good, read = READERS[which]
    try:
        read(good)
    except MalformedMessage:
        pass
    with bounded() as goes_on:
        for seed in range(ROUNDS):
            if not goes_on():
                return
            chance = random.Random(seed)
            data = mutated(chance, good) if seed % 4 else chance.randbytes(chance.randrange(60))
            try:
                read(data)
            except MalformedMessage:
                pass
            except Exception as error:
                raise AssertionError(f"seed {seed}, {data!r}: {error!r}") from error


@pytest.mark.parametrize(
    "value",
    [
        b'{"permits":1,"capacity":1,"ttl":"long"}',
        b'{"permits":1,"capacity":1,"ttl":[1]}',
        b'{"permits":1,"capacity":1,"ttl":NaN}',
        b'{"permits":1,"capacity":1,"ttl":1e999}',
        b'{"permits":1,"capacity":1,"floor":"x"}',
        b'{"permits":1,"capacity":1,"came":{}}',
        b'{"permits":1,"capacity":1,"admitted":"now"}',
        b'{"permits":-5,"capacity":1}',
        b'{"permits":1,"capacity":0}',
    ],
)
def test_a_value_of_another_program_that_looks_like_ours_is_a_strangers(value: bytes) -> None:
    kv = messages.KeyValue(KEY_VALUE)
    kv.value = value
    assert ClaimKey(kv).foreign
    standing(value)


def test_a_long_message_is_refused_before_it_is_here() -> None:
    """A length of 1.6 GB was believed: as much was collected."""
    talk = Conversation()
    talk.connection.feed(begun(1))
    with pytest.raises(MalformedMessage):
        talk.connection.feed(frame(DATA, 0, 1, b"\0" + (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big")))


def test_a_call_has_one_answer_however_many_are_sent() -> None:
    talk = Conversation()
    talk.connection.feed(begun(1))
    with pytest.raises(MalformedMessage):
        for _ in range(100):
            talk.connection.feed(frame(DATA, 0, 1, framed(b"x") * 1000))


def test_headers_come_twice_at_most() -> None:
    talk = Conversation()
    with pytest.raises(REFUSALS):
        for number in range(100):
            more = literal(b"x-%d" % number, b"y" * 10_000)
            talk.connection.feed(frame(HEADERS, END_HEADERS, 1, RESPONSE + more))


def test_headers_without_an_end_are_given_up() -> None:
    talk, fed = Conversation(), 0
    with pytest.raises(ProtocolError):
        talk.connection.feed(frame(HEADERS, 0, 1, RESPONSE))
        while True:
            fed += 16_000
            talk.connection.feed(frame(CONTINUATION, 0, 1, b"\0" * 16_000))
    assert fed < 1 << 18


@pytest.mark.parametrize(
    "sent",
    [
        frame(SETTINGS, 0, 0, MAX_FRAME_SIZE.to_bytes(2, "big") + (0).to_bytes(4, "big")),
        frame(SETTINGS, 0, 0, MAX_FRAME_SIZE.to_bytes(2, "big") + (1 << 31).to_bytes(4, "big")),
        frame(SETTINGS, 0, 0, INITIAL_WINDOW_SIZE.to_bytes(2, "big") + (1 << 31).to_bytes(4, "big")),
        frame(DATA, PADDED, 1, b"\xff123"),
        frame(HEADERS, PADDED | END_HEADERS, 1, b"\x09abc"),
        b"".join(frame(PING, 0, 0, b"12345678") for _ in range(100_000)),
        frame(PING, 0, 0, b"1"),
    ],
    ids=["frame-0", "frame-large", "window-large", "padding", "padded-headers", "pings", "short-ping"],
)
def test_what_http2_does_not_allow_is_refused(sent: bytes) -> None:
    with pytest.raises(ProtocolError):
        Conversation().connection.feed(sent)


def test_a_message_of_nothing_but_fields_is_refused() -> None:
    """Each field of two bytes became an object of fifty."""
    with pytest.raises(MalformedMessage):
        decode(b"\x08\x01" * (1 << 20))


def test_a_status_of_many_digits_is_no_number() -> None:
    call = Call()
    call.on_headers(
        {b":status": b"200", b"content-type": b"application/grpc", b"grpc-status": b"9" * 5000}, True
    )
    assert call.status is not None


CALLS: dict[str, Callable[[interlock.Client], object]] = {
    "acquire": lambda client: client.lock("x").acquire(timeout=1.0),
    "try": lambda client: client.lock("x").acquire(blocking=False),
    "semaphore": lambda client: client.semaphore("x", 3).acquire(timeout=1.0),
    "read": lambda client: client.rwlock("x").read().acquire(timeout=1.0),
    "locked": lambda client: client.lock("x").locked(),
    "inspect": lambda client: client.inspect("x"),
    "scan": lambda client: list(client.scan("")),
    "evict": lambda client: client.evict("x", reason="y"),
    "register": lambda client: client.register("x").read(),
    "write": lambda client: client.register("x").compare_and_set(0, "y"),
}


# ---- a server that is mute ----------------------------------------------------------------

CONNECT = 1.0


def silent(path: Method, stream: int) -> bytes:
    return b""


@pytest.mark.parametrize("speaks", ["nothing", "http2"])
def test_a_mute_server_costs_one_connect_timeout(speaks: str) -> None:
    """It accepts connections and never answers. An acquire took three times as long."""
    with rogue(silent, greets=False) as server, socket.create_server(("127.0.0.1", 0)) as mute:
        port = server.port if speaks == "http2" else mute.getsockname()[1]
        url = f"etcd://127.0.0.1:{port}?connect_timeout={CONNECT}"
        for ask in (
            CALLS["acquire"],
            CALLS["try"],
            CALLS["locked"],
            lambda client: client.lock("x").acquire(),
        ):
            with interlock.connect(url) as client, at_most(CONNECT + stretched(0.25)):
                with pytest.raises(Unreached):
                    ask(client)
        with at_most(CONNECT + stretched(0.25)), pytest.raises(Unreached):
            guards.etcd.Guard(url).get("k")

        async def main() -> None:
            async with aio.connect(url) as client:
                with at_most(CONNECT + stretched(0.25)), pytest.raises(Unreached):
                    await client.lock("x").acquire()

        asyncio.run(main())


# ---- the whole client, with a rogue server ---------------------------------------------------


def garbage(path: Method, stream: int) -> bytes:
    return answered(stream, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")


def integers_for_bytes(path: Method, stream: int) -> bytes:
    return answered(stream, message((1, 7), (2, 7), (3, 7), (4, 7), (5, 7), (11, 7)))


def empty(path: Method, stream: int) -> bytes:
    return answered(stream, b"")


def without_operations(path: Method, stream: int) -> bytes:
    if path == messages.GRANT:
        return answered(stream, LEASE_ANSWER)
    return answered(stream, message((1, HEADER)))


def too_long(path: Method, stream: int) -> bytes:
    return begun(stream) + frame(DATA, 0, stream, b"\0\xff\xff\xff\xff" + b"x" * 16_000)


def no_message(path: Method, stream: int) -> bytes:
    return begun(stream) + ended(stream)


def lease_without_time(path: Method, stream: int) -> bytes:
    return answered(stream, message((1, HEADER), (2, 77)))


def strange_status(path: Method, stream: int) -> bytes:
    block = RESPONSE + literal(b"grpc-status", b"9" * 5000) + literal(b"grpc-message", b"%0a%1b[31m" * 1000)
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, block)


def refused_frame(path: Method, stream: int) -> bytes:
    return frame(DATA, PADDED, stream, b"\xff123")


def always_more(path: Method, stream: int) -> bytes:
    return answered(stream, message((1, HEADER), (3, 1), (2, 77)))


NONSENSE = [
    garbage,
    integers_for_bytes,
    empty,
    without_operations,
    too_long,
    no_message,
    lease_without_time,
    strange_status,
    refused_frame,
    always_more,
]


@pytest.mark.parametrize("answer", NONSENSE)
def test_a_caller_gets_an_error_of_ours(answer: Callable[[Method, int], bytes]) -> None:
    with rogue(answer) as server:
        for name, ask in CALLS.items():
            with interlock.connect(server.url(), ttl=20) as client:
                fails_by_itself(lambda: ask(client), f"{name} with {answer.__name__}")  # noqa: B023
        guard = guards.etcd.Guard(server.url())
        fails_by_itself(lambda: guard.get("k"), f"guard.get with {answer.__name__}")
        fails_by_itself(lambda: guard.put("x", "k", "v", token=1), f"guard.put with {answer.__name__}")
        guard.close()


def fails_by_itself(ask: Callable[[], object], what: str) -> None:
    """Not with an error of Python's."""
    try:
        ask()
    except InterlockError as error:
        said = str(error)
        assert said.isprintable(), what
        assert len(said) < 2000, what
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error


@pytest.mark.parametrize("answer", NONSENSE)
def test_a_task_gets_an_error_of_ours(answer: Callable[[Method, int], bytes]) -> None:
    async def main(url: str) -> None:
        async with aio.connect(url, ttl=20) as client:
            for name, ask in (
                ("acquire", lambda: client.lock("x").acquire(timeout=1.0)),
                ("inspect", lambda: client.inspect("x")),
                ("register", lambda: client.register("x").read()),
            ):
                try:
                    await ask()
                except InterlockError:
                    pass
                except Exception as error:
                    raise AssertionError(f"{name} with {answer.__name__}: {error!r}") from error

    with rogue(answer) as server:
        asyncio.run(main(server.url()))


@pytest.mark.parametrize("answer", NONSENSE)
def test_a_greeting_that_is_nonsense_is_an_error_of_ours(answer: Callable[[Method, int], bytes]) -> None:
    with rogue(answer, greets=False) as server, interlock.connect(server.url()) as client:
        fails_by_itself(lambda: client.lock("x").acquire(timeout=1.0), answer.__name__)
