"""HTTP/2 and gRPC without a network: a server is played by hand, frame by frame."""

from __future__ import annotations

import logging
import struct
from importlib import import_module
from typing import Any

import pytest

from interlock.backends.etcd.wire.grpc import OK, UNAVAILABLE, UNIMPLEMENTED, Call, framed, head
from interlock.backends.etcd.wire.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_STREAMS_BEFORE_QUEUE,
    PADDED,
    PING,
    PREFACE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_BYTES,
    WINDOW_UPDATE,
    Connection,
    ProtocolError,
    frame,
    literal,
)

hpack: Any = import_module("hpack")
Frame = tuple[int, int, int, bytes]
HEAD = head(b"/etcdserverpb.KV/Range", b"h:1", tls=False)


def frames(data: bytes) -> list[Frame]:
    data = data.removeprefix(PREFACE)
    found: list[Frame] = []
    while data:
        size = int.from_bytes(data[:3], "big")
        found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return found


class Peer:
    """The server's end of a connection."""

    def __init__(self, *settings: tuple[int, int]) -> None:
        self.connection = Connection()
        self.encoder = hpack.Encoder()
        self.encoder.header_table_size = 0
        payload = b"".join(struct.pack(">HI", *setting) for setting in settings)
        self.send(SETTINGS, 0, 0, payload)
        self.sent = frames(self.connection.take())

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.connection.feed(frame(kind, flags, stream, payload))

    def got(self) -> list[Frame]:
        return frames(self.connection.take())

    def headers(self, *pairs: tuple[str, str]) -> bytes:
        encoded: bytes = self.encoder.encode(list(pairs), huffman=True)
        return encoded

    def begin(self, body: bytes = b"", **more: Any) -> tuple[Call, Any]:
        call = Call(lambda: None)
        return call, self.connection.request(HEAD, framed(body), call, **more)

    def answer(self, stream: int, body: bytes, status: str = "0", **more: str) -> None:
        self.send(
            HEADERS,
            END_HEADERS,
            stream,
            self.headers((":status", "200"), ("content-type", "application/grpc")),
        )
        self.send(DATA, 0, stream, framed(body))
        trailers = [("grpc-status", status), *((f"grpc-{name}", text) for name, text in more.items())]
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, self.headers(*trailers))


def test_a_call_and_its_answer() -> None:
    peer = Peer()
    call, stream = peer.begin(b"question")
    (_, flags, number, sent), (kind, end, _, data) = peer.got()
    assert (flags, number, kind, end) == (END_HEADERS, 1, DATA, END_STREAM)
    assert dict(hpack.Decoder().decode(sent, raw=True))[b":path"] == b"/etcdserverpb.KV/Range"
    assert data == framed(b"question")
    peer.answer(stream.id, b"answer")
    assert call.messages == [b"answer"]
    assert call.status is not None
    assert call.status.code == OK
    assert peer.connection.streams == 0


def test_an_answer_byte_by_byte() -> None:
    peer = Peer()
    call, stream = peer.begin()
    whole = frame(
        HEADERS,
        END_HEADERS,
        stream.id,
        peer.headers((":status", "200"), ("content-type", "application/grpc")),
    )
    whole += frame(DATA, 0, stream.id, framed(b"a" * 100)[:50]) + frame(
        DATA, 0, stream.id, framed(b"a" * 100)[50:]
    )
    whole += frame(HEADERS, END_HEADERS | END_STREAM, stream.id, peer.headers(("grpc-status", "0")))
    for at in range(len(whole)):
        peer.connection.feed(whole[at : at + 1])
    assert call.messages == [b"a" * 100]


def test_an_error_that_is_only_trailers_has_its_text_unquoted() -> None:
    peer = Peer()
    call, stream = peer.begin()
    told = peer.headers(
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", "14"),
        ("grpc-message", "no%20leader"),
    )
    peer.send(HEADERS, END_HEADERS | END_STREAM, stream.id, told)
    assert call.status is not None
    assert (call.status.code, call.status.text) == (UNAVAILABLE, "no leader")


def test_headers_in_several_frames_with_padding() -> None:
    peer = Peer()
    call, stream = peer.begin()
    block = peer.headers((":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5"))
    peer.send(HEADERS, END_STREAM | PADDED, stream.id, bytes((3,)) + block[:4] + b"\0\0\0")
    peer.send(CONTINUATION, 0, stream.id, block[4:9])
    codes = [code(call)]
    peer.send(CONTINUATION, END_HEADERS, stream.id, block[9:])
    assert [*codes, code(call)] == [None, 5]


def code(call: Call) -> int | None:
    return None if call.status is None else call.status.code


def test_headers_that_are_not_continued_are_an_error() -> None:
    peer = Peer()
    _, stream = peer.begin()
    peer.send(HEADERS, 0, stream.id, b"")
    with pytest.raises(ProtocolError):
        peer.send(PING, 0, 0, b"12345678")


def test_pings_and_settings_are_answered() -> None:
    peer = Peer()
    assert peer.sent[-1][:2] == (SETTINGS, ACK)
    peer.send(PING, 0, 0, b"12345678")
    assert peer.got() == [(PING, ACK, 0, b"12345678")]
    peer.connection.ping()
    assert peer.connection.pings == 1
    peer.send(PING, ACK, 0, b"interlck")
    assert peer.connection.pings == 0


def test_answers_to_pings_come_behind_a_request_and_once() -> None:
    peer = Peer()
    peer.send(PING, 0, 0, b"12345678")
    peer.begin()
    assert [kind for kind, *_ in peer.got()] == [HEADERS, DATA, PING]
    assert peer.got() == []


def test_headers_are_decoded_again_once_the_server_refers_to_earlier_ones() -> None:
    """Equal blocks mean the same only as long as there is no table: what was kept until then is of no use."""
    peer = Peer()
    opening = literal(b":status", b"200") + literal(b"content-type", b"application/grpc")
    remembered = b"\x40" + literal(b"grpc-status", b"7")[1:]  # put into the table, if there is one
    no_table, table, first_of_table = b"\x20", b"\x3f\xe1\x1f", b"\xbe"
    codes: list[int | None] = []
    for start, trailers in (
        (no_table, remembered),
        (b"", remembered),
        (table, remembered),
        (b"", first_of_table),
    ):
        call, stream = peer.begin()
        peer.send(HEADERS, END_HEADERS, stream.id, start + opening)
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream.id, trailers)
        codes.append(code(call))
    assert codes == [7, 7, 7, 7]


class Collecting(Call):
    """As a stream of watches, which gets any number of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.collected: list[bytes] = []

    def on_message(self, message: bytes) -> None:
        self.collected.append(message)


def test_a_message_in_many_pieces_and_several_messages_in_one() -> None:
    messages = [b"a" * 1000, b"", b"b", b"c" * 300]
    whole = b"".join(framed(one) for one in messages)
    for size in (1, 4, 5, 7, 400, 2000):
        call = Collecting()
        for at in range(0, len(whole), size):
            call.on_data(whole[at : at + size], False)
        assert call.collected == messages


def test_a_large_request_keeps_to_the_frame_size_and_the_windows() -> None:
    peer = Peer((INITIAL_WINDOW_SIZE, 20000))
    body = bytes(100_000)
    _, stream = peer.begin(body)
    sent = [data for kind, _, _, data in peer.got() if kind == DATA]
    assert [len(data) for data in sent] == [16384, 3616]
    peer.send(WINDOW_UPDATE, 0, stream.id, struct.pack(">I", 200_000))
    sent += [data for kind, _, _, data in peer.got() if kind == DATA]
    assert sum(map(len, sent)) == 65535  # the window of the connection
    peer.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 200_000))
    rest = peer.got()
    assert b"".join([*sent, *(data for _, _, _, data in rest)]) == framed(body)
    assert [flags for _, flags, _, _ in rest][-1] == END_STREAM
    assert END_STREAM not in [flags for _, flags, _, _ in rest][:-1]


def test_a_smaller_first_window_applies_to_open_streams() -> None:
    peer = Peer()
    _, stream = peer.begin(bytes(70_000))
    peer.got()
    peer.send(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 10))
    assert stream.window == 10 - 65535
    peer.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20))
    assert not [1 for kind, *_ in peer.got() if kind == DATA]


class Ignorant:
    """Receives everything and keeps nothing."""

    def on_headers(self, headers: dict[bytes, bytes], last: bool) -> None: ...
    def on_data(self, data: bytes, last: bool) -> None: ...
    def on_failure(self, why: str, processed: bool) -> None: ...


def test_our_windows_are_opened_again() -> None:
    peer = Peer()
    stream = peer.connection.request(HEAD, b"", Ignorant(), last=False)
    peer.got()
    piece = frame(DATA, 0, stream.id, bytes(16384))
    for _ in range(WINDOW_BYTES // 2 // 16384):
        peer.connection.feed(piece)
    updates = [
        (number, struct.unpack(">I", data)[0])
        for kind, _, number, data in peer.got()
        if kind == WINDOW_UPDATE
    ]
    assert dict(updates) == {0: WINDOW_BYTES // 2, stream.id: WINDOW_BYTES // 2}


def test_more_calls_than_streams_wait_for_their_turn() -> None:
    peer = Peer((MAX_CONCURRENT_STREAMS, 2))
    calls = [peer.begin(b"%d" % n) for n in range(4)]
    assert [number for kind, _, number, _ in peer.got() if kind == HEADERS] == [1, 3]
    peer.answer(1, b"first")
    assert [number for kind, _, number, _ in peer.got() if kind == HEADERS] == [5]
    peer.connection.reset(calls[3][1])  # given up before it was begun
    peer.answer(3, b"second")
    assert peer.got() == []
    assert peer.connection.streams == 1


def started(peer: Peer) -> int:
    return sum(kind == HEADERS for kind, *_ in peer.got())


def test_low_priority_calls_wait_while_many_are_under_way_and_others_do_not() -> None:
    """A crowd of claims must not bury the server, nor hold up a release or a watch."""
    peer = Peer()
    low_priority = [peer.begin(b"%d" % n, low_priority=True) for n in range(MAX_STREAMS_BEFORE_QUEUE + 3)]
    assert started(peer) == MAX_STREAMS_BEFORE_QUEUE
    peer.begin(b"a release")
    assert started(peer) == 1
    peer.answer(1, b"first")
    assert started(peer) == 0  # the release is under way
    peer.answer(3, b"second")
    assert started(peer) == 1
    peer.connection.reset(
        low_priority[MAX_STREAMS_BEFORE_QUEUE + 1][1]
    )  # given up before it was begun: nobody hears of it
    assert peer.got() == []
    assert peer.connection.streams == MAX_STREAMS_BEFORE_QUEUE + 1
    peer.connection.fail("lost")
    statuses = [call.status for call, _ in low_priority[MAX_STREAMS_BEFORE_QUEUE:] if call.status is not None]
    assert [status.processed for status in statuses] == [True, False]


def test_low_priority_calls_fail_unprocessed_when_the_server_says_goodbye() -> None:
    peer = Peer((MAX_CONCURRENT_STREAMS, 2))
    calls = [peer.begin(low_priority=True)[0] for _ in range(MAX_STREAMS_BEFORE_QUEUE + 4)]
    peer.send(GOAWAY, 0, 0, struct.pack(">II", 3, 0))
    statuses = [call.status for call in calls]
    assert [status is not None and status.processed for status in statuses[2:]] == [False] * (
        MAX_STREAMS_BEFORE_QUEUE + 2
    )
    assert statuses[0] is None


def test_after_goaway_it_is_known_what_was_not_processed() -> None:
    peer = Peer()
    calls = [peer.begin()[0] for _ in range(3)]
    peer.send(GOAWAY, 0, 0, struct.pack(">II", 3, 0) + b"bye")
    assert peer.connection.draining
    assert [call.status is None for call in calls] == [True, True, False]
    assert calls[2].status is not None
    assert not calls[2].status.processed
    peer.answer(1, b"still served")
    assert calls[0].messages == [b"still served"]
    peer.connection.fail("cut")
    assert calls[1].status is not None
    assert calls[1].status.processed  # nobody knows


def test_a_refused_stream_was_not_processed_and_a_reset_one_may_have_been() -> None:
    peer = Peer()
    refused, first = peer.begin()
    cancelled, second = peer.begin()
    peer.send(RST_STREAM, 0, first.id, struct.pack(">I", REFUSED_STREAM))
    peer.send(RST_STREAM, 0, second.id, struct.pack(">I", 2))
    assert refused.status is not None
    assert cancelled.status is not None
    assert (refused.status.processed, cancelled.status.processed) == (False, True)


def test_what_comes_for_a_call_that_was_given_up_is_ignored_but_decoded() -> None:
    peer = Peer()
    call, stream = peer.begin()
    peer.got()
    peer.connection.reset(stream)
    assert peer.got() == [(RST_STREAM, 0, stream.id, struct.pack(">I", 8))]
    peer.answer(stream.id, b"late")
    assert call.messages == []
    assert call.status is None


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"-ERR unknown command 'PRI'\r\n",
        b"\x15\x03\x01\0\x02\x02\x46" * 3,
    ],
)
def test_another_protocol_is_noticed(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Connection().feed(data)


def test_an_answer_that_is_no_grpc_is_noticed() -> None:
    peer = Peer()
    call, stream = peer.begin()
    peer.send(
        HEADERS, END_HEADERS, stream.id, peer.headers((":status", "404"), ("content-type", "text/html"))
    )
    assert call.status is not None
    assert call.status.code == UNIMPLEMENTED


def test_a_long_header_is_encoded_and_split() -> None:
    token = b"t" * 40_000
    peer = Peer()
    call = Call(lambda: None)
    peer.connection.request(HEAD + literal(b"token", token), framed(b""), call)
    sent = peer.got()
    assert [kind for kind, *_ in sent] == [HEADERS, CONTINUATION, CONTINUATION, DATA]
    decoder = hpack.Decoder(max_header_list_size=1 << 20)
    block = b"".join(data for kind, _, _, data in sent if kind != DATA)
    assert dict(decoder.decode(block, raw=True))[b"token"] == token


def test_nothing_is_logged_of_each_header_and_others_keep_their_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With logging at DEBUG, the library that decodes headers wrote several lines for an answer."""
    peer = Peer()
    headers = peer.headers((":status", "200"), ("grpc-status", "5"))
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            _, stream = peer.begin()
            peer.send(HEADERS, END_HEADERS | END_STREAM, stream.id, headers)
        assert not caplog.records
        hpack.Decoder().decode(headers)
        assert caplog.records, "another program's use of the library is silenced, too"
